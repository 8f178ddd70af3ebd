"""Submitting the demo's jobs, counting those that are over, and judging that each ran exactly once."""

import asyncio
import contextlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from koord.cli.demo import scenario
from koord.cli.demo.checker import Checker
from koord.cli.demo.history import Change
from koord.gateway.probing import NAME as PROBE
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.httpapi import HttpClusterApi, object_path
from tests.integration.conftest import Up

GRACE_S = 90.0
"""In which a gang must be whole. It would never be if part of it were forgotten; how soon it is depends on the machine,
and a gateway that is stopped, not dead, holds the rest until its Lease is over (15 s on a real API server)."""
STALL_S = 120.0
"""Without any job that ends, something is stuck."""
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
    """Create it, now or when the API server answers again; one whose answer was lost is there already."""
    tries = 0

    async def made() -> bool:
        nonlocal tries
        try:
            place = await api.resource_of_kind(manifest["apiVersion"], manifest["kind"])
            tries += 1
            await api.create_at(object_path(place, manifest["metadata"].get("namespace")), manifest)
        except ApiError as error:
            if error.code < 500 and not (tries > 1 and error.reason == "AlreadyExists"):
                raise
            return error.code < 500
        except OSError:
            return False
        return True

    await until(made, 120)


class Arriving:
    """Submits the scenario's jobs, each of which runs about ``run_s``, as a test lets them in.

    What is not submitted cannot be over: however fast the machine is, a fault finds jobs in flight.
    """

    def __init__(self, api: HttpClusterApi, run_s: float) -> None:
        self._api = api
        self._coming = scenario.jobs(10_000, run_s)
        self.jobs: list[dict[str, Any]] = []

    async def more(self, count: int) -> None:
        """Submit so many more."""
        jobs = list(itertools.islice(self._coming, count))
        self.jobs += jobs
        await asyncio.gather(*(create(self._api, job) for job in jobs))

    async def in_flight(self, count: int) -> None:
        """Submit more until so many, at least, are submitted and not over."""

        async def reached() -> bool:
            try:
                missing = count - len(self.jobs) + await finished(self._api)
            except (ApiError, OSError):
                return False  # nobody answers just now
            await self.more(max(0, missing))
            return missing <= 0

        await until(reached, 60)

    async def until_over(self, count: int | None = None) -> None:
        """Wait until so many are over, or all; `AssertionError` with what is left if none ends in `STALL_S`.

        Slow is not stuck: a machine that does other work as well takes its time, but some job ends every now and then.
        """
        wanted = len(self.jobs) if count is None else count
        clock = asyncio.get_running_loop().time
        best, since = -1, clock()
        while best < wanted:
            with contextlib.suppress(ApiError, OSError):  # nobody answers just now
                ended = await finished(self._api)
                if ended > best:
                    best, since = ended, clock()
            assert clock() - since < STALL_S, f"{best} of {wanted} jobs are over, then none in {STALL_S:g} s:\n" + (
                await self._left()
            )
            await asyncio.sleep(0.05)

    async def _left(self) -> str:
        """Units that have not ended and pods that do not run, some of them."""
        units, _ = await self._api.list("queueunits.scheduling.x-k8s.io")
        pods, _ = await self._api.list("pods")
        left = [unit for unit in units if (unit.get("status") or {}).get("phase") not in ("Succeed", "Failed")]
        waiting = [pod for pod in pods if pod["status"].get("phase") not in ("Running", "Succeeded")]
        return "\n".join(
            f"{item['metadata']['name']}: {json.dumps(item.get('status'))}" for item in [*left[:5], *waiting[:5]]
        )


async def units_over(api: HttpClusterApi) -> None:
    """Wait until each unit has followed its job."""

    async def check() -> bool:
        try:
            units, _ = await api.list("queueunits.scheduling.x-k8s.io")
        except (ApiError, OSError):
            return False
        return all((unit.get("status") or {}).get("phase") in ("Succeed", "Failed") for unit in units)

    await until(check, 60)


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
    changes: Iterable[Change], jobs: Iterable[dict[str, Any]], *, repeating: Collection[str] = ()
) -> dict[str, str]:
    """Assert that no rule was broken, no pod made and no job admitted twice; the units' last phases by uid.

    ``repeating``: kinds of jobs whose controller may make a pod twice, and delete the one too many, when a server dies
    between the pod and its answer.
    """
    changes = list(changes)
    violations = Checker(gang_grace_s=GRACE_S).run(changes)
    assert not violations, violations
    made: dict[tuple[str, str], set[str]] = defaultdict(set)
    taken_back: set[str] = set()
    admitted: Counter[str] = Counter()
    phases: dict[str, str] = {}
    for change in changes:
        item: dict[str, Any] = json.loads(change.raw)
        meta = item["metadata"]
        if change.resource == "pods":
            if meta["name"] == PROBE:
                continue
            made[(meta["namespace"], _job_of(item))].add(meta["uid"])
            if change.type == "DELETED" and item["status"].get("phase") != "Succeeded":
                taken_back.add(meta["uid"])
        elif change.resource.startswith("queueunits."):
            phase = (item.get("status") or {}).get("phase", "")
            if phase == "Dequeued" and phases.get(meta["uid"]) != "Dequeued":
                admitted[meta["name"]] += 1
            phases[meta["uid"]] = phase
    for job in jobs:
        key = (job["metadata"]["namespace"], job["metadata"]["name"])
        pods = made[key] - (taken_back if job["kind"] in repeating else set())
        assert len(pods) == expected_pods(job), f"{job['kind']} {key}: pods were made more than once"
    assert set(admitted.values()) == {1}, f"admitted more than once: {admitted.most_common(3)}"
    return phases


def _job_of(pod: dict[str, Any]) -> str:
    """The name of the pod's job, from the unit it is related to."""
    unit = pod["metadata"]["annotations"]["koord-queue/related-queueunit"].partition("/")[2]
    for suffix in ("-tf-qu", "-py-qu", "-ray-qu"):
        unit = unit.removesuffix(suffix)
    return str(unit)
