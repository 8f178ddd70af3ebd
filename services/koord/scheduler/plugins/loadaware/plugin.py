"""LoadAwareScheduling as a plugin. The load of every node is in columns (see ``book``) that filter and score read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from koord.columns.matrix import Bools, Floats, Ints
from koord.kube.nodemetrics import NodeMetric
from koord.kube.podresources import kubernetes_qos
from koord.kube.pods import PodSpec
from koord.kube.protocol import qos
from koord.kube.protocol.nodekeys import RAW_ALLOCATABLE, raw_allocatable
from koord.kube.resources import NODE_METRICS, Resource
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
from koord.scheduler.engine.cluster import Cluster, NodeInfo, RowColumn
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    NodePlugin,
    Reason,
    ScorePlugin,
    Template,
    Terms,
    TickPlugin,
    Watch,
    WatchPlugin,
    Without,
)
from koord.scheduler.framework.endpoints import Endpoint, EndpointPlugin
from koord.scheduler.framework.events import NODE_METRIC_EVENTS, ClusterEvent
from koord.scheduler.plugins.loadaware import estimate as estimating
from koord.scheduler.plugins.loadaware import thresholds as limiting
from koord.scheduler.plugins.loadaware.book import LoadBook
from koord.scheduler.plugins.loadaware.cooling import best_effort
from koord.scheduler.plugins.loadaware.load import Expected
from koord.scheduler.plugins.loadaware.report import Report, read
from koord.scheduler.plugins.loadaware.score import Rating
from koord.scheduler.plugins.loadaware.shown import shown
from koord.scheduler.plugins.loadaware.vectors import resources_of, vector
from koord.scheduler.plugins.obstacles import AsItIs
from koord.scheduler.plugins.rows import takes_now

EXPIRED = "node(s) nodeMetric expired"
COOLING = "node(s) evicted best-effort pods a moment ago"
MOST_ESTIMATES = 4096
DAEMON_SET = "DaemonSet"
_NOTHING: Mapping[str, str] = {}


class LoadTerms(msgspec.Struct, frozen=True):
    """What a pod of the class is expected to use, and whether it is a prod pod; ``be``: it is best-effort, and nodes
    that evicted such pods a moment ago do not take it."""

    estimate: tuple[float, ...]
    prod: bool
    be: bool = False


class LoadAwareScheduling(FilterPlugin, ScorePlugin, AssignPlugin, NodePlugin, WatchPlugin, TickPlugin, EndpointPlugin):
    """Refuses nodes that are used above their thresholds, rates the others by what is left."""

    name: ClassVar[str] = "LoadAwareScheduling"
    monotone: ClassVar[bool] = True
    pod_keys: ClassVar[tuple[str, ...]] = (qos.QOS_CLASS, qos.PRIORITY_CLASS, *estimating.KEYS)
    node_keys: ClassVar[tuple[str, ...]] = (limiting.USAGE_THRESHOLDS, RAW_ALLOCATABLE)
    events: ClassVar[frozenset[ClusterEvent]] = NODE_METRIC_EVENTS | {
        ClusterEvent.POD_DELETE,
        ClusterEvent.NODE_ADD,
        ClusterEvent.NODE_ALLOCATABLE,
        ClusterEvent.NODE_ANNOTATION,
    }

    def __init__(self, args: LoadAwareSchedulingArgs | None = None) -> None:
        self.args = (args or LoadAwareSchedulingArgs()).completed()
        self.resources = resources_of(self.args)
        self._rating = Rating(self.args, self.resources)
        self._thresholds = limiting.of_args(self.args)
        self._estimates: dict[tuple[object, ...], tuple[PodSpec, LoadTerms]] = {}
        self.epoch = 0

    def attach(self, cluster: Cluster) -> None:
        """Take the columns."""
        self._cluster = cluster
        self._book = LoadBook(cluster, self.args, self.resources, self._expected)

    # The pod --------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The pod's estimate; None for pods of a DaemonSet, which are only rated, and while there are no reports."""
        return None if template.owner == DAEMON_SET or not self._book.reports else self._terms_of(template)

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The pod's estimate; None if nothing is weighed, and while there are no reports."""
        return self._terms_of(template) if self._rating.weighs and self._book.reports else None

    def per_pod(self, terms: Terms) -> Mapping[RowColumn, float]:
        """Each pod takes its estimate of room and of what is left."""
        assert isinstance(terms, LoadTerms)
        return self._book.per_pod(terms.estimate, prod=terms.prod)

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter(self, terms: Terms, window: Window) -> Bools:
        """The estimate is less than the room, for every resource."""
        assert isinstance(terms, LoadTerms)
        room, estimate = self._book.room_of(prod=terms.prod), terms.estimate
        ok: Bools = window.column(room[0]) > estimate[0]
        for index in range(1, len(room)):
            ok &= window.column(room[index]) > estimate[index]
        if terms.be:
            ok &= ~window.column(self._book.cooling.on)
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """One per node: its report is too old, or the first resource that is above its threshold."""
        assert isinstance(terms, LoadTerms)
        found: list[Reason] = []
        left: Bools = ~self.filter(terms, window)
        if terms.be:
            cooling: Bools = window.column(self._book.cooling.on) & left
            if cooling.any():
                found.append(Reason(COOLING, cooling, resolvable=False))
                left &= ~cooling
        if self._book.policy == "Block":
            expired: Bools = window.column(self._book.expired) & left
            if expired.any():
                found.append(Reason(EXPIRED, expired))
                left &= ~expired
        aggregated = window.column(self._book.aggregated)
        if terms.prod and not self.args.check_node_and_prod:
            aggregated = aggregated & ~window.column(self._book.own_prod)
        room, of_all = self._book.room_of(prod=terms.prod), self._book.room_of(prod=False)
        for index, name in enumerate(self.resources):
            amount = terms.estimate[index]
            short: Bools = window.column(room[index]) <= amount
            short &= left
            left &= ~short
            # Of a prod pod that is checked against both, the thresholds for prod pods have no aggregate.
            of_node: Bools = short & aggregated & (window.column(of_all[index]) <= amount)
            for text, rows in (("usage", short & ~of_node), ("aggregated usage", of_node)):
                if rows.any():
                    found.append(Reason(f"node(s) {name} {text} exceed threshold", rows))
        return found

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """As the original, which takes no victim's load off: it is measured, and falls when the pod is gone."""
        return AsItIs(self, terms)

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether the node that it is about takes the pod now."""
        return takes_now(self, self._cluster, template, subject)

    # Score ----------------------------------------------------------------------------------------------------------

    def score(self, terms: Terms, window: Window) -> Floats:
        """What would be left of each resource, in percent: their weighted mean. 0 without a report that is fresh."""
        assert isinstance(terms, LoadTerms)
        book = self._book
        return self._rating.score(window, book.left_of(prod=terms.prod), book.capacity, terms.estimate)

    # What changes ---------------------------------------------------------------------------------------------------

    def assigned(self, pod: AssignedPod) -> None:
        """Its estimate counts until a report covers it."""
        self._book.assigned(pod)
        if pod.evicted:
            self._cool_down(pod)

    def assigned_run(self, pods: Sequence[AssignedPod]) -> None:
        """The same for equal pods at once."""
        self._book.assigned_run(pods)

    def unassigned(self, pod: AssignedPod) -> None:
        """Its estimate no longer counts; what it was reported to use does until the next report."""
        self._book.unassigned(pod)

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """Most changes of a pod change nothing here."""
        row = self._book.reassigned(pod)
        if row is not None:
            self._cluster.touch(row)
        if pod.evicted and not old.evicted:
            self._cool_down(pod)

    def node_set(self, row: int, node: NodeInfo) -> None:
        """Its capacity and its thresholds. ValueError: an annotation cannot be read; the arguments hold then."""
        problems: list[str] = []
        thresholds, capacity = self._thresholds, [float(node.allocatable.get(name, 0)) for name in self.resources]
        text = node.annotations.get(limiting.USAGE_THRESHOLDS)
        try:
            if text:
                thresholds = limiting.of_node(thresholds, text)
        except ValueError as error:
            problems.append(str(error))
        try:
            raw = raw_allocatable(node.annotations)
            if raw:
                amounts = vector(raw, self.resources, RAW_ALLOCATABLE)
                capacity = [
                    new if name in raw else old
                    for name, old, new in zip(self.resources, capacity, amounts, strict=True)
                ]
        except ValueError as error:
            problems.append(str(error))
        self._book.node_set(node.name, row, capacity, thresholds)
        self._book.cooling.node_set(node.name, row)
        if problems:
            raise ValueError(f"Node {node.name}: metadata.annotations: {'; '.join(problems)}")

    def node_removed(self, row: int, name: str) -> None:
        """Its pods and its report wait in case it comes back."""
        self._book.node_removed(name)

    def watches(self) -> tuple[Watch, ...]:
        """The NodeMetrics."""
        return (Watch(NODE_METRICS, NodeMetric),)

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """A report came. ValueError names the field that cannot be read."""
        some = self._book.reports > 0
        row = self._book.reported(key, None if new is None else self._read(new))
        if some != (self._book.reports > 0):
            self.epoch += 1
        if row is not None:
            self._cluster.touch(row)
        if new is None:
            return (ClusterEvent.NODE_METRIC_DELETE,)
        return (ClusterEvent.NODE_METRIC_ADD if old is None else ClusterEvent.NODE_METRIC_UPDATE,)

    def tick(self, now: float) -> Iterable[ClusterEvent]:
        """Reports that are too old by ``now``, and nodes that have cooled down."""
        expired, cooled = self._book.tick(now), self._book.cooling.tick(now)
        for row in (*expired, *cooled):
            self._cluster.touch(row)
        helps = cooled or (expired and self._book.policy == "Ignore")
        return (ClusterEvent.NODE_METRIC_UPDATE,) if helps else ()

    def endpoints(self) -> Mapping[str, Endpoint]:
        """``node/{node}``: the load of a node; nothing for one that is not known."""
        return {"node/{node}": lambda parameters: shown(self._book.load_of(parameters["node"]), self.resources)}

    # Inside ---------------------------------------------------------------------------------------------------------

    def _terms_of(self, template: Template) -> LoadTerms:
        spec = template.spec
        return self._estimated(spec, template.labels, template.annotations, spec.priority or 0)

    def _estimated(
        self, spec: PodSpec, labels: Mapping[str, str], annotations: Mapping[str, str], priority: int
    ) -> LoadTerms:
        """By the identity of the spec, which equal pods share; the entry keeps it alive, so that stays true."""
        args = self.args
        custom = annotations.get(estimating.FACTORS) if args.allow_customize_estimation else None
        key = (id(spec), priority, labels.get(qos.PRIORITY_CLASS), labels.get(qos.QOS_CLASS), custom)
        found = self._estimates.get(key)
        if found is None:
            class_ = qos.priority_class_with_default(labels, priority, kubernetes_qos(spec))
            factors: Mapping[str, int] = args.estimated_scaling_factors
            if custom is not None:
                factors = estimating.factors_of(annotations, factors)
            amounts = estimating.estimate(spec, class_, self.resources, factors, native=args.estimate_native)
            if len(self._estimates) >= MOST_ESTIMATES:
                self._estimates.clear()
            be = bool(args.eviction_cool_down_seconds) and best_effort(spec, labels)
            found = self._estimates[key] = (spec, LoadTerms(amounts, class_ == qos.PROD, be))
        return found[1]

    def _cool_down(self, pod: AssignedPod) -> None:
        """The node takes no best-effort pods for some time after one was evicted from it."""
        seconds = self.args.eviction_cool_down_seconds
        if seconds and best_effort(pod.spec, pod.ref.labels):
            row = self._book.cooling.begin(pod.node, pod.evicted + seconds)
            if row is not None:
                self._cluster.touch(row)

    def _read(self, metric: NodeMetric) -> Report:
        return read(metric, self.resources, predicted=self.args.use_predicted_peak)

    def _expected(self, pod: AssignedPod) -> Expected:
        ref, args = pod.ref, self.args
        terms = self._estimated(pod.spec, ref.labels, ref.annotations, pod.priority)
        initialized, scheduled = args.estimated_seconds_after_initialized, args.estimated_seconds_after_pod_scheduled
        own = ref.annotations if args.allow_customize_estimation else _NOTHING
        deadline = 0.0
        if own or initialized or scheduled:
            deadline = estimating.deadline(own, pod.since, pod.initialized, scheduled, initialized)
        return Expected(ref.namespace, ref.name, terms.estimate, terms.prod, pod.since, deadline, pod.planned)
