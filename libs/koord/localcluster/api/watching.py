"""Watches over HTTP: initial events, changes, bookmarks, and an end that tells the client to start again."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

from koord.localcluster.api.errors import bad_request
from koord.localcluster.api.listing import read_version
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
        if self._view is View.PARTIAL:
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
        self.bookmarks = query.flag("allowWatchBookmarks") or False
        initial = query.flag("sendInitialEvents")
        exact = query.text("resourceVersionMatch")
        version = read_version(query.text("resourceVersion"))
        if initial is not None and exact != "NotOlderThan":
            raise bad_request("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if initial is None and exact:
            raise bad_request("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        if version:
            store.check_version(version)
        self.end_mark = bool(initial) and self.bookmarks
        self.initial: Snapshot = []
        if initial or (initial is None and not version):
            self.initial = select(collection.entries(namespace), match)
            start = store.version
        elif version:
            start = version
        else:
            start = store.version
        self.start = start
        self.subscription: Subscription = collection.subscribe(namespace, match, start)
        timeout = query.number("timeoutSeconds")
        self.seconds = float(timeout) if timeout else random.uniform(1800, 3600)

    async def lines(self, writer: Writer) -> AsyncIterator[bytes]:
        """The watch, as chunks of whole lines, until its time is over or it cannot go on."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.seconds
        for start in range(0, len(self.initial), _CHUNK):
            yield writer.events([("ADDED", entry) for entry in self.initial[start : start + _CHUNK]])
        self.initial = []
        if self.end_mark:
            yield writer.bookmark(self.start, initial=True)
        next_mark = loop.time() + random.uniform(0.8, 1.0) * BOOKMARK_SECONDS
        while (now := loop.time()) < deadline and not self.subscription.closed:
            until = min(deadline, next_mark) if self.bookmarks else deadline
            try:
                events = await self.subscription.next(max(0.001, until - now), _CHUNK * 4)
            except ApiError as error:
                yield writer.error(error)
                return
            if events:
                yield writer.events(events)
            if self.bookmarks and loop.time() >= next_mark:
                next_mark = loop.time() + BOOKMARK_SECONDS
                if not events and self.subscription.at_end:
                    yield writer.bookmark(self._store.version)
                elif self.subscription.version:
                    yield writer.bookmark(self.subscription.version)
        if self.bookmarks and self.subscription.at_end:
            yield writer.bookmark(self._store.version)
