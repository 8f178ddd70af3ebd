"""Books on nodes and on pods that have a node: the columns and every plugin that keeps its own learn of a change here.

Each plugin instance is told once, in however many profiles it is.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from koord.columns.journal import Journal
from koord.kube.pods import PodSpec
from koord.scheduler.engine.cluster import Cluster, NodeChange, NodeInfo
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.framework.contract import AssignedPod, AssignPlugin, Plugin, PluginError
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.profile import Profile

MOST_SPECS = 4096
"""How many specs are remembered."""


class Books:
    """Attaches the plugins of ``profiles`` to ``cluster`` and keeps both in step."""

    def __init__(self, cluster: Cluster, profiles: Sequence[Profile]) -> None:
        self.cluster = cluster
        self.errors: deque[PluginError] = deque(maxlen=100)
        """Errors of plugins that keep books, for whoever logs; what they were told of happens all the same."""
        self.plugins: tuple[Plugin, ...] = tuple(dict.fromkeys(p for profile in profiles for p in profile.plugins))
        self.assigning = tuple(dict.fromkeys(p for profile in profiles for p in profile.assigning))
        self._noding = tuple(dict.fromkeys(p for profile in profiles for p in profile.noding))
        self._ticking = tuple(dict.fromkeys(p for profile in profiles for p in profile.ticking))
        self._touching = any(type(p).reassigned is AssignPlugin.reassigned for p in self.assigning)
        self._assigned: dict[str, AssignedPod] = {}
        self.retold = Journal()
        """Rows with pods that changed there (bound, terminating, relabelled); that is not in the cluster's journal."""
        self._keepers: dict[int, tuple[PodSpec, tuple[AssignPlugin, ...]]] = {}
        for plugin in self.plugins:
            plugin.attach(cluster)
        for row, node in enumerate(cluster.nodes):
            if node is not None:
                self._told_of(row, node)

    # Pods -----------------------------------------------------------------------------------------------------------

    def count(self, pod: AssignedPod) -> None:
        """A pod has a node now, or it changed there; what was counted of it before is given back first.

        The node may be unknown yet.
        """
        uid = pod.ref.uid
        old = self._assigned.get(uid)
        if old is not None:
            if old.node == pod.node:
                self._retell(old, pod)
                return
            self._untell(old)
        self.cluster.assign(uid, pod.footprint, pod.node)
        self._assigned[uid] = pod
        for plugin in self.keepers(pod.spec):
            self.tell(plugin, pod)

    def keepers(self, spec: PodSpec) -> tuple[AssignPlugin, ...]:
        """The plugins that keep something of pods with this spec, by its identity; the entry keeps it alive, so that
        stays true."""
        found = self._keepers.get(id(spec))
        if found is None:
            if len(self._keepers) >= MOST_SPECS:
                self._keepers.clear()
            found = self._keepers[id(spec)] = (spec, tuple(p for p in self.assigning if self._keeps(p, spec)))
        return found[1]

    def _keeps(self, plugin: AssignPlugin, spec: PodSpec) -> bool:
        try:
            return plugin.keeps(spec)
        except Exception as error:
            self.errors.append(PluginError(plugin.name, "Reserve", error))
            return True

    def count_run(
        self,
        uids: list[str],
        pods: list[AssignedPod],
        footprint: Footprint,
        rows: list[int],
        plugins: Sequence[AssignPlugin],
    ) -> None:
        """Many pods of one footprint that had no node, the i-th on the i-th row; ``plugins`` are those to be told."""
        self.cluster.assign_run(uids, footprint, [pod.node for pod in pods], rows)
        self._assigned.update(zip(uids, pods, strict=True))
        for plugin in plugins:
            if type(plugin).assigned_run is AssignPlugin.assigned_run:
                for pod in pods:
                    self.tell(plugin, pod)
                continue
            try:
                plugin.assigned_run(pods)
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "Reserve", error))

    def uncount(self, uid: str) -> AssignedPod | None:
        """A pod has its node no longer; answers what was counted of it."""
        old = self._assigned.pop(uid, None)
        if old is not None:
            self.cluster.unassign(uid)
            self._untell(old)
        return old

    def counted(self, uid: str) -> AssignedPod | None:
        """The pod as it counts now, None if it has no node."""
        return self._assigned.get(uid)

    def pods_on(self, node: str) -> list[AssignedPod]:
        """The pods that count on a node, in no order."""
        return [self._assigned[uid] for uid in self.cluster.uids_on(node)]

    def pods(self) -> Iterable[AssignedPod]:
        """Every pod that has a node."""
        return self._assigned.values()

    def tell(self, plugin: AssignPlugin, pod: AssignedPod) -> None:
        """Tell one plugin of a pod that has a node now."""
        try:
            plugin.assigned(pod)
        except Exception as error:
            self.errors.append(PluginError(plugin.name, "Reserve", error))

    def untell(self, plugin: AssignPlugin, pod: AssignedPod) -> None:
        """Tell one plugin of a pod that has a node no longer."""
        try:
            plugin.unassigned(pod)
        except Exception as error:
            self.errors.append(PluginError(plugin.name, "Unreserve", error))

    def expect(self, pod: AssignedPod, *, ended: bool = False) -> None:
        """A pod waits for room on its node, or (``ended``) does so no longer."""
        for plugin in self.keepers(pod.spec):
            try:
                if ended:
                    plugin.unexpected(pod)
                else:
                    plugin.expected(pod)
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "Reserve", error))

    def _retell(self, old: AssignedPod, pod: AssignedPod) -> None:
        slot = self.cluster.assign(pod.ref.uid, pod.footprint, pod.node)
        self._assigned[pod.ref.uid] = pod
        if slot.row >= 0:
            self.retold.add(slot.row)
        plugins = self.keepers(pod.spec)
        if old.spec is not pod.spec:
            plugins = tuple(dict.fromkeys((*plugins, *self.keepers(old.spec))))
        for plugin in plugins:
            try:
                plugin.reassigned(old, pod)
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "Reserve", error))
        if self._touching and slot.row >= 0:
            self.cluster.touch(slot.row)

    def _untell(self, pod: AssignedPod) -> None:
        for plugin in self.keepers(pod.spec):
            self.untell(plugin, pod)

    # Time and nodes -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[ClusterEvent]:
        """Tell plugins the time (epoch seconds), before anything is placed and about every second; which events for
        rejected pods that amounts to."""
        events: list[ClusterEvent] = []
        for plugin in self._ticking:
            try:
                events.extend(plugin.tick(now))
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "Tick", error))
        return events

    def set_node(self, node: NodeInfo) -> NodeChange:
        """Add or update a node; ``problems`` are what plugins found not valid of it."""
        change = self.cluster.set_node(node)
        if not change.any:
            return change
        problems = self._told_of(change.row, node)
        return msgspec.structs.replace(change, problems=problems) if problems else change

    def remove_node(self, name: str) -> int | None:
        """Forget a node and return its row; its pods wait in case it comes back."""
        row = self.cluster.remove_node(name)
        if row is not None:
            for plugin in self._noding:
                try:
                    plugin.node_removed(row, name)
                except Exception as error:
                    self.errors.append(PluginError(plugin.name, "NodeRemoved", error))
        return row

    def _told_of(self, row: int, node: NodeInfo) -> tuple[str, ...]:
        problems: list[str] = []
        for plugin in self._noding:
            try:
                plugin.node_set(row, node)
            except ValueError as error:
                problems.append(str(error))
            except Exception as error:
                self.errors.append(PluginError(plugin.name, "NodeSet", error))
        return tuple(problems)
