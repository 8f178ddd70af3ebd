"""Reading a cluster: objects from the bus (or, where that is away, from the API), answers from services."""

import asyncio
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from koord.bus.connection import Bus
from koord.bus.errors import AskRefused, BusError
from koord.bus.questions import ask
from koord.bus.statecache import StateCache
from koord.cli.clusters import ClusterFile
from koord.cli.errors import CommandError
from koord.contracts.codec import ContractError
from koord.kube import resources
from koord.kube.protocol.trace import TRACEPARENT
from koord.kube.resources import Resource
from koord.localcluster.clusterapi import ApiError
from koord.telemetry.context import TraceContext

A = TypeVar("A", bound=msgspec.Struct)
Object = dict[str, Any]

_CONNECT_S = 3.0
_SYNC_S = 10.0
_ASK_S = 5.0


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

    async def _from_api(self, resource: Resource) -> list[Object]:
        from koord.cli.api import connect

        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        try:
            async with await connect(self._cluster.kubeconfig) as api:
                return (await api.list(name))[0]
        except ApiError as error:
            raise CommandError(f"neither the bus nor the API server answers: {error.message}") from error

    async def ask(self, service: str, verb: str, question: msgspec.Struct, answer: type[A]) -> A:
        """Ask a service; CommandError if it refuses or does not answer."""
        if self._bus is None:
            raise CommandError(f"NATS at {self._cluster.nats} does not answer: is the cluster running?")
        try:
            return await ask(self._bus, service, verb, question, answer, timeout=_ASK_S)
        except AskRefused as error:
            raise CommandError(str(error)) from error
        except (BusError, ContractError) as error:
            raise CommandError(f"the {service} does not answer: {error}") from error


async def trace_of_job(reader: Reader, namespace: str, name: str) -> TraceContext:
    """The trace of a job's last attempt, as its queue unit carries it; CommandError if there is none."""
    units = [
        unit
        for unit in await reader.objects(resources.QUEUE_UNITS)
        if unit["metadata"]["namespace"] == namespace
        and (unit.get("spec", {}).get("consumerRef") or {}).get("name") == name
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
