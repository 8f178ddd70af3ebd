"""From plans to claims and from accepted claims to bind decisions: pure translation, no I/O."""

import itertools
from collections.abc import Mapping

import msgspec

from koord.accounting.takes import pod_takes
from koord.contracts.decisions import Bind, BindMember, ClaimRef
from koord.kube.protocol import gang as gang_keys
from koord.kube.protocol.queue import RELATED_QUEUE_UNIT, lookup
from koord.kube.protocol.quota import is_preemptible
from koord.kube.protocol.trace import TRACEPARENT
from koord.ledger.model import ClaimAnswer, ClaimRequest, Member, Slot
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.flights import Flight
from koord.scheduler.framework.profile import Profile
from koord.scheduler.gang.book import BOUND_WITH, Gang, GangBook, mark
from koord.scheduler.ignoring import Ignores, ignores_of, unchecked
from koord.scheduler.plugins.elasticquota import ElasticQuota
from koord.scheduler.podtrace import trace_of
from koord.scheduler.queueing.queue import Unit
from koord.scheduler.refusals import Refusals
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans

_INTERNAL = "internal.scheduling.koordinator.sh/"
_OLD = "scheduling.koordinator.sh/"
GANG_SLOT = "gang/"
"""Whoever has the slot of a Strict gang group plans it."""
GROUP_ID, MEMBER_COUNT = "bind-gang-group-id", "bind-gang-member-count"


class Planned(msgspec.Struct, eq=False):
    """What one unit's plan wants to claim. ``rejecters`` and ``message`` are for members that found no place.

    ``job``: a plugin planned it for the whole job, which is claimed as a whole; ``guests`` are then the units of those
    members that are not of ``unit``.
    """

    unit: Unit
    members: list[tuple[PodInfo, Placed]]
    complete: bool = True
    rejecters: frozenset[str] = frozenset()
    message: str = ""
    guests: tuple[Unit, ...] = ()
    job: bool = False

    @property
    def units(self) -> tuple[Unit, ...]:
        """All units that have a part in it, its own first."""
        return (self.unit, *self.guests)


