"""Watches over HTTP: initial events, changes, bookmarks, and an end that tells the client to start again."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

from koord.localcluster.api.listoptions import ListOptions
from koord.localcluster.api.rendering import decode_raw, outward
from koord.localcluster.api.requests import Query, View
from koord.localcluster.api.resources import Route
from koord.localcluster.api.selecting import select
from koord.localcluster.api.store import Collection, Snapshot, Store, encode
from koord.localcluster.api.tables import partial, table
from koord.localcluster.api.watchcache import Entry, Match, Subscription
from koord.localcluster.clusterapi import ApiError, EventType, Object

BOOKMARK_SECONDS = 60.0
_HEADS: dict[EventType, bytes] = {
    "ADDED": b'{"type":"ADDED","object":',
    "MODIFIED": b'{"type":"MODIFIED","object":',
    "DELETED": b'{"type":"DELETED","object":',
    "BOOKMARK": b'{"type":"BOOKMARK","object":',
}
_TAIL = b"}\n"
_CHUNK = 500

Events = Sequence[tuple[EventType, Entry]]


class Writer:
    """Writes events in the form that one client asked for. The common form shares the stored bytes."""

    def __init__(self, route: Route, view: View, query: Query) -> None:
        self._route = route
        self._view = view
        self._include = query.text("includeObject") or "Metadata"
        self._headers = True

    def events(self, events: Events) -> bytes:
        """The lines of some events."""
        parts: list[bytes] = []
        add = parts.append
        if self._view is View.OBJECT and self._route.outward is None:
            for kind, entry in events:
                add(_HEADS[kind])
                add(entry.raw)
                add(_TAIL)
        else:
            for kind, entry in events:
                add(_HEADS[kind])
                add(self._shape(entry.raw))
                add(_TAIL)
        return b"".join(parts)

    def _shape(self, raw: bytes) -> bytes:
        if self._view is View.OBJECT:
            return outward(self._route, raw)
        obj = decode_raw(raw)
        if self._view in (View.PARTIAL, View.PARTIAL_LIST):
            return encode(partial(obj))
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        shown = table(self._route, [obj], metadata, self._include, headers=self._headers)
        self._headers = False
        return encode(shown)

    def bookmark(self, version: int, *, initial: bool = False) -> bytes:
        """A line that says how far the client has come; `initial` ends the initial events."""
        metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: Object = {"kind": self._route.resource.kind, "apiVersion": self._route.api_version, "metadata": metadata}
        if self._view is View.TABLE:
            obj = table(self._route, [], {"resourceVersion": str(version)}, self._include, headers=self._headers)
            if initial:
                obj["rows"] = [{"cells": [], "object": {**partial(_named(metadata)), "metadata": metadata}}]
        return _HEADS["BOOKMARK"] + encode(obj) + _TAIL

    @staticmethod
    def error(error: ApiError) -> bytes:
        """A line that ends the watch with a Status."""
        return b'{"type":"ERROR","object":' + encode(error.status()) + _TAIL


def _named(metadata: Object) -> Object:
    return {"metadata": metadata}


class WatchPlan:
    """What a watch request asks for, checked before the first byte is sent."""

    def __init__(
        self,
        store: Store,
        collection: Collection,
        namespace: str | None,
        match: Match | None,
        query: Query,
    ) -> None:
        self._store = store
        options = ListOptions(query, watch=True)
        initial, version = options.initial, options.version
        self.bookmarks = options.bookmarks
        self.end_mark = bool(initial) and self.bookmarks
        self.initial: Snapshot = []
        self.refusal: ApiError | None = None
        self.subscription: Subscription | None = None
        if initial or (initial is None and not version):
            self.initial = select(collection.entries(namespace), match)
            start = store.version
        else:
            start = version or store.version
        self.start = start
        self.seconds = float(options.seconds) or random.uniform(1800, 3600)
        try:
            store.check_version(start)
            self.subscription = collection.subscribe(namespace, match, start)
        except ApiError as error:
            if error.code != 410:
                raise
            # Kubernetes says this in the stream, not as its status.
            self.refusal = error

    async def lines(self, writer: Writer) -> AsyncIterator[bytes]:
        """The watch, as chunks of whole lines, until its time is over or it cannot go on."""
        subscription = self.subscription
        if subscription is None:
            if self.refusal is not None:
                yield writer.error(self.refusal)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.seconds
        for start in range(0, len(self.initial), _CHUNK):
            yield writer.events([("ADDED", entry) for entry in self.initial[start : start + _CHUNK]])
        self.initial = []
        if self.end_mark:
            yield writer.bookmark(self.start, initial=True)
        next_mark = loop.time() + random.uniform(0.8, 1.0) * BOOKMARK_SECONDS
        while (now := loop.time()) < deadline and not subscription.closed:
            until = min(deadline, next_mark) if self.bookmarks else deadline
            try:
                events = await subscription.next(max(0.001, until - now), _CHUNK * 4)
            except ApiError as error:
                yield writer.error(error)
                return
            if events:
                yield writer.events(events)
            if self.bookmarks and loop.time() >= next_mark:
                next_mark = loop.time() + BOOKMARK_SECONDS
                if not events and subscription.at_end:
                    yield writer.bookmark(self._store.version)
                elif subscription.version:
                    yield writer.bookmark(subscription.version)
        if self.bookmarks and subscription.at_end:
            yield writer.bookmark(self._store.version)
