"""Hints for those who wait for room: one message per kind of change and call, never one per pod."""

from collections.abc import Sequence

from koord.bus.connection import Bus
from koord.contracts.codec import encode
from koord.contracts.ledger import ClaimEvent, EpochHint, LedgerHint
from koord.ledger.model import Ended, ObserveAnswer

_MOST = 2000
"""Names in one message; beyond that the hint says "look at all"."""


class Hints:
    """Publishes what an answer of the ledger means to others. They may be lost; nobody relies on them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def told(self, answer: ObserveAnswer) -> None:
        """What changed by one call of ``observe`` or ``sweep``."""
        if answer.expired:
            self._ended("expired", answer.expired, answer.freed)
        if answer.released or answer.gone or (answer.freed and not answer.expired):
            uids = [uid for ended in answer.released for uid in ended.uids]
            claims = [ended.claim for ended in answer.released]
            self._send("released", answer.freed, (*uids, *answer.gone), claims)
        if answer.observed:
            self._send("observed", (), answer.observed, ())

    def opened(self, epoch: int) -> None:
        """The ledger was opened under a new epoch."""
        self._bus.nc.send(self._bus.subjects.ledger("epoch"), "", b"", encode(EpochHint(epoch)))

    def _ended(self, event: ClaimEvent, ended: Sequence[Ended], items: Sequence[str]) -> None:
        uids = [uid for one in ended for uid in one.uids]
        self._send(event, items, uids, [one.claim for one in ended])

    def _send(self, event: ClaimEvent, items: Sequence[str], uids: Sequence[str], claims: Sequence[str]) -> None:
        hint = LedgerHint(
            event,
            list(items) if len(items) <= _MOST else [],
            list(uids[:_MOST]),
            list(claims[:_MOST]),
        )
        self._bus.nc.send(self._bus.subjects.ledger(f"claim.{event}"), "", b"", encode(hint))
