"""NodeVolumeLimits: as many volumes of a CSI driver at a node as the driver says it takes. Spec 10 section 3.15."""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import numpy as np

from koord.columns.matrix import Bools
from koord.kube.pods import PodSpec
from koord.kube.resources import (
    CSI_NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from koord.kube.storage import CSINode, PersistentVolumeClaim, VolumeAttachment
from koord.scheduler.engine.cluster import Cluster, NodeInfo, RowColumn
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    NodePlugin,
    Reason,
    Template,
    Terms,
    Watch,
    WatchPlugin,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.rows import takes_now
from koord.scheduler.volumes import watching
from koord.scheduler.volumes.attached import Attached, handle_of, handles_of, inline_handles
from koord.scheduler.volumes.book import VolumeBook
from koord.scheduler.volumes.claims import claims_of
from koord.scheduler.volumes.derived import Derived
from koord.scheduler.volumes.migrated import CSIHandle, volume_handle

EXCEEDED = "node(s) exceed max volume count"


class _Use(msgspec.Struct, gc=False):
    """A claim at a node: pods that use it there, and the volume it was counted as."""

    pods: int = 0
    volume: CSIHandle | None = None


class _Driver:
    """The columns of one driver: how many volumes are at each node, and how many may be."""

    __slots__ = ("attached", "limit")

    def __init__(self, cluster: Cluster) -> None:
        self.attached: RowColumn = cluster.column()
        self.limit: RowColumn = cluster.column(default=np.inf)


class NodeVolumeLimits(FilterPlugin, NodePlugin, AssignPlugin, WatchPlugin):
    """Terms are the volumes of the pod. One more pod with the same volumes brings none that is not there already, so
    nothing has to be looked ahead."""

    name: ClassVar[str] = "NodeVolumeLimits"
    reads_amounts: ClassVar[bool] = False
    between_pods: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (
            ClusterEvent.NODE_ADD,
            ClusterEvent.CSI_NODE_ADD,
            ClusterEvent.CSI_NODE_UPDATE,
            ClusterEvent.POD_DELETE,
            ClusterEvent.PVC_ADD,
            ClusterEvent.PVC_UPDATE,
            ClusterEvent.VOLUME_ATTACHMENT_DELETE,
        )
    )
    filter_locality: ClassVar[Locality] = "usage"

    _book: VolumeBook
    _cluster: Cluster
    _derived: Derived[frozenset[CSIHandle]]

    def __init__(self) -> None:
        self.epoch = 0
        self._attached = Attached()
        self._drivers: dict[str, _Driver] = {}
        self._uses: dict[str, dict[str, _Use]] = {}
        """By claim, then by node."""
        self._attachments: dict[str, tuple[str, CSIHandle | None]] = {}
        self._attachment_objects: dict[str, VolumeAttachment] = {}
        self._of_volume: dict[str, set[str]] = {}
        """Attachments by the volume they name, which may be told later."""

    def attach(self, cluster: Cluster) -> None:
        """What is known of storage is one book for all plugins of the cluster."""
        self._cluster = cluster
        self._book = VolumeBook.of(cluster)
        self._derived = Derived(self._book, handles_of)

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The volumes of CSI drivers of the pod, if it has any."""
        claims = claims_of(template.namespace, template.spec)
        volumes = inline_handles(template.spec)
        if claims is not None:
            volumes |= self._derived.of(claims).value
        return volumes or None

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Volumes that are at the node with those that would come within the limit of each driver that one comes of."""
        assert isinstance(terms, frozenset)
        ok: Bools = np.ones(window.size, dtype=np.bool_)
        for name in sorted({volume.driver for volume in terms}):
            driver = self._drivers.get(name)
            if driver is None:
                continue  # no node has it, or has volumes of it
            of_driver = [volume for volume in terms if volume.driver == name]
            coming = np.full(self._cluster.high, float(len(of_driver)))
            for volume in of_driver:
                for node in self._attached.nodes(volume):
                    row = self._cluster.index.find(node)
                    if row is not None:
                        coming[row] -= 1.0
            new = coming[window.rows]
            ok &= (new == 0.0) | (window.column(driver.attached) + new <= window.column(driver.limit))
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """Pods that go take their volumes with them."""
        return [Reason(EXCEEDED, ~self.filter(terms, window))]

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """The node where a pod with volumes went takes the pod now, or one of the pod's own claims changed."""
        if isinstance(subject, PersistentVolumeClaim):
            return watching.uses_claim(template, subject)
        if isinstance(subject, AssignedPod):
            return bool(subject.spec.volumes) and takes_now(self, self._cluster, template, subject)
        if isinstance(subject, NodeInfo):
            return takes_now(self, self._cluster, template, subject)
        return True

    # Pods and nodes -------------------------------------------------------------------------------------------------

    def keeps(self, spec: PodSpec) -> bool:
        """Those with volumes."""
        return bool(spec.volumes)

    def assigned(self, pod: AssignedPod) -> None:
        """Its volumes are at its node."""
        for volume in inline_handles(pod.spec):
            self._come(pod.node, volume)
        claims = claims_of(pod.ref.namespace, pod.spec)
        for claim in () if claims is None else claims.uses:
            use = self._uses.setdefault(claim.key, {}).setdefault(pod.node, _Use())
            use.pods += 1
            if use.pods == 1:
                use.volume = handle_of(claim.key, self._book)[0]
                if use.volume is not None:
                    self._come(pod.node, use.volume)

    def unassigned(self, pod: AssignedPod) -> None:
        """They are there no longer, unless another pod uses them."""
        for volume in inline_handles(pod.spec):
            self._go(pod.node, volume)
        claims = claims_of(pod.ref.namespace, pod.spec)
        for claim in () if claims is None else claims.uses:
            of_claim = self._uses[claim.key]
            use = of_claim[pod.node]
            use.pods -= 1
            if use.pods:
                continue
            del of_claim[pod.node]
            if not of_claim:
                del self._uses[claim.key]
            if use.volume is not None:
                self._go(pod.node, use.volume)

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """Nothing but the volumes matters."""
        if old.spec is not pod.spec:
            self.unassigned(old)
            self.assigned(pod)
            row = self._cluster.index.find(pod.node)
            if row is not None:
                self._cluster.touch(row)

    def node_set(self, row: int, node: NodeInfo) -> None:
        """A node may come after its pods and after what drivers say of it."""
        csi_node = self._book.csi_nodes.get(node.name)
        if csi_node is not None:
            self._limit(row, csi_node)
        for driver, count in self._attached.counts(node.name).items():
            self._driver(driver).attached.data[row] = count

    def node_removed(self, row: int, name: str) -> None:
        """The columns are cleared already; what is at the node stays known, should it come back."""

    # Watching -------------------------------------------------------------------------------------------------------

    def watches(self) -> tuple[Watch, ...]:
        """What is attached, which volumes claims have, and how many a node takes."""
        return (watching.CLASSES, watching.NODES, watching.VOLUMES, watching.CLAIMS, watching.ATTACHMENTS)

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """Into the book; what is counted under another volume now is counted anew."""
        book = self._book
        if resource == VOLUME_ATTACHMENTS:
            self._set_attachment(key, new)
            return watching.events(resource, old, new)
        book.apply(resource, key, new)
        self.epoch = book.epoch
        if resource == CSI_NODES:
            row = self._cluster.index.find(key)
            if row is not None:
                self._limit(row, new)
                self._cluster.touch(row)
        elif resource == PERSISTENT_VOLUME_CLAIMS:
            self._recount(key)
        elif resource == PERSISTENT_VOLUMES:
            for volume in (old, new):
                if volume is not None and volume.spec.claim_ref is not None:
                    ref = volume.spec.claim_ref
                    self._recount(f"{ref.namespace}/{ref.name}")
            if old is None or new is None or volume_handle(old.spec) != volume_handle(new.spec):
                for attachment in list(self._of_volume.get(key, ())):
                    self._set_attachment(attachment, self._attachment_objects[attachment])
        elif resource == STORAGE_CLASSES and (old is None or new is None):
            for claim in list(self._uses):
                self._recount(claim)
        return watching.events(resource, old, new)

    def _limit(self, row: int, csi_node: CSINode | None) -> None:
        for driver in self._drivers.values():
            driver.limit.data[row] = np.inf
        for one in () if csi_node is None else csi_node.spec.drivers:
            if one.allocatable is not None and one.allocatable.count is not None:
                self._driver(one.name).limit.data[row] = one.allocatable.count

    def _recount(self, claim: str) -> None:
        """The claim may be another volume now."""
        uses = self._uses.get(claim)
        if not uses:
            return
        now = handle_of(claim, self._book)[0]
        for node, use in uses.items():
            if use.volume == now:
                continue
            if use.volume is not None:
                self._go(node, use.volume)
            use.volume = now
            if now is not None:
                self._come(node, now)
            self._touch(node)

    def _set_attachment(self, key: str, new: VolumeAttachment | None) -> None:
        node, volume = self._attachments.pop(key, ("", None))
        before = self._attachment_objects.pop(key, None)
        if before is not None:
            name = before.spec.source.persistent_volume_name or ""
            others = self._of_volume.get(name)
            if others is not None:
                others.discard(key)
                if not others:
                    del self._of_volume[name]
        if volume is not None:
            self._go(node, volume)
            self._touch(node)
        if new is None:
            return
        name, node = new.spec.source.persistent_volume_name or "", new.spec.node_name
        held = self._book.volumes.get(name)
        volume = None if held is None else volume_handle(held.spec)
        self._attachment_objects[key] = new
        self._attachments[key] = (node, volume)
        if name:
            self._of_volume.setdefault(name, set()).add(key)
        if volume is not None:
            self._come(node, volume)
            self._touch(node)

    def _come(self, node: str, volume: CSIHandle) -> None:
        if self._attached.add(node, volume):
            self._show(node, volume.driver)

    def _go(self, node: str, volume: CSIHandle) -> None:
        if self._attached.remove(node, volume):
            self._show(node, volume.driver)

    def _show(self, node: str, driver: str) -> None:
        row = self._cluster.index.find(node)
        if row is not None:
            self._driver(driver).attached.data[row] = self._attached.count(node, driver)

    def _touch(self, node: str) -> None:
        row = self._cluster.index.find(node)
        if row is not None:
            self._cluster.touch(row)

    def _driver(self, name: str) -> _Driver:
        found = self._drivers.get(name)
        if found is None:
            found = self._drivers[name] = _Driver(self._cluster)
        return found
