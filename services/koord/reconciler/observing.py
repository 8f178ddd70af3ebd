"""One call of ``observe``: with the place in the state stream, and without what no ledger would take.

An object that cannot be told (a resourceVersion that is no number) must keep nobody else from being told.
"""

import time
from collections.abc import Sequence
from typing import Final

from koord.ledger.client import Ledger
from koord.ledger.model import (
    BudgetSeen,
    ItemClosed,
    LedgerRefused,
    LimitSet,
    NodeSeen,
    Observation,
    ObserveAnswer,
    PodSeen,
    UnitSeen,
)
from koord.ledger.wire import pack_observations
from koord.reconciler import metrics
from koord.reconciler.world import World
from koord.telemetry.logs import get_logger

log = get_logger("koord.reconciler.observing")

BATCH: Final = 2048
"""Observations in one call."""


class Observing:
    """``await tell(batch)``, of at most BATCH observations. What the answer means is the caller's business."""

    def __init__(self, ledger: Ledger, world: World, role_epoch: int) -> None:
        self._ledger = ledger
        self._world = world
        self._role_epoch = role_epoch

    async def tell(self, batch: Sequence[Observation]) -> ObserveAnswer:
        """Tell ``batch``; nodes found below zero, and limits without a column, are noted. LedgerUnavailable."""
        began = time.perf_counter()
        try:
            answer = await self._observe(batch)
        except LedgerRefused:
            answer = await self._observe([one for one in batch if self._can_be_told(one)])
        metrics.FOLD_SECONDS.observe(time.perf_counter() - began)
        if answer.status == "ok":
            self._world.note_overcommitted(answer.overcommitted)
            self._world.note_nameless(answer.nameless)
        return answer

    async def _observe(self, batch: Sequence[Observation]) -> ObserveAnswer:
        return await self._ledger.observe(batch, role_epoch=self._role_epoch, folded=self._world.position)

    def _can_be_told(self, one: Observation) -> bool:
        try:
            pack_observations((), [one])
        except LedgerRefused as error:
            kind = type(one).__name__
            metrics.PROBLEMS.labels(kind).inc()
            log.error("cannot be told to the ledger, left out", kind=kind, name=_name(one), error=str(error))
            if isinstance(one, PodSeen | UnitSeen):
                self._world.folder.drop((one.uid,))  # it is not charged: audits must not miss its record
            return False
        return True


def _name(one: Observation) -> str:
    return one.item if isinstance(one, NodeSeen | BudgetSeen | LimitSet | ItemClosed) else f"{one.namespace}/{one.name}"


def count(observations: Sequence[Observation]) -> None:
    """Count what was folded, by kind."""
    kinds: dict[str, int] = {}
    for observation in observations:
        name = type(observation).__name__
        kinds[name] = kinds.get(name, 0) + 1
    for kind, number in kinds.items():
        metrics.OBSERVATIONS.labels(kind).inc(number)
