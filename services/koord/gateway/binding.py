"""Binding, exactly as spec 20 section 3.12 lays it down under G, steps (a) to (f).

The point of the steps: no Binding is sent without a BINDING record of this decision and epoch, and no room is given
back while a request that could still bind the pod may be under way.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from koord.contracts.decisions import Bind, BindMember, ClaimRef
from koord.contracts.results import MemberResult, Outcome, Result
from koord.gateway.advancing import Advancer
from koord.gateway.api import Api, ApiUnavailable, transient
from koord.gateway.guarantees import Guarantees
from koord.gateway.leanclient import NotSent, OutcomeUnknown
from koord.gateway.objects import read_status
from koord.gateway.podindex import PodIndex, PodSight
from koord.gateway.settling import settle
from koord.kube.resources import PODS
from koord.ledger.model import Release, ReleaseAnswer
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans

ROUNDS = 6
"""Rounds of read, advance and send before the decision goes back to the queue."""
WINDOW = 64
"""Bindings of one decision that are under way at a time."""

_encode = msgspec.json.Encoder().encode


class NotLeading(Exception):
    """The ledger knows a newer gateway: this one must stop writing."""


class TryLater(Exception):
    """Nothing final can be said yet; the decision goes back to the queue. ``delay_s`` is when to try again.

    Each further try waits ``growth`` times longer.
    """

    def __init__(self, reason: str, delay_s: float = 1.0, *, growth: float = 1.5) -> None:
        super().__init__(reason)
        self.delay_s = delay_s
        self.growth = growth


class ReleasingLedger(Protocol):
    """The part of the ledger client that is used here."""

    async def release(self, items: Sequence[Release]) -> list[ReleaseAnswer]:
        """Give members back."""
        ...


class _Target(msgspec.Struct, rename="camel"):
    name: str
    api_version: str = "v1"
    kind: str = "Node"


class _BindingMeta(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    uid: str
    resource_version: str
    annotations: dict[str, str] = {}


class _Binding(msgspec.Struct, rename="camel"):
    metadata: _BindingMeta
    target: _Target
    api_version: str = "v1"
    kind: str = "Binding"


class _Doing:
    """One member on its way."""

    __slots__ = ("began_ns", "fresh", "member", "outcome", "reason", "sight", "unsure", "wait_s")

    def __init__(self, member: BindMember) -> None:
        self.member = member
        self.unsure = False  # a request for it may still be under way
        self.sight: PodSight | None = None
        self.fresh = False  # the sight was read after the last request
        self.wait_s = 0.0  # what the server or a failure asks to wait before the next round
        self.outcome: Outcome | None = None
        self.reason = ""
        self.began_ns = time.time_ns()

    def end(self, outcome: Outcome, reason: str = "") -> None:
        self.outcome = outcome
        self.reason = reason


Seen = Literal["unbound", "ended"]


class Binder:
    """Executes bind decisions, one call of :meth:`bind` per delivery."""

    def __init__(
        self,
        api: Api,
        pods: PodIndex,
        advancer: Advancer,
        ledger: ReleasingLedger,
        role_epoch: int,
        spans: Spans,
        on_released: Callable[[ReleaseAnswer, ClaimRef], None],
        guarantees: Guarantees | None = None,
    ) -> None:
        self._guarantees = guarantees or Guarantees.full()
        self._api = api
        self._pods = pods
        self._advancer = advancer
        self._ledger = ledger
        self._role_epoch = role_epoch
        self._spans = spans
        self._on_released = on_released

    async def bind(self, decision: Bind) -> Result:
        """Bind the members and give back the room of those that are refused for good.

        Raises TryLater (nothing final: the decision must be delivered again), LedgerUnavailable and NotLeading.
        """
        all_ = [_Doing(member) for member in decision.members]
        for round_ in range(1, ROUNDS + 1):
            pending = [doing for doing in all_ if doing.outcome is None]
            if not pending:
                break
            await self._pause(pending)
            await self._versions(pending, reread=round_ > 1)
            await self._advance(decision, pending, rounds=round_)
            for doing in pending:
                if doing.outcome is None:
                    self._judge(doing)
            if not self._guarantees.may_bind(decision.claim.claim.rpartition("-")[0]):
                self._refuse_unsent(pending)
            await self._send(decision, all_, [doing for doing in pending if doing.outcome is None])
        if any(doing.outcome is None for doing in all_):
            raise TryLater(f"bind {decision.id}: the API server gave no final answer", 2.0)
        await self._release(decision, all_)
        return _result(decision, all_)

    async def _pause(self, pending: Sequence[_Doing]) -> None:
        wait = max(doing.wait_s for doing in pending)
        if wait:
            await asyncio.sleep(wait * random.uniform(0.7, 1.0))
        for doing in pending:
            doing.wait_s = 0.0

    # (a) versions, then advance -----------------------------------------------------------------------------------

    async def _versions(self, pending: Sequence[_Doing], *, reread: bool) -> None:
        unread = []
        for doing in pending:
            if doing.fresh:
                continue
            member = doing.member
            sight = None if reread else self._pods.get(member.namespace, member.name, member.uid)
            if sight is None:
                unread.append(doing)
            else:
                doing.sight = sight
        for start in range(0, len(unread), WINDOW):
            await _all([self._read(doing) for doing in unread[start : start + WINDOW]])

    async def _read(self, doing: _Doing) -> None:
        member = doing.member
        try:
            brief = await self._api.read(PODS, member.namespace, member.name)
        except ApiUnavailable as error:
            raise TryLater(str(error), 2.0) from error
        doing.fresh = True
        if brief is None or brief.uid != member.uid:
            doing.sight = None
            return
        doing.sight = PodSight(brief.uid, brief.resource_version, brief.node, brief.terminating)

    async def _advance(self, decision: Bind, pending: Sequence[_Doing], *, rounds: int) -> None:
        """Move the members' records to BINDING; those that have none of this claim any more end here."""
        answer = await self._advancer.advance(decision.claim, decision.id, [doing.member.uid for doing in pending])
        if answer.status == "stale":
            raise NotLeading
        if answer.status == "closed":
            raise TryLater("the ledger is closed", growth=1.0)
        void = answer.status in ("gone", "epoch")
        if answer.attempt > rounds:  # another process, or an earlier delivery, has been at it
            for doing in pending:
                doing.unsure = True
        for doing in pending:
            uid = doing.member.uid
            if not void and uid not in answer.gone and uid not in answer.observed:
                continue
            # No record of this claim: what the API shows decides whether it was carried out before.
            node = answer.observed.get(uid)
            if node is None:
                await self._read(doing)
                node = doing.sight.node if doing.sight is not None else ""
            if node == doing.member.node:
                self._done(doing)  # the span of whoever bound it may have died with it
            else:
                doing.end("rejected", "claim gone" if answer.status != "epoch" else f"claim gone: epoch {answer.epoch}")

    def _judge(self, doing: _Doing) -> Seen:
        """End a member whose fate the API shows; node, deletion and uid never go back, so no request can change it."""
        sight, member = doing.sight, doing.member
        if sight is None:
            doing.end("gone", f"pod {member.namespace}/{member.name} (uid {member.uid}): does not exist")
        elif sight.node == member.node:
            self._done(doing)
        elif sight.node:
            doing.end("conflict", f"pod {member.namespace}/{member.name}: assigned to node {sight.node}")
        elif sight.terminating:
            doing.end("gone", f"pod {member.namespace}/{member.name}: being deleted")
        else:
            return "unbound"
        return "ended"

    def _refuse_unsent(self, pending: Sequence[_Doing]) -> None:
        """Another scheduler is the one that may bind. What may have been sent already is seen to its end."""
        for doing in pending:
            if doing.outcome is None and not doing.unsure:
                doing.end("rejected", self._guarantees.refusal())

    # (b), (c), (e) send -------------------------------------------------------------------------------------------

    async def _send(self, decision: Bind, all_: Sequence[_Doing], pending: Sequence[_Doing]) -> None:
        for start in range(0, len(pending), WINDOW):
            if self._advancer.stopped:  # a barrier began since: what it waits for was sent before
                raise TryLater("the ledger is closed", growth=1.0)
            if decision.minimum:
                self._drop_hopeless(decision, all_, pending[start:])
            window = [doing for doing in pending[start : start + WINDOW] if doing.outcome is None]
            if len(window) == 1:
                await self._post(window[0])
            elif window:
                await _all([self._post(doing) for doing in window])

    def _drop_hopeless(self, decision: Bind, all_: Sequence[_Doing], unsent: Sequence[_Doing]) -> None:
        """(e) Once fewer than a Strict gang's minimum can still be bound, what was not sent stays unsent."""
        possible: dict[str, int] = {}
        for doing in all_:
            if doing.outcome is None or doing.outcome == "done":
                possible[doing.member.gang] = possible.get(doing.member.gang, 0) + 1
        for doing in unsent:
            gang = doing.member.gang
            least = decision.minimum.get(gang, 0)
            if doing.outcome is None and not doing.unsure and possible.get(gang, 0) < least:
                doing.end("rejected", f"gang {gang}: only {possible.get(gang, 0)} of at least {least} can be bound")

    async def _post(self, doing: _Doing) -> None:
        member, sight = doing.member, doing.sight
        assert sight is not None
        doing.fresh = False
        body = _encode(
            _Binding(
                _BindingMeta(member.name, member.namespace, member.uid, sight.resource_version, member.annotations),
                _Target(member.node),
            )
        )
        try:
            answer = await self._api.once("bind", PODS.path(member.namespace, member.name, "binding"), body)
        except NotSent:  # nothing happened: the next round tries again
            doing.wait_s = 0.5
            return
        except OutcomeUnknown:
            doing.unsure, doing.wait_s = True, 0.5
            return
        if answer.status < 300:
            self._done(doing)
            return
        if answer.status >= 500:
            doing.unsure = True
        if answer.status == 409 or transient(answer.status):
            # Read again; what the API shows may be final, else the next round starts from (a).
            if answer.status != 409:
                doing.wait_s = max(0.5, min(answer.retry_after, 10.0))
            await self._read(doing)
            self._judge(doing)
            return
        reason = read_status(answer.body).message or f"answer {answer.status}"
        await self._refused(doing, "gone" if answer.status == 404 else "rejected", reason)

    # (d) refused --------------------------------------------------------------------------------------------------

    async def _refused(self, doing: _Doing, outcome: Outcome, reason: str) -> None:
        """End a member by a definite refusal; settle first if an earlier request may still be under way."""
        if not doing.unsure:
            doing.end(outcome, reason)
            return
        if await self._settle(doing):
            doing.end(outcome, reason)

    async def _settle(self, doing: _Doing) -> bool:
        """Give the unbound pod a new version, so that every older request fails; True if it is unbound for good.

        Where versions fail no request, none is under way any more after a while.
        """
        member = doing.member
        await asyncio.sleep(self._guarantees.outlive_s)
        try:
            there = await settle(self._api, PODS, member.namespace, member.name, member.uid)
        except ApiUnavailable as error:
            raise TryLater(str(error), 2.0) from error
        doing.sight = there and PodSight(there.uid, there.resource_version, there.node, there.terminating)
        return self._judge(doing) == "unbound"

    # (f) release --------------------------------------------------------------------------------------------------

    async def _release(self, decision: Bind, all_: Sequence[_Doing]) -> None:
        refused = tuple(
            doing.member.uid
            for doing in all_
            if doing.outcome not in (None, "done") and not doing.reason.startswith("claim gone")
        )
        if not refused:
            return
        answers = await self._ledger.release(
            [Release(decision.claim.claim, decision.claim.token, refused, by="gateway", role_epoch=self._role_epoch)]
        )
        if answers[0].status == "stale":
            raise NotLeading
        self._on_released(answers[0], decision.claim)

    def _done(self, doing: _Doing) -> None:
        doing.end("done")
        member = doing.member
        parent, end_ns = TraceContext.parse(member.trace), time.time_ns()
        if parent is not None and self._spans.keeps(parent, doing.began_ns, end_ns):
            self._spans.record(
                "gateway.bind",
                parent=parent,
                context=parent.named(f"gateway.bind {member.uid}"),
                start_ns=doing.began_ns,
                end_ns=end_ns,
                attributes={"pod": f"{member.namespace}/{member.name}", "node": member.node},
                pod=True,
            )


async def _all(calls: Sequence[Awaitable[None]]) -> None:
    """Run all to their end, then raise the first failure: nothing may go on behind the decision's back."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _result(decision: Bind, all_: Sequence[_Doing]) -> Result:
    outcomes = {doing.outcome for doing in all_}
    members = [MemberResult(doing.member.uid, doing.outcome or "rejected", doing.reason) for doing in all_]
    if outcomes == {"done"}:
        return Result(decision.id, "done", members=members)
    first = next(doing for doing in all_ if doing.outcome != "done")
    return Result(decision.id, first.outcome or "rejected", first.reason, members=members)
