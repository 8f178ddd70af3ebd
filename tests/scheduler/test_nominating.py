"""Who loses three claims in a row has the rest of its plan kept: what is asked for, and who has to leave it."""

import pytest

from koord.accounting.takes import Take
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, Release, Short
from koord.scheduler import nominating
from koord.scheduler.nominating import EVERY_S, KEEP_S, Nominating
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from koord.telemetry.metrics import render
from koord.telemetry.spans import Spans
from tests.scheduler.outside import outside, scheduler, until
from tests.scheduler.test_refusals import hints

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))


def one(uid: str, node: str, *, quota: str = "") -> Member:
    takes = [Take(f"node/{node}", {"cpu": 1000, "pods": 1})]
    if quota:
        takes.append(Take(f"quota/{quota}", {"cpu": 1000}))
    return Member(uid, "default", uid, node, tuple(takes))


def short(item: str, kind: str = "amount") -> Short:
    return Short(item, "cpu", kind, 1000, 0)  # type: ignore[arg-type]


GANG = ClaimRequest("s-1", (one("a", "n0"), one("b", "n1"), one("c", "n1")), priority=7, group="default/g")


def test_what_no_node_was_short_of_is_nominated() -> None:
    rooms = Nominating("s")
    request = rooms.request("g", GANG, [short("node/n0"), short("quota/q")], 0.0)
    assert request is not None
    assert ([member.uid for member in request.members], request.priority, request.group) == (["b", "c"], 7, "default/g")
    assert request.lease_s == KEEP_S
    rooms.kept("g", request, 0.0)
    assert rooms.items("g", KEEP_S - 1) == ("node/n1",)
    assert rooms.items("h", 0.0) == ()
    assert rooms.items("g", KEEP_S) == ()


def test_once_a_minute_and_anew_after_a_success() -> None:
    rooms = Nominating("s")
    first = rooms.request("g", GANG, [short("node/n0")], 0.0)
    assert rooms.request("g", GANG, [short("node/n0")], EVERY_S - 1) is None
    assert rooms.request("h", GANG, [short("node/n0")], EVERY_S - 1) is not None
    again = rooms.request("g", GANG, [short("node/n0")], EVERY_S)
    assert first is not None and again is not None and first.id != again.id
    rooms.ended("g")
    assert rooms.request("g", GANG, [short("node/n0")], EVERY_S) is not None


def test_nothing_to_keep() -> None:
    rooms = Nominating("s")
    single = ClaimRequest("s-2", (one("a", "n0"),))
    assert rooms.request("p", single, [short("node/n0")], 0.0) is None
    assert rooms.request("p", single, [short("node/n0", "nomination")], 0.0) is None
    # The gang's slot is held: another replica plans it.
    assert rooms.request("g", GANG, [short("gang/default/g", "slot")], 0.0) is None
    # None of these was a turn.
    assert rooms.request("p", single, [short("quota/q")], 0.0) is not None
    rooms.expire(KEEP_S)
    assert len(rooms) == 0


async def test_two_schedulers_leave_a_gang_what_it_was_not_short_of(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gang of four loses on one node again and again; pods of its priority may not take the other three meanwhile."""
    monkeypatch.setattr(nominating, "KEEP_S", 50.0)  # however slow this machine is
    spans = Spans()
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        for number in range(4):
            await world.node(f"n{number}", cpu="1", labels={"name": f"n{number}"})
        await world.listed()
        # Held at a priority that no gang wounds, and never seen in the API: the schedulers plan on this node.
        [held] = await another.claim([ClaimRequest("another-1", (one("x", "n0"),), priority=9)])
        assert held.status == "ok"
        async with (
            scheduler(nats_url, redis_url, cluster, FAST, spans=spans),
            scheduler(nats_url, redis_url, cluster, FAST, spans=spans),
            hints(world, "released"),
        ):
            await world.pod_group("g", 4)
            for number in range(4):
                await world.pod(f"g{number}", labels={"pod-group.scheduling.sigs.k8s.io": "g"})
            await until(lambda: world.told("g", "RoomKept"), "room is kept", 60.0)
            assert world.told("g", "RoomKept")[0].startswith("room of 3 pods on 3 nodes is kept for ")
            kept = {one.node: one async for one in world.ledger.nominations()}
            assert sorted(kept) == ["n1", "n2", "n3"]
            assert not any(one.noted or one.foreign for one in kept.values())
            # Eight, so that each scheduler has some of them.
            for number in range(8):
                await world.pod(f"s{number}", nodeSelector={"name": f"n{1 + number % 3}"})
            await until(lambda: all(world.told(f"s{number}") for number in range(8)), "all were refused", 60.0)
            assert not world.bound
            await another.release([Release("another-1", held.token)])
            await until(lambda: all(world.node_of(f"g{number}") for number in range(4)), "the gang is bound", 60.0)
            assert not any(world.node_of(f"s{number}") for number in range(8))
            assert [one async for one in world.ledger.nominations()] == []
            assert 'koord_ledger_nomination_total{kind="gang",result="ok"}' in render().decode()
            assert any(record.name == "ledger.nominate" for record in spans.take(0, final=True))


async def test_a_pod_that_loses_on_its_quota_finds_its_node(nats_url: str, redis_url: str, cluster: str) -> None:
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        await world.node("n0", cpu="4")
        await world.node("n1", cpu="4", labels={"other": "yes"})
        await world.quota("q", {"cpu": "1"})
        await world.listed()
        [held] = await another.claim([ClaimRequest("another-1", (one("x", "n1", quota="q"),), priority=9)])
        async with scheduler(nats_url, redis_url, cluster, FAST), hints(world, "released"):
            await world.pod("p", labels={"quota.scheduling.koordinator.sh/name": "q"})
            await until(lambda: world.told("p", "RoomKept"), "room is kept", 60.0)
            assert "quota/q cpu" in world.told("p", "RoomKept")[0]
            [kept] = [one async for one in world.ledger.nominations()]
            assert kept.name == "p"
            await another.release([Release("another-1", held.token)])
            await until(lambda: world.node_of("p"), "bound", 60.0)
            assert [one async for one in world.ledger.nominations()] == []
