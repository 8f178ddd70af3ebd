"""Jobs planned by a plugin, through the service: what is claimed, bound and told, and what faults leave behind."""

from collections.abc import Iterator
from typing import Any

import pytest

from koord.accounting.takes import Take
from koord.contracts.decisions import Bind
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, Release
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import PluginSettings, SchedulerSettings
from koord.telemetry.metrics import render
from tests.scheduler.jobs.planners import JOB, Entry, Jobs, nodes
from tests.scheduler.outside import Outside, outside, scheduler, until

JOBS = {JOB: "a"}
NAMES = ("p0", "p1", "p2")


def settings(*, inline: bool = True) -> SchedulerSettings:
    return SchedulerSettings(
        queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3),
        plugins=PluginSettings(extra={"Jobs": {}}),
        feature_gates={"EnableInlineBatchSchedule": inline},
    )


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("koord.scheduler.plugins.profile.entry_points", lambda group: [Entry()])
    monkeypatch.setattr(Jobs, "answer", staticmethod(lambda pods: None))
    yield


def plans(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(Jobs, "answer", staticmethod(answer))


def whole(**names: str) -> Any:
    """A plan once all of its pods wait."""
    made = nodes(**names)
    return lambda pods: made(pods) if set(names) <= set(pods) else "the job is not complete"


async def job(world: Outside, **spec: Any) -> None:
    for name in NAMES:
        await world.pod(name, labels=JOBS, **spec)


def places(world: Outside) -> list[str | None]:
    return [world.node_of(name) for name in NAMES]


def counted(line: str) -> float:
    found = [each for each in render().decode().splitlines() if each.startswith(line)]
    return sum(float(each.rpartition(" ")[2]) for each in found)


async def test_a_job_is_claimed_and_bound_as_one(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans(monkeypatch, whole(p0="n2", p1="n0", p2="n2"))
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(3):
            await world.node(f"n{number}")
        await job(world)
        await world.pod("plain")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings()):
            await until(lambda: None not in (*places(world), world.node_of("plain")), "all are bound")
            assert places(world) == ["n2", "n0", "n2"]
            [bind] = [bind for bind in world.binds if len(bind.members) == 3]
            assert {member.name for member in bind.members} == set(NAMES)
            assert not [event for event in world.events if event.reason == "FailedScheduling"]
            assert not world.patches, "nobody is told PodBatchScheduled"
            await until(lambda: len([e for e in world.events if e.reason == "Scheduled"]) == 4, "all are told")
            assert counted('scheduler_inline_batch_schedule_duration_seconds_count{result="success"}') >= 1


async def test_a_text_is_a_text(nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the original would take for its own sign of success is told like any other text."""
    plans(monkeypatch, lambda pods: "PodBatchScheduled")
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings()):
            await world.pod("p0", labels=JOBS)
            await until(lambda: world.told("p0"), "told")
            assert world.told("p0") == ["0/1 nodes are available: PodBatchScheduled."]


async def test_a_job_that_fails_is_told_and_succeeds_later(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans(monkeypatch, whole(p0="n0", p1="n1", p2="n1"))
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="4")
        await world.node("n1", cpu="4")
        await job(world, cpu="3")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings()) as service:
            await until(lambda: all(world.told(name) for name in NAMES), "all are told")
            text = (
                "batch schedule plan of 3 pods failed at pod default/p2 on node n1: 0/2 nodes are available: "
                "1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [Jobs]."
            )
            assert [world.told(name) for name in NAMES] == [[text]] * 3
            assert not world.deletions, "nobody is preempted"
            assert service is not None
            await world.pod("plain")
            await until(lambda: world.node_of("plain"), "others go on")
            plans(monkeypatch, whole(p0="n0", p1="n1", p2="n2"))
            await world.node("n2", cpu="4")
            await until(lambda: places(world) == ["n0", "n1", "n2"], "the job is placed")


async def test_a_plugin_that_raises_is_named_and_the_service_goes_on(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans(monkeypatch, lambda pods: pods["nobody"])
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings()):
            await world.pod("p0", labels=JOBS)
            await until(lambda: world.told("p0"), "told")
            assert world.told("p0")[0] == "running \"Jobs\" FindOneNodePlugin plugin: KeyError: 'nobody'"
            await world.pod("plain")
            await until(lambda: world.node_of("plain"), "others are placed")
            plans(monkeypatch, nodes(p0="n0"))
            await until(lambda: world.node_of("p0") == "n0", "it is tried again")


async def test_without_the_gate_each_pod_goes_alone(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans(monkeypatch, nodes(p0="n1", p1="n0", p2="n1"))
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="4")
        await world.node("n1", cpu="4")
        await job(world, cpu="3")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings(inline=False)):
            await until(lambda: world.node_of("p1") and any(map(world.told, NAMES)), "one finds no room")
            [late] = [name for name in NAMES if world.node_of(name) is None]
            assert late in ("p0", "p2")
            assert world.told(late)[0].startswith(
                "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [Jobs]."
            )
            assert {len(bind.members) for bind in world.binds} == {1}


async def test_a_member_that_is_not_bound_comes_back_alone(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans(monkeypatch, lambda pods: nodes(**dict.fromkeys(pods, "n0"))(pods))
    before = counted("scheduler_batch_partial_bind_jobs_total")
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await job(world)
        await world.listed()

        def once(bind: Bind) -> str:
            return "all but p1" if len(bind.members) == 3 else "bind"

        world.decide = once
        async with scheduler(nats_url, redis_url, cluster, settings()):
            await until(lambda: places(world) == ["n0"] * 3, "all are bound in the end")
            assert sorted(len(bind.members) for bind in world.binds) == [1, 3]
            assert counted("scheduler_batch_partial_bind_jobs_total") == before + 1
            assert counted('scheduler_batch_bind_failures_total{phase="Bind"') >= 1


async def test_a_conflict_gives_the_whole_job_back(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another scheduler has the room of one node: nothing of the job is claimed until that is free."""
    plans(monkeypatch, whole(p0="n0", p1="n1", p2="n1"))
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        await world.node("n0", cpu="4")
        await world.node("n1", cpu="4")
        await world.listed()
        rival = Member("x", "default", "x", "n1", (Take("node/n1", {"cpu": 3000}),))
        [answer] = await another.claim([ClaimRequest("another-1", (rival,))])
        assert answer.status == "ok"
        async with scheduler(nats_url, redis_url, cluster, settings()):
            await job(world)
            await until(lambda: world.told("p0"), "the job waits")
            assert not world.binds
            await another.release([Release("another-1", answer.token)])
            await until(lambda: places(world) == ["n0", "n1", "n1"], "the job is placed", 90.0)
            assert [len(bind.members) for bind in world.binds] == [3]


async def test_two_replicas_place_a_job_once(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans(monkeypatch, whole(p0="n0", p1="n1", p2="n0"))
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.node("n1")
        await world.listed()
        async with (
            scheduler(nats_url, redis_url, cluster, settings()),
            scheduler(nats_url, redis_url, cluster, settings()),
        ):
            await job(world)
            await until(lambda: places(world) == ["n0", "n1", "n0"], "placed; nothing is bound twice")
            assert sum(len(bind.members) for bind in world.binds) == 3


async def test_a_gang_by_a_plan(nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plans(monkeypatch, whole(p0="n1", p1="n0", p2="n1"))
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.node("n1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings()):
            gang = {
                "gang.scheduling.koordinator.sh/name": "g",
                "gang.scheduling.koordinator.sh/min-available": "3",
            }
            await job(world, annotations=gang)
            await until(lambda: places(world) == ["n1", "n0", "n1"], "the gang is placed by the plan")
            assert [len(bind.members) for bind in world.binds] == [3]
