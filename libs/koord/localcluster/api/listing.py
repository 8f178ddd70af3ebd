"""Lists: consistent pages, and what a resource version means for a list."""

import base64
import binascii
import time
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from koord.localcluster.api.errors import bad_request, expired
from koord.localcluster.api.requests import Query
from koord.localcluster.api.selecting import select
from koord.localcluster.api.store import Collection, Snapshot, Store
from koord.localcluster.api.watchcache import Match

_SNAPSHOT_SECONDS = 300.0
_FINISHED_SECONDS = 10.0
_HELD_ENTRIES = 200_000


class Page(NamedTuple):
    """Some entries of a list; `token` continues it (None at the end) and `remaining` counts what is left."""

    entries: Snapshot
    version: int
    token: str | None
    remaining: int


class _Token(msgspec.Struct):
    snapshot: int
    start: int
    key: str


class _Held(NamedTuple):
    entries: Snapshot
    version: int
    key: str
    until: float


class Pager:
    """Cuts lists into pages. A list that was begun is held for five minutes, and ten seconds after its last page.

    Held are references, but they keep alive what was changed since: so only the newest lists, and not too many entries.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._entries = 0
        self._next = 0

    def tidy(self) -> None:
        """Let go of lists that are held no longer; to be called now and then, as there may be no next list."""
        self._make_room(0)

    def _make_room(self, wanted: int) -> None:
        now = time.monotonic()
        for number in [number for number, held in self._held.items() if held.until < now]:
            self._entries -= len(self._held.pop(number).entries)
        while self._held and self._entries + wanted > _HELD_ENTRIES:
            self._entries -= len(self._held.popitem(last=False)[1].entries)

    def first(self, entries: Snapshot, version: int, limit: int, key: str) -> Page:
        """The first page of a list; everything when `limit` is 0."""
        if not limit or len(entries) <= limit:
            self._make_room(0)
            return Page(entries, version, None, 0)
        self._make_room(len(entries))
        self._next += 1
        self._held[self._next] = _Held(entries, version, key, time.monotonic() + _SNAPSHOT_SECONDS)
        self._entries += len(entries)
        return self._cut(self._next, 0, limit)

    def further(self, token: str, limit: int, key: str) -> Page:
        """The page at a token; 410 when the list is held no longer, 400 for a token of something else."""
        try:
            text = base64.urlsafe_b64decode(token.encode("ascii"))
            at = msgspec.json.decode(text, type=_Token)
        except (binascii.Error, msgspec.DecodeError, UnicodeError, ValueError) as error:
            raise bad_request("continue key is not valid") from error
        held = self._held.get(at.snapshot)
        if held is None or held.until < time.monotonic():
            raise expired("The provided continue parameter is too old to display a consistent list result")
        if held.key != key or at.key != key or not 0 <= at.start < len(held.entries):
            raise bad_request("continue key is not valid: it belongs to another list")
        return self._cut(at.snapshot, at.start, limit or len(held.entries))

    def _cut(self, snapshot: int, start: int, limit: int) -> Page:
        held = self._held[snapshot]
        end = start + limit
        page, left = held.entries[start:end], max(0, len(held.entries) - end)
        if not left:
            self._held[snapshot] = held._replace(until=time.monotonic() + _FINISHED_SECONDS)
            return Page(page, held.version, None, 0)
        token = base64.urlsafe_b64encode(msgspec.json.encode(_Token(snapshot, end, held.key))).decode()
        return Page(page, held.version, token, left)


def read_version(text: str) -> int | None:
    """A resource version as a number, None when absent; 400 when it is none."""
    if text == "":
        return None
    if not (text.isascii() and text.isdigit()):
        raise bad_request(f"Invalid value: {text!r}: resourceVersion must be a number")
    return int(text)


def list_page(
    store: Store,
    pager: Pager,
    collection: Collection,
    namespace: str | None,
    match: Match | None,
    query: Query,
) -> Page:
    """The page that a list request asks for."""
    limit = query.number("limit") or 0
    token, exact = query.text("continue"), query.text("resourceVersionMatch")
    version = read_version(query.text("resourceVersion"))
    if exact not in ("", "Exact", "NotOlderThan"):
        raise bad_request(f"resourceVersionMatch: Unsupported value: {exact!r}: supported: 'Exact', 'NotOlderThan'")
    if exact and version is None:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if exact == "Exact" and version == 0:
        raise bad_request('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    selectors = (query.text("labelSelector"), query.text("fieldSelector"))
    key = "\n".join((collection.resource.key, namespace or "", *selectors))
    if token:
        if exact or version:
            raise bad_request("resourceVersion and resourceVersionMatch are forbidden when continue is provided")
        return pager.further(token, limit, key)
    if version:
        store.check_version(version)
        # Only the present is held as a whole: an exact past is served if nothing changed since.
        if exact == "Exact" and version < collection.changed:
            raise expired(f"The resourceVersion for the provided list is too old: {version} ({collection.changed})")
    entries = select(collection.entries(namespace), match)
    answered = version if exact == "Exact" and version else store.version
    return pager.first(entries, answered, limit, key)
