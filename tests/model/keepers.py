"""The queue and the quota service as they are: their own loops run, their calls stand at gates."""

from abc import ABC, abstractmethod
from typing import Any

from koord.bus.statecache import StateCache
from koord.kube.resources import (
    BY_TOKEN,
    ELASTIC_QUOTAS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    QUEUE_UNITS,
    QUEUES,
)
from koord.queue.service import QueueService
from koord.queue.settings import QueueSettings
from koord.quota.service import QuotaService
from koord.quota.settings import QuotaSettings
from tests.model.calls import SteppedHost, SteppedLedger, Surroundings
from tests.model.feeds import Feed, Values
from tests.model.stepping import Actor
from tests.model.streams import Core, SteppedBus

USED = frozenset(
    resource.token
    for resource in (ELASTIC_QUOTAS, JOBS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, QUEUE_UNITS, QUEUES)
)
"""The resources of which the model has objects."""


class _Keeper(ABC):
    """One life of such a service."""

    role: str

    def __init__(self, around: Surroundings, actor: Actor, ledger: SteppedLedger, late: int) -> None:
        self.actor = actor
        self.ledger = ledger
        self.bus: SteppedBus = around.bus(actor)
        self.host = SteppedHost(self.role, actor, self.bus, ledger)
        with actor.within():
            self.service = self._make()
        feeds = [self._feed(around, cache, late) for cache in self.service._caches]
        self.feeds = [feed for feed in feeds if feed.token in USED]
        self.values: list[Values] = []
        actor.run(self.service.start())

    @abstractmethod
    def _make(self) -> Any:
        """The service, on what the actor has."""

    def _feed(self, around: Surroundings, cache: StateCache[Any], late: int) -> Feed:
        resource = BY_TOKEN[cache.token]
        return Feed(around.api, self.actor, resource, cache, late if resource in (PODS, QUEUE_UNITS, JOBS) else 0)

    async def hear(self, message: Core) -> None:
        """A core message arrives."""
        with self.actor.within():
            await self.bus.hear(message)

    def loses_its_lease(self) -> None:
        """It hears that it does not lead any more, and stands for election again."""
        for lease in self.host.leases:
            lease.lost.set()


class Queue(_Keeper):
    """A life of the queue service."""

    role = "queue"

    def __init__(self, around: Surroundings, actor: Actor, ledger: SteppedLedger, late: int) -> None:
        super().__init__(around, actor, ledger, late)
        self.values.append(Values(around.network, actor, ".quota.runtime.", self.service._runtimes))

    def _make(self) -> QueueService:
        return QueueService(self.host, QueueSettings())


class Quota(_Keeper):
    """A life of the quota service."""

    role = "quota"

    def _make(self) -> QuotaService:
        return QuotaService(self.host, QuotaSettings())
