"""What the quota service knows and decides, without I/O: quotas in force, sums, limits and objects to write."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from koord.accounting.quotas import QuotaTree
from koord.accounting.takes import admitted_item, quota_item
from koord.contracts.quota import QuotaRuntime, QuotaState
from koord.kube.meta import ObjectMeta
from koord.kube.protocol.queue import RELATED_QUEUE_UNIT
from koord.kube.protocol.quota import (
    ALLOCATED,
    CHILD_REQUEST,
    GUARANTEED,
    NAME,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    REQUEST,
    ROOT_QUOTA,
    RUNTIME,
    allows_lending,
    quota_label,
)
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota
from koord.ledger.model import LimitSet
from koord.quota.rules import QuotaError, enforce
from koord.quota.usage import LARGEST, Level, Sums, Usage
from koord.quota.views import PodBrief, RequestCache, UnitBrief
from koord.quota.writeback import patch_of

_PLAIN = Fraction(1)


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a quota, to be told as an event on it."""

    quota: ElasticQuota
    reason: str
    text: str


class Keeper:
    """Fed with changes of quotas, pods and QueueUnits."""

    def __init__(self, rate: Fraction = _PLAIN) -> None:
        self._rate = rate
        self.tree = QuotaTree()
        self.usage = Usage()
        self.objects: dict[str, ElasticQuota] = {}
        self.problems: list[Problem] = []
        self.limits_dirty: set[str] = set()
        self.closed: set[str] = set()
        self.skipped_pods = 0
        self._good: dict[str, ElasticQuota] = {}
        self._remap = False
        self._stale = True
        self._requests = RequestCache()
        self._published: dict[str, list[QuotaState]] = {}
        self._versions: dict[str, int] = {}
        self._sums: dict[str, Sums] = {}

    # Changes ------------------------------------------------------------------------------------------------------

    def put_quota(self, quota: ElasticQuota) -> None:
        """A quota was added or edited (or only its status, by ourselves)."""
        old = self.objects.get(quota.key)
        self.objects[quota.key] = quota
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
        self.usage.put_unit(key, quota, total, (quota_label(meta.labels), meta.namespace))

    def drop_unit(self, key: str) -> None:
        """A QueueUnit is gone."""
        self.usage.drop_unit(key)

    # What follows -------------------------------------------------------------------------------------------------

    def all_limits_dirty(self) -> None:
        """The ledger may have lost the limits: write all of them again."""
        self.limits_dirty.update(self.tree)

    def limits(self, name: str) -> tuple[LimitSet, LimitSet]:
        """What the ledger is told of a quota in force: max for its pods, oversold max for its QueueUnits.

        An amount the ledger cannot count to is left out, and so not limited.
        """
        most, rate = self.tree.limits(name), self._rate
        pods = {key: value for key, value in most.items() if value < LARGEST}
        units = {key: value * rate.numerator // rate.denominator for key, value in pods.items()}
        return LimitSet(quota_item(name), pods), LimitSet(admitted_item(name), units)

    def compute(self) -> bool:
        """Sum up what changed; False if nothing did."""
        if self._remap:
            self._remap = False
            self.usage.remap(self._quota_of)
        if not (self.usage.changed or self._stale):
            return False
        self.usage.changed = self._stale = False
        self._sums = self.usage.sums([self._level(name) for name in self.tree])
        return True

    def runtimes(self) -> list[QuotaRuntime]:
        """One message per tree whose numbers changed since the last call."""
        trees: dict[str, list[QuotaState]] = {}
        for name in sorted(self.tree):
            node = self.tree.get(name)
            sums = self._sums.get(name)
            if node is None or sums is None:
                continue
            most = _capped(node.max)
            parent = "" if node.parent == ROOT_QUOTA else node.parent
            state = QuotaState(name, node.namespace, parent, _capped(node.min), most, most, sums.used, sums.request)
            trees.setdefault(node.tree or "_", []).append(state)
        messages = []
        for tree in trees.keys() | self._published.keys():
            states = trees.get(tree, [])
            if states == self._published.get(tree):
                continue
            self._published[tree] = states
            version = self._versions[tree] = self._versions.get(tree, 0) + 1
            messages.append(QuotaRuntime(tree, version, states))
        return messages

    def patches(self) -> Iterable[tuple[ElasticQuota, dict[str, object]]]:
        """Quotas whose object does not show the sums, with the patch that makes it."""
        for name, sums in self._sums.items():
            node = self.tree.get(name)
            quota = self.objects.get(node.key) if node is not None else None
            if node is None or quota is None:
                continue
            patch = patch_of(quota, sums, node.max)
            if patch is not None:
                yield quota, patch

    def items_of(self, name: str) -> tuple[str, str]:
        """The two ledger items of a quota."""
        return quota_item(name), admitted_item(name)

    # Inside -------------------------------------------------------------------------------------------------------

    def _tree_changed(self, name: str) -> None:
        self._remap = self._stale = True
        if name in self.tree:
            self.limits_dirty.add(name)
            self.closed.discard(name)
        else:
            self.limits_dirty.discard(name)
            self.closed.add(name)

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


_WRITTEN = frozenset(
    (RUNTIME, REQUEST, CHILD_REQUEST, ALLOCATED, GUARANTEED, NON_PREEMPTIBLE_REQUEST, NON_PREEMPTIBLE_USED)
)


def _rules(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in _WRITTEN}
