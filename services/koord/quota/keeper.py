"""What the quota service knows and decides, without I/O: changes in; shares, limits and what is shown of them out."""

from collections.abc import Callable

import msgspec

from koord.accounting.quotas import QuotaNode
from koord.accounting.takes import admitted_item, guaranteed_item, quota_item
from koord.kube.groups import PodGroup
from koord.kube.protocol.gang import gang_name, gang_of
from koord.kube.protocol.queue import QUEUE_NAME, RELATED_QUEUE_UNIT, lookup
from koord.kube.protocol.quota import NAME, is_preemptible, quota_label
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota
from koord.ledger.model import LimitSet
from koord.quota.distribution import Distribution, NodeTotal
from koord.quota.gangs import PodGroupRule
from koord.quota.idle import HOLD_S, IdleRoom
from koord.quota.inforce import InForce
from koord.quota.limits import LimitRules, Limits, limits_of
from koord.quota.showing import Showing
from koord.quota.standing import Order
from koord.quota.usage import Usage
from koord.quota.views import NodeBrief, PodBrief, RequestCache, UnitBrief, rank_of

_PLAIN = Order()


class Rules(msgspec.Struct, frozen=True):
    """How quotas are shared out. ``runtime``: by water filling; without it every quota's runtime is its max.

    ``scale``: mins that add up to more than there is are scaled down. ``guarantee``: what is used is kept, nothing is
    lent. ``hold_s``: as of :class:`~koord.quota.idle.IdleRoom`.
    """

    limits: LimitRules = LimitRules()
    runtime: bool = True
    scale: bool = True
    guarantee: bool = False
    hold_s: float = HOLD_S


