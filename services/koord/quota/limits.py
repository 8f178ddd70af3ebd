"""What the ledger is told of a quota: three items and their limits (spec 20 sections 3.9 and 3.12, 70 section 3.11)."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from koord.accounting.quotas import QuotaNode
from koord.accounting.takes import admitted_item, guaranteed_item, quota_item
from koord.kube.protocol.quota import SPECIAL_QUOTAS
from koord.ledger.model import LimitSet
from koord.quota.sums import LARGEST

Limits = tuple[LimitSet, LimitSet, LimitSet]


class LimitRules(msgspec.Struct, frozen=True):
    """``rate``: max times this may be admitted. ``by_runtime``: no more is admitted than the larger of min and runtime.

    Without ``by_runtime`` max alone counts, as in koord-queue.
    """

    rate: Fraction = Fraction(1)
    by_runtime: bool = True

    @property
    def ceiling(self) -> Fraction:
        """Max times this is the most that can ever be admitted: a runtime is never above max."""
        return min(self.rate, Fraction(1)) if self.by_runtime else self.rate


def limits_of(
    node: QuotaNode,
    units: Mapping[str, int],
    pods: Mapping[str, int],
    rules: LimitRules,
    resources: Iterable[str],
) -> Limits:
    """Limits of ``quota/`` (its pods: ``pods``), ``admitted/`` (its QueueUnits, by ``units``) and ``guaranteed/``
    (pods that must not be preempted: min).

    A resource that min does not name counts as min 0, so ``guaranteed/`` names each of ``resources``, too. An amount
    that the ledger cannot count to is left out, and so not limited. System, default and root quota guarantee nothing
    and refuse nothing there.
    """
    used = {key: amount for key, amount in pods.items() if amount < LARGEST}
    admitted: dict[str, int] = {}
    for key, most in node.max.items():
        limit = most * rules.rate.numerator // rules.rate.denominator
        if rules.by_runtime and key in units:
            limit = min(limit, max(node.min.get(key, 0), units[key]))
        if limit < LARGEST:
            admitted[key] = limit
    kept: dict[str, int] = {}
    if node.name not in SPECIAL_QUOTAS:
        kept = {key: node.min.get(key, 0) for key in {*resources, *node.max, *node.min}}
        kept = {key: amount for key, amount in kept.items() if amount < LARGEST}
    name = node.name
    return (
        LimitSet(quota_item(name), used),
        LimitSet(admitted_item(name), admitted),
        LimitSet(guaranteed_item(name), kept),
    )
