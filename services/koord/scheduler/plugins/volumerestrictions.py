"""VolumeRestrictions: claims that one pod at a time may use, disks that may not be shared. Spec 10 section 3.15.

A claim for one pod at a time is a slot of the ledger, ``claim/<ns>/<name>``: two schedulers cannot give it to two pods.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from koord.accounting.slots import claim_slot
from koord.columns.matrix import Bools, Ints
from koord.kube.pods import PodSpec
from koord.kube.resources import Resource
from koord.kube.storage import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    PodRef,
    PreFilterPlugin,
    Reason,
    ReservePlugin,
    Template,
    Terms,
    Watch,
    WatchPlugin,
    Without,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.obstacles import Obstacle, Obstacles
from koord.scheduler.volumes import watching
from koord.scheduler.volumes.book import VolumeBook
from koord.scheduler.volumes.claims import PodClaims, claims_of
from koord.scheduler.volumes.disks import Disk, disks_of
from koord.scheduler.volumes.stamps import of_disk, of_use

POD_CONFLICT = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
DISK_CONFLICT = "node(s) had no available disk"
_NO_DISKS: Counter[tuple[str, Disk]] = Counter()


class RestrictionTerms(msgspec.Struct, frozen=True):
    """Keys of the claims that one pod at a time may use, and the disks that the pod names itself."""

    claims: tuple[str, ...] = ()
    disks: frozenset[Disk] = frozenset()


class VolumeRestrictions(PreFilterPlugin, FilterPlugin, ReservePlugin, AssignPlugin, WatchPlugin):
    """Counts the pods with a node that use a claim, and keeps which disks are at which node."""

    name: ClassVar[str] = "VolumeRestrictions"
    reads_amounts: ClassVar[bool] = False
    between_pods: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    reserves_what_it_filters: ClassVar[bool] = True
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (ClusterEvent.POD_DELETE, ClusterEvent.NODE_ADD, ClusterEvent.PVC_ADD, ClusterEvent.PVC_UPDATE)
    )
    filter_locality: ClassVar[Locality] = "cluster"
    prefilter_resolvable: ClassVar[bool] = False

    _book: VolumeBook
    _cluster: Cluster

    def __init__(self) -> None:
        self.epoch = 0
        self._users: dict[str, int] = {}
        """Pods with a node by claim."""
        self._disks: dict[tuple[str, str], Counter[tuple[str, Disk]]] = {}
        """By identity: how many pods have the disk at a node."""

    def attach(self, cluster: Cluster) -> None:
        """What is known of storage is one book for all plugins of the cluster."""
        self._cluster = cluster
        self._book = VolumeBook.of(cluster)

    # Filter ---------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any."""
        return claims_of(template.namespace, template.spec)

    def prefilter(self, terms: Terms) -> str | None:
        """What a claim allows is not known while it does not exist."""
        assert isinstance(terms, PodClaims)
        for use in terms.uses:
            if not use.owner and use.key not in self._book.claims:
                return f'persistentvolumeclaim "{use.name}" not found'
        return None

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The exclusive claims and the disks of the pod, if it has any."""
        if not template.spec.volumes:
            return None
        claims = claims_of(template.namespace, template.spec)
        known = self._book.claims
        exclusive = tuple(
            use.key
            for use in (() if claims is None else claims.uses)
            if (claim := known.get(use.key)) is not None and READ_WRITE_ONCE_POD in claim.spec.access_modes
        )
        disks = disks_of(template.spec)
        return RestrictionTerms(exclusive, disks) if exclusive or disks else None

    def filter_version(self, terms: Terms) -> int:
        """When the first user of a claim or disk came, or the last one went."""
        assert isinstance(terms, RestrictionTerms)
        stamp = self._book.stamps.of
        at = max((stamp(of_use(key)) for key in terms.claims), default=0)
        return max((stamp(of_disk(*disk.identity)) for disk in terms.disks), default=at)

    def filter(self, terms: Terms, window: Window) -> Bools:
        """No claim for one pod at a time is in use, no disk clashes."""
        assert isinstance(terms, RestrictionTerms)
        if self._in_use(terms):
            return np.zeros(window.size, dtype=np.bool_)
        return ~self._clash(terms, window)

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """A pod that goes frees its claims and disks."""
        assert isinstance(terms, RestrictionTerms)
        clash = self._clash(terms, window)
        found = [Reason(DISK_CONFLICT, clash)] if clash.any() else []
        if self._in_use(terms):
            found.append(Reason(POD_CONFLICT, ~clash))
        return found

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """Pods that go free their disks on the node, and their claims everywhere."""
        assert isinstance(terms, RestrictionTerms)
        shape = (len(rows), max(map(len, pods), default=0))
        clashing, theirs = np.zeros(shape[0]), np.zeros(shape)
        used, using = np.zeros(shape[0]), np.zeros(shape)
        for disk in terms.disks:
            by_node: Counter[str] = Counter()
            for (node, there), count in self._disks.get(disk.identity, _NO_DISKS).items():
                by_node[node] += count * disk.clashes(there)
            for at in np.flatnonzero(self._clash(terms, Window.some(self._cluster, rows))).tolist():
                clashing[at] += by_node[self._cluster.index.name(int(rows[at])) or ""]
                for place, pod in enumerate(pods[at]):
                    theirs[at, place] += sum(disk.clashes(one) for one in disks_of(pod.spec))
        users = sum(self._users.get(key, 0) for key in terms.claims)
        if users:
            used[:] = users
            for at, some in enumerate(pods):
                for place, pod in enumerate(some):
                    claims = claims_of(pod.ref.namespace, pod.spec) if pod.spec.volumes else None
                    if claims is not None:
                        using[at, place] = sum(use.key in terms.claims for use in claims.uses)
        return Obstacles(Obstacle(DISK_CONFLICT, clashing, theirs), Obstacle(POD_CONFLICT, used, using))

    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The exclusive claims of the pod, if it has any."""
        terms = self.filter_terms(template, cluster)
        return terms if isinstance(terms, RestrictionTerms) and terms.claims else None

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation:
        """The claims as slots; that they are in use here is counted as soon as the pod is assigned."""
        assert isinstance(terms, RestrictionTerms)
        return Allocation(slots=tuple([claim_slot(key) for key in terms.claims]))

    def unreserve(self, uid: str) -> None:
        """Nothing is remembered between Reserve and ``assigned``."""

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """A pod with one of the pod's claims or disks went, or one of its claims changed."""
        if isinstance(subject, PersistentVolumeClaim):
            return watching.uses_claim(template, subject)
        if not isinstance(subject, AssignedPod):
            return True
        own, other = claims_of(template.namespace, template.spec), claims_of(subject.ref.namespace, subject.spec)
        if (
            own is not None
            and other is not None
            and not {use.key for use in own.uses}.isdisjoint(use.key for use in other.uses)
        ):
            return True
        gone = disks_of(subject.spec)
        return any(disk.clashes(one) for disk in disks_of(template.spec) for one in gone)

    def _in_use(self, terms: RestrictionTerms) -> bool:
        return any(key in self._users for key in terms.claims)

    def _clash(self, terms: RestrictionTerms, window: Window) -> Bools:
        clash: Bools = np.zeros(self._cluster.high, dtype=np.bool_)
        for disk in terms.disks:
            for node, there in self._disks.get(disk.identity, ()):
                row = self._cluster.index.find(node)
                if row is not None and disk.clashes(there):
                    clash[row] = True
        return clash[window.rows]

    # Pods -----------------------------------------------------------------------------------------------------------

    def keeps(self, spec: PodSpec) -> bool:
        """Those with volumes."""
        return bool(spec.volumes)

    def assigned(self, pod: AssignedPod) -> None:
        """Its claims are in use, its disks at its node."""
        if not pod.spec.volumes:
            return
        claims = claims_of(pod.ref.namespace, pod.spec)
        for use in () if claims is None else claims.uses:
            before = self._users.get(use.key, 0)
            self._users[use.key] = before + 1
            if not before:
                self._book.stamps.touch(of_use(use.key))
        for disk in disks_of(pod.spec):
            self._disks.setdefault(disk.identity, Counter())[pod.node, disk] += 1
            self._book.stamps.touch(of_disk(*disk.identity))

    def unassigned(self, pod: AssignedPod) -> None:
        """The last user of a claim frees it."""
        if not pod.spec.volumes:
            return
        claims = claims_of(pod.ref.namespace, pod.spec)
        for use in () if claims is None else claims.uses:
            self._users[use.key] -= 1
            if not self._users[use.key]:
                del self._users[use.key]
                self._book.stamps.touch(of_use(use.key))
        for disk in disks_of(pod.spec):
            self._book.stamps.touch(of_disk(*disk.identity))
            there = self._disks[disk.identity]
            there[pod.node, disk] -= 1
            if not there[pod.node, disk]:
                del there[pod.node, disk]
                if not there:
                    del self._disks[disk.identity]

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """Nothing but the volumes matters."""
        if old.spec is not pod.spec:
            self.unassigned(old)
            self.assigned(pod)

    # Watching -------------------------------------------------------------------------------------------------------

    def watches(self) -> tuple[Watch, ...]:
        """Claims."""
        return (watching.CLAIMS,)

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """Into the book."""
        self._book.apply(resource, key, new)
        self.epoch = self._book.epoch
        return watching.events(resource, old, new)
