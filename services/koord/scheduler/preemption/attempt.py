"""What is asked of the filters, again and again, while one pod's victims are looked for."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.fewrows import rows_of
from koord.scheduler.engine.nominated import Competitors, beside, fits, keeps_books, reasons, taken, window_with
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import AssignedPod, FilterPlugin, PluginError, Reason, Terms, Without

HELPLESS = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"

Step = tuple[FilterPlugin, Terms]
Pods = Sequence[Sequence[AssignedPod]]
Lower = Callable[[int], Sequence[AssignedPod]]
"""The pods of a row that may go."""


class Trial:
    """Filters that keep books, asked about rows without some of their pods (``FilterPlugin.without``)."""

    def __init__(self, steps: Sequence[Step], rows: Ints, pods: Pods) -> None:
        self.by_plugin: dict[FilterPlugin, Without] = {}
        for plugin, terms in steps:
            try:
                self.by_plugin[plugin] = plugin.without(terms, rows, pods)
            except Exception as error:
                raise PluginError(plugin.name, "Filter", error) from error

    def passes(self, gone: Bools, window: Window) -> Bools:
        """Rows that none of them refuses when those are gone."""
        ok: Bools = np.ones(window.size, dtype=np.bool_)
        for plugin, without in self.by_plugin.items():
            try:
                ok &= without.passes(gone, window)
            except Exception as error:
                raise PluginError(plugin.name, "Filter", error) from error
        return ok

    def reasons(self, plugin: FilterPlugin, gone: Bools, window: Window) -> Sequence[Reason] | None:
        """Why rows refuse when those are gone; None: the trial is not about this filter."""
        without = self.by_plugin.get(plugin)
        if without is None:
            return None
        try:
            return without.reasons(gone, window)
        except Exception as error:
            raise PluginError(plugin.name, "Filter", error) from error


def passes(steps: Sequence[Step], window: Window) -> Bools:
    """Rows of the window that pass all of ``steps``. PluginError: one raised."""
    ok: Bools = np.ones(window.size, dtype=np.bool_)
    for plugin, terms in steps:
        try:
            ok &= plugin.filter(terms, window)
        except Exception as error:
            raise PluginError(plugin.name, "Filter", error) from error
    return ok


class Attempt:
    """One pod. ``rivals``: who is nominated where and has to be left room. ``blocked``: a PreFilter plugin refuses the
    pod as a whole, which may end when others go; then every row is tried on the books."""

    def __init__(self, engine: Engine, program: Program, pod: PodInfo, rivals: Competitors, *, blocked: bool) -> None:
        self._engine = engine
        self.program = program
        self._footprint = pod.class_.template.footprint
        # What has no column is not in a window that is made up.
        local = "node" if self._footprint.unlisted else ""
        self.by_amounts = [
            step for step in program.steps if not keeps_books(step[0]) and step[0].filter_locality.startswith(local)
        ]
        self.amounts_steps = [step for step in self.by_amounts if step[0].filter_locality != "node"]
        self._by_books = [step for step in program.steps if step not in self.by_amounts]
        self._rivals = rivals
        self._blocked = blocked
        self._refused: dict[int, list[str]] = {}
        self._untold: list[tuple[Ints, Window, Trial | None, Bools | None]] = []

    def possible(self) -> Ints:
        """Rows that refuse the pod for something that taking pods away may change."""
        cluster, program = self._engine.cluster, self.program
        if program.names is None:
            window = Window.full(cluster)
        else:
            window = Window.some(cluster, rows_of(cluster, program.names))
        left: Bools = cluster.alive[window.rows].copy()
        alive = left.copy()
        never: Bools = np.zeros(window.size, dtype=np.bool_)
        for plugin, terms in program.steps:
            if not left.any():
                break
            gone: Bools = np.zeros(window.size, dtype=np.bool_)
            for reason in reasons(plugin, terms, window):
                rows = reason.rows & left
                gone |= rows
                if not reason.resolvable:
                    never |= rows
            left &= ~gone
        numbers: Ints = np.arange(window.size) if isinstance(window.rows, slice) else window.rows
        if self._blocked:
            return numbers[alive & ~never]
        # A row that passes by itself is a candidate only if it is kept for others.
        kept: Bools = np.isin(numbers, np.fromiter(self._rivals, dtype=np.int64, count=len(self._rivals)))
        found: Ints = numbers[alive & ~never & (~left | kept)]
        return found

    def at_once(self, rows: Ints) -> tuple[Bools, list[Step]]:
        """Rows that can be judged together, and the filters with books that have to be asked for that: the others let
        the pod in as it is, and would with fewer pods, too."""
        none: Bools = np.zeros(len(rows), dtype=np.bool_)
        if self._blocked:
            return none, []
        if not self._by_books:
            return ~none, []
        if self._footprint.unlisted:
            return none, []
        able: Bools = np.array([row not in self._rivals for row in rows.tolist()])
        window = Window.some(self._engine.cluster, rows)
        asked: list[Step] = []
        for step in self._by_books:
            plugin = step[0]
            alone = passes([step], window) if plugin.monotone else none
            if alone.all():
                continue
            if type(plugin).without is not FilterPlugin.without:
                asked.append(step)
            else:
                able &= alone
        return able, asked

    def rivals_take(self, rows: Ints) -> Floats | float:
        """What pods that are nominated to ``rows`` and not to be overtaken take there."""
        if not self._rivals:
            return 0.0
        return taken(self._engine.cluster, rows, [self._rivals.get(row, ()) for row in rows.tolist()])

    def fits(self, row: int) -> bool:
        """Whether the pod fits on a row as the books are, also with those who are nominated there."""
        if self._blocked and self._engine.prefiltered(self.program) is not None:
            return False
        alone, rivals = not self._engine.nominated.only_beside, self._rivals.get(row, ())
        return fits(self._engine, self.program, self._footprint, row, rivals, alone=alone)

    # Texts ----------------------------------------------------------------------------------------------------------

    def refused(self, row: int) -> None:
        """Remember why a row refuses as the books are now."""
        rows = np.array([row])
        with beside(self._engine, self._rivals.get(row, ())):
            [self._refused[row]] = self._first_texts(Window.some(self._engine.cluster, rows), None, None)

    def remember(self, rows: Ints, window: Window, trial: Trial | None, gone: Bools) -> None:
        """Some of ``rows`` refuse in ``window`` when those are ``gone`` whom the ``trial`` is about; why is found when
        somebody asks."""
        self._untold.append((rows, window, trial, gone))

    def texts(self, rows: Ints, fits: Bools, change: Floats, victims: Bools, lower: Lower) -> Counter[str]:
        """Why each row does not become a candidate; a node with several reasons counts under each.

        ``fits``: rows that have the room, once their ``victims`` are gone, which is ``change`` in amounts.
        """
        found: Counter[str] = Counter()
        found[NO_VICTIMS] += int((~victims).sum())
        some = victims & ~fits
        short = rows[some]
        if len(short):
            window = window_with(self._engine.cluster, short, change[:, some])
            trial, gone = self._all_gone(short, lower)
            for texts in self._first_texts(window, trial, gone):
                found.update(texts or [NO_VICTIMS])
        for told, window, trial, gone in self._untold:
            self._refused.update(zip(told.tolist(), self._first_texts(window, trial, gone), strict=True))
        self._untold.clear()
        for row in rows[victims & fits].tolist():
            found.update(self._refused.get(row) or [NO_VICTIMS])
        return found

    def _all_gone(self, rows: Ints, lower: Lower) -> tuple[Trial | None, Bools | None]:
        """The filters with books that refuse some of ``rows``, as they would be without all lower pods."""
        window = Window.some(self._engine.cluster, rows)
        asked = [
            step
            for step in self._by_books
            if type(step[0]).without is not FilterPlugin.without and not passes([step], window).all()
        ]
        if not asked or self._footprint.unlisted:
            return None, None
        pods = [lower(row) for row in rows.tolist()]
        gone: Bools = np.zeros((len(rows), max(map(len, pods))), dtype=np.bool_)
        for index, some in enumerate(pods):
            gone[index, : len(some)] = True
        return Trial(asked, rows, pods), gone

    def _first_texts(self, window: Window, trial: Trial | None, gone: Bools | None) -> list[list[str]]:
        """Per row of the window, what the first filter that refuses it says."""
        found: list[list[str]] = [[] for _ in range(window.size)]
        left: Bools = np.ones(window.size, dtype=np.bool_)
        for plugin, terms in self.program.steps:
            refused: Bools = np.zeros(window.size, dtype=np.bool_)
            told = None if trial is None or gone is None else trial.reasons(plugin, gone, window)
            for reason in reasons(plugin, terms, window) if told is None else told:
                for index in np.flatnonzero(reason.rows & left).tolist():
                    found[index].append(reason.text)
                refused |= reason.rows
            left &= ~refused
        return found
