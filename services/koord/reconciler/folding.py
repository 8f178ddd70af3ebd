"""From API objects to observations for the ledger. Pure: changes in, observations out.

Takes and charges come from the same functions of the pod (``koord.accounting``), so that observing a pod that koord
bound changes no sum. What was folded is remembered by uid: a change that moves no charge (a pod that begins to run, a
node's heartbeat) costs no call.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.accounting.requests import amounts
from koord.accounting.takes import ADMITTED, QUOTA, Take, budget_item, node_item, pod_takes, unit_takes
from koord.kube.protocol.queue import RELATED_QUEUE_UNIT, lookup
from koord.kube.protocol.quota import DEFAULT_QUOTA, is_preemptible, quota_label
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota
from koord.ledger.model import (
    BudgetSeen,
    ItemClosed,
    NodeSeen,
    Observation,
    PodGone,
    PodNominated,
    PodSeen,
    PodTerminating,
    UnitGone,
    UnitSeen,
    UnitUnbound,
)
from koord.reconciler.sights import (
    BudgetSight,
    MetaSight,
    NodeSight,
    PodSight,
    SightError,
    UnitSight,
    request_of,
    slots_of,
)
from koord.runtime.settings import SCHEDULER_NAMES

ENDED_PHASES = frozenset(("Succeed", "Failed"))
PATIENCE_S = 1.0
"""How long a pod or unit waits for the quota that it names (it may be on its way) before it is charged elsewhere."""
_MEMO = 8192
_NO_LABELS: dict[str, str] = {}


class Folder:
    """Turns changes into observations; ``problems`` collects what was wrong with objects.

    ``scheduler_names``: pods of other schedulers wait for nodes that a foreign scheduler nominated.
    """

    def __init__(self, scheduler_names: Collection[str] = SCHEDULER_NAMES) -> None:
        self.scheduler_names = scheduler_names
        self.tree = QuotaTree()
        self.problems: list[tuple[str, MetaSight, str]] = []
        self._pods: dict[str, tuple[str, tuple[Take, ...], tuple[str, ...]]] = {}
        self._units: dict[str, tuple[Take, ...]] = {}
        self._templates: dict[object, tuple[Take, ...]] = {}
        self._budgets: dict[str, int] = {}
        self._nodes: dict[str, tuple[dict[str, int], int]] = {}
        self._late: dict[str, tuple[PodSight | UnitSight, float]] = {}
        self._strays: dict[str, tuple[PodSight | UnitSight, str]] = {}
        self._rearranged = False
        self._regrown = False
        self._nominated: dict[str, str] = {}

    @property
    def charged(self) -> int:
        """Pods and units that are charged, as far as folded."""
        return len(self._pods) + len(self._units)

    def charged_uids(self) -> Iterator[str]:
        """Their uids."""
        yield from self._pods
        yield from self._units

    def forget(self) -> None:
        """The ledger was emptied: everything has to be told again."""
        self._pods.clear()
        self._units.clear()
        self._nodes.clear()
        self._budgets.clear()
        self._late.clear()
        self._strays.clear()
        self._nominated.clear()

    def drop(self, uids: Collection[str]) -> None:
        """Forget that these were told."""
        for uid in uids:
            self._pods.pop(uid, None)
            self._units.pop(uid, None)
            self._strays.pop(uid, None)
            self._nominated.pop(uid, None)

    # Nodes --------------------------------------------------------------------------------------------------------

    def node(self, old: NodeSight | None, new: NodeSight | None, version: str) -> list[Observation]:
        """A node appeared, changed or went."""
        if new is None:
            assert old is not None
            self._nodes.pop(old.metadata.name, None)
            return [ItemClosed(node_item(old.metadata.name), version)]
        name = new.metadata.name
        try:
            limits = amounts(new.status.allocatable or {}, "status.allocatable")
        except QuantityError as error:
            self.problems.append(("Node", new.metadata, str(error)))
            return []  # the last good room stays in force
        generation = new.generation
        if self._nodes.get(name) == (limits, generation):
            return []
        self._nodes[name] = (limits, generation)
        return [NodeSeen(node_item(name), limits, new.metadata.resource_version, generation)]

    # Disruption budgets -------------------------------------------------------------------------------------------

    def budget(self, old: BudgetSight | None, new: BudgetSight | None, version: str) -> list[Observation]:
        """A disruption budget appeared, changed or went."""
        meta = (new or old).metadata  # type: ignore[union-attr]  # a change has one of them
        item = budget_item(meta.namespace, meta.name)
        if new is None:
            self._budgets.pop(item, None)
            return [ItemClosed(item, version)]
        if self._budgets.get(item) == new.allowed:
            return []
        self._budgets[item] = new.allowed
        return [BudgetSeen(item, new.allowed, meta.resource_version)]

    # Quotas -------------------------------------------------------------------------------------------------------

    def quota(self, old: ElasticQuota | None, new: ElasticQuota | None, now: float) -> list[Observation]:
        """A quota appeared, changed or went; those who waited for it are folded now.

        Those who were charged elsewhere because it was not there are moved by :meth:`strays`, those whose quota or
        whose way up the tree is another one now by :meth:`moved`.
        """
        name = (new or old).metadata.name  # type: ignore[union-attr]  # a change has one of them
        before = self.tree.get(name)
        try:
            if new is not None:
                self.tree.set(new)
            elif old is not None:
                self.tree.remove(old.metadata.name, old.metadata.namespace)
        except ValueError as error:
            quota = new or old
            assert quota is not None
            meta = MetaSight(quota.metadata.name, quota.metadata.namespace, quota.metadata.uid)
            self.problems.append(("ElasticQuota", meta, str(error)))
            return []
        after = self.tree.get(name)
        if (before is None or after is None) or (before.parent, before.namespaces) != (after.parent, after.namespaces):
            self._rearranged = True
            # A new one takes pods from another only by way of their namespace.
            self._regrown |= before is not None or after is None or bool(after.namespaces) or after.namespace == name
        return self.late(now) if self._late else []

    def moved(self, pods: Iterable[PodSight], units: Iterable[UnitSight]) -> list[Observation]:
        """Those charged along a way up the tree that is another now: charged anew, as a rebuild would charge them.

        Where the way is broken (no default quota, a parent is missing, a cycle) they stand as they were charged.
        """
        if not self._regrown:
            return []
        self._regrown = False
        found: list[Observation] = []
        for pod in pods:
            told = self._pods.get(pod.metadata.uid)
            if told is not None and self._elsewhere(self.tree.quota_of_pod, pod.metadata, QUOTA, told[1]):
                found += [msgspec.structs.replace(seen, recharge=True) for seen in self._pod_seen(pod)]
        for unit in units:
            takes = self._units.get(unit.metadata.uid)
            if takes is not None and self._elsewhere(self.tree.quota_of_unit, unit.metadata, ADMITTED, takes):
                found += [msgspec.structs.replace(seen, recharge=True) for seen in self._unit_seen(unit)]
        return found

    def _elsewhere(
        self, rule: Callable[[Mapping[str, str], str], str], meta: MetaSight, family: str, takes: tuple[Take, ...]
    ) -> bool:
        chain = self._chain(rule(meta.labels or _NO_LABELS, meta.namespace), meta)
        return bool(chain) and chain != _way(takes, family)

    def strays(self) -> list[Observation]:
        """Those in the default quota, or in none, for which there is another now: charged anew."""
        if not self._rearranged:
            return []
        self._rearranged = False
        found: list[Observation] = []
        for one, quota in list(self._strays.values()):
            if isinstance(one, PodSight):
                if self._home(self.tree.quota_of_pod, one.metadata) != quota:
                    found += [msgspec.structs.replace(seen, recharge=True) for seen in self._pod_seen(one)]
            elif self._home(self.tree.quota_of_unit, one.metadata) != quota:
                found += [msgspec.structs.replace(seen, recharge=True) for seen in self._unit_seen(one)]
        return found

    def _home(self, rule: Callable[[Mapping[str, str], str], str], meta: MetaSight) -> str:
        """The quota by one of the tree's rules; empty if it cannot be charged."""
        quota = rule(meta.labels or _NO_LABELS, meta.namespace)
        return quota if self._chain(quota, meta) else ""

    def _note_stray(self, one: PodSight | UnitSight, quota: str, chain: tuple[str, ...]) -> None:
        if not chain or quota == DEFAULT_QUOTA:
            self._strays[one.metadata.uid] = (one, quota if chain else "")
        elif self._strays:
            self._strays.pop(one.metadata.uid, None)

    def astray(self, uid: str, takes: tuple[Take, ...]) -> bool:
        """Whether these takes of its record go another way up the tree than it was told, and that is whole."""
        told = self._pods.get(uid)
        wanted, family = (told[1], QUOTA) if told is not None else (self._units.get(uid), ADMITTED)
        return wanted is not None and bool(way := _way(wanted, family)) and way != _way(takes, family)

    def recharged(self, one: PodSight | UnitSight) -> list[Observation]:
        """A pod or unit that is charged, told as what it is now; nothing if it is not charged any more."""
        uid = one.metadata.uid
        if uid not in self._pods and uid not in self._units:
            return []  # it ended since its record was read, and that is told already
        self.drop((uid,))
        found = self._pod_seen(one) if isinstance(one, PodSight) else self._unit_seen(one)
        return [msgspec.structs.replace(seen, recharge=True) for seen in found]

    def late(self, now: float, *, all_: bool = False) -> list[Observation]:
        """Those who waited for a quota that is there now, or waited long enough."""
        found: list[Observation] = []
        for uid, (waiting, since) in list(self._late.items()):
            known = self._quota_known(waiting.metadata)
            if known or all_ or now - since >= PATIENCE_S:
                del self._late[uid]
                found += self._pod_seen(waiting) if isinstance(waiting, PodSight) else self._unit_seen(waiting)
        return found

    # Pods ---------------------------------------------------------------------------------------------------------

    def pod(self, old: PodSight | None, new: PodSight | None, version: str, now: float) -> list[Observation]:
        """A pod appeared, changed or went."""
        found: list[Observation] = []
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            found += self._pod_gone(old.metadata, version if new is None else "")
        if new is None:
            return found
        if new.terminal:
            if old is None or not old.terminal or old.metadata.uid != new.metadata.uid:
                found += self._pod_gone(new.metadata, new.metadata.resource_version)
        elif new.spec.node_name:
            meta, before = new.metadata, old.metadata if old is not None else None
            if meta.deletion_timestamp and not (before and before.uid == meta.uid and before.deletion_timestamp):
                found.append(PodTerminating(meta.uid, meta.namespace, meta.name))
            if self._must_wait(new, now):
                return found
            found += self._pod_seen(new)
        elif new.status.nominated_node_name or self._nominated:
            found += self._pod_waits(new)
        return found

    def _pod_waits(self, pod: PodSight) -> list[Observation]:
        """A pod without a node: the room that it waits for on one, kept by its scheduler."""
        meta, node = pod.metadata, pod.status.nominated_node_name or ""
        if self._nominated.get(meta.uid, "") == node:
            return []
        takes: tuple[Take, ...] = ()
        if node:
            self._nominated[meta.uid] = node
            try:
                takes = pod_takes(request_of(pod), node, (), unit_owned=True)
            except SightError as error:
                self.problems.append(("Pod", meta, str(error)))
        else:
            del self._nominated[meta.uid]
        foreign = (pod.spec.scheduler_name or "") not in self.scheduler_names
        priority, version = pod.spec.priority or 0, meta.resource_version
        return [PodNominated(meta.uid, meta.namespace, meta.name, node, takes, priority, version, foreign=foreign)]

    def _pod_gone(self, meta: MetaSight, version: str) -> list[Observation]:
        self._pods.pop(meta.uid, None)
        self._nominated.pop(meta.uid, None)
        self._late.pop(meta.uid, None)
        self._strays.pop(meta.uid, None)
        return [PodGone(meta.uid, meta.namespace, meta.name, version)]

    def _pod_seen(self, pod: PodSight) -> list[Observation]:
        meta, node = pod.metadata, pod.spec.node_name or ""
        labels = meta.labels or _NO_LABELS
        if self._nominated:
            self._nominated.pop(meta.uid, None)  # the ledger ends it with the charge
        try:
            request = request_of(pod)
        except SightError as error:
            self.problems.append(("Pod", meta, str(error)))
            request = {}
        quota = self.tree.quota_of_pod(labels, meta.namespace)
        owned = meta.annotations is not None and bool(lookup(meta.annotations, RELATED_QUEUE_UNIT))
        chain = self._chain(quota, meta)
        self._note_stray(pod, quota, chain)
        takes = self._takes(pod, request, chain, owned, is_preemptible(labels))
        slots = slots_of(pod)
        if self._pods.get(meta.uid) == (node, takes, slots):
            return []
        self._pods[meta.uid] = (node, takes, slots)
        return [PodSeen(meta.uid, meta.namespace, meta.name, node, takes, meta.resource_version, slots=slots)]

    def _takes(
        self, pod: PodSight, request: dict[str, int], chain: tuple[str, ...], owned: bool, preemptible: bool
    ) -> tuple[Take, ...]:
        """What the pod is charged with, which is kept: pods of one template share all but their node's name."""
        node = pod.spec.node_name or ""
        key = (pod.spec.parts if request else None, chain, owned, preemptible)
        made = self._templates.get(key)
        if made is None:
            made = pod_takes(request, node, chain, unit_owned=owned, preemptible=preemptible)
            if len(self._templates) >= _MEMO:
                self._templates.clear()
            self._templates[key] = made
        first = made[0]
        return (Take(node_item(node), first.amounts, first.checked), *made[1:])

    # Units --------------------------------------------------------------------------------------------------------

    def unit(self, old: UnitSight | None, new: UnitSight | None, version: str, now: float) -> list[Observation]:
        """A QueueUnit appeared, changed or went."""
        found: list[Observation] = []
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            found += self._unit_gone(old.metadata, version if new is None else "")
        if new is None:
            return found
        meta = new.metadata
        if new.status.phase in ENDED_PHASES:
            if old is None or old.status.phase not in ENDED_PHASES or old.metadata.uid != meta.uid:
                found += self._unit_gone(meta, meta.resource_version)
        elif new.status.admissions:
            if not self._must_wait(new, now):
                found += self._unit_seen(new)
        elif self._units.pop(meta.uid, None) is not None or (old is not None and old.status.admissions):
            self._late.pop(meta.uid, None)
            self._strays.pop(meta.uid, None)
            found.append(UnitUnbound(meta.uid, meta.namespace, meta.name, meta.resource_version))
        return found

    def _unit_gone(self, meta: MetaSight, version: str) -> list[Observation]:
        self._units.pop(meta.uid, None)
        self._late.pop(meta.uid, None)
        self._strays.pop(meta.uid, None)
        return [UnitGone(meta.uid, meta.namespace, meta.name, version)]

    def _unit_seen(self, unit: UnitSight) -> list[Observation]:
        meta = unit.metadata
        try:
            total = amounts(unit.spec.resource or unit.spec.request or {}, "spec.resource")
        except QuantityError as error:
            self.problems.append(("QueueUnit", meta, str(error)))
            total = {}
        quota = self.tree.quota_of_unit(meta.labels or _NO_LABELS, meta.namespace)
        chain = self._chain(quota, meta)
        self._note_stray(unit, quota, chain)
        takes = unit_takes(total, chain)
        if self._units.get(meta.uid) == takes:
            return []
        self._units[meta.uid] = takes
        return [UnitSeen(meta.uid, meta.namespace, meta.name, takes, meta.resource_version)]

    # Everything ---------------------------------------------------------------------------------------------------

    def everything(
        self,
        nodes: Iterable[NodeSight],
        pods: Iterable[PodSight],
        units: Iterable[UnitSight],
        now: float,
        budgets: Iterable[BudgetSight] = (),
    ) -> list[Observation]:
        """All live objects, told anew; nodes first, so that charges meet open items."""
        self.forget()
        found: list[Observation] = []
        for node in nodes:
            found += self.node(None, node, "")
        for budget in budgets:
            found += self.budget(None, budget, "")
        for pod in pods:
            found += self.pod(None, pod, "", now)
        for unit in units:
            found += self.unit(None, unit, "", now)
        return found + self.late(now, all_=True)

    def _must_wait(self, one: PodSight | UnitSight, now: float) -> bool:
        """Whether it names a quota that is not known yet; then it is kept until :meth:`late`."""
        uid = one.metadata.uid
        if uid in self._pods or uid in self._units or self._quota_known(one.metadata):
            return False
        _, since = self._late.get(uid, (one, now))
        self._late[uid] = (one, since)
        return True

    def _quota_known(self, meta: MetaSight) -> bool:
        named = quota_label(meta.labels) if meta.labels else ""
        return not named or named in self.tree

    def _chain(self, quota: str, meta: MetaSight) -> tuple[str, ...]:
        try:
            return self.tree.chain(quota, f"{meta.namespace}/{meta.name}")
        except QuotaTreeError:
            return ()  # no such quota, or its parents form a cycle: the node is charged, no quota is


def _way(takes: tuple[Take, ...], family: str) -> tuple[str, ...]:
    """The quotas that takes charge, leaf to top."""
    return tuple([take.item[len(family) :] for take in takes if take.item.startswith(family)])
