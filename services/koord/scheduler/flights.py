"""Claims of ours that are held or being bound: what was claimed, until the API shows it or the claim is gone."""

from collections.abc import Iterable, Iterator

import msgspec

from koord.contracts.decisions import Bind
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.telemetry.context import TraceContext

REPUBLISH_S = 30.0


class Flight(msgspec.Struct, gc=False, eq=False):
    """One claim. ``bind`` is None while it only holds room for a NonStrict gang; ``open`` are members not settled.

    ``began``: when its unit was taken off the queue (monotonic seconds, 0: nobody knows). ``job``: of an inline batch.
    ``outside``: somebody else than the gateway was asked to bind it, and may have done so at any moment.
    """

    claim: str
    token: int
    epoch: int
    members: dict[str, tuple[PodInfo, Placed]]
    group: str
    trace: TraceContext
    bind: Bind | None = None
    published_s: float = 0.0
    began: float = 0.0
    result_seen: bool = False
    outside: bool = False
    job: bool = False
    open: set[str] = msgspec.field(default_factory=set)


class Flights:
    """All flights, by claim and by pod."""

    def __init__(self) -> None:
        self._by_claim: dict[str, Flight] = {}
        self._by_uid: dict[str, Flight] = {}

    def add(self, flight: Flight) -> None:
        """A claim was accepted."""
        flight.open = set(flight.members)
        self._by_claim[flight.claim] = flight
        for uid in flight.members:
            self._by_uid[uid] = flight

    def of_claim(self, claim: str) -> Flight | None:
        """The flight of a claim (which is also its decision's id)."""
        return self._by_claim.get(claim)

    def of_pod(self, uid: str) -> Flight | None:
        """The flight of a pod."""
        return self._by_uid.get(uid)

    def settle(self, uid: str) -> Flight | None:
        """A member is seen bound, gone, or refused; the flight ends with its last open member."""
        flight = self._by_uid.pop(uid, None)
        if flight is None:
            return None
        flight.open.discard(uid)
        if not flight.open:
            self._by_claim.pop(flight.claim, None)
        return flight

    def overdue(self, now: float) -> list[Flight]:
        """Published long ago, and neither a result nor the pods were seen."""
        return [
            flight
            for flight in self._by_claim.values()
            if flight.bind is not None and not flight.result_seen and now - flight.published_s >= REPUBLISH_S
        ]

    def held(self, group: str) -> list[Flight]:
        """Claims that hold room for a gang group and are not published."""
        return [
            flight
            for flight in self._by_claim.values()
            if flight.bind is None and flight.group == group and not flight.outside
        ]

    def __len__(self) -> int:
        return len(self._by_claim)

    def __iter__(self) -> Iterator[Flight]:
        return iter(self._by_claim.values())


def open_members(flight: Flight) -> Iterable[tuple[PodInfo, Placed]]:
    """Members that are neither seen bound nor refused."""
    return [flight.members[uid] for uid in flight.members if uid in flight.open]
