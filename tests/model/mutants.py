"""Defects that the contract names, each a line that somebody could forget. The model must find them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from koord.gateway.advancing import Advancer
from koord.gateway.barrier import Barrier
from koord.gateway.binding import Binder
from koord.ledger import library
from koord.queue.outbox import Outbox
from koord.quota.keeper import Keeper
from koord.reconciler.world import World
from koord.scheduler.binds import Binds
from koord.scheduler.rounds import ClaimRounds

Mutant = Callable[[], AbstractContextManager[Any]]


def _lua(old: str, new: str) -> AbstractContextManager[Any]:
    code, build = library.source()
    assert code.count(old.encode()) == 1, f"the library has no longer exactly one {old!r}"
    return patch.object(library, "source", lambda: (code.replace(old.encode(), new.encode()), build))


@contextmanager
def _gone_is_bound() -> Iterator[None]:
    advance = Advancer.advance

    async def careless(self: Advancer, *arguments: Any) -> Any:
        answer = await advance(self, *arguments)
        status = "ok" if answer.status in ("gone", "epoch") else answer.status
        return msgspec.structs.replace(answer, status=status, gone=(), observed={})

    with patch.object(Advancer, "advance", careless):
        yield


async def _nothing(*_: Any, **__: Any) -> int:
    return 0


async def _forgotten(rounds: ClaimRounds) -> bool:
    rounds._unanswered.clear()
    return True


async def _unsettled(binder: Binder, doing: Any, outcome: Any, reason: str) -> None:
    doing.end(outcome, reason)


@contextmanager
def _sent_once() -> Iterator[None]:
    with (
        patch.object(Binds, "_unsent", lambda binds, flight, error: None),
        patch.object(Binds, "republish", lambda binds, now: 0),
    ):
        yield


@contextmanager
def _decided_once() -> Iterator[None]:
    with (
        patch.object(Outbox, "publish_again", lambda outbox: None),
        patch("koord.queue.outbox.REPUBLISH_S", 1e9),
    ):
        yield


MUTANTS: dict[str, Mutant] = {
    "gateway: what the ledger does not know any more is bound": _gone_is_bound,
    "gateway: a refusal counts although an older request may be under way": lambda: patch.object(
        Binder, "_refused", _unsettled
    ),
    "gateway: the barrier settles nothing": lambda: patch.object(Barrier, "_settle", _nothing),
    "reconciler: a rebuild does not wait for what the gateway listed": lambda: patch.object(World, "marked", _nothing),
    "ledger: a settled record ends although it was advanced again": lambda: _lua(
        " and rec[REC.ATTEMPTS] == attempts", ""
    ),
    "ledger: of a Strict claim only the member goes that was hit": lambda: _lua(
        "if entry and entry[CLM.STRICT] then\n    uids = end_held", "if false then\n    uids = end_held"
    ),
    "ledger: claims look at no nominations": lambda: _lua(
        "  if L.nominations == 0 then return nil end\n  local own, found", "  do return nil end\n  local own, found"
    ),
    "scheduler: a claim whose answer was lost is forgotten": lambda: patch.object(
        ClaimRounds, "give_back_unanswered", _forgotten
    ),
    "scheduler: a bind is published once": _sent_once,
    "queue: a decision is published once": _decided_once,
    "quota: limits are not told to a new epoch": lambda: patch.object(Keeper, "all_limits_dirty", lambda keeper: None),
}
