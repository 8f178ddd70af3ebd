"""Settling: making sure that no write for a claim can succeed any more, and the question that asks for it.

Each write that spends a claim carries the object's version as it was read before an ``advance`` of the claim's record.
So a change of the object's version makes every write of an earlier ``advance`` fail, also one that a dead gateway sent
and that is still under way. What is unbound after it stays unbound until the record is advanced again, which the
ledger sees.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final

import msgspec

from koord.contracts.asks import BindingRecord, BindingsSettled, BindingState, SettleBindings, SettledBinding
from koord.contracts.decisions import Bind, Decision, Patch
from koord.gateway.allow import describe
from koord.gateway.api import PATCH_TYPES, Api, ApiUnavailable
from koord.gateway.guarantees import Guarantees
from koord.gateway.objects import Brief, ObjectError, read_object, read_status
from koord.kube.protocol.scheduler import BIND_SETTLED
from koord.kube.resources import BY_TOKEN, PODS, QUEUE_UNITS, Resource
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.settling")

SETTLED: Final = BIND_SETTLED
MOST_RECORDS: Final = 256
"""Records in one question."""
INDEX_S: Final = 3.0
"""How long the claims of the queue are remembered: a question comes in parts, and the queue may be long."""
FOREIGN: Final = "foreign-"
"""What decisions begin with that advance a claim for another scheduler's Binding."""
_AT_A_TIME: Final = 16

_numbers = itertools.count(1)


class Unsettleable(ApiUnavailable):
    """The API refuses to change the object: a final answer, but none that settles anything."""


async def settle(api: Api, resource: Resource, namespace: str, name: str, uid: str) -> Brief | None:
    """Change the object's version, so that every write that carries an older one fails; the object as it is then.

    None if there is no object with this uid. ApiUnavailable if there was no final answer, Unsettleable if it was no.
    """
    stamp = f"{time.time_ns()}-{next(_numbers)}"
    patch = {"metadata": {"uid": uid, "annotations": {SETTLED: stamp}}}
    path = resource.path(namespace, name)
    try:
        answer = await api.call("patch", path, msgspec.json.encode(patch), PATCH_TYPES["merge"])
    except ApiUnavailable as error:
        if error.status != 500:
            raise
        # A webhook that fails, say, whose own pod waits to be bound: the server works if it can read the object.
        there = await api.read(resource, namespace, name)
        if there is None or there.uid != uid:
            return None
        if there.node:
            return there
        raise Unsettleable(str(error), error.status) from error
    if answer.status == 404:
        return None
    if answer.status != 200:
        there = await api.read(resource, namespace, name)
        if there is None or there.uid != uid:
            return None
        if there.node:
            return there  # a node never goes back: there is nothing to settle
        if answer.status != 409:
            raise Unsettleable(f"settle {path}: answer {answer.status} {read_status(answer.body).message}")
        raise ApiUnavailable(f"settle {path}: answer {answer.status}")
    try:
        brief = read_object(
            answer.body, kind=resource.kind, api_version=resource.api_version, pod=resource.token == PODS.token
        )
    except ObjectError as error:
        raise ApiUnavailable(f"settle {path}: {error}") from error
    return brief if brief.uid == uid else None


def claim_of(decision: Decision) -> str:
    """The id of the claim that a decision spends, or empty."""
    if isinstance(decision, Bind | Patch) and decision.claim is not None:
        return decision.claim.claim
    return ""


