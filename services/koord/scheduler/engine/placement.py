"""The placement loop: pods in queue order onto nodes, with results equal to placing them one at a time.

A pod that is placed is *assumed*: its room is taken in the columns at once, so the next pod sees it. Equal pods that
follow each other are placed in runs (``runs``), pods that prefer nodes or are given things in ``choosy``.
"""

from collections.abc import Sequence
from time import perf_counter

from msgspec.structs import replace

from koord.columns.matrix import Ints
from koord.scheduler.engine.advice import Advice
from koord.scheduler.engine.books import Books
from koord.scheduler.engine.choosy import place_choosy
from koord.scheduler.engine.classes import Program, SchedulingClass
from koord.scheduler.engine.cluster import TIE_BITS, Cluster
from koord.scheduler.engine.diagnosis import Diagnosis, diagnose, failed, nodeless, rejected
from koord.scheduler.engine.evaluation import Evaluation
from koord.scheduler.engine.fewrows import rank_few, rows_of
from koord.scheduler.engine.kept import Kept
from koord.scheduler.engine.nominated import Nominated
from koord.scheduler.engine.outlines import Outlines
from koord.scheduler.engine.pods import Outcome, Placed, PodInfo
from koord.scheduler.engine.reserving import Reservations, ReserveStep
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.engine.runs import RUN_MAXIMUM, RUN_MINIMUM, place_run
from koord.scheduler.engine.timing import SUCCESS, UNSCHEDULABLE
from koord.scheduler.framework.contract import AssignedPod, AssignPlugin, PluginError
from koord.scheduler.framework.profile import Profile

__all__ = ["Engine", "Outcome", "Placed", "PodInfo"]


