"""The ranked rows of one class, kept and brought up to date row by row.

``keys[row]`` is -1 where a pod of the class cannot go, else total score and tie-break in one integer, so the best row
is one argmax. A refresh recomputes the rows that the journal names, through the same code as a full pass.

What does not depend on a row alone is a layer of its own over all rows, kept until it moves:

* a *gate* per filter of locality ``cluster`` and an *addend* per score of that kind: asked for all rows when the
  plugin's version moved; only rows whose answer is another one are ranked anew;
* a *mover* per normalised score: raw scores are kept, and if an extreme over the feasible rows moved, all rows are
  normalised anew;
* a *final* per normalised score of locality ``cluster``: asked for all rows when its version or what is feasible moved.
"""

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.cluster import TIE_BITS, Cluster
from koord.scheduler.engine.layers import Changed, Gate, Layer, finished, normalized, scored
from koord.scheduler.engine.outlines import ScoreStep
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import PluginError

INFEASIBLE = -1
_FEW = 64


class Evaluation:
    """Scored rows of one program without names. ``refresh`` before reading ``keys``."""

    __slots__ = (
        "_addends",
        "_capacity",
        "_constant",
        "_feasible",
        "_finals",
        "_gates",
        "_layers",
        "_local",
        "_movers",
        "_node_position",
        "_ok",
        "_partial",
        "_plain",
        "_position",
        "_shape",
        "_usage_filters",
        "full_passes",
        "keys",
        "program",
    )

    def __init__(self, program: Program) -> None:
        self.program = program
        self.keys: Ints = np.zeros(0, dtype=np.int64)
        self.full_passes = 0
        self._position = -1
        self._node_position = -1
        self._capacity = -1
        self._shape: tuple[tuple[bool, float], ...] = ()
        self._constant = 0.0
        self._usage_filters = [step for step in program.filters if step[0].filter_locality == "usage"]
        self._plain: list[ScoreStep] = []
        self._gates: list[Gate] = []
        self._addends: list[Layer] = []
        self._movers: list[Layer] = []
        self._finals: list[Layer] = []
        self._layers: list[Layer] = []
        self._local: Bools = np.zeros(0, dtype=np.bool_)
        self._ok: Bools = np.zeros(0, dtype=np.bool_)
        self._partial: Floats = np.zeros(0)
        self._feasible: Ints | None = None

    @property
    def row_by_row(self) -> bool:
        """Nothing but what comes to a row changes its key, so that rows may be looked ahead."""
        return not self._gates and not self._layers

    @property
    def width(self) -> int:
        """Bytes kept of each row."""
        return 8 + (0 if self.row_by_row else 10 + len(self._gates) + 16 * len(self._layers))

    def versions(self) -> tuple[int, ...]:
        """Those of the filters that depend on other rows. PluginError: one raised."""
        return tuple(gate.asked() for gate in self._gates)

    # Bringing up to date --------------------------------------------------------------------------------------------

    def refresh(self, cluster: Cluster) -> Ints:
        """Bring all rows up to date and answer ``keys`` of rows 0..high-1. PluginError: a plugin raised."""
        journal = cluster.journal
        same_size = self._capacity == len(cluster.alive)
        if same_size and self._position == journal.end and not self._moved():
            return self.keys[: cluster.high]
        rows = journal.since(self._position) if same_size else None
        everything = rows is None or len(rows) * 4 > cluster.high
        nodes_moved = self._node_position != cluster.node_journal.end or not same_size
        try:
            if nodes_moved and self._node_moved(cluster):
                everything = True
            window: Window | None = None
            if everything:
                self._begin(cluster)
                window = Window.full(cluster)
                self.full_passes += 1
            elif rows is not None and len(rows):
                window = Window.some(cluster, rows.copy() if len(rows) > 1 else np.repeat(rows, 2))
            if not self.row_by_row:
                self._combine(cluster, window, everything=everything, nodes_moved=nodes_moved)
            elif window is not None:
                ok, total = self._judge(window)
                self.keys[window.rows] = ranking_keys(cluster, window.rows, ok, total)
        except PluginError:
            self._position = -1  # what was brought half up to date is made from nothing next time
            raise
        self._node_position = cluster.node_journal.end
        self._position = journal.end
        return self.keys[: cluster.high]

    def once(self, cluster: Cluster) -> Ints | None:
        """As the first :meth:`refresh`, for a class of which there may be one pod alone: nothing is kept, and this is
        not to be asked again. None: not every key is a row's own matter. PluginError: a plugin raised."""
        if not self.program.row_local:
            return None
        self._node_moved(cluster)
        self._sort(len(cluster.alive))
        if not self.row_by_row:
            return None
        window = Window.full(cluster)
        ok, total = self._judge(window)
        return ranking_keys(cluster, window.rows, ok, total)

    def ahead(self, cluster: Cluster, footprint: Footprint, rows: Ints, counts: Floats) -> Ints:
        """Keys of ``rows[i]`` as they would be with ``counts[i]`` more pods of this class; only if ``row_by_row``."""
        window = Window.ahead(cluster, rows, footprint, counts, self.program.per_pod)
        ok, total = self._judge(window)
        return ranking_keys(cluster, rows, ok, total)

    def _moved(self) -> bool:
        """Whether a plugin says that its answers are others, though no row was touched."""
        return any(gate.asked() != gate.version for gate in self._gates) or any(
            layer.asked() != layer.version for layer in (*self._addends, *self._finals)
        )

    def _node_moved(self, cluster: Cluster) -> bool:
        """Nodes changed: bring what is kept of them up to date. True: the sort of some score is another one now."""
        program = self.program
        assert program.node_mask is not None, "a program with names has no evaluation of all rows"
        program.node_mask.refresh(cluster)
        for step in program.scores:
            if step.kept is not None:
                step.kept.refresh(cluster)
        shape = tuple((kept.uniform, float(kept.raw[0])) for step in program.scores if (kept := step.kept) is not None)
        moved = shape != self._shape
        self._shape = shape
        return moved

    def _begin(self, cluster: Cluster) -> None:
        """Sort the plugins, and make room for what is kept of rows, for the cluster as it is now."""
        capacity = len(cluster.alive)
        if capacity != self._capacity:
            self.keys = np.full(capacity, INFEASIBLE, dtype=np.int64)
            self._capacity = capacity
        self._sort(capacity)
        if not self.row_by_row:
            self._local = np.zeros(capacity, dtype=np.bool_)
            self._ok = np.zeros(capacity, dtype=np.bool_)
            self._partial = np.zeros(capacity)

    def _sort(self, capacity: int) -> None:
        """Sort the plugins into what is constant, what a row decides, and layers."""
        self._constant = 0.0
        self._plain = []
        self._gates = [Gate(step, capacity) for step in self.program.filters if step[0].filter_locality == "cluster"]
        self._addends, self._movers, self._finals = [], [], []
        for step in self.program.scores:
            plugin = step.plugin
            if plugin.score_locality == "cluster":
                if plugin.normalized:
                    self._finals.append(Layer(step, capacity, raw=False))
                else:
                    self._addends.append(Layer(step, capacity, raw=False))
            elif not plugin.normalized:
                self._plain.append(step)
            elif step.kept is not None and step.kept.uniform:
                raw = step.kept.raw[:1]
                if len(raw):
                    extreme = float(raw[0])
                    self._constant += step.weight * float(normalized(step, raw, extreme, extreme)[0])
            else:
                self._movers.append(Layer(step, capacity, raw=True))
        self._layers = [*self._addends, *self._movers, *self._finals]

    def _judge(self, window: Window) -> tuple[Bools, Floats]:
        """What rows decide alone: feasibility, and the score without layers."""
        program, rows = self.program, window.rows
        assert program.node_mask is not None, "a program with names has no evaluation of all rows"
        ok: Bools = program.node_mask.mask[rows]
        if isinstance(rows, slice):
            ok = ok.copy()
        name = ""
        timing = window.cluster.timing
        try:
            for plugin, terms in self._usage_filters:
                name = plugin.name
                begun = timing.begun() if timing.on else 0.0
                ok &= plugin.filter(terms, window)
                if begun:
                    timing.took(name, "Filter", begun)
        except Exception as error:
            raise PluginError(name, "Filter", error) from error
        total: Floats | None = None
        try:
            for step in self._plain:
                name = step.plugin.name
                begun = timing.begun() if timing.on else 0.0
                score = step.plugin.score(step.terms, window) if step.kept is None else step.kept.raw[rows]
                if begun and step.kept is None:
                    timing.took(name, "Score", begun)
                if step.weight != 1:
                    score = score * step.weight
                if total is None:
                    total = score + self._constant
                else:
                    total += score
        except Exception as error:
            raise PluginError(name, "Score", error) from error
        return ok, np.full(window.size, self._constant) if total is None else total

    # Layers ---------------------------------------------------------------------------------------------------------

    def _combine(self, cluster: Cluster, window: Window | None, *, everything: bool, nodes_moved: bool) -> None:
        """Bring the layers up to date and rank the rows that any of them, or ``window``, has changed."""
        high = cluster.high
        full = window if everything and window is not None else Window.full(cluster)
        changed = Changed(high, everything=everything)
        if window is not None:
            ok, total = self._judge(window)
            self._local[window.rows] = ok
            self._partial[window.rows] = total
            changed.add(window.rows)
        for gate in self._gates:
            version = gate.asked()
            if version != gate.version or nodes_moved:
                mask = gate.filtered(full)
                changed.differing(gate.mask[:high], mask)
                gate.mask[:high] = mask
                gate.version = version
        flipped = self._pass_gates(changed.rows) or everything
        if flipped:
            self._feasible = None
        for layer in self._addends:
            version = layer.asked()
            if version != layer.version or nodes_moved:
                self._replace(layer, scored(layer.step, full) * layer.step.weight, changed)
                layer.version = version
        for layer in self._movers:
            self._normalize_again(layer, window, changed, flipped=flipped)
        for layer in self._finals:
            version = layer.asked()
            if flipped or version != layer.version or nodes_moved:
                final = finished(layer.step, full, self._ok[:high])
                self._replace(layer, final * layer.step.weight, changed)
                layer.version = version
        rows = changed.rows
        if isinstance(rows, slice):
            sum_: Floats = self._partial[:high].copy()
            for layer in self._layers:
                sum_ += layer.final[:high]
            self.keys[:high] = ranking_keys(cluster, rows, self._ok[:high], sum_)
        elif len(rows):
            sum_ = self._partial[rows]
            for layer in self._layers:
                sum_ += layer.final[rows]
            self.keys[rows] = ranking_keys(cluster, rows, self._ok[rows], sum_)

    def _pass_gates(self, rows: slice | Ints) -> bool:
        """Feasibility of ``rows`` by all filters; whether that of any row is another one than before."""
        ok: Bools = self._local[rows]
        for gate in self._gates:
            ok = ok & gate.mask[rows]
        flipped = bool((self._ok[rows] != ok).any())
        if flipped:
            self._ok[rows] = ok
        return flipped

    def _normalize_again(self, layer: Layer, window: Window | None, changed: Changed, *, flipped: bool) -> None:
        """Raw scores of the window's rows, and the final ones of all rows that this changes."""
        step, high = layer.step, changed.high
        fresh = False
        if window is not None:
            raw = step.kept.raw[window.rows] if step.kept is not None else scored(step, window)
            fresh = bool((layer.raw[window.rows] != raw).any())
            layer.raw[window.rows] = raw
        if not fresh and not flipped:
            return
        low, top = self._extremes(layer.raw[:high])
        if changed.everything or (low, top) != (layer.low, layer.high):
            layer.low, layer.high = low, top
            self._replace(layer, normalized(step, layer.raw[:high], low, top) * step.weight, changed)
        elif fresh and window is not None:
            layer.final[window.rows] = normalized(step, layer.raw[window.rows], low, top) * step.weight

    def _replace(self, layer: Layer, final: Floats, changed: Changed) -> None:
        high = changed.high
        changed.differing(layer.final[:high], final)
        layer.final[:high] = final

    def _extremes(self, raw: Floats) -> tuple[float, float]:
        """Least and greatest of ``raw`` over the feasible rows; zeros without any."""
        if self._feasible is None:
            self._feasible = np.flatnonzero(self._ok[: len(raw)])
        if not len(self._feasible):
            return 0.0, 0.0
        if len(self._feasible) < len(raw):
            raw = raw.take(self._feasible)
        return float(raw.min()), float(raw.max())


def ranking_keys(cluster: Cluster, rows: slice | Ints, ok: Bools, total: Floats) -> Ints:
    """Total score and tie-break in one integer per row, -1 where it is not feasible."""
    keys: Ints = total.astype(np.int64)
    keys <<= TIE_BITS
    keys |= cluster.tie[rows]
    if len(ok) <= _FEW or not ok.all():  # of few rows it takes as long to look
        keys[~ok] = INFEASIBLE
    return keys
