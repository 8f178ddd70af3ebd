"""The search for victims: DefaultPreemption as upstream does it (spec 10 section 3.15), vectorised where it can be.

The engine is the oracle. All candidate rows are judged at once, pod by pod of each row: take all lower pods away, then
give them back in their order as long as the preemptor still fits. Amounts are windows that are made up, and filters
that keep books on pods say what they would say without some of them (``FilterPlugin.without``); no book is touched.
Only where one cannot tell that, rows that pass the screen of the amounts are tried for real, one after the other: the
pods leave the books and come back, exactly as they were.

Upstream looks at nodes from a random offset on and stops when it has enough candidates; so does this. It never stops
while every candidate breaks a disruption budget.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.diagnosis import fit_error
from koord.scheduler.engine.fewrows import rows_of
from koord.scheduler.engine.nominated import window_with
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import AssignedPod
from koord.scheduler.preemption.attempt import HELPLESS, NO_VICTIMS, Attempt, Step, Trial, passes
from koord.scheduler.preemption.budgets import Budgets
from koord.scheduler.preemption.candidates import Candidate, cheapest, cost, costs, wanted
from koord.scheduler.preemption.standing import Standing

PREFIX = "preemption: "
NEVER = f"{PREFIX}not eligible due to preemptionPolicy=Never."
TERMINATING = f"{PREFIX}not eligible due to a terminating pod on the nominated node."

_REMEMBERED = 1024
_CELLS = 2_000_000
"""Amounts of pods that are looked at together at most."""
_WIDEST = 16


def fits_unmasked(engine: Engine, pod: PodInfo) -> bool:
    """Whether the pod only lacks what the ledger says of some node for a moment: nobody has to go for that.

    PluginError: a plugin raised.
    """
    rows, excess = engine.cluster.masked()
    if not len(rows):
        return False
    window = window_with(engine.cluster, rows, excess)
    ok: Bools = engine.cluster.alive[rows]
    program = pod.class_.compiled(engine.cluster, engine.verdicts)
    if engine.prefiltered(program) is not None:
        return False
    if program.names is not None:
        ok &= np.isin(rows, rows_of(engine.cluster, program.names))
    return bool((ok & passes(program.steps, window)).any())


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

        That there is none is remembered for the class until anything changes: of many equal pods one is looked at. What
        PreFilter plugins refuse is not: what they say may change without anything else (a quota's share).
        """
        if pod.class_.template.spec.preemption_policy == "Never":
            return NEVER
        program = pod.class_.compiled(self._engine.cluster, self._engine.verdicts)
        if self._nominated.node_of(pod.uid) or self._engine.prefiltered(program) is not None:
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

    def find_all(self, pod: PodInfo) -> list[Candidate] | str:
        """As :meth:`find`, with all candidates that were looked at, the cheapest first."""
        if pod.class_.template.spec.preemption_policy == "Never":
            return NEVER
        program = pod.class_.compiled(self._engine.cluster, self._engine.verdicts)
        every: list[Candidate] = []
        found = self._find(pod, program, every)
        return found if isinstance(found, str) else sorted(every, key=cost)

    def _position(self) -> tuple[int, ...]:
        cluster, books = self._engine.cluster, self._engine
        return (
            cluster.journal.end,
            cluster.node_journal.end,
            books.retold.end,
            self._nominated.version,
            self._budgets.version,
        )

    def _find(self, pod: PodInfo, program: Program, every: list[Candidate] | None = None) -> Candidate | str:
        blocked = self._engine.prefiltered(program) is not None
        if blocked and (hopeless := self._blocked(program)) is not None:
            return hopeless
        rivals = self._nominated.rivals(pod.uid, pod.priority)
        attempt = Attempt(self._engine, program, pod, rivals, blocked=blocked)
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
        fits = victims & passes(attempt.by_amounts, window_with(self._engine.cluster, rows, change))
        best = self._best(attempt, rows[fits], pod.priority, enough, every)
        if best is not None:
            return best
        return self._message(attempt.texts(rows, fits, change, victims, self._lower(pod.priority)), len(rows))

    def _blocked(self, program: Program) -> str | None:
        """What is said of a pod that PreFilter refuses as a whole; None: without some pods it may not."""
        helped = True
        for plugin, terms in program.prefilters:
            if plugin.prefilter(terms) is not None:
                if not plugin.prefilter_resolvable:
                    return self._message(Counter(), 0)
                helped &= plugin.prefilter_in_trials
        if helped:
            return None
        cluster = self._engine.cluster
        total = len(cluster) if program.names is None else len(rows_of(cluster, program.names))
        return self._message(Counter({NO_VICTIMS: total}), total)

    def _lower(self, priority: int) -> Callable[[int], Sequence[AssignedPod]]:
        """The pods of a row that may go, most important first."""

        def lower(row: int) -> Sequence[AssignedPod]:
            on = self._standing.on(row)
            return on.pods[on.below(priority) :]

        return lower

    def _message(self, texts: Counter[str], tried: int) -> str:
        total = len(self._engine.cluster)
        texts[HELPLESS] += total - tried
        return PREFIX + fit_error(total, texts.items())

    def _waits(self, node: str, rows: Ints, priority: int) -> bool:
        """Whether a pod that a scheduler asked to go still stands on the nominated node, and the node may yet do."""
        row = self._engine.cluster.index.find(node)
        if row is None or row not in rows.tolist():
            return False
        return any(pod.preempted and pod.priority < priority for pod in self._engine.pods_on(node))

    def _best(
        self, attempt: Attempt, rows: Ints, priority: int, enough: int, every: list[Candidate] | None
    ) -> Candidate | None:
        """The cheapest of about ``enough`` candidates among ``rows``, looked for in their order; ``every`` one is added
        there."""
        found: list[Candidate] = []
        count, sound, start, wide = 0, False, 0, 1
        while start < len(rows) and (count < enough or not sound):
            before = count
            some = rows[start : start + max(enough - count, 1) * wide]
            most = max(len(self._standing.on(row).pods) for row in some.tolist())
            some = some[: max(1, _CELLS // max(1, most * len(self._engine.cluster.usage)))]
            start += len(some)
            at_once, asked = attempt.at_once(some)
            if at_once.any():
                candidates, one, unbroken = self._judged(attempt, some[at_once], priority, asked, every)
                count += candidates
                sound = sound or unbroken
                found += [] if one is None else [one]
            for row in some[~at_once].tolist():
                one = self._tried(attempt, row, priority)
                if one is not None:
                    count += 1
                    sound = sound or not one.violating
                    found.append(one)
                    if every is not None:
                        every.append(one)
            if at_once.all() and count == before:
                wide = min(2 * wide, _WIDEST)  # nearly all rows are asked in vain: more of them at a time
        return cheapest(found) if found else None

    # All rows at once -----------------------------------------------------------------------------------------------

    def _judged(
        self, attempt: Attempt, rows: Ints, priority: int, asked: Sequence[Step], every: list[Candidate] | None
    ) -> tuple[int, Candidate | None, bool]:
        """Of ``rows``, where amounts and ``asked`` decide: how many are candidates, the cheapest, whether any breaks no
        budget."""
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
        window = Window(cluster, rows, count, free, allocatable)
        fits = passes(steps, window)
        trial = None
        if asked:
            lower = [pods.pods[begin:] for pods, begin in zip(on, first, strict=True)]
            for index, order in orders.items():
                lower[index] = [lower[index][place] for place in order]
            trial = Trial(asked, rows, lower)
            fits &= trial.passes(there, window)
        if not fits.all():  # the screen promised more than there is
            attempt.remember(rows, window, trial, there)
        gone = there & fits[:, None]
        for level in range(depth):
            with_it = free - amounts[:, level].T
            window = Window(cluster, rows, count, with_it, allocatable)
            stays = passes(steps, window) & there[:, level]
            if trial is not None:
                fewer = gone.copy()
                fewer[:, level] = False
                stays &= trial.passes(fewer, window)
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

        def candidate(index: int) -> Candidate | None:
            pods, begin = on[index], first[index]
            order = orders.get(index, list(range(int(lengths[index]))))
            indices = {order[level] for level in np.flatnonzero(gone[index]).tolist()}
            flags = self._budgets.violated(pods.pods[begin:])
            return _candidate(cluster.index.name(int(rows[index])), pods.pods[begin:], flags, indices)

        one = candidate(int(ranked[0]))
        if every is not None:
            every += [made for index in ranked.tolist() if (made := candidate(index)) is not None]
        return len(able), one, bool((~(gone & beyond)[able].any(axis=1)).any())

    # One row for real -----------------------------------------------------------------------------------------------

    def _tried(self, attempt: Attempt, row: int, priority: int) -> Candidate | None:
        """The candidate of one row, tried on the books themselves; they are as before when this returns or raises."""
        engine = self._engine
        on = self._standing.on(row)
        lower = on.pods[on.below(priority) :]
        if not lower:
            return None
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
