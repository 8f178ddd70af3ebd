"""Hints that the ledger changed. They wake those who wait for room; nobody may rely on them arriving."""

from typing import Literal

import msgspec

ClaimEvent = Literal["held", "binding", "observed", "released", "expired"]


class LedgerHint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records moved to ``event``; ``items`` are those whose free amount changed (empty: unknown, look at all)."""

    event: ClaimEvent
    items: list[str] = []
    uids: list[str] = []
    claims: list[str] = []
    v: int = 1


class EpochHint(msgspec.Struct, frozen=True):
    """The ledger was opened under a new epoch: older claims are void."""

    epoch: int
    v: int = 1
