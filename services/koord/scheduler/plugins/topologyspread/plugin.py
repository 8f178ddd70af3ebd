"""PodTopologySpread as a plugin. Spec 10 section 3.15.

The pods that a constraint counts are a group of the pod index, summed per domain over the nodes that count for the
class. A class without constraints gets the default ones if it belongs to something that spreads; ``epoch`` moves when
Services come and go.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from koord.columns.matrix import Bools, Floats, Ints
from koord.kube.pods import PodSpec
from koord.kube.resources import SERVICES, Resource
from koord.kube.selectors import SelectorError
from koord.scheduler.config.upstreamargs import PodTopologySpreadArgs
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.domains import DomainSum, Eligible, RowCounts
from koord.scheduler.engine.podindex import Group
from koord.scheduler.engine.podselectors import PodSelector
from koord.scheduler.engine.removals import Leaving
from koord.scheduler.engine.verdict import FilterStep
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
    Watch,
    Without,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.affinity import NodeAffinity
from koord.scheduler.plugins.podbooks import PodBooks
from koord.scheduler.plugins.tolerations import TaintToleration
from koord.scheduler.plugins.topologyspread.constraints import (
    HARD,
    HOSTNAME,
    NOTHING,
    Constraint,
    Constraints,
    default_constraints,
    own_constraints,
    spread_keys,
)
from koord.scheduler.plugins.topologyspread.hard import Hard, HardConstraint, told
from koord.scheduler.plugins.topologyspread.services import OWNER_LABEL, Service, Services, spreading
from koord.scheduler.plugins.topologyspread.soft import Soft, SoftConstraint, SoftDomains, SoftHosts


class PodTopologySpread(PreFilterPlugin, FilterPlugin, ScorePlugin, PodBooks):
    """Filters by hard constraints, rates by soft ones."""

    name: ClassVar[str] = "PodTopologySpread"
    reads_amounts: ClassVar[bool] = False
    between_pods: ClassVar[bool] = True
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (
            ClusterEvent.POD_ASSIGNED,
            ClusterEvent.POD_LABEL,
            ClusterEvent.POD_DELETE,
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_DELETE,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.NODE_TAINT,
        )
    )
    filter_locality: ClassVar[Locality] = "cluster"
    score_locality: ClassVar[Locality] = "cluster"
    normalized: ClassVar[bool] = True

    def __init__(self, args: PodTopologySpreadArgs | None = None) -> None:
        super().__init__()
        self.args = args or PodTopologySpreadArgs()
        self.epoch = 0
        self._services = Services()
        self._affinity = NodeAffinity()
        self._tolerations = TaintToleration()
        self._eligible: WeakValueDictionary[object, Eligible] = WeakValueDictionary()
        self._hard: WeakValueDictionary[object, Hard] = WeakValueDictionary()
        self._soft: WeakValueDictionary[object, Soft] = WeakValueDictionary()
        # Hard ones count the nodes that the pod's affinity leaves. (Beside constraints of its own it is whole anyway.)
        self.reads_name = any(default.when_unsatisfiable == HARD for default in self.args.default_constraints)
        self._defaults = self.args.defaulting_type != "List" or bool(self.args.default_constraints)

    def attach(self, cluster: Cluster) -> None:
        """Pods that a controller keeps are told apart by its mark."""
        super().attach(cluster)
        if self._defaults:
            cluster.pod_labels.add(OWNER_LABEL.values())

    def label_keys(self, spec: PodSpec) -> Iterable[str]:
        """Labels of pods that the constraints name."""
        return spread_keys(spec)

    # Services -------------------------------------------------------------------------------------------------------

    def watches(self) -> tuple[Watch, ...]:
        """Namespaces, for the index; Services, whose pods are spread by default."""
        return (*super().watches(), Watch(SERVICES, Service)) if self._defaults else super().watches()

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """The selector of a Service. It makes no rejected pod fit by itself."""
        if resource is not SERVICES:
            return super().changed(resource, key, old, new)
        namespace, _, name = key.partition("/")
        after = spreading(new)
        if self._services.set(namespace, name, spreading(old), after):
            self.index.cluster.pod_labels.add(after)
            self.epoch += 1
        return ()

    # PreFilter ------------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """What is wrong with the constraints, if anything."""
        try:
            own_constraints(template.spec, template.labels)
        except SelectorError as error:
            return f"spec.{error}"
        return None

    def prefilter(self, terms: Terms) -> str | None:
        """Pods whose constraints cannot be read fit nowhere."""
        assert isinstance(terms, str)
        return terms

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The hard constraints."""
        hard = self._constraints(template).hard
        if not hard:
            return None
        keys = tuple(constraint.key for constraint in hard)
        eligible = tuple(self._eligible_for(constraint, keys, template, cluster) for constraint in hard)
        itself = tuple(constraint.itself(template.labels) for constraint in hard)
        key = (template.namespace, hard, itself, tuple(id(each) for each in eligible))
        found = self._hard.get(key)
        if found is None:
            groups = [self._group(constraint, template) for constraint in hard]
            made = tuple(
                HardConstraint(constraint, self._sum(constraint, group, rows), own)
                for constraint, group, rows, own in zip(hard, groups, eligible, itself, strict=True)
            )
            found = self._hard[key] = Hard(made, tuple(group for group in groups if group is not None))
        return found

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Rows on which the pod keeps every skew."""
        assert isinstance(terms, Hard)
        return terms.passes(window)

    def filter_version(self, terms: Terms) -> int:
        """Moves when a domain may take a pod more, or no more."""
        assert isinstance(terms, Hard)
        return terms.sync()

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """The skew, or a label that the node lacks."""
        assert isinstance(terms, Hard)
        return told(*terms.refusals(window))

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """Pods that go leave their own domains alone, and may make one of them the least."""
        assert isinstance(terms, Hard)
        return terms.without(Leaving(self.index, rows, pods))

    # Score ----------------------------------------------------------------------------------------------------------

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The soft constraints."""
        constraints = self._constraints(template)
        soft = constraints.soft
        if not soft:
            return None
        keys = tuple(constraint.key for constraint in soft) if constraints.every_key else ()
        eligible = tuple(
            None if constraint.key == HOSTNAME else self._eligible_for(constraint, keys, template, cluster)
            for constraint in soft
        )
        key = (template.namespace, soft, constraints.every_key, tuple(id(each) for each in eligible))
        found = self._soft.get(key)
        if found is None:
            groups = [self._group(constraint, template) for constraint in soft]
            made = tuple(
                self._soft_constraint(constraint, group, rows)
                for constraint, group, rows in zip(soft, groups, eligible, strict=True)
            )
            rated = self._rows_with(keys) if keys else None
            found = self._soft[key] = Soft(made, tuple(group for group in groups if group is not None), rated)
        return found

    def score(self, terms: Terms, window: Window) -> Floats:
        """What it would be if all rows were feasible; :meth:`final` is what counts."""
        assert isinstance(terms, Soft)
        return terms.final(window, window.cluster.alive[window.rows])

    def score_version(self, terms: Terms) -> int:
        """Moves with every pod that counts."""
        assert isinstance(terms, Soft)
        return terms.sync()

    def final(self, terms: Terms, window: Window, feasible: Bools) -> Floats:
        """Of feasible rows with all keys 100·(max + min − raw)/max, of others 0."""
        assert isinstance(terms, Soft)
        return terms.final(window, feasible)

    # Queueing hint --------------------------------------------------------------------------------------------------

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """A pod that counts came or went, or a node that has all keys changed."""
        hard = self._constraints(template).hard
        if not hard:
            return True
        if isinstance(subject, NodeInfo):
            return event is ClusterEvent.NODE_LABEL or all(constraint.key in subject.labels for constraint in hard)
        if not isinstance(subject, AssignedPod) or event is ClusterEvent.POD_LABEL:
            return True
        return subject.ref.namespace == template.namespace and any(
            constraint.itself(subject.ref.labels) for constraint in hard
        )

    # Making terms ---------------------------------------------------------------------------------------------------

    def _constraints(self, template: Template) -> Constraints:
        """The pod's own, else the default ones. Those that cannot be read are told by PreFilter."""
        if not template.spec.topology_spread_constraints:
            if not self._defaults:
                return NOTHING
            selector = self._services.selector(template.namespace, template.labels, template.owner)
            return default_constraints(self.args, selector)
        try:
            return own_constraints(template.spec, template.labels)
        except SelectorError:
            return NOTHING

    def _eligible_for(
        self, constraint: Constraint, keys: tuple[str, ...], template: Template, cluster: Cluster
    ) -> Eligible:
        """The rows that count for a constraint of the class."""
        steps: list[FilterStep] = []
        if constraint.honor_affinity:
            affinity = self._affinity.filter_terms(template, cluster)
            if affinity is not None:
                steps.append((self._affinity, affinity))
        if constraint.honor_taints:
            tolerations = self._tolerations.filter_terms(template, cluster)
            if tolerations is not None:
                steps.append((self._tolerations, tolerations))
        key = (keys, tuple((plugin.name, terms) for plugin, terms in steps))
        found = self._eligible.get(key)
        if found is None:
            found = self._eligible[key] = Eligible(self.index, keys, tuple(steps))
        return found

    def _rows_with(self, keys: tuple[str, ...]) -> Eligible:
        found = self._eligible.get((keys, ()))
        if found is None:
            found = self._eligible[(keys, ())] = Eligible(self.index, keys)
        return found

    def _group(self, constraint: Constraint, template: Template) -> Group | None:
        if not constraint.counts:
            return None
        which = PodSelector(constraint.selector, frozenset((template.namespace,)))
        return self.index.group((which,), terminating=False)

    def _soft_constraint(self, constraint: Constraint, group: Group | None, rows: Eligible | None) -> SoftConstraint:
        if rows is not None:
            return SoftDomains(constraint.max_skew, self._sum(constraint, group, rows))
        counts = None if group is None else RowCounts(self.index, group.tally)
        return SoftHosts(constraint.max_skew, self.domains(constraint.key), counts)

    def _sum(self, constraint: Constraint, group: Group | None, rows: Eligible) -> DomainSum:
        parts = () if group is None else ((group.tally, 1.0),)
        return DomainSum(self.index, self.domains(constraint.key), parts, rows)
