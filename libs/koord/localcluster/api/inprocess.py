"""`ClusterApi` straight on the store, for the components that live inside the server's process."""

from collections.abc import AsyncIterator
from typing import Any

from koord.localcluster.api import deletion
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.patching import KINDS, applier
from koord.localcluster.api.requests import decode_json
from koord.localcluster.api.scale import from_scale, to_scale
from koord.localcluster.api.selecting import compile_match, select
from koord.localcluster.api.store import decode
from koord.localcluster.clusterapi import Object, Objects, PatchKind, WatchEvent, WatchEvents

_BATCH = 1_000
_IDLE_SECONDS = 3_600.0


class InProcessApi:
    """Implements `koord.localcluster.clusterapi.ClusterApi` without HTTP. Bodies given to it become the server's."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> tuple[Objects, str]:
        """All objects and the version they are consistent at."""
        served = self._cluster.resource(resource)
        match = compile_match(served, label_selector, field_selector)
        entries = select(self._cluster.collection(served).entries(namespace), match)
        return [decode(entry) for entry in entries], str(self._cluster.store.version)

    async def watch(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> AsyncIterator[WatchEvents]:
        """Changes in order, in batches, as the protocol describes."""
        served = self._cluster.resource(resource)
        collection = self._cluster.collection(served)
        match = compile_match(served, label_selector, field_selector)
        store = self._cluster.store
        start = store.version if resource_version is None else int(resource_version)
        store.check_version(start)
        subscription = collection.subscribe(namespace, match, start)
        if resource_version is None:
            entries = select(collection.entries(namespace), match)
            for at in range(0, len(entries), _BATCH):
                yield [
                    WatchEvent("ADDED", entry.namespace, entry.name, entry.version, entry.raw)
                    for entry in entries[at : at + _BATCH]
                ]
            del entries
            stub = b'{"kind":"%s","metadata":{"resourceVersion":"%d"}}' % (served.kind.encode(), start)
            yield [WatchEvent("BOOKMARK", "", "", start, stub)]
        while not subscription.closed:
            changes = await subscription.next(_IDLE_SECONDS, _BATCH)
            if changes:
                yield [
                    WatchEvent(kind, entry.namespace, entry.name, entry.version, entry.raw) for kind, entry in changes
                ]

    async def get(self, resource: str, namespace: str | None, name: str) -> Object:
        """One object."""
        return decode(self._cluster.find(self._cluster.resource(resource), namespace, name))

    async def create(self, resource: str, namespace: str | None, body: Object) -> bytes:
        """Create; answers the stored object."""
        return self._cluster.create(self._cluster.resource(resource), namespace, body)

    async def replace(
        self, resource: str, namespace: str | None, name: str, body: Object, *, subresource: str | None = None
    ) -> bytes:
        """Replace the object or its status."""
        served = self._cluster.resource(resource)
        return self._cluster.replace(served, namespace, name, body, subresource=subresource)

    async def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        patch: Object | Objects | bytes,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
    ) -> bytes:
        """Apply a patch; answers the stored object (for `scale` too)."""
        served = self._cluster.resource(resource)
        body: Any = decode_json(patch) if isinstance(patch, bytes) else patch
        if subresource == "scale":
            change = applier(served, KINDS[kind], body, type_name="autoscaling.v1.Scale")

            def apply(obj: Object) -> Object:
                return from_scale(served, obj, change(to_scale(served, obj)))

            return self._cluster.patch(served, namespace, name, apply)
        apply_patch = applier(served, KINDS[kind], body)
        return self._cluster.patch(served, namespace, name, apply_patch, subresource=subresource)

    async def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        """Delete, with preconditions."""
        options = deletion.DeleteOptions(
            grace_period_seconds=grace_period_seconds, preconditions=deletion.preconditions(uid, resource_version)
        )
        deletion.delete(self._cluster, self._cluster.resource(resource), namespace, name, options)
