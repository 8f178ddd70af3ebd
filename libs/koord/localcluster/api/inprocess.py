"""`ClusterApi` straight on the store, for the components that live inside the server's process."""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from koord.localcluster.api import deletion
from koord.localcluster.api.admission.admission import Caller, component
from koord.localcluster.api.admission.attributes import CREATE, DELETE, UPDATE
from koord.localcluster.api.apply.writers import Writer
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.deleteoptions import DeleteOptions, check_options
from koord.localcluster.api.patching import KINDS, applier
from koord.localcluster.api.requests import decode_json
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.scale import from_scale, to_scale
from koord.localcluster.api.selecting import compile_match, select
from koord.localcluster.api.store import decode, encode
from koord.localcluster.clusterapi import (
    Object,
    Objects,
    PatchKind,
    PropagationPolicy,
    WatchEvent,
    WatchEvents,
)

T = TypeVar("T")

_BATCH = 1_000
_IDLE_SECONDS = 3_600.0


class InProcessApi:
    """Implements `koord.localcluster.clusterapi.ClusterApi` without HTTP. Bodies given to it become the server's.

    `manager` comes to own what is written.
    """

    def __init__(self, cluster: Cluster, manager: str = "koord") -> None:
        self._cluster = cluster
        self._manager = manager

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
        cluster, served = self._cluster, self._cluster.resource(resource)
        if not cluster.admission.concerns(served, CREATE):
            return cluster.create(served, namespace, body, by=self._by(served))
        sent = encode(body)
        return await self._admitted(lambda: cluster.create(served, namespace, decode_json(sent), by=self._by(served)))

    def _by(self, resource: Resource, through: str = "") -> Writer:
        return Writer(self._manager, resource.api_version, through)

    async def _admitted(self, write: Callable[[], T]) -> T:
        return await self._cluster.admission.run(Caller(component(self._manager)), write)

    async def replace(
        self, resource: str, namespace: str | None, name: str, body: Object, *, subresource: str | None = None
    ) -> bytes:
        """Replace the object or its status."""
        served = self._cluster.resource(resource)
        cluster = self._cluster
        if not cluster.admission.concerns(served, UPDATE, subresource):
            return cluster.replace(served, namespace, name, body, subresource=subresource, by=self._by(served))
        sent = encode(body)
        return await self._admitted(
            lambda: cluster.replace(
                served, namespace, name, decode_json(sent), subresource=subresource, by=self._by(served)
            )
        )

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
        cluster = self._cluster
        body: Any = decode_json(patch) if isinstance(patch, bytes) else patch
        by = self._by(served, "scale" if subresource == "scale" else "")
        asks = cluster.admission.concerns(served, UPDATE, subresource)
        apply: Callable[[Object], Object]
        if subresource == "scale":
            change = applier(served, KINDS[kind], body, type_name="autoscaling.v1.Scale")

            def rescale(obj: Object) -> Object:
                before = to_scale(served, obj)
                scale = cluster.admission.scaled(served, before, change(before), dry_run=False)
                return from_scale(served, obj, scale)

            subresource, apply = None, rescale
        else:
            apply = applier(served, KINDS[kind], body)
        if not asks:
            return cluster.patch(served, namespace, name, apply, subresource=subresource, by=by)
        return await self._admitted(
            lambda: cluster.patch(served, namespace, name, apply, subresource=subresource, by=by)
        )

    async def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation_policy: PropagationPolicy | None = None,
    ) -> None:
        """Delete, with preconditions."""
        options = DeleteOptions(
            grace_period_seconds=grace_period_seconds,
            preconditions=deletion.preconditions(uid, resource_version),
            propagation_policy=propagation_policy,
        )
        check_options(options)
        cluster, served = self._cluster, self._cluster.resource(resource)
        if not cluster.admission.concerns(served, DELETE):
            deletion.delete(cluster, served, namespace, name, options)
        else:
            await self._admitted(lambda: deletion.delete(cluster, served, namespace, name, options))
