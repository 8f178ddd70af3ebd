"""Claims under way: settled one by one, republished when nothing is heard."""

from koord.contracts.decisions import Bind, ClaimRef
from koord.scheduler.engine.placement import Placed
from koord.scheduler.flights import REPUBLISH_S, Flight, Flights, open_members
from koord.telemetry.context import TraceContext
from tests.scheduler.clusters import Bed


def flight(bed: Bed, claim: str, *names: str, group: str = "") -> Flight:
    members = {pod.uid: (pod, Placed("n", 1)) for pod in (bed.pod(name) for name in names)}
    return Flight(claim, 7, 1, members, group, TraceContext.new())


def test_a_flight_ends_with_its_last_open_member() -> None:
    bed, flights = Bed(), Flights()
    one = flight(bed, "c-1", "a", "b")
    flights.add(one)
    assert flights.of_pod("uid-default-a") is one
    assert flights.settle("uid-default-a") is one
    assert flights.of_pod("uid-default-a") is None
    assert [pod.ref.name for pod, _ in open_members(one)] == ["b"]
    assert flights.of_claim("c-1") is one
    assert flights.settle("uid-default-b") is one
    assert flights.of_claim("c-1") is None
    assert flights.settle("uid-default-b") is None
    assert not len(flights)


def test_only_published_and_unheard_ones_are_overdue() -> None:
    bed, flights = Bed(), Flights()
    held, silent, answered = (flight(bed, f"c-{n}", f"p{n}", group="g") for n in range(3))
    for one in (held, silent, answered):
        flights.add(one)
    for one in (silent, answered):
        one.bind = Bind(one.claim, ClaimRef(one.claim, 7, 1), [])
        one.published_s = 100.0
    answered.result_seen = True
    assert flights.overdue(100.0 + REPUBLISH_S - 0.1) == []
    assert flights.overdue(100.0 + REPUBLISH_S) == [silent]
    assert flights.held("g") == [held]