class Keeper:
    """Fed with changes of quotas, nodes, pods, QueueUnits, Queues and PodGroups."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self.quotas = InForce()
        self.tree = self.quotas.tree
        self.usage = Usage()
        self.nodes = NodeTotal()
        self.limits_dirty: set[str] = set()
        self.closed: set[str] = set()
        self.skipped_pods = 0
        self._orders: dict[str, Order] = {}
        self._tree_new = True
        self._inputs_new = True
        self._requests = RequestCache()
        self._wanted: dict[str, Limits] = {}
        self._passed_over: dict[str, str] = {}
        self._resources: set[str] = set()
        self._idle = IdleRoom(self._rules.hold_s)
        self._shares = Distribution(guarantee=self._rules.guarantee, scale=self._rules.scale, idle=self._idle)
        self.showing = Showing(
            self.quotas,
            self.usage,
            self.runtime_of,
            self._limit_of,
            self._shares.guarantee,
            self._shares.weight,
            self._rules.limits,
        )

    # Changes ------------------------------------------------------------------------------------------------------

    def put_quota(self, quota: ElasticQuota) -> None:
        """A quota was added or edited (or only its status, by ourselves)."""
        self.showing.look_at(quota.metadata.name)
        if self.quotas.put(quota):
            self._tree_changed(quota.metadata.name)

    def drop_quota(self, quota: ElasticQuota) -> None:
        """A quota was deleted; an equally named younger one takes its place."""
        if self.quotas.drop(quota):
            self._tree_changed(quota.metadata.name)

    def put_node(self, name: str, node: NodeBrief) -> None:
        """A node was added or changed. QuantityError names a bad amount; what was known of it stays."""
        if self.nodes.put(name, node.status.allocatable):
            self._inputs_new = True

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        if self.nodes.drop(name):
            self._inputs_new = True

    def put_queue(self, name: str, order: Order | None) -> None:
        """A Queue hands out its units so, or (None) is gone."""
        if self._orders.get(name) != order:
            self._inputs_new = True
            self._idle.reorder()
            if order is None:
                del self._orders[name]
            else:
                self._orders[name] = order

    def put_group(self, key: str, group: PodGroup | None) -> None:
        """A PodGroup was added or changed, or (None) is gone."""
        rule = None
        if group is not None:
            spec = group.spec
            rule = PodGroupRule(spec.min_member, spec.schedule_timeout_seconds, group.metadata.annotations)
        if self.usage.gangs.put_group(key, rule):
            self._inputs_new = True

    def put_pod(self, key: str, pod: PodBrief) -> None:
        """A pod was added or changed. One whose amounts do not parse counts nothing."""
        if pod.ended:
            self.usage.drop_pod(key)
            return
        meta = pod.metadata
        try:
            request = self._requests.request(pod.spec)
        except (QuantityError, msgspec.MsgspecError):
            self.skipped_pods += 1
            self.usage.drop_pod(key)
            return
        unit = meta.annotations.get(RELATED_QUEUE_UNIT, "")
        in_gang = not unit and gang_name(meta.labels, meta.annotations)
        self.usage.put_pod(
            key,
            self.tree.quota_of_pod(meta.labels, meta.namespace),
            request,
            assigned=bool(pod.spec.node_name),
            unit=unit,
            origin=(quota_label(meta.labels), meta.namespace),
            preemptible=is_preemptible(meta.labels),
            rank=rank_of(pod.spec.priority, meta),
            gang=gang_of(meta.labels, meta.annotations, meta.namespace) if in_gang else None,
        )

    def drop_pod(self, key: str) -> None:
        """A pod is gone."""
        self.usage.drop_pod(key)

    def put_unit(self, key: str, unit: UnitBrief) -> None:
        """A QueueUnit was added or changed."""
        if unit.ended:
            self.usage.drop_unit(key)
            return
        meta = unit.metadata
        try:
            total = unit.total()
        except QuantityError:
            self.usage.drop_unit(key)
            return
        quota = self.tree.quota_of_unit(meta.labels, meta.namespace)
        self.usage.put_unit(
            key,
            quota,
            total,
            (quota_label(meta.labels), meta.namespace),
            admitted=bool(unit.status.admissions),
            waits=unit.waits,
            queue=lookup(meta.annotations, QUEUE_NAME) or quota,
            rank=rank_of(unit.spec.priority, meta),
        )

    def drop_unit(self, key: str) -> None:
        """A QueueUnit is gone."""
        self.usage.drop_unit(key)

    # What follows -------------------------------------------------------------------------------------------------

    def fill(self, now_s: float) -> bool:
        """Share out anew what there is, if anything changed; ``limits_dirty`` then has whose limits moved."""
        if self._tree_new:
            for name in self.quotas.again():
                self._tree_changed(name)
            self.usage.remap(self._quota_of_pod, self._quota_of_unit)
            self.usage.lines.keep(set(self.tree))
            self._shares.rebuild(self.tree)
            found = dict(self._shares.problems)
            self.quotas.passed_over(self._passed_over, found)
            self._passed_over = found
        due = self._idle.due_s
        if not (self._tree_new or self._inputs_new or self.usage.touched or (due is not None and now_s >= due)):
            return False
        self.usage.gangs.flush()
        touched, self.usage.touched = self.usage.touched, set()
        changed, moved = self._shares.update(self.usage, self.nodes.amounts, touched, self._order_of, now_s)
        resources = self.nodes.amounts.keys()
        everyone = self._tree_new or resources != self._resources
        self._resources = set(resources)
        for name in self.tree if everyone else moved:
            node = self.tree.get(name)
            if node is None:
                continue
            limits = limits_of(node, self._admission_of(node), self._limit_of(node), self._rules.limits, resources)
            if limits != self._wanted.get(name):
                self._wanted[name] = limits
                self.limits_dirty.add(name)
        if everyone or changed:
            self.showing.stir(self.tree if everyone else changed)
        self._tree_new = self._inputs_new = False
        return True

    def runtime_of(self, node: QuotaNode) -> dict[str, int]:
        """What a quota may use as of the last :meth:`fill`."""
        return self._of(node, self._shares.runtime)

    def _limit_of(self, node: QuotaNode) -> dict[str, int]:
        return self._of(node, self._shares.limit)

    def _admission_of(self, node: QuotaNode) -> dict[str, int]:
        return self._of(node, self._shares.admission)

    def _of(self, node: QuotaNode, amounts: Callable[[str], dict[str, int]]) -> dict[str, int]:
        if not self._rules.runtime:
            return node.max
        try:
            return amounts(node.name)
        except KeyError:
            return {}

    @property
    def due_s(self) -> float | None:
        """When :meth:`fill` has something to do even if nothing changes."""
        return self._idle.due_s

    @property
    def pending(self) -> bool:
        """Whether something changed that no :meth:`fill` took in yet."""
        return bool(self._tree_new or self._inputs_new or self.usage.touched)

    # Leading ------------------------------------------------------------------------------------------------------

    def begin(self, now_s: float) -> None:
        """Lead from now on: everything is computed, written and shown anew."""
        self._tree_new = True
        self.fill(now_s)
        self.all_limits_dirty()
        self.showing.stir(self.tree)

    def rest(self) -> None:
        """Another leads: what changed is nobody's business here, and must not pile up."""
        self.usage.touched.clear()
        self.usage.gangs.flush()
        self.usage.lines.keep(set(self.tree))
        self.usage.lines.take_changed()
        self.limits_dirty.clear()
        self.closed.clear()
        self.showing.forget()

    # Limits -------------------------------------------------------------------------------------------------------

    def all_limits_dirty(self) -> None:
        """The ledger may have lost the limits: write all of them again."""
        self.limits_dirty.update(name for name in self.tree if name in self._wanted)

    def limits(self, name: str) -> tuple[LimitSet, ...]:
        """What the ledger is to be told of a quota, as of the last :meth:`fill`; nothing before that."""
        return self._wanted.get(name, ())

    def items_of(self, name: str) -> tuple[str, ...]:
        """The ledger items of a quota."""
        return quota_item(name), admitted_item(name), guaranteed_item(name)

    # Inside -------------------------------------------------------------------------------------------------------

    def _tree_changed(self, name: str) -> None:
        self._tree_new = True
        self.showing.stir()
        if name in self.tree:
            self.closed.discard(name)
        else:
            self.limits_dirty.discard(name)
            self._wanted.pop(name, None)
            self.closed.add(name)

    def _order_of(self, queue: str, quota: str) -> Order:
        return self._orders.get(queue or quota, _PLAIN)

    def _quota_of_pod(self, label: str, namespace: str) -> str:
        return self.tree.quota_of_pod({NAME: label} if label else {}, namespace)

    def _quota_of_unit(self, label: str, namespace: str) -> str:
        return self.tree.quota_of_unit({NAME: label} if label else {}, namespace)
