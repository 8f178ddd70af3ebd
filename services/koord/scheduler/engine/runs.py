"""A run: equal pods placed together, with results equal to placing them one at a time.

Rows are looked ahead: each row's next keys, as they would be with one, two, ... more pods of the class, are computed
for many rows at once. Rows that no pod of the run touched keep their keys, so taking the top of a heap is exactly what
an argmax over all rows would choose. Where the pods are given things (cpus), the plugins that give them count what they
would have given before in the windows ahead; the things themselves are given in the order of the pods once the rows are
chosen. If that fails for one, it and those after it are placed one by one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from koord.columns.matrix import Ints
from koord.scheduler.engine.classes import Program, SchedulingClass
from koord.scheduler.engine.cluster import TIE_BITS
from koord.scheduler.engine.diagnosis import Diagnosis, failed
from koord.scheduler.engine.evaluation import INFEASIBLE, Evaluation
from koord.scheduler.engine.nominated import fits
from koord.scheduler.engine.pods import Outcome, Placed, PodInfo
from koord.scheduler.engine.ranking import Ranking
from koord.scheduler.engine.reserving import Given, ReserveStep
from koord.scheduler.framework.contract import AssignedPod, AssignPlugin, Plugin, PluginError

if TYPE_CHECKING:
    from koord.scheduler.engine.placement import Engine

RUN_MINIMUM = 4
RUN_MAXIMUM = 256


def place_run(
    engine: "Engine", class_: SchedulingClass, pods: Sequence[PodInfo], outcomes: list[Outcome], now: float
) -> bool:
    """Place pods of one class together; False: this class is to be placed one by one, nothing was done."""
    if not len(engine.cluster):
        return False
    try:
        program = class_.compiled(engine.cluster, engine.verdicts)
        if program.prefers or program.resizes or not program.looks_ahead():
            return False
        steps = engine.reserving(program)
        if steps and not _look_ahead(steps):
            return False
        evaluation = engine.kept.evaluation(class_, program)
        keys = evaluation.refresh(engine.cluster)
        if not evaluation.row_by_row:
            return False
        if engine.cluster.timing.on:
            engine.cluster.timing.looked(len(engine.cluster), int((keys >= 0).sum()))
        kept = _kept_rows(engine, pods, program, keys) if engine.nominated else []
        if kept is None:
            return False
        run = _Run(engine, class_, program, evaluation, pods, now)
        run.choose(_without(keys, kept))
    except PluginError as error:
        outcomes.extend([failed(engine.cluster, error)] * len(pods))
        return True
    one_by_one = run.give(steps) if steps else False
    run.count(outcomes)
    left = len(pods) - len(run.placed)
    if not left:
        return True
    if one_by_one or (kept and run.refusal is None):  # who says for whom rows are kept
        outcomes.extend([engine.place_one(pod, now) for pod in pods[len(run.placed) :]])
    else:
        # What stopped this pod stops every later one of the run: nothing is given back in between.
        refusal = run.refusal
        outcomes.extend([refusal if refusal is not None else engine.kept.diagnosis(class_, program)] * left)
    return True


def _look_ahead(steps: Sequence[ReserveStep]) -> bool:
    """Whether all of them count what they would give in windows ahead. PluginError: one raised."""
    for plugin, terms in steps:
        try:
            if not plugin.looks_ahead(terms):
                return False
        except Exception as error:
            raise PluginError(plugin.name, "Reserve", error) from error
    return True


def _without(keys: Ints, rows: list[int]) -> Ints:
    if not rows:
        return keys
    keys = keys.copy()
    keys[rows] = INFEASIBLE
    return keys


def _kept_rows(engine: "Engine", pods: Sequence[PodInfo], program: Program, keys: Ints) -> list[int] | None:
    """Rows on which a run of equal pods would leave no room to those who are nominated there. None: one by one, for
    some row has room for one more of them, or some of the run wait for nodes of their own."""
    nominated, footprint = engine.nominated, pods[0].class_.template.footprint
    if nominated.only_beside or any(nominated.node_of(pod.uid) for pod in pods):
        return None
    kept: list[int] = []
    for row, rivals in nominated.rivals("", pods[0].priority).items():
        if keys[row] < 0:
            continue
        if fits(engine, program, footprint, row, rivals):
            return None
        kept.append(row)
    return kept


class _Run:
    """Which rows the pods of a run take, in their order; ``refusal`` is what stopped the first that has none."""

    def __init__(
        self,
        engine: "Engine",
        class_: SchedulingClass,
        program: Program,
        evaluation: Evaluation,
        pods: Sequence[PodInfo],
        now: float,
    ) -> None:
        self._engine = engine
        self._class = class_
        self._program = program
        self._evaluation = evaluation
        self._pods = pods
        self._now = now
        # A plugin that judges each pod by its books must know of the one before; the others are told when the columns
        # are as one by one, because rows are looked ahead from what the columns were at the beginning.
        judging: list[Plugin] = [plugin for plugin, _ in program.prefilters]
        keepers = engine.keepers(class_.template.spec)
        self._at_once: list[AssignPlugin] = [plugin for plugin in keepers if plugin in judging]
        self._later: list[AssignPlugin] = [plugin for plugin in keepers if plugin not in judging]
        self.placed: list[AssignedPod] = []
        self._rows: list[int] = []
        self._scores: list[int] = []
        self._given: list[Given] | None = None
        self.refusal: Diagnosis | None = None

    def choose(self, keys: Ints) -> None:
        """Choose rows until a pod finds none. PluginError: a plugin raised looking ahead, nothing was chosen."""
        engine, pods, program, now = self._engine, self._pods, self._program, self._now
        template = self._class.template
        spec, footprint = template.spec, template.footprint
        ranking = Ranking(engine.cluster, self._evaluation, footprint, keys, len(pods))
        find = engine.cluster.index.name
        for pod in pods:
            try:
                if program.prefilters and (refusal := engine.prefiltered(program)) is not None:
                    self.refusal = refusal
                    return
                best = ranking.take()
            except PluginError as error:
                self.refusal = failed(engine.cluster, error)
                return
            if best is None:
                return
            key, row = best
            node = find(row)
            assert node is not None, "only live rows are feasible"
            planned = AssignedPod(pod.ref, spec, footprint, node, pod.priority, now, 0.0, 0.0, pod.owner, False, True)
            self.placed.append(planned)
            self._rows.append(row)
            self._scores.append(key >> TIE_BITS)
            for plugin in self._at_once:
                engine.tell(plugin, planned)

    def give(self, steps: Sequence[ReserveStep]) -> bool:
        """Give the pods what they are to have; True: a plugin could not, from that pod on they have no row again."""
        given = self._given = self._engine.reservations.give_run(steps, self.placed, self._rows)
        count = len(given)
        if count == len(self.placed):
            return False
        for pod in reversed(self.placed[count:]):
            for plugin in self._at_once:
                self._engine.untell(plugin, pod)
        del self.placed[count:], self._rows[count:]
        self.refusal = None
        return True

    def count(self, outcomes: list[Outcome]) -> None:
        """Count the pods on their rows and say where they are."""
        placed = self.placed
        if not placed:
            return
        if self._given is None:
            outcomes.extend([Placed(pod.node, score) for pod, score in zip(placed, self._scores, strict=False)])
        else:
            outcomes.extend(
                [
                    Placed(pod.node, score, given.annotations, given.takes, given.slots)
                    for pod, score, given in zip(placed, self._scores, self._given, strict=False)
                ]
            )
        uids = [pod.ref.uid for pod in placed]
        self._engine.assume_run(uids, self._pods, placed, self._class.template.footprint, self._rows, self._later)
