"""The plugin contract: what a scheduler plugin is, point by point. Third parties write plugins against this file.

A plugin is installed by an entry point of the group ``koord.scheduler.plugins`` whose value is a callable that takes
the plugin's settings (a mapping, ``{}`` without any) and returns a :class:`Plugin`. It implements the points it wants
by deriving from the classes below.

**Classes, not pods.** Pods whose scheduling-relevant spec is equal share one *scheduling class*; a plugin compiles the
class once into *terms* (any hashable value; None: the plugin has nothing to do with this class) and is asked with these
terms from then on. Equal terms must mean equal answers. Labels and annotations that the plugin reads must be named in
``pod_keys``: only those are in the template, and only those tell classes apart.

**Rows, not nodes.** Filter and score get a :class:`Window` and answer for all of its rows in one array of
``window.size``. The same call serves all nodes, the few that changed, and rows as they would be with more pods on them;
an answer for a row must therefore not depend on which other rows are in the window.

**Locality** says what an answer depends on, and so how long it may be kept:

* ``node``: on the node object alone (labels, taints, allocatable). Kept until the node changes, shared by all classes
  with equal terms.
* ``usage``: on the row's own amounts and columns as well. Recomputed for a row whenever a pod comes to it or leaves, or
  somebody touched it. Runs of equal pods are looked ahead: :meth:`Plugin.per_pod` says what each adds to the columns.
* ``cluster``: on other rows too (how many pods of a kind a zone has). The plugin counts for itself and says by a
  version number when any answer changed; its answers for all rows are kept until then, and only they are recomputed.

**State.** A plugin that needs more than the columns of the cluster keeps its own: :class:`NodePlugin` is told of nodes,
:class:`AssignPlugin` of pods that have a node, :class:`WatchPlugin` of other objects; :meth:`Plugin.attach` hands it
the cluster, of which it takes columns and which it tells the rows that it changed.

A plugin that raises makes the pod unschedulable with the plugin's name in the message; the loop goes on.
"""

import abc
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import msgspec

from koord.accounting.takes import Take
from koord.columns.matrix import Bools, Floats
from koord.kube.pods import PodSpec
from koord.kube.resources import Resource
from koord.scheduler.engine.cluster import Cluster, NodeInfo, RowColumn
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.events import ALL_EVENTS, ClusterEvent

if TYPE_CHECKING:  # the engine stands on this file
    from koord.scheduler.engine.diagnosis import Diagnosis
    from koord.scheduler.engine.placement import Engine, PodInfo

Locality = Literal["node", "usage", "cluster"]
Terms = Hashable


class Template(msgspec.Struct, frozen=True):
    """What all pods of a class have in common; the input of every ``*_terms`` method.

    ``labels`` and ``annotations`` hold only the keys that plugins named in ``pod_keys``; ``footprint`` is what one pod
    takes of a node; ``owner`` is the kind of its controller. ``only`` is the one node that its node affinity names, if
    it does; that is not in the spec then, and ``*_terms`` are not told: they are made once for all such classes.
    """

    namespace: str
    spec: PodSpec
    footprint: Footprint
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner: str = ""
    only: str = ""

    @property
    def request(self) -> Mapping[str, int]:
        """Effective request by resource: cpu in milli-cores, the rest in whole base units."""
        return self.footprint.request


class PodRef(NamedTuple):
    """One pod as points that look at single pods see it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    gates: tuple[str, ...] = ()


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that counts as having a node: planned here, being bound, or seen bound, whoever placed it.

    ``spec`` is its scheduling-relevant part and shared by equal pods. Times are seconds since the epoch, 0 if unknown:
    ``since`` it has its node, ``initialized`` its condition says so, ``started`` its kubelet saw it. ``owner`` is the
    kind of its controller.
    """

    ref: PodRef
    spec: PodSpec
    footprint: Footprint
    node: str
    priority: int = 0
    since: float = 0.0
    initialized: float = 0.0
    started: float = 0.0
    owner: str = ""
    terminating: bool = False
    planned: bool = False


class Reason(NamedTuple):
    """Why some rows were refused: the text users see, the rows, and whether taking pods away could help."""

    text: str
    rows: Bools
    resolvable: bool = True