class Claims:
    """Makes claim requests, flights and bind decisions of one incarnation."""

    def __init__(self, incarnation: str, quota: ElasticQuota | None, book: GangBook, spans: Spans) -> None:
        self._incarnation = incarnation
        self._quota = quota
        self._book = book
        self._spans = spans
        self._numbers = itertools.count(1)
        self.refusals = Refusals()
        self._ignored = _Ignored()

    def request(self, planned: Planned, trace: TraceContext) -> ClaimRequest:
        """One claim for all planned members; a Strict group also takes the group's slot.

        A gang group that was refused again and again takes the room of what is held by lower ranks.
        """
        unit = planned.unit
        strict = True
        slots: tuple[Slot, ...] = ()
        if unit.group:
            gangs = self._gangs(planned)
            strict = any(self._book.whole(gang) for gang in gangs)
            if strict:
                slots = (Slot(GANG_SLOT + unit.group),)
            strict = strict or planned.job
        given = [Slot(item, pod.uid) for pod, placed in planned.members for item in placed.slots]
        if given:
            slots = (*slots, *given)
        return ClaimRequest(
            f"{self._incarnation}-{next(self._numbers)}",
            tuple([self.member(pod, placed) for pod, placed in planned.members]),
            slots,
            priority=unit.priority,
            trace=trace.traceparent,
            strict=strict,
            group=unit.group,
            wound=bool(unit.group) and self.refusals.insists(unit.key),
        )

    def member(self, pod: PodInfo, placed: Placed) -> Member:
        """What a pod takes where it is placed."""
        ref = pod.ref
        quota = self._quota
        chain = quota.chain_of(ref.labels, ref.namespace) if quota is not None and len(quota.tree) else ()
        owned = bool(ref.annotations) and bool(lookup(ref.annotations, RELATED_QUEUE_UNIT))
        takes = pod_takes(
            pod.class_.template.footprint.request if placed.request is None else placed.request,
            placed.node,
            chain,
            unit_owned=owned,
            check_parents=quota is None or quota.settings.check_parents,
            preemptible=is_preemptible(ref.labels),
        )
        ignores = self._ignored[pod.class_.profile]
        if ignores is not None:
            takes = unchecked(takes, ignores)
        return Member(ref.uid, ref.namespace, ref.name, placed.node, (*takes, *placed.takes) if placed.takes else takes)

    def flight(self, planned: Planned, request: ClaimRequest, answer: ClaimAnswer, trace: TraceContext) -> Flight:
        """An accepted claim."""
        members = {pod.ref.uid: (pod, placed) for pod, placed in planned.members}
        return Flight(request.id, answer.token, answer.epoch, members, planned.unit.group, trace, job=planned.job)

    def bind(self, flight: Flight) -> Bind:
        """The decision that spends the claim of ``flight``."""
        count = len(flight.members)
        shared: dict[str, str] = {}
        if flight.group and count > 1:
            for prefix in (_INTERNAL, _OLD):
                shared[prefix + GROUP_ID] = flight.group
                shared[prefix + MEMBER_COUNT] = str(count)
        members: list[BindMember] = []
        per_gang: dict[str, Gang] = {}
        traceparent = flight.trace.traceparent
        for pod, placed in flight.members.values():
            ref = pod.ref
            own = ref.annotations.get(TRACEPARENT, "") if ref.annotations else ""
            annotations = shared if own else {**shared, TRACEPARENT: traceparent}
            if placed.annotations:
                annotations = {**placed.annotations, **annotations}
            gang = self._book.of(ref.uid) if flight.group else None
            if gang is not None:
                per_gang[gang.ref.id] = gang
            members.append(
                BindMember(
                    ref.uid,
                    ref.namespace,
                    ref.name,
                    placed.node,
                    annotations,
                    gang.ref.id if gang is not None else "",
                    _trace_of(own, flight.trace),
                )
            )
        for gang in per_gang.values():
            if count > 1 and (self._book.evicts or self._book.policy(gang) == gang_keys.ONLY_WAITING):
                members = _marked(members, gang.ref.id)
        return Bind(flight.claim, ClaimRef(flight.claim, flight.token, flight.epoch), members, self._minimum(per_gang))

    def trace(self, planned: Planned) -> TraceContext:
        """The parent of a plan's spans: the pod's own trace, or a new one."""
        return trace_of(planned.members[0][0].ref, self._spans)

    def _minimum(self, gangs: Mapping[str, Gang]) -> dict[str, int]:
        """How many of the members must be bound for each Strict gang to stand; those bound before count."""
        needed: dict[str, int] = {}
        for id_, gang in gangs.items():
            if self._book.whole(gang):
                minimum = (gang.ref.min or 0) - len(gang.bound)
                if minimum > 0:
                    needed[id_] = minimum
        return needed

    def _gangs(self, planned: Planned) -> list[Gang]:
        found: dict[str, Gang] = {}
        for pod, _ in planned.members:
            gang = self._book.of(pod.uid)
            if gang is not None:
                found[gang.ref.id] = gang
        return list(found.values())


class _Ignored(dict[Profile, Ignores | None]):
    """What each profile ignores, found out when it is asked for first."""

    def __missing__(self, profile: Profile) -> Ignores | None:
        found = self[profile] = ignores_of(profile)
        return found


def _marked(members: list[BindMember], gang: str) -> list[BindMember]:
    """Every member of the gang names all of them (see ``BOUND_WITH``)."""
    marks = ",".join(mark(member.uid) for member in members if member.gang == gang)
    return [
        msgspec.structs.replace(member, annotations={**member.annotations, BOUND_WITH: marks})
        if member.gang == gang
        else member
        for member in members
    ]


def _trace_of(own: str, flight: TraceContext) -> str:
    """A member's traceparent: under the claim's span if it is of the same trace, else its own."""
    if not own:
        return flight.traceparent
    context = TraceContext.parse(own)
    if context is None or context.trace_id == flight.trace_id:
        return flight.traceparent
    return own
