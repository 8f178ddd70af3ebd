"""ElasticQuota: a pod is placed only while its quota, and every quota above it, has headroom. Spec 20 section 3.9.

The limit is ``max``. Used is kept from every pod that has a node, whoever gave it to them, and from what is planned.
Only keys that the pod asks for are looked at, so a tenant over on cpu can still start a gpu-only pod.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.accounting.requests import quantity
from koord.columns.matrix import EXACT
from koord.contracts.asks import QuotaLevel
from koord.kube.protocol import quota as keys
from koord.kube.quotas import ElasticQuota as QuotaObject
from koord.scheduler.engine.cluster import Cluster, Footprint
from koord.scheduler.framework.contract import AssignPlugin, PodRef, PreFilterPlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent


class QuotaTerms(msgspec.Struct, frozen=True):
    """Whose quota, and what is asked of it."""

    label: str
    namespace: str
    request: tuple[tuple[str, int], ...]


class ElasticQuotaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``check_parents``: every quota on the way to the root must have room, not only the leaf."""

    check_parents: bool = True


class _Charge(msgspec.Struct, frozen=True, gc=False):
    pod: PodRef
    chain: tuple[str, ...]
    request: Mapping[str, int]


class ElasticQuota(PreFilterPlugin, AssignPlugin):
    """The tree of quotas, what is used of each, and the check before placing."""

    name: ClassVar[str] = "ElasticQuota"
    pod_keys: ClassVar[tuple[str, ...]] = (keys.NAME, keys.LEGACY_NAME)
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (ClusterEvent.POD_DELETE, ClusterEvent.QUOTA_CHANGE, ClusterEvent.LEDGER_RELEASE)
    )

    def __init__(self, settings: ElasticQuotaSettings | None = None) -> None:
        self.settings = settings or ElasticQuotaSettings()
        self.tree = QuotaTree()
        self._used: dict[str, dict[str, int]] = {}
        self._charges: dict[str, _Charge] = {}
        self._ceilings: dict[str, dict[str, int]] = {}

    # The tree -------------------------------------------------------------------------------------------------------

    def set_quota(self, quota: QuotaObject) -> bool:
        """Add or update a quota; True if anything in force changed. ValueError names the field and the rule."""
        before = self.tree.get(quota.metadata.name)
        if not self.tree.set(quota):
            return False
        after = self.tree.get(quota.metadata.name)
        if before is None or after is None or (before.parent, before.namespaces) != (after.parent, after.namespaces):
            self._recount()
        return True

    def remove_quota(self, name: str, namespace: str) -> bool:
        """Forget a quota; its pods count for the default quota, if there is one."""
        if not self.tree.remove(name, namespace):
            return False
        self._recount()
        return True

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

    # The check ------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Which quota is resolved at each check, because quotas come and go."""
        asked = tuple((name, amount) for name, amount in sorted(template.request.items()) if amount > 0)
        return QuotaTerms(keys.quota_label(template.labels), template.namespace, asked) if asked else None

    def prefilter(self, terms: Terms) -> str | None:
        """Used plus request within the limit on every level."""
        assert isinstance(terms, QuotaTerms)
        tree = self.tree
        if not len(tree):
            return None
        label = terms.label
        if label and label in tree:
            leaf = label
        else:
            leaf = keys.DEFAULT_QUOTA if label else tree.quota_of_namespace(terms.namespace)
            if leaf not in tree:
                return None
        try:
            chain = tree.chain(leaf)
        except QuotaTreeError as error:
            return f"Could not find the elasticQuota {error.quota}, quotaNameTopo: [{leaf}]: {error}"
        for level, quota in enumerate(chain):
            limit = tree.limits(quota)
            used = self._used.get(quota)
            ceiling = self._ceilings.get(quota) if self._ceilings else None
            for name, amount in terms.request:
                bound = limit.get(name)
                if ceiling is not None and name in ceiling:
                    bound = ceiling[name] if bound is None else min(bound, ceiling[name])
                if bound is not None and (used.get(name, 0) if used else 0) + amount > bound:
                    return self._refusal(chain[: level + 1], terms)
            if not self.settings.check_parents:
                break
        return None

    def levels(self, labels: Mapping[str, str], namespace: str, request: Mapping[str, int]) -> list[QuotaLevel]:
        """The chain with what is short on each level, for explanations; limits beyond 2^53 are none."""
        found: list[QuotaLevel] = []
        for quota in self.chain_of(labels, namespace):
            limit = {name: amount for name, amount in self.tree.limits(quota).items() if amount < EXACT}
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
        limit, used = self.tree.limits(quota), self.used(quota)
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

    # Corrections by the ledger --------------------------------------------------------------------------------------

    def correct(self, quota: str, resource: str, available: int) -> bool:
        """The ledger has at most ``available`` left: believe it until :meth:`uncorrect`."""
        if quota not in self.tree:
            return False
        ceiling = self.used(quota).get(resource, 0) + max(available, 0)
        limit = self.tree.limits(quota).get(resource)
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

    def assigned(self, pod: PodRef, footprint: Footprint) -> None:
        """Charge the pod to its chain."""
        if pod.uid in self._charges:
            self.unassigned(pod, footprint)
        chain = self.chain_of(pod.labels, pod.namespace) if len(self.tree) else ()
        self._charges[pod.uid] = _Charge(pod, chain, footprint.request)
        self._add(chain, footprint.request, 1)

    def unassigned(self, pod: PodRef, footprint: Footprint) -> None:
        """Give back exactly what was charged."""
        charge = self._charges.pop(pod.uid, None)
        if charge is not None:
            self._add(charge.chain, charge.request, -1)

    def _add(self, chain: tuple[str, ...], request: Mapping[str, int], sign: int) -> None:
        for quota in chain:
            used = self._used.get(quota)
            if used is None:
                used = self._used[quota] = {}
            for name, amount in request.items():
                if amount:
                    used[name] = used.get(name, 0) + sign * amount

    def _recount(self) -> None:
        self._used.clear()
        for uid, charge in self._charges.items():
            chain = self.chain_of(charge.pod.labels, charge.pod.namespace)
            self._charges[uid] = _Charge(charge.pod, chain, charge.request)
            self._add(chain, charge.request, 1)


def _text(amounts: Mapping[str, int]) -> str:
    """A ResourceList as the original prints it: sorted ``k:v``, ``<empty>`` without any."""
    return ",".join(f"{n}:{quantity(n, a).canonical()}" for n, a in sorted(amounts.items())) or "<empty>"
