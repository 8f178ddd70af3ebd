"""SIGKILL of each service in turn, each time with 100 jobs in flight: every job finishes exactly once."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.cli.demo.checker import Checker
from koord.cli.demo.history import History
from koord.localcluster.httpapi import HttpClusterApi, object_path
from tests.integration.conftest import Up

JOBS = 200
IN_FLIGHT = 100
"""Jobs that are submitted and not over, at least, whenever a service is killed."""
SERVICES = ("gateway", "reconciler", "quota", "queue", "scheduler")
JOB_RESOURCES = {
    "Job": "jobs.batch",
    "TFJob": "tfjobs.kubeflow.org",
    "PyTorchJob": "pytorchjobs.kubeflow.org",
    "RayJob": "rayjobs.ray.io",
}


def expected_pods(job: dict[str, Any]) -> int:
    """How many pods one run of a job of the scenario makes."""
    spec = job["spec"]
    if job["kind"] == "Job":
        return int(spec["completions"])
    if job["kind"] == "RayJob":
        groups = spec["rayClusterSpec"]["workerGroupSpecs"]
        return 2 + sum(int(group["replicas"]) for group in groups)
    roles = spec.get("tfReplicaSpecs") or spec["pytorchReplicaSpecs"]
    return sum(int(role["replicas"]) for role in roles.values())


def over(job: dict[str, Any]) -> bool:
    """Whether a job ended well, in its operator's words."""
    status = job.get("status") or {}
    if job["kind"] == "RayJob":
        return status.get("jobDeploymentStatus") == "Complete"
    done = {"Complete", "Succeeded"}
    return any(entry["type"] in done and entry["status"] == "True" for entry in status.get("conditions") or ())


async def create(api: HttpClusterApi, manifest: dict[str, Any]) -> None:
    place = await api.resource_of_kind(manifest["apiVersion"], manifest["kind"])
    await api.create_at(object_path(place, manifest["metadata"].get("namespace")), manifest)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Poll until the condition holds; TimeoutError after ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"not within {seconds} s")
        await asyncio.sleep(0.05)


def restarted(up: Up, service: str, before: int) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return bool(up.ready["pids"].get(service, before) != before)

    return check


@pytest.mark.slow
async def test_every_job_finishes_exactly_once(own_up: Callable[..., Up]) -> None:
    up = await asyncio.to_thread(own_up, "--nodes", "200", "--gpu-nodes", "20")
    jobs = list(scenario.jobs(JOBS, 2.0))
    async with await connect(str(up.kubeconfig)) as api:
        history = History(api)
        await history.start()
        for manifest in [*scenario.namespaces(), *scenario.quotas()]:
            await create(api, manifest)
        creating = asyncio.gather(*(create(api, job) for job in jobs))

        async def finished() -> int:
            found = [await api.list(resource) for resource in JOB_RESOURCES.values()]
            kinds = list(JOB_RESOURCES)
            return sum(
                over(job | {"kind": kind}) for kind, (items, _) in zip(kinds, found, strict=True) for job in items
            )

        def reached(count: int) -> Callable[[], Awaitable[bool]]:
            async def check() -> bool:
                return await finished() >= count

            return check

        # A kill each time some more of the jobs are done: every service dies while jobs are in every stage.
        for number, service in enumerate(SERVICES):
            await until(reached((JOBS - IN_FLIGHT) * number // (2 * len(SERVICES))), 120)
            await creating
            done = await finished()
            assert JOBS - done >= IN_FLIGHT, f"{done} of {JOBS} jobs are over before {service} is killed"
            before = up.ready["pids"][service]
            up.kill(service)
            await until(restarted(up, service, before), 30)
        await until(reached(JOBS), 180)

        async def units_over() -> bool:
            units, _ = await api.list("queueunits.scheduling.x-k8s.io")
            return all((unit.get("status") or {}).get("phase") in ("Succeed", "Failed") for unit in units)

        await until(units_over, 10)  # each follows its job
        changes = list(history.changes())
        await history.stop()

    assert Checker().run(changes) == []
    made: dict[tuple[str, str], set[str]] = defaultdict(set)
    admitted: Counter[str] = Counter()
    phases: dict[str, str] = {}
    for change in changes:
        item = json.loads(change.raw)
        meta = item["metadata"]
        if change.resource == "pods":
            made[(meta["namespace"], _owner(item))].add(meta["uid"])
        elif change.resource.startswith("queueunits."):
            phase = (item.get("status") or {}).get("phase", "")
            if phase == "Dequeued" and phases.get(meta["uid"]) != "Dequeued":
                admitted[meta["name"]] += 1
            phases[meta["uid"]] = phase
    for job in jobs:
        key = (job["metadata"]["namespace"], job["metadata"]["name"])
        assert len(made[key]) == expected_pods(job), f"{job['kind']} {key}: pods were made more than once"
    assert set(admitted.values()) == {1}, f"admitted more than once: {admitted.most_common(3)}"
    assert set(phases.values()) == {"Succeed"}


def _owner(pod: dict[str, Any]) -> str:
    """The job's name, which every operator of the scenario puts in front of its pods' names."""
    unit = pod["metadata"]["annotations"]["koord-queue/related-queueunit"].partition("/")[2]
    for suffix in ("-tf-qu", "-py-qu", "-ray-qu"):
        unit = unit.removesuffix(suffix)
    return str(unit)
