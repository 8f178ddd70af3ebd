"""Everything that may still be bound, settled: for a barrier that cannot name what an earlier gateway left under way.

A barrier settles the objects of the decisions that it can find. If some cannot be found (their stream is another one,
they were in no stream, nobody knows whether a gateway was here before), their requests could be waited out, as long as
the API server works on one. But whatever they would write is still unbound now, else they can write nothing any more.
So all that is unbound gets a new version, and none of them can succeed, whoever sent it and whenever it arrives.

What is made after the list needs none: its version would have to be read before an ``advance`` of before, and no claim
has been spent since the ledger was closed.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import urlencode

import msgspec

from koord.gateway.api import Api, ApiUnavailable
from koord.gateway.objects import ObjectError, read_page, read_status
from koord.gateway.persisting import persist
from koord.gateway.settling import Unsettleable, settle
from koord.kube.resources import PODS, QUEUE_UNITS, Resource

# Not less: Kubernetes 1.24.0 to 1.24.2 lose objects of shorter pages with a selector (docs/compatibility.md).
PAGE: Final = 2048
_AT_A_TIME: Final = 64
_UNBOUND: Final[dict[str, str]] = {
    PODS.token: "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed",
    QUEUE_UNITS.token: "",
}
"""By resource that is written with a claim, which of its objects the API is asked for."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[msgspec.Raw] | None = None


class _Status(msgspec.Struct):
    admissions: list[msgspec.Raw] | None = None


class _Named(msgspec.Struct):
    metadata: _Meta


class _Pod(_Named):
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Unit(_Named):
    status: _Status = msgspec.field(default_factory=_Status)


_named = msgspec.json.Decoder(_Named)
_pod = msgspec.json.Decoder(_Pod)
_unit = msgspec.json.Decoder(_Unit)


async def settle_unbound(api: Api, on_progress: Callable[[int, int], None] | None = None) -> tuple[int, list[str]]:
    """Settle each pod without a node and each QueueUnit without admissions, by a consistent list of them.

    However long the API is away. Answers how many were settled, and in words which cannot be: requests for those have
    to be waited out. ``on_progress`` is told after each object how many are done, of how many.
    """
    targets: dict[str, tuple[Resource, _Meta]] = {}
    unreadable: list[str] = []
    refused: list[str] = []
    for resource in (PODS, QUEUE_UNITS):
        metas, words = await persist(partial(_listed, api, resource))
        targets.update((meta.uid, (resource, meta)) for meta in metas)
        unreadable += words
    waiting = iter(targets.values())
    done = 0

    async def some() -> None:
        nonlocal done
        for resource, meta in waiting:
            try:
                await persist(partial(settle, api, resource, meta.namespace, meta.name, meta.uid))
            except Unsettleable as error:
                refused.append(f"{resource.token} {meta.namespace}/{meta.name}: {error}")
            done += 1
            if on_progress is not None:
                on_progress(done, len(targets))

    await asyncio.gather(*(some() for _ in range(_AT_A_TIME)))
    return len(targets) - len(refused), [*unreadable, *refused]


async def _listed(api: Api, resource: Resource) -> tuple[list[_Meta], list[str]]:
    """What of a resource can still be written with a claim, and in words what nobody can read.

    Nothing of one that the server does not know. ApiUnavailable, or RequestFailed: begin again.
    """
    found: list[_Meta] = []
    unreadable: list[str] = []
    token = ""
    while True:
        query = {"limit": str(PAGE), "fieldSelector": _UNBOUND[resource.token], "continue": token}
        path = f"{resource.path()}?{urlencode({key: value for key, value in query.items() if value})}"
        answer = await api.call("get", path)
        if answer.status == 404 and resource.token != PODS.token:
            return [], []
        if answer.status != 200:
            raise ApiUnavailable(f"get {path}: answer {answer.status} {read_status(answer.body).message}")
        try:
            page = read_page(answer.body)
        except ObjectError as error:
            raise ApiUnavailable(f"get {path}: {error}") from error
        found += [meta for raw in page.items if (meta := _writable(resource, raw, unreadable)) is not None]
        token = page.token
        if not token:
            return found, unreadable


def _writable(resource: Resource, raw: msgspec.Raw, unreadable: list[str]) -> _Meta | None:
    """The object's metadata, unless no write that was read before now can succeed anyway."""
    try:
        meta = _named.decode(raw).metadata
    except (msgspec.MsgspecError, RecursionError) as error:
        unreadable.append(f"{resource.token}: an object that cannot be read: {error}")
        return None
    try:
        if resource.token == PODS.token:
            spec = _pod.decode(raw).spec
            # A gated pod cannot be bound, and gets another version when its last gate is taken away.
            closed = bool(spec.node_name or spec.scheduling_gates or meta.deletion_timestamp)
        else:
            closed = bool(_unit.decode(raw).status.admissions)
    except (msgspec.MsgspecError, RecursionError):
        closed = False  # what is not known to be bound is settled
    return None if closed else meta