class Settler:
    """Answers whether writes for BINDING records are still to come, and settles those for which none is.

    ``in_hand`` tells the claims of the decisions that this gateway has, ``queued`` the decisions that the queue holds.
    The queue's claims are remembered for a while: one that comes meanwhile advances its record, and the answer does not
    count.
    """

    def __init__(
        self,
        api: Api,
        in_hand: Callable[[], Collection[str]],
        queued: Callable[[], AsyncIterator[Sequence[Decision]]],
        guarantees: Guarantees | None = None,
    ) -> None:
        self._guarantees = guarantees or Guarantees.full()
        self._asked: dict[tuple[str, str], float] = {}
        self._api = api
        self._in_hand = in_hand
        self._queued = queued
        self._waiting: set[str] = set()
        self._looked_s = float("-inf")
        self._looking = asyncio.Lock()

    async def answer(self, question: SettleBindings) -> BindingsSettled:
        """The state of each record. ValueError names what is wrong with the question; BusError."""
        _check(question)
        # What is handed out is in the queue until it is acknowledged, unless the queue was lost under it.
        busy = {*await self._queued_claims(), *self._in_hand()}
        gate = asyncio.Semaphore(_AT_A_TIME)
        self._forget(busy)

        async def one(record: BindingRecord) -> SettledBinding:
            if record.claim in busy:
                return SettledBinding(record.target.uid, "busy")
            async with gate:
                return await self._settle(record)

        return BindingsSettled(await asyncio.gather(*map(one, question.records)))

    async def _queued_claims(self) -> set[str]:
        async with self._looking:
            if time.monotonic() - self._looked_s > INDEX_S:
                claims: set[str] = set()
                async for page in self._queued():
                    claims.update(map(claim_of, page))
                self._waiting, self._looked_s = claims, time.monotonic()
        return self._waiting

    async def _settle(self, record: BindingRecord) -> SettledBinding:
        target = record.target
        resource = BY_TOKEN[target.resource]
        try:
            there = await self._api.read(resource, target.namespace, target.name)
            if _state(there, target.uid) == "unbound":
                if not self._outlived(record):
                    return SettledBinding(target.uid, "busy")
                there = await settle(self._api, resource, target.namespace, target.name, target.uid)
        except ApiUnavailable as error:
            log.warning("cannot be settled now", object=describe(target), why=str(error))
            return SettledBinding(target.uid, "busy")
        state = _state(there, target.uid)
        if state == "unbound":
            log.warning("a decision was lost", object=describe(target), claim=record.claim)
        return SettledBinding(target.uid, state, there.node if state == "bound" and there is not None else "")

    def _outlived(self, record: BindingRecord) -> bool:
        """Where a new version fails no Binding: whether nobody has had the decision for as long as one may take.

        Another scheduler's Binding carries no version, whatever the server honours.
        """
        if record.decision.startswith(FOREIGN) and record.age_s < self._guarantees.api_timeout_s:
            return False
        if record.target.resource != PODS.token or not self._guarantees.outlive_s:
            return True
        now = time.monotonic()
        return now - self._asked.setdefault((record.claim, record.target.uid), now) >= self._guarantees.outlive_s

    def _forget(self, busy: Collection[str]) -> None:
        """A claim that somebody has again may be written again."""
        old = time.monotonic() - 10 * self._guarantees.outlive_s
        self._asked = {key: at for key, at in self._asked.items() if key[0] not in busy and at > old}


class _UnitStatus(msgspec.Struct):
    admissions: list[msgspec.Raw] | None = None


class _Unit(msgspec.Struct):
    kind: str = ""
    status: _UnitStatus = msgspec.field(default_factory=_UnitStatus)


_unit = msgspec.json.Decoder(_Unit)


def _state(there: Brief | None, uid: str) -> BindingState:
    if there is None or there.uid != uid:
        return "gone"
    if there.node:
        return "bound"
    try:
        unit = _unit.decode(there.body)
    except (msgspec.MsgspecError, RecursionError):
        return "busy"  # a status nobody can read says nothing
    return "bound" if unit.kind == QUEUE_UNITS.kind and unit.status.admissions else "unbound"


def _check(question: SettleBindings) -> None:
    if len(question.records) > MOST_RECORDS:
        raise ValueError(f"records: {len(question.records)} at once, at most {MOST_RECORDS}")
    for record in question.records:
        target = record.target
        if target.resource not in (PODS.token, QUEUE_UNITS.token):
            raise ValueError(f"{describe(target)}: target.resource: neither pods nor queueunits")
        if not (target.namespace and target.name and target.uid and record.claim):
            raise ValueError(f"{describe(target)}: target.namespace, target.name, target.uid and claim are required")
