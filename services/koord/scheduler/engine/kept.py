"""The rankings and diagnoses of the classes used last."""

from collections import OrderedDict

from koord.scheduler.engine.classes import Program, SchedulingClass
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.diagnosis import Diagnosis, diagnose, failed
from koord.scheduler.engine.evaluation import Evaluation
from koord.scheduler.framework.contract import PluginError

KEPT_BYTES = 64 << 20
"""How large all rankings together may be."""


class Kept:
    """By class; at most ``keep`` of them, those used least recently go first."""

    def __init__(self, cluster: Cluster, keep: int) -> None:
        self._cluster = cluster
        self._keep = keep
        self._evaluations: OrderedDict[int, tuple[SchedulingClass, Evaluation]] = OrderedDict()
        self._diagnoses: dict[int, tuple[tuple[int, ...], Diagnosis]] = {}
        self._made = 0

    def evaluation(self, class_: SchedulingClass, program: Program) -> Evaluation:
        """The ranking of a class by ``program``, which has no names; made if need be."""
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

    def diagnosis(self, class_: SchedulingClass, program: Program) -> Diagnosis:
        """The diagnosis as of the journal's end, kept until something changes: many equal pods cost one."""
        if program.names is not None:
            return diagnose(program, self._cluster)
        try:
            position = (self._cluster.journal.end, *self.evaluation(class_, program).versions())
        except PluginError as error:
            return failed(self._cluster, error)
        kept = self._diagnoses.get(id(class_))
        if kept is not None and kept[0] == position:
            return kept[1]
        made = diagnose(program, self._cluster)
        self._diagnoses[id(class_)] = (position, made)
        return made

    def forget(self) -> None:
        """Drop everything; what is asked next is made from nothing."""
        self._evaluations.clear()
        self._diagnoses.clear()

    def _make_room(self) -> None:
        """Drop what is beyond ``keep``, and now and then what takes too much memory."""
        kept, rows = self._evaluations, len(self._cluster.alive)
        self._made += 1
        size = 0 if self._made % 64 else sum(evaluation.width for _, evaluation in kept.values()) * rows
        while len(kept) > self._keep or (size > KEPT_BYTES and len(kept) > 16):
            dropped, (_, evaluation) = kept.popitem(last=False)
            size -= evaluation.width * rows
            self._diagnoses.pop(dropped, None)
