"""The plugin: Filter and Score over all rows from columns, Reserve on the chosen node by the pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from koord.accounting.requests import amounts
from koord.accounting.slots import cpu_slot
from koord.columns.matrix import Bools, Floats, Ints
from koord.kube.noderesourcetopology import NodeResourceTopology
from koord.kube.protocol.nodekeys import AMPLIFICATION_RATIO, RESERVATION, SYSTEM_QOS_RESOURCE
from koord.kube.protocol.numa import (
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    resource_spec,
    resource_status,
)
from koord.kube.protocol.qos import PRIORITY_CLASS, QOS_CLASS
from koord.kube.resources import NODE_RESOURCE_TOPOLOGIES, Resource
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    NodePlugin,
    PodRef,
    PreFilterPlugin,
    Reason,
    ReservePlugin,
    ScorePlugin,
    Template,
    Terms,
    Watch,
    WatchPlugin,
    Without,
)
from koord.scheduler.framework.events import NODE_EVENTS, NODE_TOPOLOGY_EVENTS, ClusterEvent
from koord.scheduler.numa.layout import read_node, read_topology
from koord.scheduler.numa.state import PodAllocation
from koord.scheduler.numa.take import NOT_ENOUGH
from koord.scheduler.plugins.hint import HINT, LEGACY_HINT
from koord.scheduler.plugins.nodenumaresource.asking import Asking
from koord.scheduler.plugins.nodenumaresource.books import Books
from koord.scheduler.plugins.nodenumaresource.plainscore import PlainScore
from koord.scheduler.plugins.nodenumaresource.removal import NUMAWithout
from koord.scheduler.plugins.nodenumaresource.rows import INSUFFICIENT_AMPLIFIED
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.nodenumaresource.terms import NAME, NUMATerms, compile_terms
from koord.scheduler.plugins.nodenumaresource.working import Working

NOTHING = PodAllocation()
NOT_GIVEN = Allocation()
MOST_TERMS = 4096
"""Terms that are shared."""


class NodeNUMAResource(
    PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin, AssignPlugin, NodePlugin, WatchPlugin
):
    """CPUs of one's own, alignment to NUMA nodes, and what bound CPUs cost on amplified nodes."""

    name: ClassVar[str] = NAME
    pod_keys: ClassVar[tuple[str, ...]] = (
        RESOURCE_SPEC,
        NUMA_TOPOLOGY_SPEC,
        QOS_CLASS,
        PRIORITY_CLASS,
        HINT,
        LEGACY_HINT,
        RESOURCE_STATUS,
    )
    node_keys: ClassVar[tuple[str, ...]] = (AMPLIFICATION_RATIO, RESERVATION, SYSTEM_QOS_RESOURCE)
    prefilter_resolvable: ClassVar[bool] = False
    events: ClassVar[frozenset[ClusterEvent]] = (
        frozenset((ClusterEvent.POD_DELETE, ClusterEvent.NODE_ANNOTATION)) | NODE_EVENTS | NODE_TOPOLOGY_EVENTS
    )

    def __init__(self, settings: NUMASettings | None = None) -> None:
        self.settings = settings or NUMASettings()
        self.books: Books
        self._asking: Asking
        self._working = Working(self.settings)
        self._known: dict[NUMATerms, NUMATerms] = {}
        self._plain = PlainScore(self.settings.scoring.scoring)
        self._last: tuple[Template, NUMATerms | None] | None = None

    def attach(self, cluster: Cluster) -> None:
        """The books are shared by the plugins of all profiles."""
        self.books = Books.of(cluster)
        self._asking = Asking(self.books, self._working, self.settings)

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """Moves when nodes begin, or cease, to make demands of their own: terms of other pods depend on it."""
        return self.books.epoch

    def remarks(self, template: Template) -> Iterable[str]:
        """Policies that nobody knows: they ask for nothing."""
        try:
            return resource_spec(template.annotations).problems
        except ValueError:
            return ()  # told as a refusal

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether the node that the event is about takes the pod now, as far as this plugin has a say."""
        name = ""
        if isinstance(subject, AssignedPod):
            name = subject.node
        elif isinstance(subject, NodeInfo):
            name = subject.name
        elif isinstance(subject, NodeResourceTopology):
            name = subject.metadata.name
        cluster = self.books.cluster
        if not name:
            return True
        row = cluster.index.find(name)
        if row is None:
            return False
        terms = self._terms(template)
        if terms is None:
            return True
        return bool(self.filter(terms, Window.some(cluster, np.array([row], dtype=np.int64)))[0])

    # Pods as a whole ------------------------------------------------------------------------------------------------

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The text why no node will do, if so."""
        terms = self._terms(template)
        return terms.error if terms is not None and terms.error else None

    def prefilter(self, terms: Terms) -> str | None:
        """What is wrong with the pod itself."""
        assert isinstance(terms, str)
        return terms

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """None: the pod asks for nothing special, and no node does."""
        terms = self._terms(template)
        if terms is None or not (terms.special or terms.error or self._demanding):
            return None
        return terms

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Every check of the spec, on all rows at once."""
        assert isinstance(terms, NUMATerms)
        return self._asking.fits(terms, window)

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """A row is refused by the first check that it fails."""
        assert isinstance(terms, NUMATerms)
        if terms.designated is not None:
            return self._undesignated(terms, window)
        return self._asking.many(terms, window).reasons()

    def figures(self, terms: Terms, reason: str, window: Window, at: int) -> str:
        """Cpu of an amplified node, as it shows it and as the machine has it."""
        assert isinstance(terms, NUMATerms)
        return self._asking.many(terms, window).amplified_figures(at) if reason == INSUFFICIENT_AMPLIFIED else ""

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """Pods that go give back their CPUs and what they have of NUMA nodes."""
        assert isinstance(terms, NUMATerms)
        return NUMAWithout(self.books, terms, rows, pods, self.settings, self._working)

    def _undesignated(self, terms: NUMATerms, window: Window) -> list[Reason]:
        """Why rows cannot give what a hint designates."""
        found: dict[str, Bools] = {}
        refused = np.flatnonzero([not one.fits for one in self._asking.few(terms, window)])
        rows = np.arange(window.cluster.high)[window.rows]
        for at in refused.tolist():
            name = window.cluster.index.name(int(rows[at]))
            text = NOT_ENOUGH
            if name is not None:
                worked = self._working.out(self.books.state(name), terms)
                text = worked.found if isinstance(worked.found, str) else INSUFFICIENT_AMPLIFIED
            found.setdefault(text, np.zeros(window.size, dtype=np.bool_))[at] = True
        return [Reason(text, rows_, text in (NOT_ENOUGH, INSUFFICIENT_AMPLIFIED)) for text, rows_ in found.items()]

    # Score ----------------------------------------------------------------------------------------------------------

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Every pod that requests anything is rated."""
        return self._terms(template)

    def score(self, terms: Terms, window: Window) -> Floats:
        """How full the node, or the NUMA nodes that the pod would get, would be."""
        assert isinstance(terms, NUMATerms)
        if self._plain.usable and not terms.special and not self._demanding:
            rates = self._plain.rate(window, terms.natives)
            if rates is not None:
                return rates
        return self._asking.scores(terms, window)

    # Reserve --------------------------------------------------------------------------------------------------------

    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """None: pods of the class get nothing anywhere."""
        terms = self._terms(template)
        if terms is None or not (terms.special or self.books.giving):
            return None
        return terms

    def reserves(self, terms: Terms) -> bool:
        """Whether the pod, or some node, asks for CPUs of one's own or for alignment."""
        assert isinstance(terms, NUMATerms)
        return terms.special or self.books.giving

    def looks_ahead(self, terms: Terms) -> bool:
        """What a pod gets depends on the node and the pods before it on that node alone."""
        return True

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        """Take the CPUs and amounts; what was taken becomes resource-status, each CPU is a slot of the ledger."""
        assert isinstance(terms, NUMATerms)
        node = self.books.cluster.index.name(row)
        assert node is not None, "only live rows are chosen"
        state = self.books.state(node)
        worked = self._working.out(state, terms)
        if isinstance(worked.found, str):
            return worked.found
        given = worked.found.allocation if worked.found is not None else NOTHING
        if not given.cpus and not given.zones:
            return NOT_GIVEN
        annotations = worked.annotations(pod.annotations.get(RESOURCE_SPEC, ""))
        self.books.give(pod.uid, node, given, annotations[RESOURCE_STATUS])
        if worked.following is not None:
            state.note = worked.following[1]
        return Allocation(annotations, (), tuple([cpu_slot(node, cpu) for cpu in worked.cpus()]))

    def unreserve(self, uid: str) -> None:
        """Give back what the pod has."""
        self.books.settle(uid)
        self.books.remove(uid)

    # Books ----------------------------------------------------------------------------------------------------------

    def assigned(self, pod: AssignedPod) -> None:
        """What a pod has, its annotation says; of one planned here, what Reserve gave.

        ValueError: the annotation cannot be read; what was known of the pod stands.
        """
        if RESOURCE_STATUS not in pod.ref.annotations and not self.books.knows(pod.ref.uid):
            return
        uid, known = pod.ref.uid, self.books.where(pod.ref.uid)
        if pod.planned and self.books.restore(uid, pod.node):
            return
        annotations = pod.ref.annotations
        text = annotations.get(RESOURCE_STATUS)
        if text is not None and self.books.confirmed(uid, pod.node, text):
            return
        self.books.settle(uid)
        if text is None:
            self.books.remove(uid)
            return
        try:
            status = resource_status(annotations)
            zones = tuple(
                (zone.node, amounts(zone.resources, f"{RESOURCE_STATUS}: numaNodeResources: node {zone.node}"))
                for zone in status.zones
            )
        except ValueError as error:
            if known != pod.node:
                self.books.remove(uid)
            raise ValueError(f"Pod {pod.ref.namespace}/{pod.ref.name}: {error}") from None
        try:
            exclusive = resource_spec(annotations).exclusive
        except ValueError:
            exclusive = ""  # the pod runs; only how others keep away from it is lost
        self.books.add(uid, pod.node, PodAllocation(status.cpus, exclusive, zones))

    def assigned_run(self, pods: Sequence[AssignedPod]) -> None:
        """Nearly all of them have nothing. ValueError: an annotation cannot be read, of the first such pod."""
        failed: ValueError | None = None
        knows = self.books.knows
        for pod in pods:
            if RESOURCE_STATUS in pod.ref.annotations or knows(pod.ref.uid):
                try:
                    self.assigned(pod)
                except ValueError as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def unassigned(self, pod: AssignedPod) -> None:
        """It has nothing any more."""
        self.books.remove(pod.ref.uid)

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """Only its annotations matter."""
        if pod.planned != old.planned or _words(pod.ref.annotations) != _words(old.ref.annotations):
            self.assigned(pod)

    def node_set(self, row: int, node: NodeInfo) -> None:
        """Policies, strategy, ratio and reserved CPUs of the Node itself."""
        marked = read_node(node.labels, node.annotations, self.books.marked(node.name))
        self.books.mark(node.name, row, marked)
        if marked.problems:
            raise ValueError("; ".join(marked.problems))

    def node_removed(self, row: int, name: str) -> None:
        """Pods are told to be gone one by one."""
        self.books.unmark(name)

    def watches(self) -> tuple[Watch, ...]:
        """NodeResourceTopologies."""
        return (Watch(NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology),)

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """The layout of a node's CPUs and NUMA nodes came, changed or went."""
        if new is None:
            self.books.report(key, None)
            return (ClusterEvent.NODE_TOPOLOGY_DELETE,)
        reported = read_topology(new)
        self.books.report(key, reported)
        if reported.problems:
            raise ValueError("; ".join(reported.problems))
        return (ClusterEvent.NODE_TOPOLOGY_ADD if old is None else ClusterEvent.NODE_TOPOLOGY_UPDATE,)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _terms(self, template: Template) -> NUMATerms | None:
        if self._last is None or self._last[0] is not template:
            terms = compile_terms(template, self.settings)
            if terms is not None:
                # Equal terms are one object: answers are kept by it.
                if len(self._known) > MOST_TERMS:
                    self._known.clear()
                terms = self._known.setdefault(terms, terms)
            self._last = template, terms
        return self._last[1]

    @property
    def _demanding(self) -> bool:
        """Whether some node makes demands on every pod."""
        return self.books.giving or self.books.amplified > 0


def _words(annotations: Mapping[str, str]) -> tuple[str | None, str | None]:
    return annotations.get(RESOURCE_STATUS), annotations.get(RESOURCE_SPEC)
