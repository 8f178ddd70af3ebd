"""The placement loop: pods in queue order onto nodes, with results equal to placing them one at a time.

A pod that is placed is *assumed*: its room is taken in the columns at once, so the next pod sees it. A run of pods of
one class is placed with a heap of best rows, each row's next keys being computed ahead; rows that no pod of the run
touched keep their keys, so taking the heap's top is exactly what an argmax over all rows would choose.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from types import MappingProxyType

import msgspec
import numpy as np

from koord.accounting.takes import Take
from koord.columns.matrix import Ints
from koord.scheduler.engine.books import Books
from koord.scheduler.engine.classes import Program, SchedulingClass
from koord.scheduler.engine.cluster import TIE_BITS, Cluster
from koord.scheduler.engine.diagnosis import Diagnosis, diagnose, failed, nodeless, rejected
from koord.scheduler.engine.evaluation import INFEASIBLE, Evaluation
from koord.scheduler.engine.fewrows import rank_few, rows_of
from koord.scheduler.engine.nominated import Nominated, beside, first_reasons, fits
from koord.scheduler.engine.ranking import Ranking
from koord.scheduler.engine.reserving import Given, Refusal, Reservations, ReserveStep
from koord.scheduler.engine.verdict import Verdicts
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import AssignedPod, Plugin, PluginError, PodRef
from koord.scheduler.framework.profile import Profile

RUN_MINIMUM = 4
RUN_MAXIMUM = 256
KEPT_BYTES = 64 << 20
_NOTHING: Mapping[str, str] = MappingProxyType({})


class PodInfo(msgspec.Struct, gc=False, eq=False):
    """One pod to place. Equality is identity; the class is shared. ``owner`` is the kind of its controller."""

    ref: PodRef
    class_: SchedulingClass
    priority: int = 0
    owner: str = ""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.ref.uid

    def planned(self, node: str, now: float) -> AssignedPod:
        """The pod as it counts from its planning at ``now`` (epoch seconds) on."""
        template = self.class_.template
        return AssignedPod(
            self.ref, template.spec, template.footprint, node, self.priority, now, 0.0, 0.0, self.owner, False, True
        )


class Placed(msgspec.Struct, frozen=True, gc=False):
    """Where a pod goes, at which total score, and what plugins gave it there: annotations to write with its binding,
    and what to claim in the ledger besides its amounts. The score is 0 where there was one node to choose from."""

    node: str
    score: int
    annotations: Mapping[str, str] = _NOTHING
    takes: tuple[Take, ...] = ()
    slots: tuple[str, ...] = ()


Outcome = Placed | Diagnosis


class Engine(Books):
    """The cluster, the profiles, and the classes evaluated last. Not thread-safe; no I/O.

    ``profile`` is the first of ``profiles``; each class has its own.
    """

    def __init__(self, cluster: Cluster, *profiles: Profile, keep: int = 256) -> None:
        super().__init__(cluster, profiles)
        self.profiles = profiles
        self.profile = profiles[0]
        self.verdicts = Verdicts()
        self._keep = keep
        self._evaluations: OrderedDict[int, tuple[SchedulingClass, Evaluation]] = OrderedDict()
        self._diagnoses: dict[int, tuple[tuple[int, ...], Diagnosis]] = {}
        self._made = 0
        self._assumed: dict[str, PodInfo] = {}
        self._reservations = Reservations(self.errors)
        self.nominated = Nominated(cluster)

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
            if stop - start >= RUN_MINIMUM and self._place_run(class_, pods[start:stop], outcomes, now):
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
                refusal = self._prefilter(program)
                if refusal is not None:
                    return refusal
            if program.prefers or program.reserves or self.nominated:
                steps = self._reserving(program)
                if steps or program.prefers or self.nominated:
                    return self._place_choosy(pod, program, steps, now)
            rows, keys = self._ranked(class_, program)
        except PluginError as error:
            return failed(cluster, error)
        best = int(keys.argmax()) if len(keys) else -1
        if best < 0 or keys[best] < 0:
            return self._diagnose(class_, program)
        node = cluster.index.name(best if rows is None else int(rows[best]))
        assert node is not None, "only live rows are feasible"
        score = int(keys[best]) >> TIE_BITS
        self.assume(pod, node, now)
        return Placed(node, score)

    def _place_choosy(self, pod: PodInfo, program: Program, steps: Sequence[ReserveStep], now: float) -> Outcome:
        """Place a pod that prefers nodes or is to get things: the next best row is tried while plugins refuse, or where
        others who are nominated there would have no room beside it."""
        refused: list[Refusal] = []
        rivals = self.nominated.rivals(pod.uid, pod.priority) if self.nominated else {}
        for row, key in self._choices(pod, program):
            if row in rivals and not fits(self, program, pod.class_.template.footprint, row, rivals[row]):
                refused += self._kept_for(program, row, rivals[row])
                continue
            given = self._reservations.give(steps, pod.ref, row) if steps else _NONE_GIVEN
            if isinstance(given, Refusal):
                refused.append(given)
                continue
            node = self.cluster.index.name(row)
            assert node is not None, "only live rows are feasible"
            self.assume(pod, node, now)
            return Placed(node, key >> TIE_BITS, given.annotations or _NOTHING, given.takes, given.slots)
        return diagnose(program, self.cluster, refused) if refused else self._diagnose(pod.class_, program)

    def _kept_for(self, program: Program, row: int, rivals: Sequence[AssignedPod]) -> list[Refusal]:
        """Why the pod does not fit on a row beside those who are nominated there."""
        with beside(self, rivals):
            [found] = first_reasons(program, Window.some(self.cluster, np.array([row])))
        return [Refusal(plugin.name, text, row) for plugin, text in found]

    def _choices(self, pod: PodInfo, program: Program) -> Iterator[tuple[int, int]]:
        """Feasible rows with their keys: the node that the pod waits for, preferred ones in their order, then all by
        rank."""
        tried: list[int] = []
        own = self.nominated.node_of(pod.uid) if self.nominated else ""
        preferred: list[tuple[str, ...]] = [(own,)] if own else []
        for plugin, terms in program.prefers:
            try:
                preferred.append(plugin.preferred_nodes(terms))
            except Exception as error:
                raise PluginError(plugin.name, "PreFilter", error) from error
        for names in preferred:
            some = rows_of(self.cluster, names if program.names is None else (n for n in names if n in program.names))
            if not len(some):
                continue
            for row, key in zip(some.tolist(), rank_few(program, self.cluster, some).tolist(), strict=True):
                if key >= 0 and row not in tried:
                    tried.append(row)
                    yield row, key
        rows, keys = self._ranked(pod.class_, program)
        own_copy = False
        if tried:
            keys, own_copy = keys.copy(), True
            keys[tried if rows is None else [row in tried for row in rows.tolist()]] = INFEASIBLE
        while len(keys):
            best = int(keys.argmax())
            key = int(keys[best])
            if key < 0:
                return
            yield best if rows is None else int(rows[best]), key
            if not own_copy:
                # Whoever asks for another one has not changed what the class keeps: nothing was placed.
                keys, own_copy = keys.copy(), True
            keys[best] = INFEASIBLE

    def _place_run(self, class_: SchedulingClass, pods: Sequence[PodInfo], outcomes: list[Outcome], now: float) -> bool:
        """Place pods of one class together; False: this class is to be placed one by one, nothing was done."""
        cluster = self.cluster
        if not len(cluster):
            return False
        try:
            program = class_.compiled(cluster, self.verdicts)
            if not program.row_local or program.names is not None or program.prefers or self._reserving(program):
                return False
            evaluation = self._evaluation(class_, program)
            keys = evaluation.refresh(cluster)
            if not evaluation.row_by_row:
                return False
            kept = self._kept_rows(pods, program, keys) if self.nominated else []
            if kept is None:
                return False
            if kept:
                keys = keys.copy()
                keys[kept] = INFEASIBLE
            ranking = Ranking(cluster, evaluation, class_.template.footprint, keys, len(pods))
        except PluginError as error:
            outcomes.extend([failed(cluster, error)] * len(pods))
            return True
        # A plugin that judges each pod by its books must know of the one before; the others are told when the columns
        # are as one by one, because rows are looked ahead from what the columns were at the beginning.
        judging: list[Plugin] = [plugin for plugin, _ in program.prefilters]
        spec, footprint = class_.template.spec, class_.template.footprint
        at_once = [plugin for plugin in self.keepers(spec) if plugin in judging]
        later = [plugin for plugin in self.keepers(spec) if plugin not in judging]
        placed: list[AssignedPod] = []
        rows: list[int] = []
        refusal: Diagnosis | None = None
        index = cluster.index
        for pod in pods:
            try:
                if program.prefilters and (refusal := self._prefilter(program)) is not None:
                    break
                best = ranking.take()
            except PluginError as error:
                refusal = failed(cluster, error)
                break
            if best is None:
                break
            key, row = best
            node = index.name(row)
            assert node is not None, "only live rows are feasible"
            planned = AssignedPod(pod.ref, spec, footprint, node, pod.priority, now, 0.0, 0.0, pod.owner, False, True)
            placed.append(planned)
            rows.append(row)
            for plugin in at_once:
                self.tell(plugin, planned)
            outcomes.append(Placed(node, key >> TIE_BITS))
        if placed:
            uids = [pod.ref.uid for pod in placed]
            self.count_run(uids, placed, footprint, rows, later)
            self._assumed.update(zip(uids, pods, strict=False))
        left = len(pods) - len(placed)
        if left and kept and refusal is None:
            outcomes.extend(
                [self.place_one(pod, now) for pod in pods[len(placed) :]]
            )  # who says for whom rows are kept
        elif left:
            # What stopped this pod stops every later one of the run: nothing is given back in between.
            outcomes.extend([refusal if refusal is not None else self._diagnose(class_, program)] * left)
        return True

    def _kept_rows(self, pods: Sequence[PodInfo], program: Program, keys: Ints) -> list[int] | None:
        """Rows on which a run of equal pods would leave no room to those who are nominated there. None: one by one, for
        some row has room for one more of them, or some of the run wait for nodes of their own."""
        nominated, footprint = self.nominated, pods[0].class_.template.footprint
        if any(nominated.node_of(pod.uid) for pod in pods):
            return None
        kept: list[int] = []
        for row, rivals in nominated.rivals("", pods[0].priority).items():
            if keys[row] < 0:
                continue
            if fits(self, program, footprint, row, rivals):
                return None
            kept.append(row)
        return kept

    # Planned pods ---------------------------------------------------------------------------------------------------

    def assume(self, pod: PodInfo, node: str, now: float = 0.0) -> None:
        """Count a planned pod on its node."""
        self._assumed[pod.ref.uid] = pod
        self.count(pod.planned(node, now))

    def forget(self, uid: str) -> bool:
        """Take a planned pod back; False if it was not planned here (or was confirmed)."""
        if self._assumed.pop(uid, None) is None:
            return False
        self.uncount(uid)
        self._reservations.take_back(uid)
        return True

    def confirm(self, uid: str) -> bool:
        """The API shows the pod on its node: it is counted like any other from now on, not to be forgotten."""
        self._reservations.settle(uid)
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
        return self._ranked(class_, class_.compiled(self.cluster, self.verdicts))

    def evaluation(self, class_: SchedulingClass) -> Evaluation:
        """The kept ranking of a class without names, made if need be. PluginError: a plugin failed on the class."""
        return self._evaluation(class_, class_.compiled(self.cluster, self.verdicts))

    def _evaluation(self, class_: SchedulingClass, program: Program) -> Evaluation:
        key = id(class_)
        entry = self._evaluations.get(key)
        if entry is not None and entry[1].program is program:
            self._evaluations.move_to_end(key)
            return entry[1]
        evaluation = Evaluation(program)
        self._evaluations[key] = (class_, evaluation)
        self._evaluations.move_to_end(key)
        self._diagnoses.pop(key, None)
        self._make_room()
        return evaluation

    def explain(self, class_: SchedulingClass) -> Diagnosis:
        """A fresh diagnosis, also of a class that fits (``feasible`` > 0)."""
        if not len(self.cluster):
            return nodeless(plugin.name for plugin in class_.profile.filters)
        try:
            program = class_.compiled(self.cluster, self.verdicts)
            refusal = self._prefilter(program)
        except PluginError as error:
            return failed(self.cluster, error)
        return refusal if refusal is not None else diagnose(program, self.cluster)

    def forget_evaluations(self) -> None:
        """Drop every kept ranking; the next placement of each class makes it from nothing."""
        self._evaluations.clear()
        self._diagnoses.clear()

    def _ranked(self, class_: SchedulingClass, program: Program) -> tuple[Ints | None, Ints]:
        if program.names is None:
            return None, self._evaluation(class_, program).refresh(self.cluster)
        rows = rows_of(self.cluster, program.names)
        return rows, rank_few(program, self.cluster, rows) if len(rows) else rows

    def _make_room(self) -> None:
        """Drop the rankings used least recently beyond ``keep``, and now and then those that take too much memory."""
        kept, rows = self._evaluations, len(self.cluster.alive)
        self._made += 1
        size = 0 if self._made % 64 else sum(evaluation.width for _, evaluation in kept.values()) * rows
        while len(kept) > self._keep or (size > KEPT_BYTES and len(kept) > 16):
            dropped, (_, evaluation) = kept.popitem(last=False)
            size -= evaluation.width * rows
            self._diagnoses.pop(dropped, None)

    def _reserving(self, program: Program) -> list[ReserveStep]:
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
        return self._prefilter(program)

    def _prefilter(self, program: Program) -> Diagnosis | None:
        for plugin, terms in program.prefilters:
            try:
                text = plugin.prefilter(terms)
            except Exception as error:
                raise PluginError(plugin.name, "PreFilter", error) from error
            if text is not None:
                return rejected(self.cluster, plugin.name, text, plugin.prefilter_resolvable)
        return None

    def _diagnose(self, class_: SchedulingClass, program: Program) -> Diagnosis:
        """The diagnosis as of the journal's end, kept until something changes: many equal pods cost one."""
        if program.names is not None:
            return diagnose(program, self.cluster)
        try:
            position = (self.cluster.journal.end, *self._evaluation(class_, program).versions())
        except PluginError as error:
            return failed(self.cluster, error)
        kept = self._diagnoses.get(id(class_))
        if kept is not None and kept[0] == position:
            return kept[1]
        made = diagnose(program, self.cluster)
        self._diagnoses[id(class_)] = (position, made)
        return made


_NONE_GIVEN = Given({}, (), ())
