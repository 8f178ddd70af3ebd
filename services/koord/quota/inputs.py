"""What the quota service reads: seven kinds of objects, told to the keeper and the profiles as they change."""

from collections.abc import Callable
from typing import Any

from koord.bus.connection import Bus
from koord.bus.statecache import Change, StateCache
from koord.contracts.codec import ContractError
from koord.kube.groups import PodGroup
from koord.kube.meta import PartialObject, split_key
from koord.kube.protocol.queue import MAX_DEPTH, POLICY_BLOCK, POLICY_FIFO, integer
from koord.kube.quantity import QuantityError
from koord.kube.queues import NAMESPACE as QUEUE_NAMESPACE
from koord.kube.quotas import ElasticQuota, ElasticQuotaProfile
from koord.kube.resources import (
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUE_UNITS,
    QUEUES,
)
from koord.kube.selectors import SelectorError
from koord.quota.keeper import Keeper
from koord.quota.profiles import Profiles
from koord.quota.standing import DEPTH, Order
from koord.quota.views import NodeBrief, PodBrief, QueueBrief, UnitBrief
from koord.telemetry.logs import Logger

MOST_PROBLEMS = 1000
"""A standby tells nobody; the latest are told by whoever leads next."""


class Inputs:
    """``changed`` is called when there is something to compute, ``seen`` with the key of each object that changed.

    Keys are those of :class:`~koord.quota.chores.Chores`. ``bad_profile`` is told of a profile that is not in force.
    """

    def __init__(
        self,
        bus: Bus,
        keeper: Keeper,
        profiles: Profiles,
        log: Logger,
        *,
        changed: Callable[[], None],
        seen: Callable[[str], None],
        bad_profile: Callable[[ElasticQuotaProfile, str], None],
    ) -> None:
        self._keeper, self._profiles, self._log = keeper, profiles, log
        self._changed, self._seen, self._bad_profile = changed, seen, bad_profile
        bad = self._on_bad
        self.namespaces = StateCache(bus, NAMESPACES, PartialObject)
        self.quotas = StateCache(bus, ELASTIC_QUOTAS, ElasticQuota, self._on_quota, on_bad=self._on_bad_quota)
        self.pods = StateCache(bus, PODS, PodBrief, self._on_pod, on_bad=bad)
        self._units = StateCache(bus, QUEUE_UNITS, UnitBrief, self._on_unit, on_bad=bad)
        self._queues = StateCache(bus, QUEUES, QueueBrief, self._on_queue, on_bad=bad)
        self._nodes = StateCache(bus, NODES, NodeBrief, self._on_node, on_bad=bad)
        self._groups = StateCache(bus, POD_GROUPS, PodGroup, self._on_group, on_bad=bad)
        self._profile_objects = StateCache(
            bus, ELASTIC_QUOTA_PROFILES, ElasticQuotaProfile, self._on_profile, on_bad=bad
        )
        self.caches: tuple[StateCache[Any], ...] = (
            self.namespaces,
            self._nodes,
            self.quotas,
            self._profile_objects,
            self._queues,
            self._groups,
            self._units,
            self.pods,
        )

    async def start(self) -> None:
        """Begin to read."""
        for cache in self.caches:
            await cache.start()

    async def synced(self) -> None:
        """Wait for the whole picture."""
        for cache in self.caches:
            await cache.synced()

    @property
    def complete(self) -> bool:
        """Whether the picture is whole and followed: nothing is evicted on old news."""
        return all(cache.is_following for cache in self.caches)

    async def close(self) -> None:
        """Stop reading."""
        for cache in self.caches:
            await cache.close()

    # Changes ------------------------------------------------------------------------------------------------------

    def _on_quota(self, change: Change[ElasticQuota]) -> None:
        if change.new is not None:
            self._keeper.put_quota(change.new)
            del self._keeper.quotas.problems[:-MOST_PROBLEMS]
        elif change.old is not None:
            self._keeper.drop_quota(change.old)
        self._seen(change.key)
        self._profiles.dirty = True
        self._changed()

    def _on_profile(self, change: Change[ElasticQuotaProfile]) -> None:
        self._seen(f"profile {change.key}")
        if change.new is None:
            self._profiles.drop(change.key)
            return
        try:
            self._profiles.put(change.key, change.new)
        except SelectorError as error:
            self._bad_profile(change.new, str(error))
        if owner := self._profiles.rivals().get(change.key):
            name = change.new.spec.quota_name
            self._bad_profile(
                change.new,
                f"ElasticQuotaProfile {change.key}: spec.quotaName: quota {name} is already that of profile {owner}",
            )

    def _on_node(self, change: Change[NodeBrief]) -> None:
        if change.new is None:
            self._keeper.drop_node(change.key)
            self._profiles.drop_node(change.key)
        else:
            self._profiles.put_node(change.key, change.new)
            try:
                self._keeper.put_node(change.key, change.new)
            except QuantityError as error:
                self._log.warning("a node's room does not parse, what was known of it stays", error=str(error))
        self._changed()

    def _on_queue(self, change: Change[QueueBrief]) -> None:
        namespace, _, name = change.key.partition("/")
        if namespace == QUEUE_NAMESPACE:
            self._keeper.put_queue(name, order_of(change.new) if change.new is not None else None)
            self._changed()

    def _on_group(self, change: Change[PodGroup]) -> None:
        self._keeper.put_group(change.key, change.new)
        self._tell()

    def _on_pod(self, change: Change[PodBrief]) -> None:
        if change.new is not None:
            self._keeper.put_pod(change.key, change.new)
        else:
            self._keeper.drop_pod(change.key)
        self._tell()

    def _on_unit(self, change: Change[UnitBrief]) -> None:
        if change.new is not None:
            self._keeper.put_unit(change.key, change.new)
        else:
            self._keeper.drop_unit(change.key)
        self._tell()

    def _tell(self) -> None:
        if self._keeper.pending:
            self._changed()

    def _on_bad_quota(self, key: str, error: ContractError) -> None:
        """A quota that does not decode changes nothing, and is told so by an event."""
        self._on_bad(key, error)
        namespace, name = split_key(key)
        self._keeper.quotas.undecodable(namespace, name, str(error))
        del self._keeper.quotas.problems[:-MOST_PROBLEMS]

    def _on_bad(self, key: str, error: ContractError) -> None:
        self._log.warning("an object does not decode, its last good version stays", key=key, error=str(error))


def order_of(queue: QueueBrief) -> Order:
    """How a Queue hands out its units."""
    depth = integer(queue.metadata.annotations, MAX_DEPTH, -1)
    return Order(queue.spec.queue_policy in (POLICY_BLOCK, POLICY_FIFO), depth if depth >= 0 else DEPTH)
