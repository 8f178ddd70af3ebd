"""ElasticQuota: a pod is placed only while its quota, and every quota above it, has headroom. Spec 20 section 3.9.

The limit is the runtime that the quota service last published, and never more than max; max alone until something was
published. Pods that must not be preempted are held to the min of their quota, too. Used is kept from every pod that has
a node, whoever gave it to them, and from what is planned. Only keys that the pod asks for are looked at, so a tenant
over on cpu can still start a gpu-only pod.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.accounting.requests import quantity
from koord.columns.matrix import EXACT
from koord.contracts.asks import QuotaLevel
from koord.contracts.quota import QuotaRuntime
from koord.kube.protocol import quota as keys
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.framework.contract import AssignedPod, AssignPlugin, PodRef, PreFilterPlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.runtimes import Runtimes


class QuotaTerms(msgspec.Struct, frozen=True):
    """Whose quota, and what is asked of it."""

    label: str
    namespace: str
    request: tuple[tuple[str, int], ...]
    preemptible: bool = True


class ElasticQuotaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``check_parents``: every quota on the way to the root must have room, not only the leaf."""

    check_parents: bool = True


class _Charge(msgspec.Struct, frozen=True, gc=False):
    pod: PodRef
    chain: tuple[str, ...]
    request: Mapping[str, int]
    preemptible: bool


