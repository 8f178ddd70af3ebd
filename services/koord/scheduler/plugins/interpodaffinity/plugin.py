"""InterPodAffinity as a plugin. Spec 10 section 3.15.

What a class's own terms look for are groups of the pod index, what pods with a node say about the class are their
carried terms; both are summed per domain and followed pod by pod. A class that nothing concerns has no terms at all;
``epoch`` moves when that may have changed.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar
from weakref import WeakValueDictionary

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.kube.pods import PodSpec
from koord.kube.selectors import SelectorError
from koord.scheduler.config.upstreamargs import InterPodAffinityArgs
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.domains import DomainSum
from koord.scheduler.engine.podindex import Group
from koord.scheduler.engine.podselectors import Labels, PodTerms, Term, affinity_keys
from koord.scheduler.engine.podterms import CarriedTerm
from koord.scheduler.engine.removals import Leaving
from koord.scheduler.engine.tally import Tally
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    AssignedPod,
    FilterPlugin,
    Locality,
    PreFilterPlugin,
    Reason,
    ScorePlugin,
    Template,
    Terms,
    Without,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.interpodaffinity.flags import DomainFlags
from koord.scheduler.plugins.interpodaffinity.preferred import Preferred
from koord.scheduler.plugins.interpodaffinity.removal import RequiredWithout
from koord.scheduler.plugins.interpodaffinity.required import Required, told
from koord.scheduler.plugins.podbooks import PodBooks

Parts = dict[str, list[tuple[Tally, float]]]
"""What is summed up, by topology key."""


class InterPodAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin, PodBooks):
    """Filters by required terms, the class's own and those of pods that run; rates by preferred ones."""

    name: ClassVar[str] = "InterPodAffinity"
    reads_amounts: ClassVar[bool] = False
    between_pods: ClassVar[bool] = True
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (
            ClusterEvent.POD_ASSIGNED,
            ClusterEvent.POD_LABEL,
            ClusterEvent.POD_DELETE,
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.NAMESPACE_ADD,
            ClusterEvent.NAMESPACE_UPDATE,
        )
    )
    filter_locality: ClassVar[Locality] = "cluster"
    score_locality: ClassVar[Locality] = "cluster"
    normalized: ClassVar[bool] = True

    def __init__(self, args: InterPodAffinityArgs | None = None) -> None:
        super().__init__()
        self.args = args or InterPodAffinityArgs()
        self._required: WeakValueDictionary[object, Required] = WeakValueDictionary()
        self._preferred: WeakValueDictionary[object, Preferred] = WeakValueDictionary()

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """Moves when pods with a node carry other terms than before."""
        return self.index.terms.epoch

    def label_keys(self, spec: PodSpec) -> Iterable[str]:
        """Labels of pods that the terms name."""
        return affinity_keys(spec.affinity)

    # PreFilter ------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """What is wrong with the terms, if anything."""
        try:
            self._own(template)
        except SelectorError as error:
            return f"spec.{error}"
        return None

    def prefilter(self, terms: Terms) -> str | None:
        """Pods whose terms cannot be read fit nowhere."""
        assert isinstance(terms, str)
        return terms

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The class's required terms, and anti-affinity against it."""
        own = self._own_or_none(template)
        foreign = tuple(
            entry for entry in self.index.terms.concerning(template.namespace, template.labels) if entry.role == "anti"
        )
        if not own.affinity and not own.anti and not foreign:
            return None
        alone = bool(own.affinity) and self._matches_all(own.affinity, template.namespace, template.labels)
        key = (own.affinity, own.anti, alone, tuple(entry.number for entry in foreign))
        found = self._required.get(key)
        if found is None:
            found = self._required[key] = self._make_required(own, foreign, alone)
        return found

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Rows that all required terms allow."""
        assert isinstance(terms, Required)
        return terms.passes(window)

    def filter_version(self, terms: Terms) -> int:
        """Moves when a domain gets its first pod or loses its last one."""
        assert isinstance(terms, Required)
        return terms.sync()

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """One of three texts per row; taking pods away does not help against a lack of affinity."""
        assert isinstance(terms, Required)
        return told(*terms.refusals(window))

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """Pods that go leave their own domains alone."""
        assert isinstance(terms, Required)
        return RequiredWithout(terms, Leaving(self.index, rows, pods))

    # Score ----------------------------------------------------------------------------------------------------------

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The class's preferred terms, preferred terms about it, and required affinity to it at the weight of the
        settings."""
        own = self._own_or_none(template)
        if self.args.ignore_preferred_terms_of_existing_pods and not own.preferred:
            return None
        hard = self.args.hard_pod_affinity_weight
        foreign = tuple(
            (entry, float(entry.weight if entry.role == "preferred" else entry.weight * hard))
            for entry in self.index.terms.concerning(template.namespace, template.labels)
            if entry.role == "preferred" or (entry.role == "affinity" and hard)
        )
        if not own.preferred and not foreign:
            return None
        key = (own.preferred, tuple((entry.number, weight) for entry, weight in foreign))
        found = self._preferred.get(key)
        if found is None:
            found = self._preferred[key] = self._make_preferred(own, foreign)
        return found

    def score(self, terms: Terms, window: Window) -> Floats:
        """Sum of the weights."""
        assert isinstance(terms, Preferred)
        return terms.raw(window)

    def score_version(self, terms: Terms) -> int:
        """Moves with every pod that counts."""
        assert isinstance(terms, Preferred)
        return terms.sync()

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        """trunc(100·(s−min)/(max−min)); 0 if all are equal."""
        if high == low:
            return np.zeros(len(raw))
        final = raw - low
        final /= high - low
        final *= 100.0
        return np.trunc(final, out=final)

    # Queueing hint --------------------------------------------------------------------------------------------------

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """A pod that matches the affinity came (or went: if it was the last, the first may go anywhere), one that stood
        in the way went, a node got the labels."""
        own = self._own_or_none(template)
        if isinstance(subject, NodeInfo):
            return all(term.key in subject.labels for term in own.affinity)
        if not isinstance(subject, AssignedPod):
            return True
        namespace, labels = subject.ref.namespace, subject.ref.labels
        if own.affinity and self._matches_all(own.affinity, namespace, labels):
            return True
        if event is ClusterEvent.POD_ASSIGNED:
            return False
        if event is ClusterEvent.POD_LABEL:
            return True
        if any(self._matches_all((term,), namespace, labels) for term in own.anti):
            return True
        try:
            theirs = self.index.terms.of(subject.spec.affinity, namespace, labels)
        except SelectorError:
            return True
        return any(self._matches_all((term,), template.namespace, template.labels) for term in theirs.anti)

    # Making terms ---------------------------------------------------------------------------------------------------

    def _own(self, template: Template) -> PodTerms:
        return self.index.terms.of(template.spec.affinity, template.namespace, template.labels)

    def _own_or_none(self, template: Template) -> PodTerms:
        """Terms that cannot be read are told by PreFilter."""
        try:
            return self._own(template)
        except SelectorError:
            return PodTerms()

    def _matches_all(self, terms: Iterable[Term], namespace: str, labels: Labels) -> bool:
        of_namespace = self.index.namespaces.get(namespace, {})
        return all(term.which.matches(namespace, labels, of_namespace) for term in terms)

    def _make_required(self, own: PodTerms, foreign: tuple[CarriedTerm, ...], alone: bool) -> Required:
        groups: list[Group] = []
        near: Parts = {}
        if own.affinity:
            every = self.index.group(term.which for term in own.affinity)
            groups.append(every)
            for term in own.affinity:
                near[term.key] = [(every.tally, 1.0)]
        far: Parts = {}
        for term in own.anti:
            group = self.index.group((term.which,))
            groups.append(group)
            far.setdefault(term.key, []).append((group.tally, 1.0))
        theirs: Parts = {}
        for entry in foreign:
            theirs.setdefault(entry.term.key, []).append((entry, 1.0))
        return Required(
            tuple(DomainFlags(total, near=True) for total in self._sums(near)),
            tuple(DomainFlags(total, near=False) for total in self._sums(far)),
            tuple(DomainFlags(total, near=False) for total in self._sums(theirs)),
            tuple(groups),
            alone=alone,
        )

    def _make_preferred(self, own: PodTerms, foreign: tuple[tuple[CarriedTerm, float], ...]) -> Preferred:
        groups: list[Group] = []
        parts: Parts = {}
        for weight, term in own.preferred:
            group = self.index.group((term.which,))
            groups.append(group)
            parts.setdefault(term.key, []).append((group.tally, float(weight)))
        for entry, effect in foreign:
            parts.setdefault(entry.term.key, []).append((entry, effect))
        return Preferred(self._sums(parts), tuple(groups))

    def _sums(self, parts: Parts) -> tuple[DomainSum, ...]:
        return tuple(DomainSum(self.index, self.domains(key), tuple(items)) for key, items in parts.items())
