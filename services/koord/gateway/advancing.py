"""Advance, batched: decisions that arrive while one call to the ledger is under way share the next one."""

import asyncio
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
    """Moves records to BINDING right before the API write, under the epoch of the gateway's lead."""

    def __init__(self, ledger: AdvancingLedger, role_epoch: int, *, batch: int = 256) -> None:
        self._ledger = ledger
        self._role_epoch = role_epoch
        self._batch = batch
        self._waiting: list[tuple[Advance, asyncio.Future[AdvanceAnswer]]] = []
        self._flusher: asyncio.Task[None] | None = None

    async def advance(self, claim: ClaimRef, decision: str, uids: Sequence[str]) -> AdvanceAnswer:
        """The ledger's answer for these members of one claim; LedgerUnavailable if there is none."""
        item = Advance(claim=claim.claim, token=claim.token, epoch=claim.epoch, decision=decision, uids=tuple(uids))
        future: asyncio.Future[AdvanceAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._flusher is None:
            self._flusher = asyncio.get_running_loop().create_task(self._flush(), name="gateway-advance")
        return await future

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
                try:
                    answers = await self._ledger.advance([item for item, _ in batch], self._role_epoch)
                except Exception as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            self._flusher = None
            for _, future in self._waiting:
                future.cancel()