class Plugin(abc.ABC):
    """What every plugin has. ``events`` are those that may help a pod that this plugin rejected.

    ``reads_images``: the plugin looks at the images of containers, so pods with other images are other classes; without
    any such plugin the images are left out of the template's spec.

    ``epoch``: a plugin whose terms depend on more than the template (a Service that selects the pod) defines it for
    itself and moves it when terms made before, None included, may be others now; they are made anew then, and only if
    they are not equal the class is compiled again.
    """

    name: ClassVar[str]
    pod_keys: ClassVar[tuple[str, ...]] = ()
    reads_images: ClassVar[bool] = False
    epoch: int = 0
    events: ClassVar[frozenset[ClusterEvent]] = ALL_EVENTS

    def attach(self, cluster: Cluster) -> None:  # noqa: B027 (most plugins keep nothing)
        """Called once, before anything else: take columns (``cluster.column``), keep the cluster to ``touch`` rows."""

    def label_keys(self, spec: PodSpec) -> Iterable[str]:
        """Labels by which pods of this spec select other pods: pods to place are told apart by them from now on."""
        return ()

    def per_pod(self, terms: Terms) -> Mapping[RowColumn, float]:
        """Locality ``usage``: what one more pod of the class adds to the plugin's own columns on its row.

        ``terms`` are those of the filter or the score. Must be whole numbers (below 2^53 in sum, so that they add up
        exactly) and equal what ``assigned`` does to the columns. A plugin whose columns change in another way when a
        pod comes (not by a fixed amount) has locality ``cluster``.
        """
        return {}

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether an event of ``events`` may let a pod of this class pass, which this plugin rejected.

        ``subject`` is what the event is about: the :class:`AssignedPod` that came or went, the node's ``NodeInfo`` as
        it is now, the object of a watch; None if it is not told. In doubt True.
        """
        return True


class PreEnqueuePlugin(Plugin):
    """May hold a pod back before it enters the queue ("gated"): no event, no condition, no backoff."""

    @abc.abstractmethod
    def pre_enqueue(self, pod: PodRef) -> str | None:
        """Why the pod must wait, or None. Asked again on the pod's own updates and on the plugin's events."""


class PreFilterPlugin(Plugin):
    """Judges a pod as a whole, once per attempt, before any node is looked at.

    ``prefilter_resolvable``: taking other pods away may make it pass.
    """

    prefilter_resolvable: ClassVar[bool] = True

    @abc.abstractmethod
    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: nothing to judge."""

    def prefilter(self, terms: Terms) -> str | None:
        """Why no pod of this class may be placed now, or None. Runs for every pod: keep it at microseconds."""
        return None

    def node_names(self, terms: Terms) -> frozenset[str] | None:
        """The only nodes that can do, or None for all. Sets of several plugins are intersected."""
        return None


class FilterPlugin(Plugin):
    """Says which rows can take a pod of the class.

    ``monotone``: taking pods off a row never makes the row refuse, whatever else the plugin knows of pods; so
    preemption need not try it pod by pod where it passes as it is.
    """

    monotone: ClassVar[bool] = False
    filter_locality: ClassVar[Locality] = "usage"

    @abc.abstractmethod
    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: every row passes."""

    @abc.abstractmethod
    def filter(self, terms: Terms, window: Window) -> Bools:
        """True where a pod of the class can go. The array may be kept by the caller: return a new one."""

    def filter_version(self, terms: Terms) -> int:
        """Locality ``cluster`` only: another number as soon as the answer on any row may be another one.

        Pods that came or left do count; nodes need not, for all rows are asked again when any node changed. Runs for
        every pod: keep it at a microsecond.
        """
        raise NotImplementedError(f"{self.name} has locality cluster and no filter_version")

    @abc.abstractmethod
    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """Why rows are refused. A row may have several reasons; it has one exactly where ``filter`` is False.

        Called only when no row is feasible, so it may be slow.
        """


class ScorePlugin(Plugin):
    """Rates feasible rows: whole numbers from 0 to 100 in float64, after normalisation if there is one."""

    score_locality: ClassVar[Locality] = "usage"
    normalized: ClassVar[bool] = False

    @abc.abstractmethod
    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: the plugin adds nothing for it."""

    @abc.abstractmethod
    def score(self, terms: Terms, window: Window) -> Floats:
        """Score of each row, infeasible rows included (their value is not used)."""

    def score_version(self, terms: Terms) -> int:
        """As ``filter_version``, for the raw scores."""
        raise NotImplementedError(f"{self.name} has locality cluster and no score_version")

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        """Final scores from raw ones. ``low`` and ``high`` are the extremes of ``raw`` over the feasible rows.

        Only called if ``normalized``. Must work element by element: when the extremes move, all rows are normalised
        anew, otherwise only those that changed.
        """
        raise NotImplementedError(f"{self.name} is normalized and has no normalize")

    def final(self, terms: Terms, window: Window, feasible: Bools) -> Floats:
        """Locality ``cluster`` and normalized only: final scores of all rows of the window, given which are feasible.

        Asked again when ``score_version`` moved or another set of rows is feasible. To override where the extremes of
        ``score`` and :meth:`normalize` do not say it.
        """
        raw = self.score(terms, window)
        among = raw[feasible]
        low, high = (float(among.min()), float(among.max())) if len(among) else (0.0, 0.0)
        return self.normalize(terms, raw, low, high)


