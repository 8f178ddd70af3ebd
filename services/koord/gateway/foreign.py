"""Bindings of other schedulers, claimed in the ledger before the API server makes them (spec 20 section 3.12).

Another scheduler on the same nodes knows of koord's pods what the API shows, and koord of its: each a moment late, so
both may take the last room of a node. With this the API server asks (a validating webhook on ``pods/binding``) before a
foreign Binding is made; it is allowed if the ledger has the room, and holds it from then on. The record goes straight
to BINDING, as for koord's own: no lease ends it and no claim of higher rank takes its room, for the Binding may be
under way. It ends as every other: OBSERVED when the pod is seen on its node, released when it is seen gone or
elsewhere, and settled by the reconciler when it stays unbound.

The ledger is the only memory, so the next leader knows what this one has allowed. What cannot be judged is allowed, for
another scheduler must not stand still because koord does; unless it is required.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from koord.accounting.requests import pod_request
from koord.accounting.takes import pod_takes
from koord.contracts.decisions import ClaimRef, EventNote, ObjectRef
from koord.gateway import metrics
from koord.gateway.access import AccessError
from koord.gateway.advancing import Advancer
from koord.gateway.api import Api, ApiUnavailable
from koord.gateway.settling import FOREIGN
from koord.kube.pods import Pod
from koord.kube.quantity import QuantityError
from koord.kube.resources import PODS
from koord.ledger.model import (
    ClaimAnswer,
    ClaimRequest,
    LedgerRefused,
    LedgerUnavailable,
    Member,
    Record,
    Release,
    Short,
)
from koord.runtime.ending import end
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.foreign")

ANSWER_S: Final = 1.5
"""An answer that takes longer comes too late for the API server, which waits 2 s."""


class Verdict(NamedTuple):
    """Whether a Binding may be made, and why not; ``held``: the claim that this verdict made."""

    allowed: bool
    message: str = ""
    judged: bool = True
    held: "_Held | None" = None


class ClaimingLedger(Protocol):
    """The part of the ledger client that is used here."""

    incarnation: str

    async def claim(self, requests: Sequence[ClaimRequest]) -> list[ClaimAnswer]:
        """Judge claims."""
        ...

    async def release(self, items: Sequence[Release]) -> object:
        """Give claims back."""
        ...

    async def record(self, uid: str) -> Record | None:
        """The record of a pod."""
        ...


class _Target(msgspec.Struct):
    name: str = ""


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Binding(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    target: _Target = msgspec.field(default_factory=_Target)


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    name: str = ""
    namespace: str = ""
    dry_run: bool | None = None
    object: _Binding | None = None


class _Review(msgspec.Struct, rename="camel"):
    request: _Request


class _Held(NamedTuple):
    claim: str
    token: int
    uid: str


_review = msgspec.json.Decoder(_Review)
_pod = msgspec.json.Decoder(Pod)
_ALLOWED: Final = Verdict(True)
_STATUS: Final = {
    "closed": "it is closed: being rebuilt",
    "epoch": "it was rebuilt just now",
    "busy": "it has another record of the pod",
}


def _not_judged(node: str, why: str) -> Verdict:
    return Verdict(False, f"node {node}: the ledger of koord cannot say what is taken ({why}); try again", judged=False)


class ForeignBindings:
    """Answers AdmissionReviews, while its gateway leads (:meth:`lead`)."""

    def __init__(self, api: Api, ledger: ClaimingLedger) -> None:
        self._api = api
        self._ledger = ledger
        self._numbers = itertools.count(1)
        self._advancer: Advancer | None = None
        self._tell: Callable[[EventNote, float], None] | None = None
        self._late: set[asyncio.Task[Verdict]] = set()

    def lead(self, advancer: Advancer | None, tell: Callable[[EventNote, float], None] | None = None) -> None:
        """Judge from now on under this term's epoch, and ``tell`` pods what they were refused; None: it is over."""
        self._advancer, self._tell = advancer, tell

    async def close(self) -> None:
        """End what is still being judged."""
        await end(*self._late)

    async def answer(self, body: bytes, *, required: bool = False) -> bytes:
        """The AdmissionReview that answers ``body``; ``required``: what is not judged is refused.

        ValueError if ``body`` is none.
        """
        try:
            request = _review.decode(body).request
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"AdmissionReview: {error}") from error
        verdict = await self._in_time(request, required)
        allowed = verdict.allowed or not (verdict.judged or required)
        response: dict[str, object] = {"uid": request.uid, "allowed": allowed}
        if not allowed:
            response["status"] = {"code": 409, "reason": "Conflict", "message": verdict.message}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return msgspec.json.encode(review)

    async def _in_time(self, request: _Request, required: bool) -> Verdict:
        judging = asyncio.create_task(self._judge(request, required), name="gateway-foreign")
        done, _ = await asyncio.wait((judging,), timeout=ANSWER_S)
        if done:
            return judging.result()
        # It goes on: a claim that is under way must be known, to be given back if nobody was allowed to use it.
        self._late.add(judging)
        judging.add_done_callback(self._late.discard)
        if required:
            task = asyncio.create_task(self._give_back(judging), name="gateway-foreign-late")
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        metrics.FOREIGN.labels("late").inc()
        return _not_judged(_node(request), f"no answer in {ANSWER_S:g} s")

    async def _give_back(self, judging: "asyncio.Task[Verdict]") -> Verdict:
        verdict = await judging
        if verdict.held is not None:
            try:
                await self._release(verdict.held)
            except (LedgerUnavailable, LedgerRefused) as error:
                log.warning("a foreign claim stays until it is settled", claim=verdict.held.claim, error=str(error))
        return verdict

    async def _judge(self, request: _Request, required: bool) -> Verdict:
        try:
            verdict = await self._verdict(request, required)
        except (
            AccessError,
            ApiUnavailable,
            LedgerUnavailable,
            LedgerRefused,
            QuantityError,
            msgspec.MsgspecError,
        ) as error:
            log.warning("a foreign Binding is not judged", pod=f"{request.namespace}/{request.name}", error=str(error))
            verdict = _not_judged(_node(request), _trouble(error))
        if not verdict.judged:
            metrics.FOREIGN.labels("not judged").inc()
        elif verdict is _ALLOWED:
            metrics.FOREIGN.labels("passed").inc()
        return verdict

    async def _verdict(self, request: _Request, required: bool) -> Verdict:
        binding = request.object or _Binding()
        node, name = binding.target.name, request.name or binding.metadata.name
        if not node or not name or request.dry_run:
            return _ALLOWED
        answer = await self._api.call("get", PODS.path(request.namespace, name))
        if answer.status == 404:
            return _ALLOWED  # the server itself refuses what it does not know
        if answer.status != 200:
            raise ApiUnavailable(f"get pod {request.namespace}/{name}: answer {answer.status}")
        pod = _pod.decode(answer.body)
        if pod.spec.node_name:
            return _ALLOWED
        # Of quotas it takes nothing yet: they are charged with what the API shows, as always.
        takes = pod_takes(pod_request(pod.spec), node, (), unit_owned=True)
        member = Member(pod.metadata.uid, request.namespace, name, node, takes)
        return await self._claim(member, pod.spec.priority or 0, required)

    async def _claim(self, member: Member, priority: int, required: bool, *, again: bool = True) -> Verdict:
        advancer = self._advancer
        if advancer is None:
            # A registration of an earlier term: whoever leads now replaces it.
            return _not_judged(member.node, "the gateway that was asked does not lead")
        claim = ClaimRequest(f"{self._ledger.incarnation}-{next(self._numbers)}", (member,), priority=priority)
        [claimed] = await self._ledger.claim([claim])
        if claimed.status == "epoch":  # a gateway that has just come learns of the ledger's epoch by this
            [claimed] = await self._ledger.claim([claim])
        if claimed.status == "conflict":
            return self._refused(member, _why(member.node, claimed.shorts))
        if claimed.status == "busy" and again:
            return await self._busy(member, priority, required, claimed.epoch)
        if claimed.status != "ok":
            return _not_judged(member.node, _STATUS.get(claimed.status, claimed.status))
        spent = ClaimRef(claim.id, claimed.token, claimed.epoch)
        advanced = await advancer.advance(spent, FOREIGN + claim.id, (member.uid,))
        if advanced.status != "ok" or member.uid in advanced.gone:
            await self._ledger.release([Release(claim.id, claimed.token)])
            return _not_judged(member.node, "the claim ended at once, or a newer gateway leads")
        metrics.FOREIGN.labels("claimed").inc()
        return Verdict(True, held=_Held(claim.id, claimed.token, member.uid))

    async def _busy(self, member: Member, priority: int, required: bool, epoch: int) -> Verdict:
        """It has a record: of this scheduler's last try, maybe allowed by an earlier leader, or koord's own."""
        record = await self._ledger.record(member.uid)
        if record is None:
            # It has ended, and the server knows that too; or its record ended just now.
            return await self._claim(member, priority, required, again=False)
        if record.state == "OBSERVED" or (record.state == "BINDING" and record.node == member.node):
            return _ALLOWED  # it is bound, which the server knows; or its room is held already
        if record.state == "HELD" and record.node == member.node and await self._spent(record, epoch):
            return _ALLOWED  # koord's scheduler has claimed its room and somebody else binds it there: an extender
        message = f"pod {member.namespace}/{member.name} may still be bound to node {record.node}; try again"
        if required or record.state == "HELD" or not record.decision.startswith(FOREIGN):
            return self._refused(member, message)
        # Its scheduler would not ask for another node if it did not take the last try for failed. Only in the rare case
        # that it is mistaken (an answer that was lost) the pod ends up where nothing is held for it.
        await self._release(_Held(record.claim, record.token, record.uid))
        return await self._claim(member, priority, required, again=False)

    async def _spent(self, record: Record, epoch: int) -> bool:
        """Move a record that is held for the Binding to BINDING, so that nothing ends it meanwhile."""
        if self._advancer is None:
            return False
        spent = ClaimRef(record.claim, record.token, epoch)
        moved = await self._advancer.advance(spent, FOREIGN + record.claim, (record.uid,))
        if moved.status != "ok" or record.uid in moved.gone:
            return False
        metrics.FOREIGN.labels("claimed").inc()
        return True

    def _refused(self, member: Member, message: str) -> Verdict:
        metrics.FOREIGN.labels("refused").inc()
        if self._tell is not None:
            target = ObjectRef(PODS.token, member.namespace, member.name, member.uid)
            note = EventNote(
                target, PODS.kind, PODS.api_version, "Warning", "BindingRefused", message, "Binding", "koord-gateway"
            )
            self._tell(note, time.time())
        return Verdict(False, message)

    async def _release(self, held: _Held) -> None:
        if self._advancer is not None:
            epoch = self._advancer.role_epoch
            await self._ledger.release([Release(held.claim, held.token, (held.uid,), "gateway", epoch)])


def _trouble(error: Exception) -> str:
    """What may be told to who binds: no addresses; the log has the rest."""
    if isinstance(error, LedgerUnavailable | LedgerRefused):
        return "it cannot be reached" if isinstance(error, LedgerUnavailable) else "it refuses the question"
    if isinstance(error, AccessError | ApiUnavailable):
        return "koord cannot read the pod"
    return "koord cannot make out what the pod asks for"


def _node(request: _Request) -> str:
    return request.object.target.name if request.object is not None else ""


def _why(node: str, shorts: Sequence[Short]) -> str:
    """Amounts as the ledger counts them: thousandths of a cpu, bytes, pieces."""
    parts = [
        f"{short.key}: {short.needed} needed, {short.available} left"
        + (", the rest is kept for a pod that was nominated" if short.kind == "nomination" else "")
        for short in shorts
        if short.key
    ]
    detail = "; ".join(parts) or "the ledger of koord does not know the node, or it is going away"
    return f"node {node} has not the room ({detail}): what koord is binding to it counts, too"
