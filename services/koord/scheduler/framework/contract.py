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
* ``usage``: on the row's own amounts as well. Recomputed for a row whenever a pod comes to it or leaves.
* ``cluster``: on other rows too. Everything is recomputed whenever anything changed; exact, and slow.

A plugin that raises makes the pod unschedulable with the plugin's name in the message; the loop goes on.
"""

import abc
from collections.abc import Hashable, Mapping
from typing import ClassVar, Literal, NamedTuple

import msgspec

from koord.columns.matrix import Bools, Floats
from koord.kube.pods import PodSpec
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.events import ALL_EVENTS, ClusterEvent

Locality = Literal["node", "usage", "cluster"]
Terms = Hashable


class Template(msgspec.Struct, frozen=True):
    """What all pods of a class have in common; the input of every ``*_terms`` method.

    ``labels`` and ``annotations`` hold only the keys that plugins named in ``pod_keys``; ``footprint`` is what one pod
    takes of a node.
    """

    namespace: str
    spec: PodSpec
    footprint: Footprint
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}

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


class Reason(NamedTuple):
    """Why some rows were refused: the text users see, the rows, and whether taking pods away could help."""

    text: str
    rows: Bools
    resolvable: bool = True


class Plugin(abc.ABC):
    """What every plugin has. ``events`` are those that may help a pod that this plugin rejected."""

    name: ClassVar[str]
    pod_keys: ClassVar[tuple[str, ...]] = ()
    events: ClassVar[frozenset[ClusterEvent]] = ALL_EVENTS


class PreEnqueuePlugin(Plugin):
    """May hold a pod back before it enters the queue ("gated"): no event, no condition, no backoff."""

    @abc.abstractmethod
    def pre_enqueue(self, pod: PodRef) -> str | None:
        """Why the pod must wait, or None. Asked again on the pod's own updates and on the plugin's events."""


class PreFilterPlugin(Plugin):
    """Judges a pod as a whole, once per attempt, before any node is looked at."""

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
    """Says which rows can take a pod of the class."""

    filter_locality: ClassVar[Locality] = "usage"

    @abc.abstractmethod
    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: every row passes."""

    @abc.abstractmethod
    def filter(self, terms: Terms, window: Window) -> Bools:
        """True where a pod of the class can go. The array may be kept by the caller: return a new one."""

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

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        """Final scores from raw ones. ``low`` and ``high`` are the extremes of ``raw`` over the feasible rows.

        Only called if ``normalized``. Must work element by element: when the extremes move, all rows are normalised
        anew, otherwise only those that changed.
        """
        raise NotImplementedError(f"{self.name} is normalized and has no normalize")


class AssignPlugin(Plugin):
    """Keeps books on pods that have a node, whoever gave it to them."""

    @abc.abstractmethod
    def assigned(self, pod: PodRef, footprint: Footprint) -> None:
        """A pod counts as having a node now (planned, being bound, or seen bound). Told again when the pod changed."""

    @abc.abstractmethod
    def unassigned(self, pod: PodRef, footprint: Footprint) -> None:
        """It no longer does."""


class PluginError(Exception):
    """A plugin raised: names the plugin and the point."""

    def __init__(self, plugin: str, point: str, error: BaseException) -> None:
        super().__init__(f'running "{plugin}" {point} plugin: {type(error).__name__}: {error}')
        self.plugin = plugin
