"""Who belongs to which gang, and whether a gang may be tried: state derived from pods and PodGroups alone.

Spec 20 section 3.1. ``once_satisfied`` is derived, not remembered: a member is bound now, or the PodGroup's phase says
that the gang ran; so a restart forgets nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal
from zlib import crc32

import msgspec

from koord.kube.protocol import gang as keys
from koord.kube.protocol.gang import GangRef, gang_of, governed_by
from koord.scheduler.framework.contract import PodRef
from koord.scheduler.gang.phases import SATISFIED

LEAVE: Final = "leave"
EVICT: Final = "evict"
BOUND_WITH = "koord.sh/gang-bound-with"
"""Annotation of bound members of only-waiting gangs, and of all gangs where those in part are evicted: marks of all
members that one bind was to bind.

A pending member that a bound one names was left out by that bind. Without it a restart could not tell it from a
replacement, which needs a full new minimum, and it would wait for ever."""


def mark(uid: str) -> str:
    """A pod's mark in ``BOUND_WITH``."""
    return f"{crc32(uid.encode()):08x}"


class GangSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``default_timeout_s``: how long placed members of a NonStrict gang wait for the others.

    ``gated_event_after_s``: a gang that may not be tried for that long is told why by Events.
    ``partial_gang_action``: what happens to the bound members of a gang that a bind left in part and that is not whole
    again within its wait time: ``leave`` them, or ``evict`` them.
    ``stale_after_s``: PodGroups whose scheduling began later than this after their creation keep their phase once they
    are scheduled and nothing of them runs (the original's rule: 172800, 48 h); 0: every phase follows its pods.
    """

    default_timeout_s: float = 600.0
    default_match_policy: str = keys.ONCE_SATISFIED
    gated_event_after_s: float = 30.0
    stale_after_s: float = 0.0
    partial_gang_action: Literal["leave", "evict"] = LEAVE


class Gang:
    """One gang: what it asks for, and its members by state.

    ``ref`` is what is in force, ``own`` what its first pod says. ``sent`` are the planned whose bind is published.
    ``partly``: a bind ended with fewer than its minimum bound; until it is repaired the bound count under every policy.
    """

    __slots__ = (
        "bound",
        "bound_with",
        "own",
        "partly",
        "pending",
        "planned",
        "pod_group",
        "ref",
        "satisfied_phase",
        "sent",
    )

    def __init__(self, ref: GangRef) -> None:
        self.ref = self.own = ref
        self.sent: set[str] = set()
        self.bound_with: set[str] = set()
        self.pod_group = False
        self.satisfied_phase = False
        self.partly = False
        self.pending: dict[str, PodRef] = {}
        self.planned: dict[str, PodRef] = {}
        self.bound: set[str] = set()

    @property
    def members(self) -> int:
        """How many pods of the gang exist."""
        return len(self.pending) + len(self.planned) + len(self.bound)

    @property
    def initialised(self) -> bool:
        """Whether its minimum is known, and its PodGroup exists where one is needed."""
        return self.ref.min is not None and (self.pod_group or not self.ref.waits_for_pod_group)

    @property
    def once_satisfied(self) -> bool:
        """Whether the gang was complete at some time, by its own members."""
        return bool(self.bound) or self.satisfied_phase


class GangBook:
    """Every gang, by id, and gang groups: gangs that must be placed together."""

    def __init__(self, settings: GangSettings | None = None) -> None:
        self.settings = settings or GangSettings()
        self.gangs: dict[str, Gang] = {}
        self._gang_of_pod: dict[str, str] = {}
        self._pod_groups: dict[str, tuple[int, int | None, Mapping[str, str], str]] = {}
        self.pod_group_uids: dict[str, str] = {}
        self._listed_by: dict[str, set[str]] = {}
        """Gangs that name another one in their group, by the one named."""

    # Feeding --------------------------------------------------------------------------------------------------------

    def add(self, pod: PodRef, *, bound: bool) -> Gang | None:
        """A live pod; ``bound``: it has a node in the API. None if it belongs to no gang."""
        id_ = self._gang_of_pod.get(pod.uid)
        if id_ is None:
            if not pod.labels and not pod.annotations:
                return None
            ref = gang_of(pod.labels, pod.annotations, pod.namespace)
            if ref is None:
                return None
            id_ = ref.id
            if id_ not in self.gangs:
                # Initialised once, from the first pod seen: differing annotations on later pods are ignored.
                gang = self.gangs[id_] = Gang(ref)
                self._list(gang)
                self._govern(gang)
            self._gang_of_pod[pod.uid] = id_
        gang = self.gangs[id_]
        uid = pod.uid
        if bound:
            gang.pending.pop(uid, None)
            gang.planned.pop(uid, None)
            gang.sent.discard(uid)
            gang.bound.add(uid)
            if BOUND_WITH in pod.annotations:
                gang.bound_with.update(pod.annotations[BOUND_WITH].split(","))
            if len(gang.bound) >= (gang.ref.min or 0):
                gang.partly = False
        elif uid in gang.planned:
            gang.planned[uid] = pod
        else:
            gang.bound.discard(uid)
            gang.pending[uid] = pod
        return gang

    def remove(self, uid: str) -> Gang | None:
        """A pod is gone; a gang ends with its last member unless a PodGroup keeps it."""
        id_ = self._gang_of_pod.pop(uid, None)
        if id_ is None:
            return None
        gang = self.gangs[id_]
        gang.pending.pop(uid, None)
        gang.planned.pop(uid, None)
        gang.sent.discard(uid)
        gang.bound.discard(uid)
        if not gang.bound:
            gang.bound_with.clear()
        if not gang.members:
            self._unlist(gang)
            del self.gangs[id_]
        return gang

    def plan(self, uid: str) -> None:
        """A pending member is planned (upstream: waiting at Permit, or on its way to be bound)."""
        gang = self.of(uid)
        if gang is not None and uid in gang.pending:
            gang.planned[uid] = gang.pending.pop(uid)

    def sent(self, uids: Iterable[str]) -> None:
        """The bind of planned members is published: they do not wait for others any more."""
        for uid in uids:
            gang = self.of(uid)
            if gang is not None and uid in gang.planned:
                gang.sent.add(uid)

    def unplan(self, uid: str) -> None:
        """A planned member is pending again."""
        gang = self.of(uid)
        if gang is not None and uid in gang.planned:
            gang.pending[uid] = gang.planned.pop(uid)
            gang.sent.discard(uid)

    def not_bound(self, uids: Iterable[str], bound: Iterable[str]) -> list[tuple[str, Gang, int]]:
        """Gangs that a bind left in part: members ``bound`` by it, ``uids`` refused. Per gang a refused uid and how
        many are bound in all (spec 20 section 3.12, gang partly bound)."""
        found: dict[str, tuple[str, Gang, int]] = {}
        for uid in uids:
            gang = self.of(uid)
            if gang is None or gang.ref.id in found:
                continue
            count = len(gang.bound.union(other for other in bound if self.of(other) is gang))
            if 0 < count < (gang.ref.min or 0):
                gang.partly = True
                found[gang.ref.id] = (uid, gang, count)
        return list(found.values())

    def set_pod_group(
        self,
        id_: str,
        min_member: int,
        timeout_s: int | None,
        annotations: Mapping[str, str],
        phase: str,
        uid: str = "",
    ) -> Gang | None:
        """A PodGroup governs the gang of its id."""
        self.pod_group_uids[id_] = uid
        self._pod_groups[id_] = (min_member, timeout_s, annotations, phase)
        gang = self.gangs.get(id_)
        if gang is not None:
            self._govern(gang)
        return gang

    def remove_pod_group(self, id_: str) -> Gang | None:
        """The PodGroup is gone."""
        self._pod_groups.pop(id_, None)
        self.pod_group_uids.pop(id_, None)
        gang = self.gangs.get(id_)
        if gang is not None:
            self._unlist(gang)
            gang.ref = gang.own
            gang.pod_group = gang.satisfied_phase = False
            self._list(gang)
        return gang

    def _govern(self, gang: Gang) -> None:
        governing = self._pod_groups.get(gang.ref.id)
        if governing is not None:
            self._unlist(gang)
            min_member, timeout_s, annotations, phase = governing
            gang.ref = governed_by(gang.own, min_member, timeout_s, annotations)
            gang.pod_group = True
            gang.satisfied_phase = phase in SATISFIED
            self._list(gang)

    def _list(self, gang: Gang) -> None:
        for id_ in gang.ref.groups:
            if id_ != gang.ref.id:
                self._listed_by.setdefault(id_, set()).add(gang.ref.id)

    def _unlist(self, gang: Gang) -> None:
        for id_ in gang.ref.groups:
            listing = self._listed_by.get(id_)
            if listing is not None:
                listing.discard(gang.ref.id)
                if not listing:
                    del self._listed_by[id_]

    # Asking ---------------------------------------------------------------------------------------------------------

    def of(self, uid: str) -> Gang | None:
        """The gang of a pod."""
        id_ = self._gang_of_pod.get(uid)
        return None if id_ is None else self.gangs.get(id_)

    def policy(self, gang: Gang) -> str:
        """The gang's match policy."""
        return gang.ref.match_policy or self.settings.default_match_policy

    def wait_s(self, gang: Gang) -> float:
        """How long the gang's placed members wait for the others; never capped."""
        return gang.ref.wait_s or self.settings.default_timeout_s

    def alone(self, gang: Gang) -> bool:
        """Late and replacement members of a gang that was complete once are scheduled like single pods."""
        return self.policy(gang) == keys.ONCE_SATISFIED and self.once_satisfied(gang)

    def whole(self, gang: Gang) -> bool:
        """Whether the gang is nothing in parts: Strict, with a minimum, and not complete before."""
        return gang.ref.mode == keys.STRICT and bool(gang.ref.min) and not self.alone(gang)

    def once_satisfied(self, gang: Gang) -> bool:
        """Whether the gang's group was complete at some time: a member of any of its gangs is bound, or ran."""
        return gang.once_satisfied or any(
            other.once_satisfied and other.ref.groups == gang.ref.groups and gang.ref.id in gang.ref.groups
            for other in self.group(gang)
        )

    def group(self, gang: Gang) -> list[Gang]:
        """The gangs of the gang's group that exist."""
        return [found for id_ in gang.ref.groups if (found := self.gangs.get(id_)) is not None]

    def related(self, id_: str) -> list[Gang]:
        """The gang ``id_`` if it exists, those of its group, and those that name it in theirs."""
        gang = self.gangs.get(id_)
        listing = self._listed_by.get(id_)
        found = {} if gang is None else {id_: gang, **{other.ref.id: other for other in self.group(gang)}}
        if listing:
            found.update((other, self.gangs[other]) for other in listing)
        return list(found.values())

    def waiting(self, gang: Gang) -> int:
        """Members that are placed and not seen bound. Under only-waiting those on their way to a node wait no more."""
        return len(gang.planned) - (len(gang.sent) if self.policy(gang) == keys.ONLY_WAITING else 0)

    def complete(self, ids: Iterable[str]) -> bool:
        """Whether what is placed of the gang group ``ids`` is enough as it stands."""
        gangs = [self.gangs.get(id_) for id_ in ids]
        return all(
            gang is not None
            and gang.initialised
            and not self._asymmetric(gang)
            and self.valid(gang, self.waiting(gang))
            for gang in gangs
        )

    def valid(self, gang: Gang, waiting: int) -> bool:
        """Whether ``waiting`` placed members (spec 20 section 3.2, Permit) are enough under the match policy."""
        minimum = gang.ref.min or 0
        policy = self.policy(gang)
        partly = gang.partly or self._left_out(gang)
        if policy == keys.ONLY_WAITING and not partly:
            return waiting >= minimum
        if partly or policy == keys.WAITING_AND_RUNNING:
            return waiting + len(gang.bound) >= minimum
        return waiting >= minimum or self.once_satisfied(gang)

    @property
    def evicts(self) -> bool:
        """Whether the bound members of gangs that stay in part are evicted."""
        return self.settings.partial_gang_action == EVICT

    def in_part(self, gang: Gang) -> bool:
        """Whether a bind left the gang with fewer members than it needs, and it is not whole again.

        Fewer bound than needed says nothing by itself: members end, and are replaced.
        """
        return 0 < len(gang.bound) < (gang.ref.min or 0) and (gang.partly or self._left_out(gang))

    def _left_out(self, gang: Gang) -> bool:
        """Whether the bind that bound the gang's members left out one that still waits."""
        if not gang.bound_with or len(gang.bound) >= (gang.ref.min or 0):
            return False
        return any(mark(uid) in gang.bound_with for uid in (*gang.pending, *gang.planned))

    def hold(self, pod: PodRef) -> str | None:
        """Why a pod must not be tried yet, in upstream's words; None: it may."""
        id_ = self._gang_of_pod.get(pod.uid)
        if id_ is None:
            ref = gang_of(pod.labels, pod.annotations, pod.namespace)
            if ref is None:
                return None
            return f"can't find gang, gangName: {ref.id}, podName: {pod.namespace}/{pod.name}"
        gang = self.gangs[id_]
        name = f"{pod.namespace}/{pod.name}"
        if not gang.initialised:
            return f"gang has not init, gangName: {id_}, podName: {name}"
        if self.alone(gang):
            return None
        ids = " ".join(gang.ref.groups)
        whose = f"current gang: {id_}, podName: {name}"
        parts = self._missing(gang.ref.groups)
        if parts:
            return f"gangGroup [{ids}] basic check: {', '.join(parts)}, {whose}"
        different = self._asymmetric(gang)
        return f"gangGroup [{ids}] is not what its gangs list: {different}, {whose}" if different else None

    def _missing(self, ids: Iterable[str]) -> list[str]:
        ids = list(ids)
        unknown: list[str] = []
        raw: list[str] = []
        few = False
        for id_ in ids:
            gang = self.gangs.get(id_)
            if gang is None:
                governing = self._pod_groups.get(id_)
                if governing is None:
                    unknown.append(id_)
                else:
                    few = few or governing[0] > 0  # a PodGroup without pods
            elif not gang.initialised:
                raw.append(id_)
            else:
                few = few or gang.members < (gang.ref.min or 0)
        parts = []
        if unknown:
            parts.append(f"memberGangs [{' '.join(unknown)}] doesn't exists")
        if raw:
            parts.append(f"memberGangs [{' '.join(raw)}] has not init")
        if few:
            parts.append(f"memberGangs [{' '.join(ids)}] child pod not collect enough")
        return parts

    def _asymmetric(self, gang: Gang) -> str:
        """Gangs of the group that list another group; a gang that is not in its own; or empty. A gang that others
        name without its consent is not held up by them."""
        different = [other.ref.id for other in self.group(gang) if other.ref.groups != gang.ref.groups]
        parts = [f"{id_} lists [{' '.join(self.gangs[id_].ref.groups)}]" for id_ in different]
        if gang.ref.id not in gang.ref.groups:
            parts.append(f"{gang.ref.id} is not among them")
        return ", ".join(parts)
