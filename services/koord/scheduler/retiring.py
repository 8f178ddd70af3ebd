"""What a scheduler that died held and had not published: given back by those who live, not when its leases are over.

A scheduler is dead when its lock says so, or when the others have not heard of it for longer than a living one is
silent. Giving back what a scheduler holds is safe whatever it does (spec 20 section 3.12, row 3): a decision that it
published all the same is refused, and it plans the pods anew.
"""

from collections.abc import Callable, Collection

from koord.bus.presence import GONE_S
from koord.ledger.client import Ledger
from koord.ledger.model import RetireAnswer


class Retiring:
    """``await look(now)`` every second. ``members`` are the live schedulers, by what they say of themselves."""

    def __init__(
        self, ledger: Ledger, service: str, members: Callable[[], Collection[str]], is_dead: Callable[[str], bool]
    ) -> None:
        self._ledger = ledger
        self._prefix = f"{service}-"
        self._members = members
        self._is_dead = is_dead
        self._met: set[str] = set()
        self._listens_since_s: float | None = None

    async def look(self, now_s: float, *, connected: bool) -> RetireAnswer | None:
        """End the claims of the dead, if there are any. LedgerUnavailable."""
        if not connected:
            self._listens_since_s = None
            return None
        if self._listens_since_s is None:
            self._listens_since_s = now_s
        silent = now_s - self._listens_since_s > GONE_S
        members = self._members()
        owners = {owner for owner in await self._ledger.owners() if owner.startswith(self._prefix)}
        dead = [owner for owner in owners.difference(members) if silent or owner in self._met or self._is_dead(owner)]
        self._met = {*members, *self._met.intersection(owners)}
        return await self._ledger.retire(dead) if dead else None
