"""The demo itself: bring the cluster up, create quotas and jobs, show them until they are over, judge the history."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.cli.demo.checker import Checker, Violation
from koord.cli.demo.history import Change, History, decode
from koord.cli.demo.live import Progress
from koord.cli.errors import CommandError
from koord.cli.local import LocalCluster, LocalOptions
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.httpapi import HttpClusterApi, object_path

_CREATE_AT_ONCE = 16
_ACT_S = 8.0
"""The demo waits this long at most for a moment that it would like to show."""


class DemoOptions(msgspec.Struct, frozen=True):
    """How big the demo is and how long it may take, in seconds from the first job on. ``replicas`` by service."""

    nodes: int = 1000
    gpu_nodes: int = 60
    jobs: int = 200
    run_s: float = 3.0
    timeout_s: float = 150.0
    replicas: Mapping[str, int] = {}


class QueueSummary(msgspec.Struct):
    """One queue at the end."""

    name: str
    finished: int
    failed: int


class QuotaSummary(msgspec.Struct):
    """One quota: its guarantee, its limit and the most that was admitted at once, in the units of its manifest."""

    name: str
    min: dict[str, str]
    max: dict[str, str]
    peak: dict[str, float]


class GangGroupSummary(msgspec.Struct):
    """The service of several PodGroups: seconds from its first pod to its last, and from that to the last binding.

    ``bound_early``: pods that were bound before every part had all its pods; the promise is none.
    """

    parts: dict[str, int]
    bound: int
    gathering_s: float
    binding_s: float
    bound_early: int


class SchedulerSummary(msgspec.Struct):
    """What the scheduler did: seconds are from a pod's creation to its binding, as the API shows them."""

    pods_bound: int
    pods_per_s: float
    bind_p50_s: float
    bind_p99_s: float


class Summary(msgspec.Struct):
    """What ``koord demo --json FILE`` writes."""

    jobs: int
    finished: int
    failed: int
    queues: list[QueueSummary]
    quotas: list[QuotaSummary]
    gang_group: GangGroupSummary
    scheduler: SchedulerSummary
    violations: list[dict[str, str]]
    wall_s: float


Show = Callable[[RenderableType], None]


async def play(options: DemoOptions, show: Show, say: Callable[[str], None], log: Path) -> Summary:
    """Run the demo to its end; CommandError if the jobs are not over in time."""
    with log.open("w", encoding="utf-8") as file:
        sink = lambda line: print(line, file=file, flush=True)  # noqa: E731
        say(f"starting {options.nodes} nodes and five services")
        local = LocalOptions(
            cluster="demo", nodes=options.nodes, gpu_nodes=options.gpu_nodes, replicas=options.replicas
        )
        async with LocalCluster(local, sink=sink) as cluster, await connect(cluster.kubeconfig) as api:
            history = History(api)
            await history.start()
            try:
                return await _play(options, api, history, show, say)
            finally:
                await history.stop()


async def _play(
    options: DemoOptions, api: HttpClusterApi, history: History, show: Show, say: Callable[[str], None]
) -> Summary:
    await _create(api, scenario.namespaces())
    await _create(api, scenario.quotas())
    started = time.monotonic()
    progress = Progress(options.jobs)
    history.listener = lambda change: _feed(progress, change)
    acting = asyncio.create_task(_act(options, api, progress, say))
    try:
        async with asyncio.timeout(options.timeout_s):
            while not (acting.done() and progress.finished >= options.jobs and progress.service_bound):
                if acting.done():
                    acting.result()
                show(progress.render(time.monotonic() - started))
                await asyncio.sleep(0.25)
    except TimeoutError:
        raise CommandError(
            f"only {progress.finished} of {options.jobs} jobs were over after {options.timeout_s:g} s"
        ) from None
    finally:
        acting.cancel()
    wall_s = time.monotonic() - started
    show(progress.render(wall_s))
    changes = list(history.changes())
    checker = Checker()
    violations = checker.run(changes)
    if history.gaps:
        violations.append(Violation("history incomplete", "watch", f"{history.gaps} gaps: the checker missed changes"))
    return Summary(
        jobs=options.jobs,
        finished=progress.finished - progress.failed,
        failed=progress.failed,
        queues=[
            QueueSummary(
                team.name, progress.counts(team.namespace)["finished"], progress.counts(team.namespace)["failed"]
            )
            for team in scenario.JOB_TEAMS
        ],
        quotas=[
            QuotaSummary(
                quota["metadata"]["name"],
                quota["spec"]["min"],
                quota["spec"]["max"],
                {key: float(value) for key, value in checker.peaks.get(quota["metadata"]["name"], {}).items()},
            )
            for quota in scenario.quotas()
        ],
        gang_group=_gang_group(changes),
        scheduler=_scheduler(changes, wall_s),
        violations=[violation._asdict() for violation in violations],
        wall_s=round(wall_s, 3),
    )