class Engine(Books):
    """The cluster, the profiles, and the classes evaluated last. Not thread-safe; no I/O.

    ``profile`` is the first of ``profiles``; each class has its own.
    """

    def __init__(self, cluster: Cluster, *profiles: Profile, keep: int = 256) -> None:
        super().__init__(cluster, profiles)
        self.profiles = profiles
        self.profile = profiles[0]
        self.verdicts = Outlines()
        self.kept = Kept(cluster, keep)
        self._assumed: dict[str, PodInfo] = {}
        self.reservations = Reservations(self.errors, cluster.timing)
        self.nominated = Nominated(self)
        self.advice: dict[str, Advice] = {}
        """By uid, what pods about to be placed were told outside."""

    # Placing --------------------------------------------------------------------------------------------------------

    def place(
        self, pods: Sequence[PodInfo], outcomes: list[Outcome], *, until: float = float("inf"), now: float = 0.0
    ) -> int:
        """Place ``pods`` in order, appending to ``outcomes``, until done or ``perf_counter()`` passes ``until``.

        ``now`` (epoch seconds) is when they count as planned. Answers how many were handled (at least one); call again
        with the rest.
        """
        count = len(pods)
        start = 0
        while start < count:
            class_ = pods[start].class_
            stop = start + 1
            bound = min(count, start + RUN_MAXIMUM)
            while stop < bound and pods[stop].class_ is class_:
                stop += 1
            run = stop - start >= RUN_MINIMUM
            if run and self.advice:
                run = not any(pod.ref.uid in self.advice for pod in pods[start:stop])
            if run and place_run(self, class_, pods[start:stop], outcomes, now):
                start = stop
            else:
                while start < stop:
                    outcomes.append(self.place_one(pods[start], now))
                    start += 1
                    if perf_counter() >= until:
                        return start
            if perf_counter() >= until:
                break
        return start

    def place_one(self, pod: PodInfo, now: float = 0.0) -> Outcome:
        """Place one pod and assume it, or say why not. ``now`` (epoch seconds): when it counts as planned."""
        class_ = pod.class_
        cluster = self.cluster
        if not len(cluster):
            return nodeless(plugin.name for plugin in class_.profile.filters)
        try:
            program = class_.compiled(cluster, self.verdicts)
            if program.prefilters:
                refusal = self.prefiltered(program)
                if refusal is not None:
                    return refusal
            advice = self.advice.get(pod.ref.uid) if self.advice else None
            particular = program.prefers or program.resizes or self.nominated or advice is not None
            if particular or program.reserves:
                steps = self.reserving(program)
                if steps or particular:
                    return place_choosy(self, pod, program, steps, now, advice)
            rows, keys = self.rows_and_keys(class_, program)
        except PluginError as error:
            return failed(cluster, error)
        if cluster.timing.on:
            cluster.timing.looked(len(cluster) if rows is None else len(rows), int((keys >= 0).sum()))
        best = int(keys.argmax()) if len(keys) else -1
        if best < 0 or keys[best] < 0:
            return self.kept.diagnosis(class_, program)
        node = cluster.index.name(best if rows is None else int(rows[best]))
        assert node is not None, "only live rows are feasible"
        score = int(keys[best]) >> TIE_BITS
        self.assume(pod, node, now)
        return Placed(node, score)

    # Planned pods ---------------------------------------------------------------------------------------------------

    def assume(self, pod: PodInfo, node: str, now: float = 0.0, footprint: Footprint | None = None) -> None:
        """Count a planned pod on its node; ``footprint``: what it takes there, if not what its class takes."""
        self._assumed[pod.ref.uid] = pod
        planned = pod.planned(node, now)
        self.count(planned if footprint is None else replace(planned, footprint=footprint))

    def assume_run(
        self,
        uids: list[str],
        pods: Sequence[PodInfo],
        planned: list[AssignedPod],
        footprint: Footprint,
        rows: list[int],
        plugins: Sequence[AssignPlugin],
    ) -> None:
        """Count the first of ``pods``, which are of one class, as ``planned``; ``plugins`` are those to be told."""
        self.count_run(uids, planned, footprint, rows, plugins)
        self._assumed.update(zip(uids, pods, strict=False))

    def forget(self, uid: str) -> bool:
        """Take a planned pod back; False if it was not planned here (or was confirmed)."""
        if self._assumed.pop(uid, None) is None:
            return False
        self.uncount(uid)
        self.reservations.take_back(uid)
        return True

    def confirm(self, uid: str) -> bool:
        """The API shows the pod on its node: it is counted like any other from now on, not to be forgotten."""
        self.reservations.settle(uid)
        return self._assumed.pop(uid, None) is not None

    def assumed(self, uid: str) -> bool:
        """Whether the pod is planned and not seen bound."""
        return uid in self._assumed

    @property
    def assumed_count(self) -> int:
        """How many pods are planned and not seen bound."""
        return len(self._assumed)

    # Asking ---------------------------------------------------------------------------------------------------------

    def ranked(self, class_: SchedulingClass) -> tuple[Ints | None, Ints]:
        """The keys of a class now, and their rows (None: all, 0..high-1). PluginError: a plugin failed on it."""
        return self.rows_and_keys(class_, class_.compiled(self.cluster, self.verdicts))

    def rows_and_keys(self, class_: SchedulingClass, program: Program) -> tuple[Ints | None, Ints]:
        """As :meth:`ranked`, of a class that is compiled."""
        if program.names is None:
            keys = None
            if program.fresh:
                # All-different pods are asked about once each: keeping their rankings would cost more than making them.
                program.fresh = False
                keys = Evaluation(program).once(self.cluster)
            return None, self.kept.evaluation(class_, program).refresh(self.cluster) if keys is None else keys
        rows = rows_of(self.cluster, program.names)
        return rows, rank_few(program, self.cluster, rows) if len(rows) else rows

    def evaluation(self, class_: SchedulingClass) -> Evaluation:
        """The kept ranking of a class without names, made if need be. PluginError: a plugin failed on the class."""
        return self.kept.evaluation(class_, class_.compiled(self.cluster, self.verdicts))

    def explain(self, class_: SchedulingClass) -> Diagnosis:
        """A fresh diagnosis, also of a class that fits (``feasible`` > 0)."""
        if not len(self.cluster):
            return nodeless(plugin.name for plugin in class_.profile.filters)
        try:
            program = class_.compiled(self.cluster, self.verdicts)
            refusal = self.prefiltered(program)
        except PluginError as error:
            return failed(self.cluster, error)
        return refusal if refusal is not None else diagnose(program, self.cluster)

    def forget_evaluations(self) -> None:
        """Drop every kept ranking; the next placement of each class makes it from nothing."""
        self.kept.forget()

    def reserving(self, program: Program) -> list[ReserveStep]:
        """The plugins that may give pods of the class something besides amounts on any row now."""
        steps: list[ReserveStep] = []
        for plugin, terms in program.reserves:
            try:
                if plugin.reserves(terms):
                    steps.append((plugin, terms))
            except Exception as error:
                raise PluginError(plugin.name, "Reserve", error) from error
        return steps

    def prefiltered(self, program: Program) -> Diagnosis | None:
        """What PreFilter plugins have against a class as a whole, if they do. PluginError: one raised."""
        timing = self.cluster.timing
        for plugin, terms in program.prefilters:
            begun = timing.begun() if timing.on else 0.0
            try:
                text = plugin.prefilter(terms)
            except Exception as error:
                raise PluginError(plugin.name, "PreFilter", error) from error
            if begun:
                timing.took(plugin.name, "PreFilter", begun, SUCCESS if text is None else UNSCHEDULABLE)
            if text is not None:
                return rejected(self.cluster, plugin.name, text, plugin.prefilter_resolvable)
        return None
