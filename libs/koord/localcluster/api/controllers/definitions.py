"""Deletes the objects of a CustomResourceDefinition that is being deleted, then lets the definition go."""

from koord.localcluster.api.builtin import CRDS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.workqueue import WorkQueue
from koord.localcluster.api.finalizers import DEFINITION
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ApiError, ClusterApi

_LOOK_AGAIN_S = 1.0
_WAITING = "InstanceDeletionInProgress"


class DefinitionController:
    """The controller of one cluster; `queue` does its work."""

    def __init__(self, cluster: Cluster, api: ClusterApi) -> None:
        self._cluster = cluster
        self._api = api
        self.queue: WorkQueue[str] = WorkQueue("definitions", self._handle)

    def start(self) -> None:
        """Hear of writes from now on, and go on with definitions that were being deleted."""
        self._cluster.store.listen(self.on_write, lambda resource: resource.custom or resource is CRDS)
        for name in self._cluster.dying_definitions:
            self.queue.add(name)

    def on_write(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        """Look at a definition when it begins to go, and when the last of its objects is gone."""
        if resource is CRDS:
            if entry is not None and entry.deleting:
                self.queue.add(entry.name)
            return
        gone = entry is None and resource.key in self._cluster.dying_definitions
        if gone and not self._cluster.store.collections[resource.key].count:
            self.queue.add(resource.key)

    async def _handle(self, name: str) -> None:
        entry = self._cluster.collection(CRDS).get("", name)
        if entry is None or not entry.deleting:
            return
        definition = decode(entry)
        finalizers = definition["metadata"].get("finalizers") or []
        if DEFINITION not in finalizers:
            return
        collection = self._cluster.store.collections.get(name)
        if collection is not None:
            for item in collection.entries():
                if not item.deleting:
                    try:
                        await self._api.delete(name, item.namespace or None, item.name, uid=item.uid)
                    except ApiError as error:
                        if error.code not in (404, 409):
                            raise
            if collection.count:
                await self._say_waiting(name)
                self.queue.add_after(name, _LOOK_AGAIN_S)
                return
        kept = [item for item in finalizers if item != DEFINITION]
        body = {"metadata": {"uid": entry.uid, "resourceVersion": str(entry.version), "finalizers": kept or None}}
        await self._api.patch(CRDS.key, None, name, body, kind="merge")

    async def _say_waiting(self, name: str) -> None:
        """Say in the definition's conditions that objects remain."""
        definition = decode(self._cluster.find(CRDS, None, name))
        for condition in definition["status"]["conditions"]:
            if condition["type"] == "Terminating" and condition["reason"] != _WAITING:
                condition["reason"], condition["message"] = _WAITING, "CustomResource deletion is in progress"
                await self._api.replace(CRDS.key, None, name, definition, subresource="status")
