"""Who belongs to which gang, and whether a gang may be tried: state derived from pods and PodGroups alone.

Spec 20 section 3.1. ``once_satisfied`` is derived, not remembered: a member is bound now, or the PodGroup's phase says
that the gang ran; so a restart forgets nothing.
"""

from collections.abc import Iterable, Mapping

import msgspec

from koord.kube.protocol import gang as keys
from koord.kube.protocol.gang import GangRef, gang_of, governed_by
from koord.scheduler.framework.contract import PodRef
from koord.scheduler.gang.phases import SATISFIED


class GangSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``default_timeout_s``: how long placed members of a NonStrict gang wait for the others.

    ``stale_after_s``: PodGroups whose scheduling began later than this after their creation keep their phase once they
    are scheduled and nothing of them runs (the original's rule: 172800, 48 h); 0: every phase follows its pods.
    """

    default_timeout_s: float = 600.0
    default_match_policy: str = keys.ONCE_SATISFIED
    stale_after_s: float = 0.0


class Gang:
    """One gang: what it asks for, and its members by state.

    ``partly``: a bind ended with fewer than its minimum bound; until it is repaired the bound count under every policy.
    """

    __slots__ = ("bound", "partly", "pending", "planned", "pod_group", "ref", "satisfied_phase")

    def __init__(self, ref: GangRef) -> None:
        self.ref = ref
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
        """Whether the gang was complete at some time."""
        return bool(self.bound) or self.satisfied_phase


class GangBook:
    """Every gang, by id, and gang groups: gangs that must be placed together."""

    def __init__(self, settings: GangSettings | None = None) -> None:
        self.settings = settings or GangSettings()
        self.gangs: dict[str, Gang] = {}
        self._gang_of_pod: dict[str, str] = {}
        self._pod_groups: dict[str, tuple[int, int | None, Mapping[str, str], str]] = {}

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
                self._govern(gang)
            self._gang_of_pod[pod.uid] = id_
        gang = self.gangs[id_]
        uid = pod.uid
        if bound:
            gang.pending.pop(uid, None)
            gang.planned.pop(uid, None)
            gang.bound.add(uid)
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
        gang.bound.discard(uid)
        if not gang.members:
            del self.gangs[id_]
        return gang

    def plan(self, uid: str) -> None:
        """A pending member is planned (upstream: waiting at Permit, or on its way to be bound)."""
        gang = self.of(uid)
        if gang is not None and uid in gang.pending:
            gang.planned[uid] = gang.pending.pop(uid)

    def unplan(self, uid: str) -> None:
        """A planned member is pending again."""
        gang = self.of(uid)
        if gang is not None and uid in gang.planned:
            gang.pending[uid] = gang.planned.pop(uid)

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
        self, id_: str, min_member: int, timeout_s: int | None, annotations: Mapping[str, str], phase: str
    ) -> Gang | None:
        """A PodGroup governs the gang of its id."""
        self._pod_groups[id_] = (min_member, timeout_s, annotations, phase)
        gang = self.gangs.get(id_)
        if gang is not None:
            self._govern(gang)
        return gang

    def remove_pod_group(self, id_: str) -> Gang | None:
        """The PodGroup is gone."""
        self._pod_groups.pop(id_, None)
        gang = self.gangs.get(id_)
        if gang is not None:
            gang.pod_group = False
        return gang

    def _govern(self, gang: Gang) -> None:
        governing = self._pod_groups.get(gang.ref.id)
        if governing is not None:
            min_member, timeout_s, annotations, phase = governing
            gang.ref = governed_by(gang.ref, min_member, timeout_s, annotations)
            gang.pod_group = True
            gang.satisfied_phase = phase in SATISFIED

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
        return self.policy(gang) == keys.ONCE_SATISFIED and gang.once_satisfied

    def group(self, gang: Gang) -> list[Gang]:
        """The gangs of the gang's group that exist."""
        return [found for id_ in gang.ref.groups if (found := self.gangs.get(id_)) is not None]

    def valid(self, gang: Gang, waiting: int) -> bool:
        """Whether ``waiting`` placed members (spec 20 section 3.2, Permit) are enough under the match policy."""
        minimum = gang.ref.min or 0
        policy = self.policy(gang)
        if policy == keys.ONLY_WAITING and not gang.partly:
            return waiting >= minimum
        if gang.partly or policy == keys.WAITING_AND_RUNNING:
            return waiting + len(gang.bound) >= minimum
        return waiting >= minimum or gang.once_satisfied

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
        parts = self._missing(gang.ref.groups)
        if not parts:
            return None
        ids = " ".join(gang.ref.groups)
        return f"gangGroup [{ids}] basic check: {', '.join(parts)}, current gang: {id_}, podName: {name}"

    def _missing(self, ids: Iterable[str]) -> list[str]:
        ids = list(ids)
        unknown = [id_ for id_ in ids if id_ not in self.gangs]
        raw = [id_ for id_ in ids if id_ in self.gangs and not self.gangs[id_].initialised]
        few = any(
            id_ in self.gangs
            and self.gangs[id_].initialised
            and self.gangs[id_].members < (self.gangs[id_].ref.min or 0)
            for id_ in ids
        )
        parts = []
        if unknown:
            parts.append(f"memberGangs [{' '.join(unknown)}] doesn't exists")
        if raw:
            parts.append(f"memberGangs [{' '.join(raw)}] has not init")
        if few:
            parts.append(f"memberGangs [{' '.join(ids)}] child pod not collect enough")
        return parts
