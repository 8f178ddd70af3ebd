"""The points that lead to a node: whether a pod may be tried, which rows can take it, which is best."""

import abc
from collections.abc import Sequence
from typing import ClassVar

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.plugin import Plugin
from koord.scheduler.framework.subjects import AssignedPod, Locality, PodRef, Reason, Template, Terms


class PreEnqueuePlugin(Plugin):
    """May hold a pod back before it enters the queue ("gated"): no event, no condition, no backoff.

    ``holding``: whether it holds back any pod at all now. A plugin that knows that keeps it; else it is always asked.
    """

    holding: bool = True

    @abc.abstractmethod
    def pre_enqueue(self, pod: PodRef) -> str | None:
        """Why the pod must wait, or None. Asked again on the pod's own updates and on the plugin's events."""

    def may_hold(self, template: Template) -> bool:
        """Whether it may ever hold back a pod of the class. False: it is not asked about them. Asked once per class."""
        return True


class TransformPlugin(Plugin):
    """Changes pods for all plugins of its profile, itself included, before any of them looks (BeforePreFilter)."""

    @abc.abstractmethod
    def transform(self, template: Template) -> Template:
        """The template with another spec, labels or annotations (:func:`msgspec.structs.replace`), or as it is.

        Asked once per class, in the order of the profile. Labels and annotations that it reads must be named in
        ``pod_keys``. What pods of the class take of a node stays as it was, whatever becomes of the requests in the
        spec; and pods that have a node are told as the API has them.
        """


class PreFilterPlugin(Plugin):
    """Judges a pod as a whole, once per attempt, before any node is looked at.

    ``prefilter_resolvable``: taking other pods away may make it pass. ``prefilter_in_trials``: preemption may find that
    out by itself: the plugin keeps books on pods, and is asked again while some are off them.
    """

    prefilter_resolvable: ClassVar[bool] = True
    prefilter_in_trials: ClassVar[bool] = False

    @abc.abstractmethod
    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: nothing to judge."""

    def prefilter(self, terms: Terms) -> str | None:
        """Why no pod of this class may be placed now, or None. Runs for every pod: keep it at microseconds."""
        return None

    def node_names(self, terms: Terms) -> frozenset[str] | None:
        """The only nodes that can do, or None for all. Sets of several plugins are intersected."""
        return None


class Without(abc.ABC):
    """What a filter would say on some rows if certain pods of theirs were gone; see :meth:`FilterPlugin.without`.

    ``gone[i, j]``: pod ``j`` of row ``i`` is gone. ``window`` has the same rows with the amounts as they would be then.
    Each row is judged as if only its own pods had gone.
    """

    @abc.abstractmethod
    def passes(self, gone: Bools, window: Window) -> Bools:
        """True where a pod of the class could go. A new array."""

    @abc.abstractmethod
    def reasons(self, gone: Bools, window: Window) -> list[Reason]:
        """Why rows would be refused, as :meth:`FilterPlugin.reasons`."""


class FilterPlugin(Plugin):
    """Says which rows can take a pod of the class.

    ``monotone``: taking pods off a row never makes the row refuse, whatever else the plugin knows of pods; so
    preemption need not try it pod by pod where it passes as it is.

    ``between_pods``: where it has terms, other pods may forbid a row by a rule that no amount or slot of the ledger
    says. A placement is judged anew by it if the claim's answer tells of pods that other schedulers placed meanwhile.
    """

    monotone: ClassVar[bool] = False
    between_pods: ClassVar[bool] = False
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

    def figures(self, terms: Terms, reason: str, window: Window, at: int) -> str:
        """For who asks about one node: the figures behind a ``reason`` of row ``at`` of the window; "" if it says all.

        A reason itself is the same text on all nodes that it refuses, for they are counted by it.
        """
        return ""

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """For preemption: what :meth:`filter` would say on ``rows`` if some of ``pods[i]``, which stand on ``rows[i]``,
        were gone. To override by plugins that keep books on pods, and by those of locality ``cluster``.

        Where it is not overridden, pods are taken off the books and put back, one row after the other, each time
        somebody looks for victims there and the filter is not ``monotone`` or refuses the row as it is.
        """
        raise NotImplementedError(f"{self.name} cannot tell")


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


class PreferPlugin(Plugin):
    """Names nodes to be tried before all others."""

    @abc.abstractmethod
    def prefer_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Terms of the class, or None: no node is preferred."""

    @abc.abstractmethod
    def preferred_nodes(self, terms: Terms) -> tuple[str, ...]:
        """The first of them that is feasible is chosen, whatever the scores; none: all nodes as usual."""
