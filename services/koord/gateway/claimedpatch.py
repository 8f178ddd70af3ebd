"""Patches that spend a claim: a QueueUnit's admission (spec 20 section 3.12, last paragraph).

The same steps as a bind: read the version, advance the record, write with that version as precondition, and give the
room back only on a definite refusal with nothing under way.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from koord.contracts.decisions import ClaimRef, ObjectRef, Patch
from koord.contracts.results import Result
from koord.gateway.advancing import Advancer
from koord.gateway.allow import Rejected, describe
from koord.gateway.api import Api
from koord.gateway.binding import NotLeading, ReleasingLedger, TryLater
from koord.gateway.patching import holds
from koord.gateway.settling import settle
from koord.kube.resources import BY_TOKEN
from koord.ledger.model import Release, ReleaseAnswer

ROUNDS = 5


class Patching(Protocol):
    """The part of the writer that is used here."""

    async def patch(self, decision: Patch, service: str, unsure: list[str] | None = None) -> Result:
        """Patch the object."""
        ...


class ClaimedPatcher:
    """Executes patches that carry a claim."""

    def __init__(
        self,
        api: Api,
        writer: Patching,
        advancer: Advancer,
        ledger: ReleasingLedger,
        role_epoch: int,
        on_released: Callable[[ReleaseAnswer, ClaimRef], None],
    ) -> None:
        self._api = api
        self._writer = writer
        self._advancer = advancer
        self._ledger = ledger
        self._role_epoch = role_epoch
        self._on_released = on_released

    async def patch(self, decision: Patch, claim: ClaimRef, service: str) -> Result:
        """Advance, patch, release if refused. Raises Rejected, TryLater, NotLeading, ApiUnavailable."""
        target = decision.target
        if not target.uid:
            raise Rejected("invalid", f"{describe(target)}: target.uid: required when a claim is spent")
        unsure: list[str] = []
        result = Result(decision.id, "conflict", f"{describe(target)}: changed by others again and again", 409)
        for round_ in range(1, ROUNDS + 1):
            there = await self._read(target)
            answer = await self._advancer.advance(claim, decision.id, (target.uid,))
            if answer.status == "stale":
                raise NotLeading
            if answer.status == "closed":
                raise TryLater("the ledger is closed", growth=1.0)
            if answer.status != "ok" or target.uid in answer.gone or target.uid in answer.observed:
                if there is not None and there.uid == target.uid and holds(there.body, decision.body):
                    return Result(decision.id, "done", resource_version=there.version)
                return Result(decision.id, "rejected", "claim gone")
            if answer.attempt > round_:
                unsure.append("an earlier attempt")
            if there is None or there.uid != target.uid:
                result = Result(decision.id, "gone", f"{describe(target)} (uid {target.uid}): does not exist", 404)
                break
            version = target.resource_version or there.version
            pinned = msgspec.structs.replace(target, resource_version=version)
            result = await self._writer.patch(msgspec.structs.replace(decision, target=pinned), service, unsure)
            if result.outcome == "done":
                return result
            if result.outcome != "conflict" or target.resource_version:
                break
        if result.outcome == "rejected" and unsure:
            settled = await settle(self._api, BY_TOKEN[target.resource], target.namespace, target.name, target.uid)
            if settled is not None and holds(settled.body, decision.body):
                return Result(decision.id, "done", resource_version=settled.resource_version)
        await self._release(claim, target.uid)
        return result

    async def _read(self, target: ObjectRef) -> "_There | None":
        resource = BY_TOKEN[target.resource]
        brief = await self._api.read(resource, target.namespace, target.name)
        return None if brief is None else _There(brief.uid, brief.resource_version, brief.body)

    async def _release(self, claim: ClaimRef, uid: str) -> None:
        answers = await self._ledger.release(
            [Release(claim.claim, claim.token, (uid,), by="gateway", role_epoch=self._role_epoch)]
        )
        if answers[0].status == "stale":
            raise NotLeading
        self._on_released(answers[0], claim)


class _There(msgspec.Struct, frozen=True):
    uid: str
    version: str
    body: bytes
