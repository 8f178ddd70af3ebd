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
from collections.abc import Sequence

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.diagnosis import fit_error
from koord.scheduler.engine.fewrows import rows_of
from koord.scheduler.engine.nominated import (
    Rivals,
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
from koord.scheduler.preemption.candidates import Candidate, cheapest, costs, wanted
from koord.scheduler.preemption.standing import Standing

PREFIX = "preemption: "
HELPLESS = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
NEVER = f"{PREFIX}not eligible due to preemptionPolicy=Never."
TERMINATING = f"{PREFIX}not eligible due to a terminating pod on the nominated node."

_REMEMBERED = 1024
_CELLS = 2_000_000
"""Amounts of pods that are looked at together at most."""

Steps = Sequence[tuple[FilterPlugin, Terms]]


def fits_unmasked(engine: Engine, pod: PodInfo) -> bool:
    """Whether the pod only lacks what the ledger says of some node for a moment: nobody has to go for that."""
    rows, excess = engine.cluster.masked()
    if not len(rows):
        return False
    window = window_with(engine.cluster, rows, excess)
    ok: Bools = engine.cluster.alive[rows]
    program = pod.class_.compiled(engine.cluster, engine.verdicts)
    if program.names is not None:
        ok &= np.isin(rows, rows_of(engine.cluster, program.names))
    for plugin, terms in program.steps:
        ok &= plugin.filter(terms, window)
    return bool(ok.any())


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
        self._hopeless: dict[int, tuple[Program, tuple[int, ...], str]] = {}

    def find(self, pod: PodInfo) -> Candidate | str:
        """The node to take pods from, or why there is none (with its prefix). PluginError: a plugin raised.

        That there is none is remembered for the class until anything changes: of many equal pods one is looked at.
        """
        if pod.class_.template.spec.preemption_policy == "Never":
            return NEVER
        program = pod.class_.compiled(self._engine.cluster, self._engine.verdicts)
        if self._nominated.node_of(pod.uid):
            return self._find(pod, program)
        key, position = id(pod.class_), self._position()
        kept = self._hopeless.get(key)
        if kept is not None and kept[0] is program and kept[1] == position:
            return kept[2]
        found = self._find(pod, program)
        if isinstance(found, str):
            if len(self._hopeless) >= _REMEMBERED:
                self._hopeless.clear()
            self._hopeless[key] = (program, self._position(), found)
        return found

    def _position(self) -> tuple[int, ...]:
        cluster, books = self._engine.cluster, self._engine
        return (
            cluster.journal.end,
            cluster.node_journal.end,
            books.retold.end,
            self._nominated.version,
            self._budgets.version,
        )

    def _find(self, pod: PodInfo, program: Program) -> Candidate | str:
        if self._engine.prefiltered(program) is not None:
            return self._message(Counter(), 0)
        attempt = _Attempt(self._engine, program, pod, self._nominated.rivals(pod.uid, pod.priority))
        rows = attempt.possible()
        node = self._nominated.node_of(pod.uid)
        if node and self._waits(node, rows, pod.priority):
            return TERMINATING
        if not len(rows):
            return self._message(Counter(), 0)
        enough = wanted(len(rows), self._percentage, self._absolute)
        rows = np.roll(rows, -self._chance.randrange(len(rows)))
        self._standing.refresh()
        gain = self._standing.gain(pod.priority, rows)
        change = gain - attempt.rivals_take(rows)
        victims = self._standing.counts(pod.priority, rows, gain) > 0
        fits = victims & attempt.passes(attempt.by_amounts, window_with(self._engine.cluster, rows, change))
        best = self._best(attempt, rows[fits], pod.priority, enough)
        return best or self._message(attempt.texts(rows, fits, change, victims), len(rows))

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

    def _best(self, attempt: "_Attempt", rows: Ints, priority: int, enough: int) -> Candidate | None:
        """The cheapest of about ``enough`` candidates among ``rows``, looked for in their order."""
        found: list[Candidate] = []
        count, sound, start = 0, False, 0
        while start < len(rows) and (count < enough or not sound):
            some = rows[start : start + max(enough - count, 1)]
            most = max(len(self._standing.on(row).pods) for row in some.tolist())
            some = some[: max(1, _CELLS // max(1, most * len(self._engine.cluster.usage)))]
            start += len(some)
            at_once = attempt.judged_by_amounts(some)
            if at_once.any():
                candidates, one, unbroken = self._judged(attempt, some[at_once], priority)
                count += candidates
                sound = sound or unbroken
                found += [] if one is None else [one]
            for row in some[~at_once].tolist():
                one = self._tried(attempt, row, priority)
                if one is not None:
                    count += 1
                    sound = sound or not one.violating
                    found.append(one)
        return cheapest(found) if found else None

    # All rows at once -----------------------------------------------------------------------------------------------

    def _judged(self, attempt: "_Attempt", rows: Ints, priority: int) -> tuple[int, Candidate | None, bool]:
        """Of ``rows``, where amounts decide: how many are candidates, the cheapest, whether any breaks no budget."""
        cluster, count = self._engine.cluster, len(rows)
        on = [self._standing.on(row) for row in rows.tolist()]
        first = [pods.below(priority) for pods in on]
        lengths: Ints = np.array([len(pods.pods) for pods in on]) - np.array(first)
        depth = int(lengths.max())
        # Where each pod stands in its row, in the order in which they are given back.
        at_row: Ints = np.repeat(np.arange(count), lengths)
        at: Ints = np.arange(len(at_row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        beyond: Bools = np.zeros((count, depth), dtype=np.bool_)
        orders: dict[int, list[int]] = {}
        if self._budgets:
            for index, (pods, begin) in enumerate(zip(on, first, strict=True)):
                flags = self._budgets.violated(pods.pods[begin:])
                if any(flags):
                    order = orders[index] = _violating_first(flags)
                    beyond[index, : sum(flags)] = True
                    back = np.argsort(order)
                    at[at_row == index] = back
        amounts: Floats = np.zeros((count, depth, len(cluster.usage)))
        amounts[at_row, at] = np.concatenate([pods.vectors[begin:] for pods, begin in zip(on, first, strict=True)])
        there: Bools = np.zeros((count, depth), dtype=np.bool_)
        there[at_row, at] = True
        free = cluster.usage.take(rows, axis=1) + amounts.sum(axis=1).T - attempt.rivals_take(rows)
        allocatable = cluster.allocatable.take(rows, axis=1)
        steps = attempt.amounts_steps
        fits = attempt.passes(steps, Window(cluster, rows, count, free, allocatable))
        if not fits.all():  # the screen promised more than there is
            short = ~fits
            kept = Window(cluster, rows[short], int(short.sum()), free[:, short], allocatable[:, short])
            attempt.remember(rows[short], kept)
        gone = there & fits[:, None]
        for level in range(depth):
            with_it = free - amounts[:, level].T
            stays = attempt.passes(steps, Window(cluster, rows, count, with_it, allocatable)) & there[:, level]
            free = np.where(stays, with_it, free)
            gone[:, level] &= ~stays
        able = np.flatnonzero(gone.any(axis=1))
        if not len(able):
            return 0, None, False
        priorities: Ints = np.zeros((count, depth), dtype=np.int64)
        priorities[at_row, at] = np.concatenate([p.priorities[begin:] for p, begin in zip(on, first, strict=True)])
        starts: Floats = np.zeros((count, depth))
        starts[at_row, at] = np.concatenate([p.starts[begin:] for p, begin in zip(on, first, strict=True)])
        ranked = able[costs(gone[able], priorities[able], starts[able], beyond[able])]
        best = int(ranked[0])
        pods, begin = on[best], first[best]
        order = orders.get(best, list(range(int(lengths[best]))))
        indices = {order[level] for level in np.flatnonzero(gone[best]).tolist()}
        flags = self._budgets.violated(pods.pods[begin:])
        one = _candidate(cluster.index.name(int(rows[best])), pods.pods[begin:], flags, indices)
        return len(able), one, bool((~(gone & beyond)[able].any(axis=1)).any())

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

    def __init__(self, engine: Engine, program: Program, pod: PodInfo, rivals: Rivals) -> None:
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

    def judged_by_amounts(self, rows: Ints) -> Bools:
        """Rows where amounts alone decide who has to go: whatever keeps books lets the pod in as it is, and would
        with fewer pods, too."""
        if not self._by_books:
            return np.ones(len(rows), dtype=np.bool_)
        if self._footprint.unlisted or not all(plugin.monotone for plugin, _ in self._by_books):
            return np.zeros(len(rows), dtype=np.bool_)
        alone: Bools = np.array([row not in self._rivals for row in rows.tolist()])
        return alone & self.passes(self._by_books, Window.some(self._engine.cluster, rows))

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
        return fits(self._engine, self.program, self._footprint, row, self._rivals.get(row, ()))

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