class ElasticQuota(PreFilterPlugin, AssignPlugin):
    """The tree of quotas, what is used of each, and the check before placing."""

    name: ClassVar[str] = "ElasticQuota"
    pod_keys: ClassVar[tuple[str, ...]] = (
        keys.NAME,
        keys.LEGACY_NAME,
        keys.PREEMPTIBLE,
        keys.LEGACY_PREEMPTIBLE,
    )
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (ClusterEvent.POD_DELETE, ClusterEvent.QUOTA_CHANGE, ClusterEvent.LEDGER_RELEASE)
    )

    def __init__(self, settings: ElasticQuotaSettings | None = None) -> None:
        self.settings = settings or ElasticQuotaSettings()
        self.epoch = 0
        self.tree = QuotaTree()
        self._used: dict[str, dict[str, int]] = {}
        self._kept: dict[str, dict[str, int]] = {}
        self._runtimes = Runtimes()
        self._limits: dict[str, dict[str, int]] = {}
        self._charges: dict[str, _Charge] = {}
        self._ceilings: dict[str, dict[str, int]] = {}

    # The tree -------------------------------------------------------------------------------------------------------

    def set_quota(self, quota: QuotaObject) -> bool:
        """Add or update a quota; True if anything in force changed. ValueError names the field and the rule."""
        before, empty = self.tree.get(quota.metadata.name), not len(self.tree)
        if not self.tree.set(quota):
            return False
        self.epoch += empty
        self._limits.pop(quota.metadata.name, None)
        after = self.tree.get(quota.metadata.name)
        if before is None or after is None or (before.parent, before.namespaces) != (after.parent, after.namespaces):
            self._recount()
        return True

    def remove_quota(self, name: str, namespace: str) -> bool:
        """Forget a quota; its pods count for the default quota, if there is one."""
        if not self.tree.remove(name, namespace):
            return False
        self.epoch += not len(self.tree)
        self._limits.pop(name, None)
        self._recount()
        return True

    def set_runtime(self, published: QuotaRuntime) -> bool:
        """Take in the runtimes of one tree, or of a part of it; True if any is another one than before."""
        changed = self._runtimes.take(published)
        for name in changed:
            self._limits.pop(name, None)
        return bool(changed)

    def limit_of(self, quota: str) -> Mapping[str, int]:
        """What a quota may use now; a resource that is not in it is not limited. KeyError: no such quota."""
        limit = self._limits.get(quota)
        if limit is None:
            most, runtime = self.tree.limits(quota), self._runtimes.of.get(quota, {})
            limit = {name: min(amount, runtime.get(name, amount)) for name, amount in most.items()}
            limit = self._limits[quota] = {name: amount for name, amount in limit.items() if amount < EXACT}
        return limit

    def chain_of(self, labels: Mapping[str, str], namespace: str) -> tuple[str, ...]:
        """The quotas a pod uses, leaf to top; empty if none is in force for it or its tree is broken."""
        quota = self.tree.quota_of_pod(labels, namespace)
        if quota not in self.tree:
            return ()
        try:
            return self.tree.chain(quota)
        except QuotaTreeError:
            return ()

    def used(self, quota: str) -> Mapping[str, int]:
        """What pods with a node use of a quota, planned ones included."""
        return self._used.get(quota, {})

    def kept(self, quota: str) -> Mapping[str, int]:
        """What those use of a leaf that must not be preempted."""
        return self._kept.get(quota, {})

    def asked(self, quota: str) -> Mapping[str, int]:
        """What the pods of a quota and of those below it ask for, placed or not, as the quota service said last."""
        return self._runtimes.asked.get(quota, {})

    def charged(self, quota: str) -> list[tuple[PodRef, Mapping[str, int], bool]]:
        """The pods with a node that a leaf is charged for: what each takes, and whether it may be preempted. Walks all
        pods: for people who ask."""
        return [
            (charge.pod, charge.request, charge.preemptible)
            for charge in self._charges.values()
            if charge.chain[:1] == (quota,)
        ]

    # The check ------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Which quota is resolved at each check, because quotas come and go; without any there is nothing to check."""
        if not len(self.tree):
            return None
        asked = tuple((name, amount) for name, amount in sorted(template.request.items()) if amount > 0)
        if not asked:
            return None
        preemptible = keys.is_preemptible(template.labels)
        return QuotaTerms(keys.quota_label(template.labels), template.namespace, asked, preemptible)

    def prefilter(self, terms: Terms) -> str | None:
        """Used plus request within the limit on every level."""
        assert isinstance(terms, QuotaTerms)
        tree = self.tree
        if not len(tree):
            return None
        label = terms.label
        if label and label in tree:
            leaf = label
        elif not tree.default:
            return None
        else:
            leaf = keys.DEFAULT_QUOTA if label else tree.quota_of_namespace(terms.namespace)
            if leaf not in tree:
                return None
        try:
            chain = tree.chain(leaf)
        except QuotaTreeError as error:
            return f"Could not find the elasticQuota {error.quota}, quotaNameTopo: [{leaf}]: {error}"
        for level, quota in enumerate(chain):
            limit = self.limit_of(quota)
            used = self._used.get(quota)
            ceiling = self._ceilings.get(quota) if self._ceilings else None
            for name, amount in terms.request:
                bound = limit.get(name)
                if ceiling is not None and name in ceiling:
                    bound = ceiling[name] if bound is None else min(bound, ceiling[name])
                if bound is not None and (used.get(name, 0) if used else 0) + amount > bound:
                    return self._refusal(chain[: level + 1], terms)
            if not level and not terms.preemptible and (refusal := self._not_guaranteed(quota, terms)) is not None:
                return refusal
            if not self.settings.check_parents:
                break
        return None

    def levels(self, labels: Mapping[str, str], namespace: str, request: Mapping[str, int]) -> list[QuotaLevel]:
        """The chain with what is short on each level, for explanations; limits beyond 2^53 are none."""
        found: list[QuotaLevel] = []
        for quota in self.chain_of(labels, namespace):
            limit = dict(self.limit_of(quota))
            used = dict(self.used(quota))
            short = {
                name: used.get(name, 0) + amount - limit[name]
                for name, amount in request.items()
                if amount > 0 and name in limit and used.get(name, 0) + amount > limit[name]
            }
            found.append(QuotaLevel(quota, limit, used, short))
        return found

    def _refusal(self, path: tuple[str, ...], terms: QuotaTerms) -> str:
        quota = path[-1]
        limit, used = self.limit_of(quota), self.used(quota)
        ceiling = self._ceilings.get(quota, {})
        exceeded = [
            name
            for name, amount in terms.request
            if (name in limit and used.get(name, 0) + amount > limit[name])
            or (name in ceiling and used.get(name, 0) + amount > ceiling[name])
        ]
        which = f"quotaName: {quota}" if len(path) == 1 else f"quotaNameTopo: [{' '.join(reversed(path))}]"
        return (
            f"Insufficient quotas, {which}, runtime: {_text(limit)}, used: {_text(used)}, "
            f"pod's request: {_text(dict(terms.request))}, exceedDimensions: [{' '.join(exceeded)}]"
        )

    def _not_guaranteed(self, quota: str, terms: QuotaTerms) -> str | None:
        """A pod that must not be preempted stays, with those like it, within min; a resource min does not name is 0."""
        if quota in keys.SPECIAL_QUOTAS:
            return None
        least, kept = self.tree.minimum(quota), self._kept.get(quota, {})
        exceeded = [name for name, amount in terms.request if kept.get(name, 0) + amount > least.get(name, 0)]
        if not exceeded:
            return None
        return (
            f"Insufficient non-preemptible quotas, quotaName: {quota}, min: {_text(least)}, "
            f"nonPreemptibleUsed: {_text(kept)}, pod's request: {_text(dict(terms.request))}, "
            f"exceedDimensions: [{' '.join(exceeded)}]"
        )

    # Corrections by the ledger --------------------------------------------------------------------------------------

    def correct(self, quota: str, resource: str, available: int) -> bool:
        """The ledger has at most ``available`` left: believe it until :meth:`uncorrect`."""
        if quota not in self.tree:
            return False
        ceiling = self.used(quota).get(resource, 0) + max(available, 0)
        limit = self.limit_of(quota).get(resource)
        if limit is not None and ceiling >= limit:
            return False
        self._ceilings.setdefault(quota, {})[resource] = ceiling
        return True

    def uncorrect(self, quota: str) -> bool:
        """Forget what the ledger said of a quota; True if there was anything."""
        return self._ceilings.pop(quota, None) is not None

    @property
    def corrected(self) -> list[str]:
        """Quotas under a correction."""
        return list(self._ceilings)

    # Books ----------------------------------------------------------------------------------------------------------

    def assigned(self, pod: AssignedPod) -> None:
        """Charge the pod to its chain."""
        ref = pod.ref
        chain = self.chain_of(ref.labels, ref.namespace) if len(self.tree) else ()
        charge = _Charge(ref, chain, pod.footprint.request, keys.is_preemptible(ref.labels))
        self._charges[ref.uid] = charge
        self._charge(charge, 1)

    def assigned_run(self, pods: Sequence[AssignedPod]) -> None:
        """Without any quota they are only remembered."""
        if len(self.tree):
            super().assigned_run(pods)
        elif pods:
            request, preemptible = pods[0].footprint.request, keys.is_preemptible(pods[0].ref.labels)
            self._charges.update((pod.ref.uid, _Charge(pod.ref, (), request, preemptible)) for pod in pods)

    def unassigned(self, pod: AssignedPod) -> None:
        """Give back exactly what was charged."""
        charge = self._charges.pop(pod.ref.uid, None)
        if charge is not None:
            self._charge(charge, -1)

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """Only labels and amounts matter; no row does."""
        if old.footprint is not pod.footprint or old.ref.labels != pod.ref.labels:
            self.unassigned(old)
            self.assigned(pod)

    def _charge(self, charge: _Charge, sign: int) -> None:
        for quota in charge.chain:
            _add(self._used.setdefault(quota, {}), charge.request, sign)
        if charge.chain and not charge.preemptible:
            _add(self._kept.setdefault(charge.chain[0], {}), charge.request, sign)

    def _recount(self) -> None:
        self._used.clear()
        self._kept.clear()
        for uid, charge in self._charges.items():
            chain = self.chain_of(charge.pod.labels, charge.pod.namespace)
            moved = self._charges[uid] = msgspec.structs.replace(charge, chain=chain)
            self._charge(moved, 1)


def _add(into: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        if amount:
            into[name] = into.get(name, 0) + sign * amount


def _text(amounts: Mapping[str, int]) -> str:
    """A ResourceList as the original prints it: sorted ``k:v``, ``<empty>`` without any."""
    return ",".join(f"{n}:{quantity(n, a).canonical()}" for n, a in sorted(amounts.items())) or "<empty>"
