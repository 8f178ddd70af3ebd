"""The namespace controller: empties namespaces that are being deleted, then takes its finalizer out of their spec.

Pods go first, with their grace; everything else when no pod is left. What cannot go yet is said in the namespace's
conditions.
"""

from collections import Counter

import msgspec

from koord.localcluster.api.builtin import NAMESPACES, PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.workqueue import WorkQueue
from koord.localcluster.api.finalizers import KUBERNETES
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.store import Collection, decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ApiError, ClusterApi, Object

_LOOK_AGAIN_S = 1.0

# type -> reason and message while nothing is wrong, in the order in which they are told
_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


class _Meta(msgspec.Struct):
    finalizers: list[str] = []


class _Head(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_decode_head = msgspec.json.Decoder(_Head).decode


class NamespaceController:
    """The controller of one cluster; `queue` does its work."""

    def __init__(self, cluster: Cluster, api: ClusterApi) -> None:
        self._cluster = cluster
        self._api = api
        self.queue: WorkQueue[str] = WorkQueue("namespaces", self._handle)

    def start(self) -> None:
        """Hear of writes from now on, and go on with namespaces that were being deleted."""
        self._cluster.store.listen(self.on_write, lambda resource: resource.namespaced or resource is NAMESPACES)
        for name in self._cluster.terminating:
            self.queue.add(name)

    def on_write(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        """Look at a namespace when it begins to go, and when something in it is gone or changes while it goes."""
        if resource is NAMESPACES:
            if entry is not None and entry.deleting:
                self.queue.add(entry.name)
            return
        if not self._cluster.terminating or not resource.namespaced:
            return
        changed = entry or old
        if changed is None or changed.namespace not in self._cluster.terminating:
            return
        namespace = changed.namespace
        if entry is None and namespace not in self._cluster.store.collections[resource.key].objects:
            self.queue.add(namespace)
        elif changed.deleting:
            # One of many: what remains is counted once for all that go within a second.
            self.queue.add_after(namespace, _LOOK_AGAIN_S)

    async def _handle(self, name: str) -> None:
        entry = self._cluster.collection(NAMESPACES).get("", name)
        if entry is None or not entry.deleting:
            return
        if KUBERNETES not in ((decode(entry).get("spec") or {}).get("finalizers") or ()):
            return
        problems: list[str] = []
        remaining: dict[str, int] = {}
        finalizers: Counter[str] = Counter()
        pods = self._cluster.collection(PODS)
        left = await self._empty(pods, name, problems)
        if not left:
            for collection in list(self._cluster.store.namespaced()):
                if name in collection.objects and collection is not pods:
                    entries = await self._empty(collection, name, problems)
                    if entries:
                        resource = collection.resource
                        remaining[f"{resource.plural}.{resource.group}"] = len(entries)
                        for item in entries:
                            finalizers.update(_decode_head(item.raw).metadata.finalizers)
        await self._tell(name, problems, remaining, finalizers)
        if problems:
            self.queue.add_after(name, _LOOK_AGAIN_S)
        if not left and not remaining and not problems:
            await self._release(name)

    async def _empty(self, collection: Collection, namespace: str, problems: list[str]) -> list[Entry]:
        """Delete what a namespace has of one kind; answers what is there afterwards."""
        key = collection.resource.key
        for entry in collection.entries(namespace):
            if collection.get(namespace, entry.name) is not entry:
                continue
            if entry.deleting and not _decode_head(entry.raw).metadata.finalizers:
                continue  # its grace runs
            try:
                await self._api.delete(key, namespace, entry.name, uid=entry.uid, propagation_policy="Background")
            except ApiError as error:
                if error.code not in (404, 409):
                    problems.append(error.message)
        return list(collection.objects.get(namespace, {}).values())

    async def _tell(
        self, name: str, problems: list[str], remaining: dict[str, int], finalizers: "Counter[str]"
    ) -> None:
        entry = self._cluster.collection(NAMESPACES).get("", name)
        if entry is None:
            return
        found: dict[str, tuple[str, str]] = {}
        if problems:
            first = ", ".join(sorted(set(problems))[:10])
            found["NamespaceDeletionContentFailure"] = (
                "ContentDeletionFailed",
                f"Failed to delete all resource types, {len(problems)} remaining: {first}",
            )
        if remaining:
            words = ", ".join(f"{kind} has {count} resource instances" for kind, count in sorted(remaining.items()))
            found["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {words}")
        if finalizers:
            words = ", ".join(f"{item} in {count} resource instances" for item, count in sorted(finalizers.items()))
            message = f"Some content in the namespace has finalizers remaining: {words}"
            found["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
        namespace = decode(entry)
        status: Object = namespace.setdefault("status", {})
        before = status.get("conditions") or []
        conditions = _conditions(before, found, self._cluster.clock.now())
        if conditions != before:
            status["conditions"] = conditions
            await self._api.replace(NAMESPACES.key, None, name, namespace, subresource="status")

    async def _release(self, name: str) -> None:
        entry = self._cluster.collection(NAMESPACES).get("", name)
        if entry is None:
            return
        namespace = decode(entry)
        spec = namespace.setdefault("spec", {})
        spec["finalizers"] = [item for item in spec.get("finalizers") or () if item != KUBERNETES]
        if not spec["finalizers"]:
            del spec["finalizers"]
        await self._api.replace(NAMESPACES.key, None, name, namespace, subresource="finalize")


def _conditions(before: list[Object], found: dict[str, tuple[str, str]], now: str) -> list[Object]:
    """The five conditions of a namespace that goes; a time changes only with a status."""
    present = {condition.get("type"): condition for condition in before}
    told: list[Object] = [condition for condition in before if condition.get("type") not in _FINE]
    for kind, fine in _FINE.items():
        reason, message = found.get(kind, fine)
        status = "True" if kind in found else "False"
        old = present.get(kind)
        since = old["lastTransitionTime"] if old is not None and old.get("status") == status else now
        told.append({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
    return told
