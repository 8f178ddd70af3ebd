"""API objects as bytes: what the gateway reads of them, and what it takes out before they go on the bus.

The gateway forwards objects as the API server sent them; decoding and encoding each again would cost several times
the forwarding. Only an object that carries ``managedFields`` (half of it, read by nobody) is cut, and only the outer
two levels of it are taken apart for that.
"""

import re
from typing import Final, Literal, NamedTuple, cast

import msgspec

WatchType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
_MANAGED = b'"managedFields"'
# The decoder gives up on nesting of about a thousand levels, which an API server lets pass.
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError)
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


class ObjectError(ValueError):
    """Bytes that are not an API object or a watch event; says what broke."""


class Brief(NamedTuple):
    """What the gateway knows of an object. ``node`` is a pod's node; ``body`` the JSON for the bus."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    terminating: bool
    body: bytes


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Meta
    kind: str = ""


class _Pod(msgspec.Struct, rename="camel"):
    metadata: _Meta
    kind: str = ""
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class Page(NamedTuple):
    """One page of a list; ``token`` is empty on the last."""

    resource_version: str
    token: str
    items: list[msgspec.Raw]


class ApiCause(msgspec.Struct):
    """One of the causes of a refusal."""

    reason: str = ""
    message: str = ""


class ApiDetails(msgspec.Struct):
    """What a Status says besides its message."""

    causes: list[ApiCause] = []


class ApiStatus(msgspec.Struct, rename="camel"):
    """A Kubernetes Status: why a request was refused."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: ApiDetails | None = None


_line = msgspec.json.Decoder(_Line)
_object = msgspec.json.Decoder(_Object)
_pod = msgspec.json.Decoder(_Pod)
_page = msgspec.json.Decoder(_Page)
_status = msgspec.json.Decoder(ApiStatus)
_outer = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_object(raw: bytes | msgspec.Raw, *, kind: str, api_version: str, pod: bool = False) -> Brief:
    """The object in ``raw``, which must have a name and a resourceVersion; ObjectError otherwise.

    Items of a list carry no kind and apiVersion on a real API server: they are put in, so that a reader of the bus
    sees the same object whichever way it came.
    """
    try:
        if pod:
            seen = _pod.decode(raw)
            node = seen.spec.node_name or ""
        else:
            seen = cast(_Pod, _object.decode(raw))
            node = ""
        body = bytes(raw)
        if _MANAGED in body:
            body = _without_managed_fields(body)
    except _UNREADABLE as error:
        raise ObjectError(f"{kind}: {error}") from error
    meta = seen.metadata
    if not meta.name or not meta.resource_version:
        raise ObjectError(f"{kind}: metadata.{'name' if not meta.name else 'resourceVersion'}: missing")
    if not seen.kind:
        body = b'{"kind":"%s","apiVersion":"%s",%s' % (kind.encode(), api_version.encode(), body.lstrip()[1:])
    return Brief(
        meta.namespace,
        meta.name,
        meta.uid,
        meta.resource_version,
        node,
        meta.deletion_timestamp is not None,
        body,
    )


def stub(brief: Brief) -> bytes:
    """The object without all that makes it large: enough to say that it is gone."""
    meta = {"name": brief.name, "namespace": brief.namespace, "uid": brief.uid}
    return msgspec.json.encode({"metadata": {**meta, "resourceVersion": brief.resource_version}})


def read_line(line: bytes | memoryview) -> tuple[WatchType, msgspec.Raw]:
    """The type and the undecoded object of one line of a watch; ObjectError if it is not one."""
    try:
        event = _line.decode(line)
    except _UNREADABLE as error:
        raise ObjectError(f"watch line: {error}") from error
    if event.type not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"):
        raise ObjectError(f"watch line: type: {event.type!r} is none of ADDED, MODIFIED, DELETED, BOOKMARK, ERROR")
    return cast(WatchType, event.type), event.object


def read_version(raw: bytes | msgspec.Raw) -> str:
    """The resourceVersion of an object (a bookmark has hardly more)."""
    try:
        return _object.decode(raw).metadata.resource_version
    except _UNREADABLE as error:
        raise ObjectError(f"bookmark: {error}") from error


def read_page(body: bytes) -> Page:
    """One page of a list; ObjectError if it is not one.

    An item that cannot be read must not hide the others: then the page is taken apart by its brackets, and the item
    fails alone, in :func:`read_object`.
    """
    try:
        page = _page.decode(body)
    except RecursionError:
        return _take_apart(body)
    except msgspec.MsgspecError as error:
        raise ObjectError(f"list: {error}") from error
    return Page(page.metadata.resource_version, page.metadata.continue_, page.items or [])


def _take_apart(body: bytes) -> Page:
    depth, key, begun = 0, b"", 0
    metadata = b"{}"
    items: list[msgspec.Raw] = []
    for token in _TOKEN.finditer(body):
        char = body[token.start() : token.start() + 1]
        if char == b'"':
            if depth == 1 and body[token.end() :].lstrip()[:1] == b":":
                key = token[0]
        elif char in b"{[":
            depth += 1
            if depth == (3 if key == b'"items"' else 2):
                begun = token.start()
        else:
            if key == b'"items"' and depth == 3:
                items.append(msgspec.Raw(body[begun : token.end()]))
            elif key == b'"metadata"' and depth == 2:
                metadata = body[begun : token.end()]
            depth -= 1
    try:
        meta = msgspec.json.decode(metadata, type=_ListMeta)
    except _UNREADABLE as error:
        raise ObjectError(f"list: metadata: {error}") from error
    return Page(meta.resource_version, meta.continue_, items)


def read_status(body: bytes | msgspec.Raw) -> ApiStatus:
    """The Status in ``body``; an answer that is none (a proxy's page) becomes its beginning as the message."""
    try:
        return _status.decode(body)
    except _UNREADABLE:
        return ApiStatus(message=bytes(body)[:200].decode("utf-8", "replace"))


def _without_managed_fields(body: bytes) -> bytes:
    outer = _outer.decode(body)
    metadata = _outer.decode(outer["metadata"])
    if metadata.pop("managedFields", None) is None:
        return body
    outer["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    return msgspec.json.encode(outer)