async def _act(options: DemoOptions, api: HttpClusterApi, progress: Progress, say: Callable[[str], None]) -> None:
    """Borrow first, then share: one team has the department to itself until the others come with their own work."""
    jobs = list(scenario.jobs(options.jobs, options.run_s))
    first, second = (
        [job for job in jobs if job["metadata"]["namespace"] == team.namespace] for team in scenario.JOB_TEAMS
    )
    vision, language = scenario.JOB_TEAMS
    say(f"{vision.name} submits {len(first)} suspended jobs of four kinds; its neighbours' room is idle, so it borrows")
    await _create(api, first)
    await _until(
        progress,
        lambda: (
            progress.admitted_cpu(vision.namespace) > vision.guaranteed.cpu
            or progress.let_go(vision.namespace) == len(first)
        ),
    )
    say(f"{language.name} submits {len(second)} jobs: what {vision.name} borrowed goes back as its jobs end")
    await _create(api, second)
    *early, last = scenario.SERVICE
    say(f"{scenario.SERVING.name} starts one service of {len(scenario.SERVICE)} PodGroups, all or nothing; "
        f"{last.name} is late")  # fmt: skip
    await _create(api, scenario.pod_groups())
    for part in early:
        await _create(api, scenario.service_pods(part))
    await _until(progress, lambda: progress.counts(language.namespace)["running"] > 0)
    await _create(api, scenario.service_pods(last))


async def _until(progress: Progress, condition: Callable[[], bool]) -> None:
    """Wait for a moment worth seeing; the demo goes on without it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ACT_S):
            while not condition():
                progress.changed.clear()
                await progress.changed.wait()


def _gang_group(changes: Iterable[Change]) -> GangGroupSummary:
    """How the service started."""
    created: dict[str, float] = {}
    bound: dict[str, float] = {}
    for change in changes:
        if change.resource == "pods":
            pod = decode(change.raw)
            if pod["metadata"]["namespace"] == scenario.SERVING.namespace:
                created.setdefault(pod["metadata"]["uid"], change.seen_s)
                if pod["spec"].get("nodeName"):
                    bound.setdefault(pod["metadata"]["uid"], change.seen_s)
    whole = max(created.values(), default=0.0)
    return GangGroupSummary(
        parts={part.name: part.pods for part in scenario.SERVICE},
        bound=len(bound),
        gathering_s=round(whole - min(created.values(), default=0.0), 3),
        binding_s=round(max(bound.values(), default=whole) - whole, 4),
        bound_early=sum(1 for moment in bound.values() if moment < whole),
    )


def _feed(progress: Progress, change: Change) -> None:
    if change.resource.startswith("queueunits."):
        progress.unit(decode(change.raw), deleted=change.type == "DELETED")
    elif change.resource == "pods":
        progress.pod(decode(change.raw), deleted=change.type == "DELETED")
    progress.changed.set()


def _scheduler(changes: Iterable[Change], wall_s: float) -> SchedulerSummary:
    """Latencies from creation to binding; the API's own stamps have whole seconds, so seen times are compared."""
    created: dict[str, float] = {}
    bound: dict[str, float] = {}
    for change in changes:
        if change.resource == "pods":
            pod = decode(change.raw)
            uid = pod["metadata"]["uid"]
            created.setdefault(uid, change.seen_s)
            if pod["spec"].get("nodeName"):
                bound.setdefault(uid, change.seen_s)
    waits = sorted(bound[uid] - created[uid] for uid in bound)
    return SchedulerSummary(
        pods_bound=len(waits),
        pods_per_s=round(len(waits) / wall_s, 1),
        bind_p50_s=round(statistics.median(waits), 4) if waits else 0.0,
        bind_p99_s=round(waits[int(len(waits) * 0.99)], 4) if waits else 0.0,
    )


async def _create(api: HttpClusterApi, manifests: Iterable[dict[str, Any]]) -> None:
    gate = asyncio.Semaphore(_CREATE_AT_ONCE)

    async def one(manifest: dict[str, Any]) -> None:
        async with gate:
            place = await api.resource_of_kind(manifest["apiVersion"], manifest["kind"])
            await api.create_at(object_path(place, manifest["metadata"].get("namespace")), manifest)

    try:
        async with asyncio.TaskGroup() as group:
            for manifest in manifests:
                group.create_task(one(manifest))
    except* ApiError as errors:
        raise CommandError(f"the API refused a manifest of the demo: {errors.exceptions[0]}") from None
