"""What plugins that look at other pods have in common: the index of pods, which all of them share."""

from collections.abc import Iterable, Sequence
from typing import Any

from koord.kube.meta import PartialObject
from koord.kube.pods import PodSpec
from koord.kube.resources import NAMESPACES, Resource
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.domains import Domains
from koord.scheduler.engine.podindex import PodIndex
from koord.scheduler.framework.contract import AssignedPod, AssignPlugin, NodePlugin, Watch, WatchPlugin
from koord.scheduler.framework.events import ClusterEvent


class PodBooks(AssignPlugin, NodePlugin, WatchPlugin):
    """Tells the index of its cluster of pods, nodes and namespaces, if no other plugin does already."""

    index: PodIndex

    def __init__(self) -> None:
        self._tells = False
        self._domains: dict[str, Domains] = {}

    def attach(self, cluster: Cluster) -> None:
        """Take the index that all plugins share, or make it."""
        self.index, self._tells = PodIndex.of(cluster)

    def domains(self, key: str) -> Domains:
        """The values of a node label as domains."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains(self.index, key)
        return found

    def keeps(self, spec: PodSpec) -> bool:
        """One plugin is told of all pods for all of them."""
        return self._tells

    def assigned(self, pod: AssignedPod) -> None:
        """Count the pod."""
        if self._tells:
            ref = pod.ref
            self.index.came(ref.namespace, ref.labels, pod.node, pod.spec.affinity, pod.terminating)

    def assigned_run(self, pods: Sequence[AssignedPod]) -> None:
        """Count the pods."""
        if self._tells and pods:
            same = pods[0]
            self.index.came_run(same.ref.namespace, same.spec.affinity, [(pod.ref.labels, pod.node) for pod in pods])

    def unassigned(self, pod: AssignedPod) -> None:
        """Count it no longer."""
        if self._tells:
            ref = pod.ref
            self.index.went(ref.namespace, ref.labels, pod.node, pod.spec.affinity, pod.terminating)

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """Only other labels, other terms and the beginning of its end mean anything."""
        if (
            old.spec.affinity is not pod.spec.affinity
            or old.terminating != pod.terminating
            or old.ref.labels != pod.ref.labels
            or old.node != pod.node
        ):
            # Versions tell who must be asked again; no row need be touched.
            self.assigned(pod)
            self.unassigned(old)

    def expected(self, pod: AssignedPod) -> None:
        """Whom it keeps away is known before it is counted."""
        if self._tells:
            self.index.expect(pod.ref.uid, pod.ref.namespace, pod.ref.labels, pod.spec.affinity)

    def unexpected(self, pod: AssignedPod) -> None:
        """Whom it keeps away is forgotten."""
        if self._tells:
            self.index.unexpect(pod.ref.uid)

    def node_set(self, row: int, node: NodeInfo) -> None:
        """Pods that wait for the node are counted on it."""
        if self._tells:
            self.index.node_set(row, node.name)

    def node_removed(self, row: int, name: str) -> None:
        """Its pods wait in case it comes back."""
        if self._tells:
            self.index.node_removed(row, name)

    def watches(self) -> tuple[Watch, ...]:
        """Namespaces: selectors of namespaces look at their labels."""
        return (Watch(NAMESPACES, PartialObject),)

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """The labels of a namespace. Whichever plugin hears of them first tells the index."""
        if resource is not NAMESPACES:
            return ()
        if not self.index.namespace_set(key, None if new is None else new.metadata.labels):
            return ()
        return (ClusterEvent.NAMESPACE_ADD if old is None else ClusterEvent.NAMESPACE_UPDATE,)
