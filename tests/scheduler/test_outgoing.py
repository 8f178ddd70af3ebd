"""What is said while the bus takes nothing: kept, in order, up to a bound, and said once it takes something again."""

import pytest

from koord.bus.connection import Bus
from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusUnavailable
from koord.contracts.codec import decode
from koord.contracts.decisions import Decision, EventNote, Evict, ObjectRef, Patch, RecordEvents
from koord.contracts.ledger import LedgerHint
from koord.scheduler import outgoing
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.gang.book import GangBook, GangSettings
from koord.scheduler.gang.news import GangNews
from koord.scheduler.notices import Notices
from koord.scheduler.outgoing import Outgoing, bounded
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.telemetry.logs import get_logger
from koord.telemetry.spans import Spans
from tests.scheduler.outside import outside, until


def condition(id_: str, uid: str) -> Patch:
    return Patch(id_, ObjectRef("pods_core", "default", uid, uid), b"{}", patch="strategic", subresource="status")


def events(id_: str) -> RecordEvents:
    target = ObjectRef("pods_core", "default", "p", "u")
    return RecordEvents(id_, [EventNote(target, "Pod", "v1", "Warning", "R", "text", "A", "c", 1)])


def ids(decisions: list[Decision]) -> list[str]:
    return [decision.id for decision in decisions]


def test_the_last_condition_of_a_pod_says_it_all() -> None:
    many: list[Decision] = [condition("1", "a"), events("2"), condition("3", "b"), condition("4", "a")]
    assert [ids(part) for part in bounded(many, 3)] == [["2", "3", "4"], []]
    assert [ids(part) for part in bounded(many, 2)] == [["3", "4"], ["2"]]
    assert [ids(part) for part in bounded(many, 1)] == [["4"], ["2", "3"]]


def test_evictions_are_not_dropped() -> None:
    evict = Evict("e", ObjectRef("pods_core", "default", "p", "u"), "why")
    many: list[Decision] = [evict, events("1"), condition("2", "a")]
    assert [ids(part) for part in bounded(many, 0)] == [["e"], ["1", "2"]]


@pytest.fixture
def notices() -> Notices:
    return Notices("s", "koord-scheduler", lambda key: None)


def made(bus: Bus, notices: Notices) -> Outgoing:
    book = GangBook(GangSettings())
    nothing: frozenset[ClusterEvent] = frozenset()
    news = GangNews(book, SchedulingQueue(lambda name: nothing), notices, 30.0)
    return Outgoing(bus, DecisionPublisher(bus, "scheduler"), notices, news, Spans(enabled=False), get_logger("test"))


async def test_hints_and_notices_outlast_a_bus_that_takes_nothing(
    nats_url: str, redis_url: str, cluster: str, notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "MOST_DECISIONS", 3)
    heard: list[LedgerHint] = []
    async with outside(nats_url, redis_url, cluster) as world, await Bus.connect(nats_url, cluster, "s") as bus:

        async def hear(message: object) -> None:
            heard.append(decode(LedgerHint, message.data))  # type: ignore[attr-defined]

        await world.bus.subscribe(world.bus.subjects.ledger("claim.>"), hear)
        await world.bus.nc.flush()
        out = made(bus, notices)
        publish = bus.publish

        async def refuse(subject: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
            raise BusUnavailable("away")

        bus.publish = refuse  # type: ignore[method-assign]
        await out.hint(LedgerHint("released", ["node/a"]))
        await out.hint(LedgerHint("expired", ["node/b"]))
        for number in range(5):
            notices.failed(f"u{number}", "default", f"p{number}", "no room", float(number))
            with pytest.raises(BusUnavailable):
                await out.send()
        kept = out.waiting
        assert kept
        bus.publish = publish  # type: ignore[method-assign]
        await out.send()
        assert not out.waiting
        await until(lambda: len(heard) == 2, "both hints")
        assert [(hint.event, hint.items) for hint in heard] == [("released", ["node/a"]), ("expired", ["node/b"])]
        await until(lambda: len(world.patches) == 3, "the last three conditions")
        assert [patch.target.name for patch in world.patches] == ["p2", "p3", "p4"]
        # Whose condition went is told with the next attempt, though the text is the same.
        notices.failed("u0", "default", "p0", "no room", 9.0)
        notices.failed("u4", "default", "p4", "no room", 9.0)
        await out.send()
        await until(lambda: len(world.patches) == 4, "told anew")
        assert world.patches[-1].target.name == "p0"
