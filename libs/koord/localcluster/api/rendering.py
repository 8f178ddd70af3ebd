"""Turning stored objects into answers: single objects, lists and watch events, as objects, tables or bare metadata."""

from collections.abc import AsyncIterator, Iterable

from koord.localcluster.api.errors import not_acceptable
from koord.localcluster.api.listing import Page
from koord.localcluster.api.requests import Query, Response, View
from koord.localcluster.api.resources import Route
from koord.localcluster.api.store import decode, encode
from koord.localcluster.api.tables import partial, table
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import Object

_CHUNK = 250


def outward(route: Route, raw: bytes) -> bytes:
    """Stored bytes as the route's version writes them."""
    if route.outward is None:
        return raw
    return encode(route.outward(decode_raw(raw)))


def decode_raw(raw: bytes) -> Object:
    """Decode stored bytes."""
    return decode(Entry("", "", "", 0, raw, None, (), False))


def render(route: Route, raw: bytes, view: View, query: Query, status: int = 200) -> Response:
    """One object."""
    if view is View.OBJECT:
        return Response(status, outward(route, raw))
    if view is View.PARTIAL_LIST:
        raise not_acceptable(
            f"you requested PartialObjectMetadataList, but the requested object is not a list ({_type(route)})"
        )
    obj = decode_raw(raw)
    if view is View.PARTIAL:
        return Response(status, encode(partial(obj)))
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
    include = query.text("includeObject") or "Metadata"
    return Response(status, encode(table(route, [_out(route, obj)], metadata, include, headers=True)))


def _type(route: Route, suffix: str = "") -> str:
    """A kind as Kubernetes' code calls it, which is what its refusals say."""
    if route.resource.custom:
        return f"*unstructured.Unstructured{suffix}"
    return f"*{route.group.partition('.')[0] or 'core'}.{route.resource.kind}{suffix}"


def _out(route: Route, obj: Object) -> Object:
    # Columns read the stored form: they are the same for every version of a built-in.
    return obj if route.outward is None or route.columns is route.resource.columns else route.outward(obj)


def list_metadata(page: Page) -> Object:
    """The metadata of a list."""
    metadata: Object = {"resourceVersion": str(page.version)}
    if page.token:
        metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def render_list(route: Route, page: Page, view: View, query: Query) -> Response:
    """A list; a long one is sent in chunks so that it neither doubles in memory nor holds up the loop."""
    metadata = list_metadata(page)
    if view is View.TABLE:
        objects = (_out(route, decode(entry)) for entry in page.entries)
        include = query.text("includeObject") or "Metadata"
        return Response(200, encode(table(route, objects, metadata, include, headers=True)))
    if view is View.PARTIAL:
        raise not_acceptable(
            f"you requested PartialObjectMetadata, but the requested object is a list ({_type(route, 'List')})"
        )
    if view is View.PARTIAL_LIST:
        body = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": [partial(decode(entry)) for entry in page.entries],
        }
        return Response(200, encode(body))
    head = b'{"kind":"%s","apiVersion":"%s","metadata":%s,"items":[' % (
        route.resource.list_kind.encode(),
        route.api_version.encode(),
        encode(metadata),
    )
    if len(page.entries) <= _CHUNK:
        return Response(200, b"".join((head, b",".join(_raws(route, page.entries)), b"]}")))
    return Response(200, _chunks(route, page.entries, head))


def _raws(route: Route, entries: Iterable[Entry]) -> list[bytes]:
    if route.outward is None:
        return [entry.raw for entry in entries]
    return [outward(route, entry.raw) for entry in entries]


async def _chunks(route: Route, entries: list[Entry], head: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(entries), _CHUNK):
        part = b",".join(_raws(route, entries[start : start + _CHUNK]))
        yield (head if start == 0 else b",") + part
    yield b"]}"
