"""Whether a planned pod may stay where it was planned, now that more is known of other pods.

Asked when a claim's answer tells what others placed before it: plugins whose rules are about other pods look at the row
as if the pod was not there yet, and what plugins gave it is given once more. Amounts are the ledger's business.
"""

from collections.abc import Callable

import numpy as np

from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.placement import Engine
from koord.scheduler.engine.pods import Placed, PodInfo
from koord.scheduler.engine.reserving import Refusal
from koord.scheduler.engine.verdict import FilterStep
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import PluginError


class Rejudging:
    """Which classes are placed by rules about other pods, and whether their pods may stay.

    ``renewed`` answers a pod in the class it has now: what just came to light may select by labels that told no classes
    apart before.
    """

    def __init__(self, engine: Engine, renewed: Callable[[PodInfo], PodInfo]) -> None:
        self._engine = engine
        self._renewed = renewed

    def looks_around(self, pod: PodInfo, placed: Placed) -> bool:
        """Whether other pods than the ledger knows of may forbid this placement."""
        program = pod.class_.program
        return bool(placed.annotations) or (program is not None and bool(_between(program)))

    def fault(self, pod: PodInfo, placed: Placed) -> str:
        """Why a planned pod may not stay; empty: it may, or it is not planned there any more. What is refused is not
        counted any more, the caller forgets it. A plugin that raises is a fault."""
        engine, uid = self._engine, pod.uid
        counted = engine.counted(uid)
        row = engine.cluster.index.find(placed.node)
        if counted is None or counted.node != placed.node or row is None or not engine.assumed(uid):
            return ""
        pod = self._renewed(pod)
        try:
            program = pod.class_.compiled(engine.cluster, engine.verdicts)
        except PluginError as error:
            return str(error)
        if not placed.annotations and not _between(program):
            return ""
        engine.uncount(uid)
        try:
            text = self._refusal(pod, placed, row)
        except PluginError as error:
            text = str(error)
        if not text:
            engine.count(counted)
        return text

    def _refusal(self, pod: PodInfo, placed: Placed, row: int) -> str:
        engine = self._engine
        program = pod.class_.compiled(engine.cluster, engine.verdicts)
        window = Window.some(engine.cluster, np.array([row]))
        for plugin, terms in _between(program):
            try:
                if plugin.filter_locality == "cluster":
                    plugin.filter_version(terms)  # its books are brought up to date
                if not plugin.filter(terms, window)[0]:
                    return plugin.name
            except Exception as error:
                raise PluginError(plugin.name, "Filter", error) from error
        if not placed.annotations:
            return ""
        engine.reservations.take_back(pod.uid)
        given = engine.reservations.give(engine.reserving(program), pod.ref, row)
        if isinstance(given, Refusal):
            return given.plugin
        same = given.annotations == placed.annotations and given.slots == placed.slots
        return "" if same else "what it was given is another's"


def _between(program: Program) -> tuple[FilterStep, ...]:
    """The filters of a program whose rules are about other pods."""
    if program.between is None:
        program.between = tuple([step for step in program.steps if step[0].between_pods])
    return program.between


def repels(pod: PodInfo) -> bool:
    """Whether a pod keeps others off the nodes around it, though they may have no rule themselves."""
    affinity = pod.class_.template.spec.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    return anti is not None and bool(anti.required)
