"""Lists: consistent pages, and what a resource version means for a list.

A continue token says, as Kubernetes' own, at which version a list was begun and after which object it goes on; nothing
else belongs to it. So a page is the list as it was at that version: taken from what `Pager` holds of the lists that
were begun, or made again from the changes since.
"""

import base64
import binascii
import time
from bisect import bisect_left
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from koord.localcluster.api.errors import bad_request, expired, list_expired
from koord.localcluster.api.listoptions import ListOptions
from koord.localcluster.api.requests import Query
from koord.localcluster.api.selecting import select
from koord.localcluster.api.store import Collection, Snapshot, Store, place
from koord.localcluster.api.watchcache import Match
from koord.localcluster.clusterapi import ApiError

_SNAPSHOT_SECONDS = 300.0
_FINISHED_SECONDS = 10.0
_HELD_ENTRIES = 200_000
_TOKEN_VERSION = "meta.k8s.io/v1"
_NOW = -1


class Page(NamedTuple):
    """Some entries of a list; `token` continues it (None at the end).

    `remaining` counts what is left, None where Kubernetes does not count: lists with selectors.
    """

    entries: Snapshot
    version: int
    token: str | None
    remaining: int | None


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


class _Held(NamedTuple):
    entries: Snapshot
    until: float


class Pager:
    """Holds the lists that were begun, each under what it is a list of and its version.

    They are held for five minutes, and ten seconds after their last page. Held are references, but they keep alive what
    was changed since: so only the newest lists, and not too many entries.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, int], _Held] = OrderedDict()
        self._entries = 0

    def tidy(self) -> None:
        """Let go of lists that are held no longer; to be called now and then, as there may be no next list."""
        self._make_room(0)

    def _make_room(self, wanted: int) -> None:
        now = time.monotonic()
        for at in [at for at, held in self._held.items() if held.until < now]:
            self._entries -= len(self._held.pop(at).entries)
        while self._held and self._entries + wanted > _HELD_ENTRIES:
            self._entries -= len(self._held.popitem(last=False)[1].entries)

    def find(self, key: str, version: int) -> Snapshot | None:
        """A list that was begun, None when it is held no longer."""
        held = self._held.get((key, version))
        return None if held is None or held.until < time.monotonic() else held.entries

    def hold(self, key: str, version: int, entries: Snapshot, *, finished: bool) -> None:
        """Hold a list of which a page was given; `finished`: it was the last one (which may be asked for again)."""
        known = self._held.pop((key, version), None)
        if known is not None:
            self._entries -= len(known.entries)
        elif finished:
            self._make_room(0)
            return
        self._make_room(len(entries))
        seconds = _FINISHED_SECONDS if finished else _SNAPSHOT_SECONDS
        self._held[key, version] = _Held(entries, time.monotonic() + seconds)
        self._entries += len(entries)


def _encoded(version: int, start: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token(_TOKEN_VERSION, version, start))).rstrip(b"=").decode()


def _read_token(text: str) -> _Token:
    try:
        raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, msgspec.DecodeError, UnicodeError, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if token.v != _TOKEN_VERSION:
        raise bad_request(
            "invalid continue token: continue key is not valid: server does not recognize this encoded version"
            f' "{token.v}"'
        )
    if not -(1 << 63) <= token.rv < 1 << 63:
        raise bad_request("invalid continue token: continue key is not valid: rv is no int64")
    if token.rv == 0:
        raise bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion"
            f" (version {token.v})"
        )
    if not token.start or token.start.startswith("/") or ".." in token.start.split("/"):
        raise bad_request(f'invalid continue token: continue key is not valid: "{token.start}"')
    return token


def list_page(
    store: Store,
    pager: Pager,
    collection: Collection,
    namespace: str | None,
    match: Match | None,
    query: Query,
) -> Page:
    """The page that a list request asks for."""
    options = ListOptions(query)
    version = options.version
    selectors = (query.text("labelSelector"), query.text("fieldSelector"))
    lists = _Lists(
        store, pager, collection, namespace, match, "\n".join((collection.resource.key, namespace or "", *selectors))
    )
    if options.token:
        token = _read_token(options.token)
        if version:
            raise bad_request("specifying resource version is not allowed when using continue")
        at = store.version if token.rv == _NOW else token.rv
        return lists.page(lists.begun(at, token.start), at, options.limit, token.start)
    if version:
        store.check_version(version)
    if options.exact and version:
        return lists.page(lists.past(version), version, options.limit)
    # Whoever takes any version is answered from memory by Kubernetes, and that gives no pages.
    return lists.page(lists.present(), store.version, 0 if version == 0 else options.limit)


class _Lists(NamedTuple):
    """The lists of one collection with one selection, at any version."""

    store: Store
    pager: Pager
    collection: Collection
    namespace: str | None
    match: Match | None
    key: str

    def present(self) -> Snapshot:
        """All of it, now."""
        return select(self.collection.entries(self.namespace), self.match)

    def past(self, version: int) -> Snapshot:
        """All of it as it was at a version; 410 when that is no longer known."""
        try:
            return select(self.collection.entries_at(self.namespace, version), self.match)
        except ApiError as error:
            raise expired("The resourceVersion for the provided list is too old.") from error

    def begun(self, version: int, start: str) -> Snapshot:
        """All of a list that was begun at a version; 410 with a token that goes on in the present when it is gone."""
        held = self.pager.find(self.key, version)
        if held is not None:
            return held
        try:
            self.store.check_version(version)
            return select(self.collection.entries_at(self.namespace, version), self.match)
        except ApiError as error:
            if error.code != 410:
                raise
            raise list_expired(_encoded(_NOW, start)) from error

    def page(self, whole: Snapshot, version: int, limit: int, start: str = "") -> Page:
        """A page of a list, after what `start` says."""
        first = bisect_left(whole, self._prefix + start, key=place) if start else 0
        end = first + limit if limit else len(whole)
        finished = end >= len(whole)
        self.pager.hold(self.key, version, whole, finished=finished)
        if finished:
            return Page(whole[first:] if first else whole, version, None, None)
        # Nothing sorts between a name and the same with a zero byte behind it.
        token = _encoded(version, place(whole[end - 1]).removeprefix(self._prefix) + "\0")
        return Page(whole[first:end], version, token, len(whole) - end if self.match is None else None)

    @property
    def _prefix(self) -> str:
        """What the tokens leave out: they are relative to what is listed."""
        return "" if self.namespace is None and self.collection.resource.namespaced else f"{self.namespace or ''}/"
