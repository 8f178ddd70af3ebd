"""The ranked rows of one class, kept and brought up to date row by row.

``keys[row]`` is -1 where a pod of the class cannot go, else total score and tie-break in one integer, so the best row
is one argmax. A refresh recomputes the rows that the journal names, through the same code as a full pass. Normalisation
is a stage of its own: raw scores are kept, and if an extreme over the feasible rows moved, all rows are done anew.
"""

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.classes import Program, ScoreStep
from koord.scheduler.engine.cluster import TIE_BITS, Cluster
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import PluginError

INFEASIBLE = -1


class _Mover:
    """A normalised plugin whose raw scores differ between rows: its extremes may move."""

    __slots__ = ("high", "low", "raw", "step")

    def __init__(self, step: ScoreStep, rows: int) -> None:
        self.step = step
        self.raw: Floats = np.zeros(rows)
        self.low = 0.0
        self.high = 0.0


class Evaluation:
    """Scored rows of one program. ``refresh`` before reading ``keys``."""

    __slots__ = (
        "_allowed",
        "_allowed_version",
        "_capacity",
        "_constant",
        "_movers",
        "_ok",
        "_partial",
        "_plain",
        "_position",
        "_shape",
        "full_passes",
        "keys",
        "program",
    )

    def __init__(self, program: Program) -> None:
        self.program = program
        self.keys: Ints = np.zeros(0, dtype=np.int64)
        self.full_passes = 0
        self._position = -1
        self._capacity = -1
        self._shape: tuple[tuple[bool, float], ...] = ()
        self._constant = 0.0
        self._plain: list[ScoreStep] = []
        self._movers: list[_Mover] = []
        self._ok: Bools = np.zeros(0, dtype=np.bool_)
        self._partial: Floats = np.zeros(0)
        self._allowed: Bools | None = None
        self._allowed_version = -1

    @property
    def fixed_extremes(self) -> bool:
        """No normalised score can move when rows fill up: looking ahead needs no second look."""
        return not self._movers

    def refresh(self, cluster: Cluster) -> Ints:
        """Bring all rows up to date and answer ``keys`` of rows 0..high-1. PluginError: a plugin raised."""
        journal = cluster.journal
        if self._position == journal.end and self._capacity == len(cluster.alive):
            return self.keys[: cluster.high]
        program = self.program
        program.node_mask.refresh(cluster)
        for step in program.scores:
            if step.kept is not None:
                step.kept.refresh(cluster)
        shape = tuple((kept.uniform, float(kept.raw[0])) for step in program.scores if (kept := step.kept) is not None)
        rows = journal.since(self._position)
        if (
            rows is None
            or self._capacity != len(cluster.alive)
            or shape != self._shape
            or not program.row_local
            or len(rows) * 4 > cluster.high
        ):
            self._begin(cluster)
            self._recompute(Window.full(cluster), everything=True)
            self._shape = shape
            self.full_passes += 1
        elif len(rows):
            self._recompute(Window.some(cluster, rows.copy()), everything=False)
        self._position = journal.end
        return self.keys[: cluster.high]

    def ahead(self, cluster: Cluster, footprint: Footprint, rows: Ints, counts: Floats) -> Ints:
        """Keys of ``rows[i]`` as they would be with ``counts[i]`` more pods of this class; needs fixed extremes."""
        window = Window.ahead(cluster, rows, footprint.vector, counts, self.program.per_pod)
        ok, total = self._judge(window)
        return _keys(cluster, window, ok, total)

    def feasible(self, cluster: Cluster) -> int:
        """How many rows can take a pod now."""
        return int((self.refresh(cluster) >= 0).sum())

    def score(self, row: int) -> int:
        """Total score of a feasible row."""
        return int(self.keys[row]) >> TIE_BITS

    def _begin(self, cluster: Cluster) -> None:
        """Sort the score plugins into constant, plain and moving ones, for the cluster as it is now."""
        capacity = len(cluster.alive)
        if capacity != self._capacity:
            self.keys = np.full(capacity, INFEASIBLE, dtype=np.int64)
            self._capacity = capacity
        self._constant = 0.0
        self._plain = []
        self._movers = []
        for step in self.program.scores:
            if not step.plugin.normalized:
                self._plain.append(step)
            elif step.kept is not None and step.kept.uniform:
                raw = step.kept.raw[:1]
                if len(raw):
                    extreme = float(raw[0])
                    final = step.plugin.normalize(step.terms, raw, extreme, extreme)
                    self._constant += step.weight * float(final[0])
            else:
                self._movers.append(_Mover(step, capacity))
        if self._movers:
            self._ok = np.zeros(capacity, dtype=np.bool_)
            self._partial = np.zeros(capacity)
        if self.program.names is not None:
            allowed = np.zeros(capacity, dtype=np.bool_)
            found = [row for name in self.program.names if (row := cluster.index.find(name)) is not None]
            allowed[found] = True
            self._allowed = allowed
            self._allowed_version = cluster.node_journal.end

    def _judge(self, window: Window) -> tuple[Bools, Floats]:
        """Feasibility and total score, less what movers add, of each row of the window."""
        program = self.program
        rows = window.rows
        ok: Bools = program.node_mask.mask[rows].copy()
        if self._allowed is not None:
            ok &= self._allow(window.cluster)[rows]
        name = ""
        try:
            for plugin, terms in program.filters:
                name = plugin.name
                ok &= plugin.filter(terms, window)
        except Exception as error:
            raise PluginError(name, "Filter", error) from error
        total = np.full(window.size, self._constant)
        try:
            for step in self._plain:
                name = step.plugin.name
                score = step.plugin.score(step.terms, window) if step.kept is None else step.kept.raw[rows]
                total += score * step.weight if step.weight != 1 else score
        except Exception as error:
            raise PluginError(name, "Score", error) from error
        return ok, total

    def _recompute(self, window: Window, *, everything: bool) -> None:
        cluster, rows = window.cluster, window.rows
        ok, total = self._judge(window)
        if not self._movers:
            self.keys[rows] = _keys(cluster, window, ok, total)
            return
        flipped = everything or bool((self._ok[rows] != ok).any())
        self._ok[rows] = ok
        self._partial[rows] = total
        high = cluster.high
        moved = everything
        for mover in self._movers:
            step = mover.step
            if step.kept is not None:
                raw = step.kept.raw[rows]
                # A node that got other labels has another score while it stays feasible.
                stale = flipped or bool((mover.raw[rows] != raw).any())
            else:
                try:
                    raw = step.plugin.score(step.terms, window)
                except Exception as error:
                    raise PluginError(step.plugin.name, "Score", error) from error
                stale = True
            mover.raw[rows] = raw
            if stale:
                feasible = mover.raw[:high][self._ok[:high]]
                low, top = (float(feasible.min()), float(feasible.max())) if len(feasible) else (0.0, 0.0)
                if (low, top) != (mover.low, mover.high):
                    mover.low, mover.high = low, top
                    moved = True
        if moved and not everything:
            window = Window.full(cluster)
            rows = window.rows
            ok, total = self._ok[rows], self._partial[rows]
        final = total.copy()
        for mover in self._movers:
            step = mover.step
            try:
                final += step.weight * step.plugin.normalize(step.terms, mover.raw[rows], mover.low, mover.high)
            except Exception as error:
                raise PluginError(step.plugin.name, "NormalizeScore", error) from error
        self.keys[rows] = _keys(cluster, window, ok, final)

    def _allow(self, cluster: Cluster) -> Bools:
        """Rows of the nodes that PreFilter plugins named; recomputed when nodes came or went."""
        assert self._allowed is not None and self.program.names is not None
        if self._allowed_version != cluster.node_journal.end:
            self._allowed[:] = False
            found = [row for name in self.program.names if (row := cluster.index.find(name)) is not None]
            self._allowed[found] = True
            self._allowed_version = cluster.node_journal.end
        return self._allowed


def _keys(cluster: Cluster, window: Window, ok: Bools, total: Floats) -> Ints:
    keys: Ints = total.astype(np.int64)
    keys <<= TIE_BITS
    keys |= cluster.tie[window.rows]
    keys[~ok] = INFEASIBLE
    return keys
