"""The search for victims: DefaultPreemption as upstream does it (spec 10 section 3.15), vectorised where it can be.

The engine is the oracle. Where amounts and node objects alone decide, all candidate rows are judged at once, pod by pod
of each row: take all lower pods away, then give them back in their order as long as the preemptor still fits. Where a
filter keeps books on pods (ports, spreading, affinity, volumes), rows that pass that screen are tried for real, one
after the other: the pods leave the books and come back, exactly as they were.

Upstream looks at nodes from a random offset on and stops when it has enough candidates; so does this. It never stops
while every candidate breaks a disruption budget.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.diagnosis import fit_error
from koord.scheduler.engine.fewrows import rows_of
from koord.scheduler.engine.nominated import (
    Rivals,
    amounts_only,
    beside,
    first_reasons,
    fits,
    keeps_books,
    reasons,
    taken,
    window_with,
)
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import AssignedPod, FilterPlugin, PluginError, Terms
from koord.scheduler.preemption.budgets import Budgets
from koord.scheduler.preemption.candidates import Candidate, cheapest, wanted
from koord.scheduler.preemption.standing import Standing

PREFIX = "preemption: "
HELPLESS = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NEVER = f"{PREFIX}not eligible due to preemptionPolicy=Never."
TERMINATING = f"{PREFIX}not eligible due to a terminating pod on the nominated node."

_CELLS = 2_000_000
"""Amounts of pods that are looked at together at most."""

Steps = Sequence[tuple[FilterPlugin, Terms]]


class Search:
    """Looks for victims on the nodes of ``engine``. ``percentage`` and ``absolute``: how many candidates are enough."""

    def __init__(
        self,
        engine: Engine,
        budgets: Budgets,
        *,
        percentage: int = 10,
        absolute: int = 100,
        seed: str = "",
    ) -> None:
        self._engine = engine
        self._nominated = engine.nominated
        self._budgets = budgets
        self._percentage = percentage
        self._absolute = absolute
        self._chance = random.Random(f"preemption/{seed}")
        self._standing = Standing(engine)

    def find(self, pod: PodInfo) -> Candidate | str:
        """The node to take pods from, or why there is none (with its prefix). PluginError: a plugin raised."""
        if pod.class_.template.spec.preemption_policy == "Never":
            return NEVER
        program = pod.class_.compiled(self._engine.cluster, self._engine.verdicts)
        if self._engine.prefiltered(program) is not None:
            return self._message(Counter(), 0)
        attempt = _Attempt(self._engine, program, self._nominated.rivals(pod.uid, pod.priority))
        rows = attempt.possible()
        node = self._nominated.node_of(pod.uid)
        if node and self._waits(node, rows, pod.priority):
            return TERMINATING
        if not len(rows):
            return self._message(Counter(), 0)
        enough = wanted(len(rows), self._percentage, self._absolute)
        rows = np.roll(rows, -self._chance.randrange(len(rows)))
        self._standing.refresh()
        fits, removed = self._screen(attempt, rows, pod.priority)
        found: list[Candidate] = []
        sound = False
        for candidate in self._candidates(attempt, rows[fits], pod.priority, enough):
            found.append(candidate)
            sound = sound or not candidate.violating
            if len(found) >= enough and sound:
                break
        if found:
            return cheapest(found)
        return self._message(
            attempt.texts(rows, fits, removed, self._standing.counts(pod.priority, rows) > 0), len(rows)
        )

    def _message(self, texts: Counter[str], tried: int) -> str:
        total = len(self._engine.cluster)
        texts[HELPLESS] += total - tried
        return PREFIX + fit_error(total, texts.items())

    def _waits(self, node: str, rows: Ints, priority: int) -> bool:
        """Whether a pod that has to go for it still stands on the nominated node, and the node may yet do."""
        row = self._engine.cluster.index.find(node)
        if row is None or row not in rows.tolist():
            return False
        return any(pod.terminating and pod.priority < priority for pod in self._engine.pods_on(node))

    def _screen(self, attempt: "_Attempt", rows: Ints, priority: int) -> tuple[Bools, Floats]:
        """Rows with lower pods that could do without all of them, by amounts; and what they gain, rivals taken off."""
        change = self._standing.gain(priority, rows) - attempt.rivals_take(rows)
        fits = attempt.passes(attempt.by_amounts, window_with(self._engine.cluster, rows, change))
        return fits & (self._standing.counts(priority, rows) > 0), change

    def _candidates(self, attempt: "_Attempt", rows: Ints, priority: int, enough: int) -> Iterator[Candidate]:
        if not amounts_only(attempt.program):
            for row in rows.tolist():
                candidate = self._tried(attempt, row, priority)
                if candidate is not None:
                    yield candidate
            return
        start = 0
        while start < len(rows):
            some = rows[start : start + enough]
            most = max(len(self._standing.on(row).pods) for row in some.tolist())
            some = some[: max(1, _CELLS // max(1, most * len(self._engine.cluster.usage)))]
            start += len(some)
            yield from self._judged(attempt, some, priority)

    # All rows at once -----------------------------------------------------------------------------------------------

    def _judged(self, attempt: "_Attempt", rows: Ints, priority: int) -> Iterator[Candidate]:
        """Candidates among ``rows`` where amounts decide."""
        cluster = self._engine.cluster
        pods: list[list[AssignedPod]] = []
        flags: list[list[bool]] = []
        lengths = np.zeros(len(rows), dtype=np.int64)
        orders: list[tuple[Floats, list[int]]] = []
        for index, row in enumerate(rows.tolist()):
            on = self._standing.on(row)
            first = on.below(priority)
            lower = on.pods[first:]
            beyond = self._budgets.violated(lower)
            order = _violating_first(beyond)
            pods.append(lower)
            flags.append(beyond)
            lengths[index] = len(lower)
            orders.append((on.vectors[first:], order))
        depth = int(lengths.max(initial=0))
        amounts: Floats = np.zeros((len(rows), depth, len(cluster.usage)))
        for index, (vectors, order) in enumerate(orders):
            amounts[index, : len(order)] = vectors[order] if any(flags[index]) else vectors
        free = cluster.usage.take(rows, axis=1) + amounts.sum(axis=1).T - attempt.rivals_take(rows)
        allocatable = cluster.allocatable.take(rows, axis=1)
        steps = [step for step in attempt.program.steps if step[0].filter_locality != "node"]
        fits = attempt.passes(steps, Window(cluster, rows, len(rows), free, allocatable))
        if not fits.all():  # the screen promised more than there is
            short = ~fits
            kept = Window(cluster, rows[short], int(short.sum()), free[:, short], allocatable[:, short])
            attempt.remember(rows[short], kept)
        stays: Bools = np.zeros((depth, len(rows)), dtype=np.bool_)
        for level in range(depth):
            with_it = free - amounts[:, level].T
            stay = attempt.passes(steps, Window(cluster, rows, len(rows), with_it, allocatable)) & (level < lengths)
            free = np.where(stay, with_it, free)
            stays[level] = stay
        for index in np.flatnonzero(fits).tolist():
            order = orders[index][1]
            gone = {order[level] for level in range(len(order)) if not stays[level, index]}
            candidate = _candidate(cluster.index.name(int(rows[index])), pods[index], flags[index], gone)
            if candidate is not None:
                yield candidate

    # One row for real -----------------------------------------------------------------------------------------------

    def _tried(self, attempt: "_Attempt", row: int, priority: int) -> Candidate | None:
        """The candidate of one row, tried on the books themselves; they are as before when this returns or raises."""
        engine = self._engine
        on = self._standing.on(row)
        lower = on.pods[on.below(priority) :]
        beyond = self._budgets.violated(lower)
        gone = set(range(len(lower)))
        try:
            for pod in lower:
                engine.uncount(pod.ref.uid)
            if not attempt.fits(row):
                attempt.refused(row)
                return None
            for index in _violating_first(beyond):
                engine.count(lower[index])
                gone.discard(index)
                if not attempt.fits(row):
                    engine.uncount(lower[index].ref.uid)
                    gone.add(index)
        finally:
            for pod in lower:
                if engine.counted(pod.ref.uid) is None:
                    engine.count(pod)
        return _candidate(engine.cluster.index.name(row), lower, beyond, gone)


def _violating_first(beyond: Sequence[bool]) -> list[int]:
    """The order in which pods are given back: first those that a budget has no room for."""
    return sorted(range(len(beyond)), key=lambda index: not beyond[index])


def _candidate(
    node: str | None, pods: Sequence[AssignedPod], beyond: Sequence[bool], gone: set[int]
) -> Candidate | None:
    if node is None or not gone:
        return None
    victims = tuple(pods[index] for index in sorted(gone))
    return Candidate(node, victims, frozenset(pods[index].ref.uid for index in gone if beyond[index]))


class _Attempt:
    """What is asked again and again while one pod's victims are looked for."""

    def __init__(self, engine: Engine, program: Program, rivals: Rivals) -> None:
        self._engine = engine
        self.program = program
        self.by_amounts = [step for step in program.steps if not keeps_books(step[0])]
        self._rivals = rivals
        self._refused: dict[int, list[str]] = {}

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
        # A row that passes by itself is a candidate only if it is kept for others.
        kept: Bools = np.isin(numbers, np.fromiter(self._rivals, dtype=np.int64, count=len(self._rivals)))
        found: Ints = numbers[alive & ~never & (~left | kept)]
        return found

    def rivals_take(self, rows: Ints) -> Floats | float:
        """What pods that are nominated to ``rows`` and not to be overtaken take there."""
        if not self._rivals:
            return 0.0
        return taken(self._engine.cluster, rows, [self._rivals.get(row, ()) for row in rows.tolist()])

    def passes(self, steps: Steps, window: Window) -> Bools:
        """Rows of the window that pass all of ``steps``."""
        ok: Bools = np.ones(window.size, dtype=np.bool_)
        for plugin, terms in steps:
            try:
                ok &= plugin.filter(terms, window)
            except Exception as error:
                raise PluginError(plugin.name, "Filter", error) from error
        return ok

    def fits(self, row: int) -> bool:
        """Whether the pod fits on a row as the books are, also with those who are nominated there."""
        return fits(self._engine, self.program, row, self._rivals.get(row, ()))

    def refused(self, row: int) -> None:
        """Remember why a row refuses as the books are now."""
        rows = np.array([row])
        with beside(self._engine, self._rivals.get(row, ())):
            self.remember(rows, Window.some(self._engine.cluster, rows))

    def remember(self, rows: Ints, window: Window) -> None:
        """Remember why ``rows`` refuse in ``window``."""
        for row, found in zip(rows.tolist(), first_reasons(self.program, window), strict=True):
            self._refused[row] = [text for _, text in found]

    def texts(self, rows: Ints, fits: Bools, change: Floats, victims: Bools) -> Counter[str]:
        """Why each row does not become a candidate; a node with several reasons counts under each."""
        found: Counter[str] = Counter()
        found[NO_VICTIMS] += int((~victims).sum())
        short = rows[victims & ~fits]
        if len(short):
            window = window_with(self._engine.cluster, short, change[:, victims & ~fits])
            for refused in first_reasons(self.program, window):
                found.update([text for _, text in refused] or [NO_VICTIMS])
        for row in rows[victims & fits].tolist():
            found.update(self._refused.get(row) or [NO_VICTIMS])
        return found
