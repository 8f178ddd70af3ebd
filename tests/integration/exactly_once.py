"""Submitting the demo's jobs, counting those that are over, and judging that each ran exactly once."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from koord.cli.demo.checker import GANG_GRACE_S, Checker
from koord.cli.demo.history import Change
from koord.gateway.probing import NAME as PROBE
from koord.localcluster.httpapi import HttpClusterApi, object_path
from tests.integration.conftest import Up

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


async def finished(api: HttpClusterApi) -> int:
    """How many jobs ended well."""
    count = 0
    for kind, resource in JOB_RESOURCES.items():
        items, _ = await api.list(resource)
        count += sum(over(job | {"kind": kind}) for job in items)
    return count


def judge(
    changes: Iterable[Change], jobs: Iterable[dict[str, Any]], *, gang_grace_s: float = GANG_GRACE_S
) -> dict[str, str]:
    """Assert that no rule was broken, no pod made and no job admitted twice; the units' last phases by uid."""
    changes = list(changes)
    violations = Checker(gang_grace_s=gang_grace_s).run(changes)
    assert not violations, violations
    made: dict[tuple[str, str], set[str]] = defaultdict(set)
    admitted: Counter[str] = Counter()
    phases: dict[str, str] = {}
    for change in changes:
        item: dict[str, Any] = json.loads(change.raw)
        meta = item["metadata"]
        if change.resource == "pods":
            if meta["name"] == PROBE:
                continue
            made[(meta["namespace"], _job_of(item))].add(meta["uid"])
        elif change.resource.startswith("queueunits."):
            phase = (item.get("status") or {}).get("phase", "")
            if phase == "Dequeued" and phases.get(meta["uid"]) != "Dequeued":
                admitted[meta["name"]] += 1
            phases[meta["uid"]] = phase
    for job in jobs:
        key = (job["metadata"]["namespace"], job["metadata"]["name"])
        assert len(made[key]) == expected_pods(job), f"{job['kind']} {key}: pods were made more than once"
    assert set(admitted.values()) == {1}, f"admitted more than once: {admitted.most_common(3)}"
    return phases


def _job_of(pod: dict[str, Any]) -> str:
    """The name of the pod's job, from the unit it is related to."""
    unit = pod["metadata"]["annotations"]["koord-queue/related-queueunit"].partition("/")[2]
    for suffix in ("-tf-qu", "-py-qu", "-ray-qu"):
        unit = unit.removesuffix(suffix)
    return str(unit)
