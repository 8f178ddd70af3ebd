"""Advance, under the epoch of this gateway's lead. The ledger's client shares round trips among concurrent callers."""

from collections.abc import Sequence
from typing import Protocol

from koord.contracts.decisions import ClaimRef
from koord.ledger.model import Advance, AdvanceAnswer


class AdvancingLedger(Protocol):
    """The part of the ledger client that is used here."""

    async def advance(self, items: Sequence[Advance], role_epoch: int) -> list[AdvanceAnswer]:
        """Move records to BINDING."""
        ...


class Advancer:
    """Moves records to BINDING right before the API write. While ``stopped``, none: the ledger is being rebuilt."""

    def __init__(self, ledger: AdvancingLedger, role_epoch: int) -> None:
        self._ledger = ledger
        self.role_epoch = role_epoch
        self.stopped = False

    async def advance(self, claim: ClaimRef, decision: str, uids: Sequence[str]) -> AdvanceAnswer:
        """The ledger's answer for these members of one claim; LedgerUnavailable if there is none."""
        if self.stopped:
            return AdvanceAnswer("closed", gone=tuple(uids))
        item = Advance(claim=claim.claim, token=claim.token, epoch=claim.epoch, decision=decision, uids=tuple(uids))
        return (await self._ledger.advance([item], self.role_epoch))[0]
