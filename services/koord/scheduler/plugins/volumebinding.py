"""VolumeBinding: bound volumes must be reachable, waiting claims get a volume where the pod goes. Spec 10 section 3.15.

What is decided, is decided in ``koord.scheduler.volumes``; this is its place in the framework.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from koord.columns.matrix import Bools, Ints
from koord.kube.pods import PodSpec
from koord.kube.resources import Resource
from koord.kube.storage import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.nodeterms import terms_mask
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    PodRef,
    PreBind,
    PreBindPlugin,
    PreFilterPlugin,
    Reason,
    ReservePlugin,
    Template,
    Terms,
    Watch,
    WatchPlugin,
    Without,
    Write,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.obstacles import AsItIs
from koord.scheduler.plugins.rows import takes_now
from koord.scheduler.volumes import watching
from koord.scheduler.volumes.binding import Choice, Resolved, resolve
from koord.scheduler.volumes.book import VolumeBook
from koord.scheduler.volumes.claims import PodClaims, claims_of, waits_for_node
from koord.scheduler.volumes.completing import Task, begin, finished, volume_of
from koord.scheduler.volumes.derived import Derived, Kept


class VolumeBinding(PreFilterPlugin, FilterPlugin, ReservePlugin, PreBindPlugin, AssignPlugin, WatchPlugin):
    """All terms are the claims of the pod; what they are now is looked up.

    Most claims are bound to volumes that all nodes reach: those leave no terms, so their pods are placed like others.
    ``timeout_s``: how long a placed pod waits for its claims to be bound.
    """

    name: ClassVar[str] = "VolumeBinding"
    reads_amounts: ClassVar[bool] = False
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.PVC_ADD,
            ClusterEvent.PVC_UPDATE,
            ClusterEvent.PV_ADD,
            ClusterEvent.PV_UPDATE,
            ClusterEvent.STORAGE_CLASS_ADD,
            ClusterEvent.STORAGE_CLASS_UPDATE,
            ClusterEvent.CSI_DRIVER_UPDATE,
            ClusterEvent.CSI_CAPACITY_ADD,
            ClusterEvent.CSI_CAPACITY_UPDATE,
            ClusterEvent.POD_DELETE,
        )
    )
    filter_locality: ClassVar[Locality] = "cluster"
    prefilter_resolvable: ClassVar[bool] = False

    _book: VolumeBook
    _cluster: Cluster
    _derived: Derived[Resolved]

    def __init__(self, timeout_s: float = 600.0) -> None:
        self.epoch = 0
        self._timeout_s = timeout_s
        self._chosen: dict[str, list[Choice]] = {}
        """What claims of planned pods get, by uid."""
        self._tasks: dict[str, tuple[str, list[Task]]] = {}
        """By uid: the node, and what is under way."""

    def attach(self, cluster: Cluster) -> None:
        """What is known of storage is one book for all plugins of the cluster."""
        self._cluster = cluster
        self._book = VolumeBook.of(cluster)
        self._derived = Derived(self._book, resolve)

    # Filter ---------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any."""
        return claims_of(template.namespace, template.spec)

    def prefilter(self, terms: Terms) -> str | None:
        """A claim that is missing, lost, being deleted, or ought to be bound and is not."""
        return self._now(terms).value.refusal

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any that matter where it goes."""
        claims = claims_of(template.namespace, template.spec)
        return None if claims is None or self._now(claims).value.anywhere else claims

    def filter_version(self, terms: Terms) -> int:
        """When something that the claims depend on was seen to have changed."""
        return self._now(terms).at

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Every volume can be reached, and every waiting claim gets one."""
        return self._now(terms).value.judge(self._book, window).ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """Taking pods away does not help."""
        verdict = self._now(terms).value.judge(self._book, window)
        return [Reason(text, rows, resolvable=False) for text, rows in verdict.reasons]

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """Pods that go leave their volumes where they are."""
        return AsItIs(self, terms)

    # Reserve --------------------------------------------------------------------------------------------------------

    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any that wait for a node."""
        claims = claims_of(template.namespace, template.spec)
        return claims if claims is not None and self._now(claims).value.delayed else None

    def reserves(self, terms: Terms) -> bool:
        """Whether some claim waits for a node."""
        return bool(self._now(terms).value.delayed)

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        """Promise each waiting claim its volume, or that one is made for this node."""
        book, resolved = self._book, self._now(terms).value
        if not resolved.delayed:
            return Allocation()
        verdict = resolved.judge(book, Window.some(self._cluster, np.array([row], dtype=np.int64)))
        if not verdict.ok[0]:
            return ", ".join(text for text, _ in verdict.reasons)
        node = self._cluster.index.name(row)
        assert node is not None, "only live rows are chosen"
        choices = self._chosen[pod.uid] = resolved.choices(book, verdict)
        for choice in choices:
            if choice.volume:
                book.promise_volume(pod.uid, choice.volume, choice.claim)
            else:
                book.promise_node(pod.uid, choice.claim, node)
        return Allocation()

    def unreserve(self, uid: str) -> None:
        """The promises are void, unless another pod holds them, too."""
        self._chosen.pop(uid, None)
        self._tasks.pop(uid, None)
        self._book.take_back(uid)

    def keeps(self, spec: PodSpec) -> bool:
        """Those with volumes."""
        return bool(spec.volumes)

    def assigned(self, pod: AssignedPod) -> None:
        """A pod that is seen bound needs no promises, whoever bound it."""
        if not pod.planned and (pod.ref.uid in self._chosen or pod.ref.uid in self._tasks):
            self.unreserve(pod.ref.uid)

    def unassigned(self, pod: AssignedPod) -> None:
        """What the pod used stays as the API shows it."""

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """From planned to bound."""
        self.assigned(pod)

    # PreBind --------------------------------------------------------------------------------------------------------

    def prebind(self, pod: PodRef, node: str) -> PreBind | str | None:
        """Give volumes to claims, tell claims the node."""
        chosen = self._chosen.pop(pod.uid, None)
        if not chosen:
            return None
        tasks: list[Task] = []
        writes: list[Write] = []
        for choice in chosen:
            begun = begin(choice, node, self._book)
            if isinstance(begun, str):
                return begun
            tasks.append(begun[0])
            if begun[1] is not None:
                writes.append(begun[1])
        self._tasks[pod.uid] = (node, tasks)
        return PreBind(tuple(writes), self._timeout_s)

    def prebound(self, uid: str) -> bool | str:
        """All claims have their volumes, and these can be reached from the node."""
        node, tasks = self._tasks.get(uid, ("", []))
        for task in tasks:
            answer = finished(task, node, self._book)
            if answer is not True:
                return answer
            if (refusal := self._unreachable(volume_of(task, self._book), node)) is not None:
                return refusal
        self._tasks.pop(uid, None)
        return True

    def _unreachable(self, volume: str, node: str) -> bool | str | None:
        row = self._cluster.index.find(node)
        if row is None:
            return f'node "{node}" not found'
        if volume not in self._book.volumes:
            return False  # told soon
        place = self._book.where[volume]
        here = Window.some(self._cluster, np.array([row], dtype=np.int64))
        if place is not None and not terms_mask(place, here)[0]:
            return f'pv "{volume}" node affinity doesn\'t match node "{node}"'
        return None

    # Watching -------------------------------------------------------------------------------------------------------

    def watches(self) -> tuple[Watch, ...]:
        """Claims, volumes, classes, and what drivers say of their room."""
        return (watching.CLASSES, watching.DRIVERS, watching.CAPACITIES, watching.VOLUMES, watching.CLAIMS)

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """Into the book."""
        self._book.apply(resource, key, new)
        self.epoch = self._book.epoch
        return watching.events(resource, old, new)

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Only what concerns one of the pod's claims."""
        claims = claims_of(template.namespace, template.spec)
        if claims is None or subject is None:
            return True
        if isinstance(subject, NodeInfo):
            return self._now(claims).value.refusal is None and takes_now(self, self._cluster, template, subject)
        if isinstance(subject, PersistentVolumeClaim):
            return any(use.key == subject.key for use in claims.uses)
        book = self._book
        found = [claim for use in claims.uses if (claim := book.claims.get(use.key)) is not None]
        if isinstance(subject, PersistentVolume):
            return any(
                claim.spec.volume_name == subject.metadata.name
                if claim.spec.volume_name
                else claim.storage_class == subject.storage_class
                for claim in found
            )
        if isinstance(subject, CSIStorageCapacity):
            return any(claim.storage_class == subject.storage_class_name for claim in found)
        if isinstance(subject, StorageClass):
            return any(claim.storage_class == subject.metadata.name for claim in found)
        if isinstance(subject, AssignedPod):
            # It may have held the promise of a volume, or of a node for a claim that both use.
            return bool(subject.spec.volumes) and any(waits_for_node(claim, book) for claim in found)
        return True

    def _now(self, terms: Terms) -> Kept[Resolved]:
        assert isinstance(terms, PodClaims)
        return self._derived.of(terms)
