"""Bindings of other schedulers, claimed in the ledger before the API server makes them (spec 20 section 3.12).

Another scheduler on the same nodes knows of koord's pods what the API shows, and koord of its: each a moment late, so
both may take the last room of a node. With this the API server asks (a validating webhook on ``pods/binding``) before a
foreign Binding is made; it is allowed if the ledger has the room, and holds it from then on. The claim ends as every
other: OBSERVED when the pod is seen on its node, else when its lease is over.

What cannot be judged is allowed, for another scheduler must not stand still because koord does; unless it is required.
"""

import itertools
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from koord.accounting.requests import pod_request
from koord.accounting.takes import pod_takes
from koord.gateway import metrics
from koord.gateway.api import Api, ApiUnavailable
from koord.kube.pods import Pod
from koord.kube.quantity import QuantityError
from koord.kube.resources import PODS
from koord.ledger.model import ClaimAnswer, ClaimRequest, LedgerRefused, LedgerUnavailable, Member, Release, Short
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.foreign")

_REMEMBERED = 10_000


class Verdict(NamedTuple):
    """Whether a Binding may be made, and why not."""

    allowed: bool
    message: str = ""


class ClaimingLedger(Protocol):
    """The part of the ledger client that is used here; its leases outlast a request to the API server."""

    incarnation: str

    async def claim(self, requests: Sequence[ClaimRequest]) -> list[ClaimAnswer]:
        """Judge claims."""
        ...

    async def release(self, items: Sequence[Release]) -> object:
        """Give claims back."""
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
    node: str
    until_s: float


_review = msgspec.json.Decoder(_Review)
_pod = msgspec.json.Decoder(Pod)


class ForeignBindings:
    """Answers AdmissionReviews.

    ``lease_s`` is that of the ledger's claims; ``required``: what is not judged is refused.
    """

    def __init__(self, api: Api, ledger: ClaimingLedger, lease_s: float, *, required: bool = False) -> None:
        self._required = required
        self._api = api
        self._ledger = ledger
        self._lease_s = lease_s
        self._numbers = itertools.count(1)
        self._held: dict[str, _Held] = {}

    async def answer(self, body: bytes) -> bytes:
        """The AdmissionReview that answers ``body``. ValueError if that is none."""
        try:
            request = _review.decode(body).request
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"AdmissionReview: {error}") from error
        try:
            verdict = await self._judge(request)
        except (ApiUnavailable, LedgerUnavailable, LedgerRefused, QuantityError, msgspec.MsgspecError) as error:
            log.warning("a foreign Binding is not judged", pod=f"{request.namespace}/{request.name}", error=str(error))
            verdict = self._not_judged()
        response: dict[str, object] = {"uid": request.uid, "allowed": verdict.allowed}
        if not verdict.allowed:
            response["status"] = {"code": 409, "reason": "Conflict", "message": verdict.message}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return msgspec.json.encode(review)

    async def _judge(self, request: _Request) -> Verdict:
        node = request.object.target.name if request.object is not None else ""
        if not node or request.dry_run:
            return Verdict(True)
        answer = await self._api.call("get", PODS.path(request.namespace, request.name))
        if answer.status != 200:
            return Verdict(True)  # the server itself refuses what it does not know
        pod = _pod.decode(answer.body)
        uid = pod.metadata.uid
        if pod.spec.node_name:
            return Verdict(True)
        now = time.monotonic()
        before = self._held.get(uid)
        if before is not None:
            if before.node == node and before.until_s > now + self._lease_s / 2:
                return Verdict(True)
            await self._ledger.release([Release(before.claim, before.token)])
        self._forget(now)
        # Of quotas it takes nothing yet: they are charged with what the API shows, as always.
        takes = pod_takes(pod_request(pod.spec), node, (), unit_owned=True)
        member = Member(uid, request.namespace, request.name, node, takes)
        claim = ClaimRequest(f"{self._ledger.incarnation}-{next(self._numbers)}", (member,))
        [claimed] = await self._ledger.claim([claim])
        if claimed.status == "ok":
            self._held[uid] = _Held(claim.id, claimed.token, node, now + self._lease_s)
            metrics.FOREIGN.labels("claimed").inc()
            return Verdict(True)
        if claimed.status == "conflict":
            metrics.FOREIGN.labels("refused").inc()
            return Verdict(False, _why(node, claimed.shorts))
        return self._not_judged() if claimed.status in ("closed", "epoch") else Verdict(True)

    def _not_judged(self) -> Verdict:
        metrics.FOREIGN.labels("not judged").inc()
        return Verdict(not self._required, "the ledger of koord cannot say what is taken; try again")

    def _forget(self, now: float) -> None:
        """Claims whose lease is over are nobody's; what was observed needs no memory either."""
        if len(self._held) > _REMEMBERED:
            self._held = {uid: held for uid, held in self._held.items() if held.until_s > now}


def _why(node: str, shorts: Sequence[Short]) -> str:
    parts = [f"{short.key}: {short.needed} needed, {short.available} left" for short in shorts if short.key]
    detail = "; ".join(parts) or "the node is not known yet"
    return f"node {node} has not the room ({detail}): other pods are being bound to it by koord"