class AssignPlugin(Plugin):
    """Keeps books on pods that have a node, whoever gave it to them; the node itself may not be known yet."""

    def keeps(self, spec: PodSpec) -> bool:
        """Whether anything is kept of pods with this spec. False: the plugin is not told of them at all. The answer is
        kept with the spec, which equal pods share."""
        return True

    @abc.abstractmethod
    def assigned(self, pod: AssignedPod) -> None:
        """A pod counts as having a node now."""

    @abc.abstractmethod
    def unassigned(self, pod: AssignedPod) -> None:
        """It no longer does; ``pod`` is what was told last."""

    def assigned_run(self, pods: Sequence[AssignedPod]) -> None:
        """Many pods of one class, placed one after the other. To override where that is cheaper than one by one."""
        for pod in pods:
            self.assigned(pod)

    def reassigned(self, old: AssignedPod, pod: AssignedPod) -> None:
        """The pod changed on its node (labels, annotations, times, planned to bound); ``old`` is what was told last.

        To override where this is cheaper, for most changes mean nothing to most plugins. Whoever overrides it must
        ``touch`` the row if its answers changed; otherwise that is done.
        """
        self.unassigned(old)
        self.assigned(pod)


class NodePlugin(Plugin):
    """Keeps something of every node. ``node_keys`` are the annotations that it reads; all labels are told."""

    node_keys: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def node_set(self, row: int, node: NodeInfo) -> None:
        """A node is on ``row`` from now on, or it changed there. The row is asked again anyway.

        ValueError: something of the node is not valid (names the annotation and the rule); the node gets an Event, and
        what the plugin knew of it before must stay in force.
        """

    @abc.abstractmethod
    def node_removed(self, row: int, name: str) -> None:
        """The node is gone and the row free for another one; columns from ``cluster.column`` are cleared already."""


class Watch(NamedTuple):
    """Objects that a plugin reads: what kind, and which of their fields (``type`` is decoded from their JSON)."""

    resource: Resource
    type: type[msgspec.Struct]


class WatchPlugin(Plugin):
    """Reads objects besides pods and nodes. Nothing is placed before all that exist have been told."""

    @abc.abstractmethod
    def watches(self) -> tuple[Watch, ...]:
        """What to watch; the gateway must carry it (``koord.kube.resources.WATCHED``)."""

    @abc.abstractmethod
    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """An object (``ns/name`` or ``name``) came, changed or went; which events for rejected pods that amounts to.

        Rows whose answers changed are told by ``cluster.touch``. ValueError: the object is not valid (names the field
        and the rule); it gets an Event, and the last good version must stay in force.
        """


class TickPlugin(Plugin):
    """Something that time alone changes."""

    @abc.abstractmethod
    def tick(self, now: float) -> Iterable[ClusterEvent]:
        """It is ``now`` (epoch seconds). Called before anything is placed and about every second; which events for
        rejected pods it amounts to. Rows whose answers changed are told by ``cluster.touch``."""


