"""TaintToleration: taints keep pods off, or make a node less liked. Spec 10 section 3.15."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.kube.nodes import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE
from koord.kube.pods import Toleration
from koord.scheduler.engine.cluster import Cluster, NodeInfo, Taint
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, Locality, Reason, ScorePlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent


class TolerationTerms(msgspec.Struct, frozen=True):
    """A pod's tolerations, hashable."""

    tolerations: tuple[Toleration, ...]


def tolerated(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration accepts one taint; an unknown operator accepts nothing."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and bool(toleration.key) and toleration.value == taint.value


def _accepted(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether every taint that keeps pods off is tolerated."""
    return all(
        taint.effect not in (NO_SCHEDULE, NO_EXECUTE) or any(tolerated(each, taint) for each in tolerations)
        for taint in taints
    )


class TaintToleration(FilterPlugin, ScorePlugin):
    """Filter: no untolerated NoSchedule or NoExecute taint. Score: few untolerated PreferNoSchedule ones."""

    name: ClassVar[str] = "TaintToleration"
    reads_amounts: ClassVar[bool] = False
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_ADD, ClusterEvent.NODE_TAINT))
    filter_locality: ClassVar[Locality] = "node"
    score_locality: ClassVar[Locality] = "node"
    normalized: ClassVar[bool] = True

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether the pod tolerates the node as it is now."""
        return not isinstance(subject, NodeInfo) or _accepted(subject.taints, template.spec.tolerations)

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The tolerations."""
        return TolerationTerms(tuple(template.spec.tolerations))

    def filter(self, terms: Terms, window: Window) -> Bools:
        """One look per distinct set of taints, then a lookup per row."""
        assert isinstance(terms, TolerationTerms)
        accepts = [_accepted(taints, terms.tolerations) for taints in window.cluster.taints]
        return np.array(accepts, dtype=np.bool_)[window.cluster.taint_codes[window.rows]]

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """``node(s) had untolerated taint(s)``."""
        return [Reason("node(s) had untolerated taint(s)", ~self.filter(terms, window), resolvable=False)]

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Tolerations that can matter to PreferNoSchedule."""
        return TolerationTerms(tuple(t for t in template.spec.tolerations if t.effect in ("", PREFER_NO_SCHEDULE)))

    def score(self, terms: Terms, window: Window) -> Floats:
        """Number of untolerated PreferNoSchedule taints."""
        assert isinstance(terms, TolerationTerms)
        counts = [
            sum(
                taint.effect == PREFER_NO_SCHEDULE and not any(tolerated(t, taint) for t in terms.tolerations)
                for taint in taints
            )
            for taints in window.cluster.taints
        ]
        return np.array(counts, dtype=np.float64)[window.cluster.taint_codes[window.rows]]

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        """100 − floor(100·count/max); 100 if nobody has any."""
        if high == 0:
            return np.full(len(raw), 100.0)
        return 100.0 - np.floor(raw * 100.0 / high)
