"""Reading a cluster: objects from the bus (or, where that is away, from the API), answers from services."""

import asyncio
import datetime
import time
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import nats.errors

from koord.bus.client import header_value
from koord.bus.connection import Bus
from koord.bus.directread import Stored, read_last, read_stored
from koord.bus.errors import AskRefused, BusError, NobodyThere
from koord.bus.questions import ask
from koord.bus.statecache import StateCache
from koord.cli.clusters import ClusterFile
from koord.cli.errors import CommandError
from koord.contracts.codec import ContractError, decode
from koord.contracts.quota import QuotaRuntime
from koord.contracts.state import HEADER, parse_header
from koord.kube import resources
from koord.kube.protocol.trace import TRACEPARENT
from koord.kube.resources import Resource
from koord.localcluster.clusterapi import ApiError
from koord.telemetry.context import TraceContext

A = TypeVar("A", bound=msgspec.Struct)
Object = dict[str, Any]

_CONNECT_S = 6.0
_SYNC_S = 30.0
_ASK_S = 15.0
_READ_S = 3.0
ANY = "*"


class Silent(CommandError):
    """Nobody answers; ``words`` go on "no <service> ..."."""

    def __init__(self, text: str, words: str) -> None:
        super().__init__(text)
        self.words = words


class _State(msgspec.Struct):
    last_ts: datetime.datetime


class _Info(msgspec.Struct):
    state: _State


class Reader:
    """An async context manager on one cluster. Prefers the bus; lists fall back to the API server.

    A bus that has no whole list within ``_SYNC_S`` is not asked for the next one: a command reads up to nine.
    """

    def __init__(self, cluster: ClusterFile) -> None:
        self._cluster = cluster
        self._bus: Bus | None = None
        self._lists_from_bus = True

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(_CONNECT_S):
                self._bus = await Bus.connect(self._cluster.nats, self._cluster.cluster, "cli")
        except (BusError, OSError, TimeoutError):
            self._bus = None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bus is not None:
            await self._bus.close()

    async def objects(self, resource: Resource) -> list[Object]:
        """Every object of a resource, as decoded JSON."""
        if self._bus is None or not self._lists_from_bus:
            return await self._from_api(resource)
        cache: StateCache[msgspec.Raw] = StateCache(self._bus, resource, msgspec.Raw)
        try:
            async with asyncio.timeout(_SYNC_S):
                await cache.start()
                await cache.synced()
            return [msgspec.json.decode(raw) for raw in cache.items.values()]
        except (BusError, TimeoutError):
            self._lists_from_bus = False
        finally:
            await cache.close()
        return await self._from_api(resource)

    async def some(self, resource: Resource, namespace: str, name: str = ANY) -> list[Object]:
        """The objects of a namespace, or those of one name, without reading the others; ``ANY`` is one or all."""
        if self._bus is not None and self._lists_from_bus:
            subjects = self._bus.subjects
            wanted = subjects.state(resource.token, namespace, name)
            # What changes meanwhile comes again, further on.
            last: dict[bytes, Stored] = {}
            first = 1
            try:
                while batch := await read_stored(self._bus, subjects.state_stream, wanted, first, timeout=_READ_S):
                    last |= {one.subject: one for one in batch}
                    first = batch[-1].sequence + 1
                return [msgspec.json.decode(one.body) for one in last.values() if _lives(one)]
            except BusError:
                self._lists_from_bus = False
        items = await self._from_api(resource, "" if namespace == ANY else namespace)
        return [item for item in items if name in (ANY, item["metadata"]["name"])]

    async def from_api(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object as the API server has it; None: there is none, or no such resource."""
        from koord.cli.api import connect

        try:
            async with await connect(self._cluster.kubeconfig) as api:
                return dict(await api.get(_api_name(resource), namespace, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise CommandError(f"the API server does not answer: {error.message}") from error

    async def _from_api(self, resource: Resource, namespace: str = "") -> list[Object]:
        from koord.cli.api import connect

        try:
            async with await connect(self._cluster.kubeconfig) as api:
                return (await api.list(_api_name(resource), namespace or None))[0]
        except ApiError as error:
            raise CommandError(f"neither the bus nor the API server answers: {error.message}") from error

    async def runtimes(self) -> QuotaRuntime | None:
        """What the quota service published last, of a tree or a part of one; None: nothing, or it cannot be read."""
        if self._bus is None:
            return None
        subjects = self._bus.subjects
        try:
            stored = await read_last(self._bus, subjects.quota_stream, subjects.quota_runtime_all, timeout=_READ_S)
            return decode(QuotaRuntime, stored.body) if stored is not None else None
        except (BusError, ContractError):
            return None

    async def state_age_s(self) -> float | None:
        """How long ago the state on the bus changed last; None: not known."""
        if self._bus is None:
            return None
        try:
            answer = await self._bus.nc.request(
                f"$JS.API.STREAM.INFO.{self._bus.subjects.state_stream}", timeout=_READ_S
            )
            last = msgspec.json.decode(answer.data, type=_Info).state.last_ts
        except (nats.errors.Error, msgspec.MsgspecError, TimeoutError, OSError):
            return None
        return max(0.0, time.time() - last.timestamp()) if last.year > 1 else None

    async def ask(self, service: str, verb: str, question: msgspec.Struct, answer: type[A]) -> A:
        """Ask a service; CommandError if it refuses, Silent if it does not answer."""
        if self._bus is None:
            text = f"NATS at {self._cluster.nats} does not answer: is the cluster running?"
            raise Silent(text, "can be asked, for NATS does not answer")
        try:
            return await ask(self._bus, service, verb, question, answer, timeout=_ASK_S)
        except AskRefused as error:
            raise CommandError(str(error)) from error
        except NobodyThere as error:
            raise Silent(f"no {service} answers: {error}", "answers") from error
        except (BusError, ContractError) as error:
            raise Silent(f"the {service} does not answer: {error}", f"has answered for {_ASK_S:g} s") from error


def _lives(stored: Stored) -> bool:
    """Whether it is an object that is not deleted; whatever else the stream holds is none."""
    try:
        return parse_header(header_value(stored.headers, HEADER.encode()) or "").type != "DELETED"
    except ContractError:
        return False


def _api_name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


async def trace_of_job(reader: Reader, namespace: str, name: str) -> TraceContext:
    """The trace of a job's last attempt, as its queue unit carries it; CommandError if there is none."""
    units = [
        unit
        for unit in await reader.some(resources.QUEUE_UNITS, namespace)
        if (unit.get("spec", {}).get("consumerRef") or {}).get("name") == name
    ]
    if not units:
        raise CommandError(
            f"job {namespace}/{name}: no such job, or it has no queue unit: see koord get jobs -n {namespace}"
        )
    for unit in units:
        context = TraceContext.parse((unit["metadata"].get("annotations") or {}).get(TRACEPARENT))
        if context is not None:
            return context
    raise CommandError(f"job {namespace}/{name}: its queue unit carries no valid {TRACEPARENT}")
