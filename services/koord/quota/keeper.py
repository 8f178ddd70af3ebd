"""What the quota service knows and decides, without I/O: quotas in force, sums, limits and objects to write."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from koord.accounting.quotas import QuotaNode, QuotaTree
from koord.accounting.takes import admitted_item, guaranteed_item, quota_item
from koord.contracts.quota import QuotaRuntime, QuotaState
from koord.kube.meta import ObjectMeta
from koord.kube.protocol.queue import QUEUE_NAME, RELATED_QUEUE_UNIT, lookup
from koord.kube.protocol.quota import (
    ALLOCATED,
    CHILD_REQUEST,
    GUARANTEED,
    NAME,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    PARENT,
    REQUEST,
    ROOT_QUOTA,
    RUNTIME,
    SYSTEM_QUOTA,
    WRITTEN,
    allows_lending,
    is_preemptible,
    quota_label,
)
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota
from koord.ledger.model import LimitSet
from koord.quota.distribution import Distribution, NodeTotal
from koord.quota.idle import HOLD_S, IdleRoom, Order
from koord.quota.limits import LimitRules, Limits, limits_of
from koord.quota.rules import QuotaError, enforce
from koord.quota.usage import LARGEST, Level, Sums, Usage
from koord.quota.views import NodeBrief, PodBrief, RequestCache, UnitBrief, rank_of
from koord.quota.writeback import patch_of

_PLAIN = Order()


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a quota, to be told as an event on it."""

    quota: ElasticQuota
    reason: str
    text: str


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
    """Fed with changes of quotas, nodes, pods, QueueUnits and Queues."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self.tree = QuotaTree()
        self.usage = Usage()
        self.nodes = NodeTotal()
        self.objects: dict[str, ElasticQuota] = {}
        self.problems: list[Problem] = []
        self.limits_dirty: set[str] = set()
        self.closed: set[str] = set()
        self.skipped_pods = 0
        self._good: dict[str, ElasticQuota] = {}
        self._orders: dict[str, Order] = {}
        self._tree_new = True
        self._inputs_new = True
        self._stale = True
        self._requests = RequestCache()
        self._published: dict[str, list[QuotaState]] = {}
        self._versions: dict[str, int] = {}
        self._sums: dict[str, Sums] = {}
        self._wanted: dict[str, Limits] = {}
        self._orphans: dict[str, str] = {}
        self._passed_over: dict[str, str] = {}
        self._resources: set[str] = set()
        self._to_show: set[str] = set()
        idle = IdleRoom(self._rules.hold_s)
        self._shares = Distribution(guarantee=self._rules.guarantee, scale=self._rules.scale, idle=idle)

    # Changes ------------------------------------------------------------------------------------------------------

    def put_quota(self, quota: ElasticQuota) -> None:
        """A quota was added or edited (or only its status, by ourselves)."""
        old = self.objects.get(quota.key)
        self.objects[quota.key] = quota
        self._to_show.add(quota.metadata.name)
        if old is not None and _same_rules(old, quota):
            return
        name = quota.metadata.name
        try:
            changed = enforce(self.tree, quota, self._good.get(quota.key))
        except QuotaError as error:
            self.problems.append(Problem(quota, "InvalidQuota", str(error)))
            return
        self._good[quota.key] = quota
        in_force = self.tree.get(name)
        if in_force is not None and in_force.key != quota.key:
            text = f"quota {name} of namespace {in_force.namespace} is older and in force; this one is not"
            self.problems.append(Problem(quota, "DuplicateQuotaName", text))
        if changed:
            self._tree_changed(name)

    def undecodable(self, namespace: str, name: str, why: str) -> None:
        """A quota's object broke its schema: its last good version stays in force."""
        quota = ElasticQuota(metadata=ObjectMeta(namespace=namespace, name=name))
        self.problems.append(Problem(self.objects.get(quota.key, quota), "InvalidQuota", why))

    def drop_quota(self, quota: ElasticQuota) -> None:
        """A quota was deleted; an equally named younger one takes its place."""
        self.objects.pop(quota.key, None)
        self._good.pop(quota.key, None)
        if self.tree.remove(quota.metadata.name, quota.metadata.namespace):
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
            if order is None:
                del self._orders[name]
            else:
                self._orders[name] = order

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
        self.usage.put_pod(
            key,
            self.tree.quota_of_pod(meta.labels, meta.namespace),
            request,
            assigned=bool(pod.spec.node_name),
            unit=meta.annotations.get(RELATED_QUEUE_UNIT, ""),
            origin=(quota_label(meta.labels), meta.namespace),
            preemptible=is_preemptible(meta.labels),
            rank=rank_of(pod.spec.priority, meta),
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
        quota = self.tree.quota_of_pod(meta.labels, meta.namespace)
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
            self.usage.remap(self._quota_of)
            self._shares.rebuild(self.tree)
            self._tell_passed_over()
        due = self._shares.idle.due_s if self._shares.idle is not None else None
        if not (self._tree_new or self._inputs_new or self.usage.touched or (due is not None and now_s >= due)):
            return False
        touched, self.usage.touched = self.usage.touched, set()
        changed = self._shares.update(self.usage, self.nodes.amounts, touched, self._order_of, now_s)
        resources = self.nodes.amounts.keys()
        everyone = self._tree_new or resources != self._resources
        self._resources = set(resources)
        for name in self.tree if everyone else changed:
            self._to_show.add(name)
            node = self.tree.get(name)
            if node is None:
                continue
            limits = limits_of(node, self._admission_of(node), self._limit_of(node), self._rules.limits, resources)
            if limits != self._wanted.get(name):
                self._wanted[name] = limits
                self.limits_dirty.add(name)
        self._tree_new = self._inputs_new = False
        self._stale = self._stale or bool(changed)
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
        return self._shares.idle.due_s if self._shares.idle is not None else None

    def all_limits_dirty(self) -> None:
        """The ledger may have lost the limits: write all of them again."""
        self.limits_dirty.update(name for name in self.tree if name in self._wanted)

    def limits(self, name: str) -> tuple[LimitSet, ...]:
        """What the ledger is to be told of a quota, as of the last :meth:`fill`; nothing before that."""
        return self._wanted.get(name, ())

    def compute(self) -> bool:
        """Sum up what changed; False if nothing did."""
        if not (self.usage.changed or self._stale):
            return False
        self.usage.changed = self._stale = False
        before = self._sums
        self._sums = self.usage.sums([self._level(name) for name in self.tree])
        self._to_show.update(name for name, sums in self._sums.items() if before.get(name) != sums)
        return True

    def runtimes(self) -> list[QuotaRuntime]:
        """One message per tree whose numbers changed since the last call."""
        trees: dict[str, list[QuotaState]] = {}
        for name in sorted(self.tree):
            node = self.tree.get(name)
            sums = self._sums.get(name)
            if node is None or sums is None:
                continue
            parent = "" if node.parent == ROOT_QUOTA else node.parent
            least, most, runtime = _capped(node.min), _capped(node.max), _capped(self.runtime_of(node))
            limit = _capped(self._limit_of(node))
            limit = {} if limit == runtime else limit
            state = QuotaState(name, node.namespace, parent, least, most, runtime, sums.used, sums.request, limit)
            trees.setdefault(node.tree or "_", []).append(state)
        messages = []
        for tree in trees.keys() | self._published.keys():
            states = trees.get(tree, [])
            if states == self._published.get(tree):
                continue
            self._published[tree] = states
            version = self._versions[tree] = self._versions.get(tree, 0) + 1
            messages.append(QuotaRuntime(tree, version, states, str(self._rules.limits.ceiling)))
        return messages

    def unpublished(self, tree: str) -> None:
        """The message of a tree did not go out: it is due again."""
        self._published.pop(tree, None)
        self._stale = True

    def patches(self) -> Iterable[tuple[ElasticQuota, dict[str, object]]]:
        """Quotas whose object does not show the sums, with the patch that makes it."""
        for name in list(self._to_show):
            node, sums = self.tree.get(name), self._sums.get(name)
            quota = self.objects.get(node.key) if node is not None else None
            patch = None
            if node is not None and quota is not None and sums is not None:
                patch = patch_of(quota, sums.used, self._annotations(node, sums))
            if quota is None or patch is None:
                self._to_show.discard(name)
            else:
                yield quota, patch

    def overusable(self) -> Iterable[tuple[str, Mapping[str, int], Mapping[str, int]]]:
        """Name, used and runtime of every quota of which something may be taken back."""
        self.compute()
        for name, sums in self._sums.items():
            node = self.tree.get(name)
            if node is not None and name not in (ROOT_QUOTA, SYSTEM_QUOTA):
                yield name, sums.used, self.runtime_of(node)

    def items_of(self, name: str) -> tuple[str, ...]:
        """The ledger items of a quota."""
        return quota_item(name), admitted_item(name), guaranteed_item(name)

    def look_for_parents(self) -> None:
        """Quotas that name a parent which does not exist are told so, once per parent."""
        orphans: dict[str, str] = {}
        for name in self.tree:
            node = self.tree.get(name)
            if node is None or node.parent in ("", ROOT_QUOTA) or node.parent in self.tree:
                continue
            orphans[name] = node.parent
            quota = self.objects.get(node.key)
            if quota is not None and self._orphans.get(name) != node.parent:
                text = (
                    f"ElasticQuota {node.key}: metadata.labels[{PARENT}]: there is no quota {node.parent!r}: "
                    "nothing is admitted or placed under this quota until there is"
                )
                self.problems.append(Problem(quota, "ParentNotFound", text))
        self._orphans = orphans

    # Inside -------------------------------------------------------------------------------------------------------

    def _tree_changed(self, name: str) -> None:
        self._tree_new = self._stale = True
        if name in self.tree:
            self.closed.discard(name)
        else:
            self.limits_dirty.discard(name)
            self._wanted.pop(name, None)
            self.closed.add(name)

    def _tell_passed_over(self) -> None:
        """Annotations that do not parse count as absent: said once per text."""
        found = self._shares.problems
        for name in found.keys() - self._passed_over.keys():
            node = self.tree.get(name)
            quota = self.objects.get(node.key) if node is not None else None
            if quota is not None:
                self.problems.append(Problem(quota, "InvalidAnnotation", found[name]))
        self._passed_over = dict(found)

    def _order_of(self, queue: str, quota: str) -> Order:
        return self._orders.get(queue or quota, _PLAIN)

    def _annotations(self, node: QuotaNode, sums: Sums) -> dict[str, Mapping[str, int]]:
        allocated, guaranteed = self._shares.guarantee(node.name)
        return {
            REQUEST: sums.request,
            CHILD_REQUEST: sums.child_request,
            RUNTIME: self.runtime_of(node),
            ALLOCATED: allocated,
            GUARANTEED: guaranteed,
            NON_PREEMPTIBLE_REQUEST: sums.kept_request,
            NON_PREEMPTIBLE_USED: sums.kept_used,
        }

    def _quota_of(self, label: str, namespace: str) -> str:
        return self.tree.quota_of_pod({NAME: label} if label else {}, namespace)

    def _level(self, name: str) -> Level:
        node = self.tree.get(name)
        assert node is not None  # names come from iterating the tree
        return Level(name, node.parent, node.min, node.max, allows_lending(node.labels))


def _capped(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts beyond what the ledger and the wire can count, cut."""
    return {name: min(amount, LARGEST) for name, amount in amounts.items()}


def _same_rules(old: ElasticQuota, new: ElasticQuota) -> bool:
    """Did nothing change that the tree reads? Our own writes of status and sums come back as changes, too."""
    if old.spec != new.spec or old.metadata.labels != new.metadata.labels or old.metadata.uid != new.metadata.uid:
        return False
    return _rules(old.metadata.annotations) == _rules(new.metadata.annotations)


def _rules(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in WRITTEN}
