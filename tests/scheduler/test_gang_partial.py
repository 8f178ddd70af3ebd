"""Gangs left in part by a bind: told on pod and PodGroup, left alone or evicted (spec 20 section 3.12)."""

import asyncio
from typing import Any

import pytest

from koord.accounting.takes import pod_takes
from koord.bus.questions import ask
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, Release
from koord.scheduler.framework.contract import PodRef
from koord.scheduler.gang import partial
from koord.scheduler.gang.book import BOUND_WITH, GangBook, GangSettings, mark
from koord.scheduler.notices import Notices
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, outside, scheduler, until

LABEL = "pod-group.scheduling.sigs.k8s.io"
QUICK = QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3)
EVICT = SchedulerSettings(queue=QUICK, coscheduling=GangSettings(partial_gang_action="evict"))
LEAVE = SchedulerSettings(queue=QUICK)
SIZE = 3


async def in_part(world: Outside, policy: str = "once-satisfied", timeout_s: int = 1) -> None:
    """A gang of three of which every bind leaves out one."""
    await world.node("n0", cpu="8")
    await world.listed()
    world.decide = lambda bind: "all but g1" if any(member.name == "g1" for member in bind.members) else "bind"
    await world.pod_group("g", SIZE, timeout_s=timeout_s, match_policy=policy)


async def members(world: Outside) -> None:
    for number in range(SIZE):
        await world.pod(f"g{number}", labels={LABEL: "g"})
    await until(lambda: world.told("g", "GangPartiallyBound"), "the PodGroup is told", 60)


async def test_left_alone_by_default_and_told_on_pod_and_pod_group(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await in_part(world)
        async with scheduler(nats_url, redis_url, cluster, LEAVE):
            await members(world)
            text = "gang default/g: 2 of 3 bound, the missing are tried again"
            assert text in world.told("g1", "GangPartiallyBound")
            assert text in world.told("g", "GangPartiallyBound")
            [note, *_] = [event for event in world.events if event.target.name == "g"]
            assert (note.kind, note.api_version) == ("PodGroup", "scheduling.sigs.k8s.io/v1alpha1")
            assert note.target.uid == world.groups["default/g"]["metadata"]["uid"]
            await until(lambda: world.phase("g") == "Scheduling", "phase Scheduling")
            # Long after the wait time the bound are still there; then the gang is made whole.
            await until(lambda: len(world.binds) >= 6, "the missing one is tried again and again", 60)
            world.decide = lambda bind: "bind"
            await until(lambda: world.node_of("g1"), "whole")
            assert not world.evictions


@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting"])
async def test_evicted_once_after_the_wait_time(nats_url: str, redis_url: str, cluster: str, policy: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await in_part(world, policy)
        async with scheduler(nats_url, redis_url, cluster, EVICT):
            await members(world)
            await until(lambda: len(world.evictions) == 2, "both are evicted", 60)
            assert sorted(evict.target.name for evict in world.evictions) == ["g0", "g2"]
            assert all(evict.target.uid for evict in world.evictions)
            text = "gang default/g: 2 of 3 bound for 1 s, the bound are evicted (coscheduling.partial_gang_action)"
            await until(lambda: text in world.told("g", "GangPartiallyBound"), "told on the PodGroup")
            assert text in world.told("g0", "GangPartiallyBound")
            # Their successors are a new gang with the one left out, and it is bound whole.
            world.decide = lambda bind: "bind"
            for number in (0, 2):
                await world.pod(f"g{number}", labels={LABEL: "g"})
            await until(lambda: all(world.node_of(f"g{number}") for number in range(SIZE)), "whole", 60)
            assert len(world.evictions) == 2


async def test_a_gang_made_whole_in_time_is_not_touched(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await in_part(world, timeout_s=3600)
        async with scheduler(nats_url, redis_url, cluster, EVICT):
            await members(world)
            world.decide = lambda bind: "bind"
            await until(lambda: world.node_of("g1"), "whole")
            # One ends, one is deleted and replaced: too few on nodes, but no bind left anybody out.
            await world.run("g0", "Succeeded")
            await world.delete("g2")
            await world.pod("g2", labels={LABEL: "g"}, cpu="64")
            await until(lambda: world.told("g2"), "the replacement does not fit")
            await world.pod_group("g", SIZE, timeout_s=1, match_policy="once-satisfied")
            loop = asyncio.get_running_loop()
            wait_until = loop.time() + 2.5
            await until(lambda: world.evictions or loop.time() > wait_until, "twice the wait time is over")
            assert not world.evictions


async def test_another_scheduler_knows_it_and_evicts_again_what_a_budget_kept(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "AGAIN_S", 0.5)
    refused: list[Any] = []

    def budget(evict: Any) -> bool:
        refused.append(evict)
        return len(refused) <= 2

    async with outside(nats_url, redis_url, cluster) as world:
        await in_part(world, timeout_s=3600)
        async with scheduler(nats_url, redis_url, cluster, EVICT):
            await members(world)
            assert not world.evictions, "the wait time is not over"
        await world.pod_group("g", SIZE, timeout_s=1)
        world.refuse_eviction = budget
        world.decide = lambda bind: "drop"
        async with scheduler(nats_url, redis_url, cluster, EVICT):
            await until(lambda: not world.node_of("g0") and not world.node_of("g2"), "evicted in the end", 60)
            ids = [evict.id for evict in world.evictions]
            assert len(ids) == len(set(ids)) >= 4, ids  # more where a refusal or a deletion is long in coming


async def test_a_member_that_somebody_else_holds_is_asked_for_at_a_steady_pace(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    """Doubling its wait would leave a gang's last member unbound long after whoever held it has let go."""
    patient = QueueSettings(initial_backoff_s=0.1, max_backoff_s=3600)
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "other-1") as other,
    ):
        await world.node("n0")
        await world.listed()
        uid = await world.pod("p")
        takes = pod_takes({"cpu": 1000}, "n0", (), unit_owned=False)
        [held] = await other.claim([ClaimRequest("other-1-1", (Member(uid, "default", "p", "n0", takes),))])
        assert held.status == "ok"
        async with scheduler(nats_url, redis_url, cluster, SchedulerSettings(queue=patient)):
            attempts = 0
            while attempts < 12:
                found = await ask(world.bus, "scheduler", "explain", ExplainPod("default", "p"), PodExplanation)
                attempts = found.attempts
                await asyncio.sleep(0.05)
            assert not world.binds
            await other.release([Release("other-1-1", held.token)])
            await until(lambda: world.node_of("p"), "bound", 60)


def test_while_the_bus_is_away_nobody_is_evicted_and_the_wait_begins_anew() -> None:
    book = GangBook(GangSettings(partial_gang_action="evict", default_timeout_s=10.0))
    annotations = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    marks = {BOUND_WITH: f"{mark('a')},{mark('b')}"}
    book.add(PodRef("a", "default", "a", {}, annotations | marks), bound=True)
    book.add(PodRef("b", "default", "b", {}, annotations), bound=False)
    partial_gangs = partial.PartialGangs(book, lambda _: {"a": "a"}, Notices("s", "s", lambda _: None))
    assert partial_gangs.due(0.0, sure=True) == []
    assert partial_gangs.due(11.0, sure=False) == []
    assert partial_gangs.due(12.0, sure=True) == []
    assert partial_gangs.due(21.0, sure=True) == []
    assert [evict.target.uid for evict in partial_gangs.due(22.0, sure=True)] == ["a"]
    assert partial_gangs.due(23.0, sure=True) == [], "once"
