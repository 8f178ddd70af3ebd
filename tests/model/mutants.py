"""Defects that the contract names, each a line that somebody could forget. The model must find them."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
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
from tests.model import test_interleavings as contract
from tests.model import test_services as services
from tests.model.test_model import Machine

Mutant = Callable[[], AbstractContextManager[Any]]


def _lua(old: str, new: str) -> AbstractContextManager[Any]:
    code, build = library.source()
    assert code.count(old.encode()) == 1, f"the library has no longer exactly one {old!r}"
    bad = f"{build}-{zlib.crc32(old.encode())}"  # its own: a server that has another one loads it
    changed = code.replace(old.encode(), new.encode()).replace(build.encode(), bad.encode())
    return patch.object(library, "source", lambda: (changed, bad))


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


def _careless(barrier: Barrier, before: str, life: str) -> float:
    return _lost(barrier, before, life) if before else 0.0


_lost = Barrier._lost


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


class Defect(NamedTuple):
    """What is forgotten, the interleaving that shows it, and a part of what the model says then."""

    planted: Mutant
    shown_by: Callable[[Machine], None]
    says: str


MUTANTS: dict[str, Defect] = {
    "gateway: what the ledger does not know any more is bound": Defect(
        _gone_is_bound, contract.test_a_late_request_after_the_ledger_was_lost, "its record is None"
    ),
    "gateway: a refusal counts although an older request may be under way": Defect(
        lambda: patch.object(Binder, "_refused", _unsettled),
        contract.test_a_refusal_after_a_request_that_may_still_be_under_way,
        "its record is None",
    ),
    "gateway: the barrier settles nothing": Defect(
        lambda: patch.object(Barrier, "_settle", _nothing),
        contract.test_a_late_request_after_the_ledger_was_lost,
        "its record is None",
    ),
    "gateway: no note is taken for nobody was here": Defect(
        lambda: patch.object(Barrier, "_lost", _careless),
        contract.test_a_late_request_after_ledger_decisions_and_lease_were_lost,
        "its record is None",
    ),
    "reconciler: a rebuild does not wait for what the gateway listed": Defect(
        lambda: patch.object(World, "marked", _nothing),
        contract.test_what_was_bound_just_before_the_ledger_was_lost_is_charged,
        "not what is bound",
    ),
    "ledger: a settled record ends although it was advanced again": Defect(
        lambda: _lua(" and rec[REC.ATTEMPTS] == attempts", ""),
        contract.test_a_settle_answer_does_not_end_a_record_that_was_advanced_again,
        "its record is None",
    ),
    "ledger: of a Strict claim only the member goes that was hit": Defect(
        lambda: _lua("if entry and entry[CLM.STRICT] then\n    uids = end_held", "if false then\n    uids = end_held"),
        contract.test_a_strict_gang_that_loses_a_member_holds_nothing_for_the_others,
        "is held in part",
    ),
    "ledger: claims look at no nominations": Defect(
        lambda: _lua(
            "  if L.nominations == 0 then return nil end\n  local own, found", "  do return nil end\n  local own, found"
        ),
        contract.test_a_claim_leaves_room_that_only_the_ledger_knows_to_be_nominated,
        "claims left 0 of 2000 kept",
    ),
    "scheduler: a claim whose answer was lost is forgotten": Defect(
        lambda: patch.object(ClaimRounds, "give_back_unanswered", _forgotten),
        contract.test_a_claim_whose_answer_was_lost_does_not_keep_its_pod,
        "not both are claimed",
    ),
    "scheduler: a bind is published once": Defect(
        _sent_once, contract.test_a_late_request_after_its_decision_was_lost, "waits although there is room"
    ),
    "queue: a decision is published once": Defect(
        _decided_once, services.test_a_decision_of_the_queue_that_is_lost_is_published_again, "does not come to that"
    ),
    "quota: limits are not told to a new epoch": Defect(
        lambda: patch.object(Keeper, "all_limits_dirty", lambda keeper: None),
        services.test_a_quota_that_shrinks_lets_nobody_more_in,
        "the quota is not told",
    ),
}
