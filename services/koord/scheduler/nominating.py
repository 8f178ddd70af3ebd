"""Room kept for units that the ledger refuses again and again (spec 20 section 3.12: "3 times in a row: may nominate").

Refused three times in a row by conflicts, a unit loses races, not room: others are faster. What of its plan no node was
short of is then nominated: for ten seconds claims of its priority or less leave it that room, so that a gang has to win
only what it lacks, and a pod that lost on a quota finds its node when the quota has room. A single pod whose node was
short has nothing to keep: the ledger nominates only what is free, and that can as well be claimed. Once a minute at
most, because room that is kept is room that stands empty. Nothing is evicted for a nomination.

Pure: requests and times; the claim rounds ask the ledger.
"""

import itertools
from collections.abc import Collection

from koord.accounting.takes import NODE
from koord.ledger.model import ClaimRequest, Short
from koord.ledger.nominations import NominateRequest
from koord.scheduler.claiming import GANG_SLOT

KEEP_S = 10.0
EVERY_S = 60.0


class Nominating:
    """What this replica nominated, by unit. Times are seconds of one monotonic clock."""

    def __init__(self, incarnation: str) -> None:
        self._incarnation = incarnation
        self._numbers = itertools.count(1)
        self._asked: dict[str, float] = {}
        """When a unit was nominated last; the longest ago comes first."""
        self._kept: dict[str, tuple[float, tuple[str, ...]]] = {}

    def request(self, unit: str, claim: ClaimRequest, shorts: Collection[Short], now: float) -> NominateRequest | None:
        """What to nominate of a refused claim; None: nothing is left of it, it had its turn, or it has a rival.

        A short gang slot means that another replica plans the same gang group: whoever holds it goes on with it. Other
        slots are things of one node that a plugin gave a pod; that pod keeps nothing there.
        """
        while self._asked and now - next(iter(self._asked.values())) >= EVERY_S:
            del self._asked[next(iter(self._asked))]
        lost = {short.item for short in shorts}
        if unit in self._asked or any(item.startswith(GANG_SLOT) for item in lost):
            return None
        without = {slot.uid for slot in claim.slots if slot.item in lost}
        members = tuple(
            member for member in claim.members if NODE + member.node not in lost and member.uid not in without
        )
        if not members:
            return None
        self._asked[unit] = now
        id_ = f"{self._incarnation}-nomination-{next(self._numbers)}"
        return NominateRequest(id_, members, claim.priority, claim.group, lease_s=KEEP_S)

    def kept(self, unit: str, request: NominateRequest, now: float) -> None:
        """The ledger keeps the room."""
        self._kept[unit] = (now + KEEP_S, tuple({NODE + member.node for member in request.members}))

    def ended(self, unit: str) -> None:
        """The unit's claim was accepted: its nominations ended with that."""
        self._kept.pop(unit, None)
        self._asked.pop(unit, None)

    def items(self, unit: str, now: float) -> tuple[str, ...]:
        """The node items that keep room for the unit; whatever is masked there is masked for others."""
        if not self._kept:
            return ()
        until, items = self._kept.get(unit, (0.0, ()))
        if until <= now:
            self._kept.pop(unit, None)
            return ()
        return items

    def expire(self, now: float) -> None:
        """Forget what is over."""
        for unit in [unit for unit, (until, _) in self._kept.items() if until <= now]:
            del self._kept[unit]

    def __len__(self) -> int:
        return len(self._kept)