class PreferPlugin(Plugin):
    """Names nodes to be tried before all others."""

    @abc.abstractmethod
    def prefer_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: no node is preferred."""

    @abc.abstractmethod
    def preferred_nodes(self, terms: Terms) -> tuple[str, ...]:
        """The first of them that is feasible is chosen, whatever the scores; none: all nodes as usual."""


class Allocation(msgspec.Struct, frozen=True):
    """What a plugin gave a pod on its node, besides amounts.

    ``annotations`` are written to the pod together with its binding. ``takes`` are amounts and ``slots`` are single
    things (``cpu/<node>/<id>``) claimed in the ledger with it, so that no other scheduler gives away the same.
    """

    annotations: Mapping[str, str] = {}
    takes: tuple[Take, ...] = ()
    slots: tuple[str, ...] = ()


class ReservePlugin(Plugin):
    """Gives a pod certain things of the chosen node: cpus, devices, volumes. One pod at a time, after the choice."""

    reserves_what_it_filters: ClassVar[bool] = False
    """Reserve is asked wherever Filter is: the original's plugin has no Reserve, so no configuration lists it."""

    @abc.abstractmethod
    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: its pods get nothing from this plugin."""

    def reserves(self, terms: Terms) -> bool:
        """Whether pods of the class may get something on any row now; asked before each placement, so keep it below a
        microsecond. False: ``reserve`` is not called, and equal pods are placed in runs."""
        return True

    @abc.abstractmethod
    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        """Give the pod what it needs on that row and remember it; a text: why that is not possible (the next best row
        is tried). Follows the choice at once, before the pod is told as ``assigned``."""

    @abc.abstractmethod
    def unreserve(self, uid: str) -> None:
        """Take back what :meth:`reserve` gave. Must do nothing for a pod that has nothing, and may be called twice.

        Not called for a pod that was seen bound: then its annotations say what it has, in ``assigned``, and
        ``unassigned`` ends that.
        """


class Write(msgspec.Struct, frozen=True):
    """A JSON merge patch of one object; ``uid`` and ``resource_version``, where set, are preconditions."""

    resource: Resource
    namespace: str
    name: str
    body: bytes
    uid: str = ""
    resource_version: str = ""


class PreBind(msgspec.Struct, frozen=True):
    """What must be written before a pod is bound, and how long (seconds) it may take until that has its effect."""

    writes: tuple[Write, ...]
    timeout_s: float


class PreBindPlugin(Plugin):
    """Has something of the pod's in the API before the pod is bound: volumes. Its room is claimed meanwhile.

    A failure gives everything back (``unreserve`` is called) and the pod is tried again after backing off.
    """

    @abc.abstractmethod
    def prebind(self, pod: PodRef, node: str) -> PreBind | str | None:
        """Asked once the pod's claim was accepted; None: it can be bound at once; a text: why it cannot be bound."""

    @abc.abstractmethod
    def prebound(self, uid: str) -> bool | str:
        """Whether the pod can be bound now (it is not asked again then); a text: why it never will be.

        Asked each second, and when an object that the plugin watches changed, from when ``prebind`` wanted to wait.
        """


class Preempt(msgspec.Struct, frozen=True):
    """The pod is to wait for ``node``; ``victims`` there have to go. ``violating``: uids of those that go although a
    disruption budget has no room; ``budgets`` (``ns/name``) by uid: those that the others take from."""

    node: str
    victims: tuple[AssignedPod, ...] = ()
    violating: frozenset[str] = frozenset()
    budgets: Mapping[str, tuple[str, ...]] = {}


class StandBy(msgspec.Struct, frozen=True):
    """Nothing is to be done for the pod now, but the node that it waits for stays its own; ``text`` says why."""

    text: str


class PostFilterPlugin(Plugin):
    """Looks for a way out when a pod fits nowhere. The plugins are asked in order until one has one."""

    @abc.abstractmethod
    def post_filter(self, pod: "PodInfo", engine: "Engine", diagnosis: "Diagnosis") -> Preempt | StandBy | str | None:
        """What to do for the pod; a text: why nothing can be done, added to the pod's message; None: nothing to say.

        May take milliseconds. May take pods off the engine's books to see, and must leave them as they were.
        """


class PluginError(Exception):
    """A plugin raised: names the plugin and the point."""

    def __init__(self, plugin: str, point: str, error: BaseException) -> None:
        super().__init__(f'running "{plugin}" {point} plugin: {type(error).__name__}: {error}')
        self.plugin = plugin
