"""Plugins planted for tests of the engine: one of each way that an answer can depend on the cluster.

A pod uses the ones that its annotation ``use`` names. Rows belong to three zones by their node's name.
"""

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.engine.cluster import Cluster, NodeInfo, RowColumn
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    Locality,
    NodePlugin,
    Plugin,
    PodRef,
    PreferPlugin,
    Reason,
    ReservePlugin,
    ScorePlugin,
    Template,
    Terms,
)

ZONES = 3


def zone_of(name: str) -> int:
    return int(name[1:]) % ZONES


class Planted(Plugin):
    """Uses itself for pods that name it; the part after ``:`` is its terms."""

    pod_keys: ClassVar[tuple[str, ...]] = ("use",)

    def attach(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def terms(self, template: Template, cluster: Cluster) -> Terms | None:
        for part in template.annotations.get("use", "").split():
            name, _, value = part.partition(":")
            if name == self.name:
                return int(value or 0)
        return None

    filter_terms = score_terms = reserve_terms = terms


class Counting(Planted, AssignPlugin, NodePlugin):
    """Counts pods per zone; ``version`` moves with each, and now and then for nothing."""

    def attach(self, cluster: Cluster) -> None:
        super().attach(cluster)
        self.zones = np.full(0, -1)
        self.per_zone = np.zeros(ZONES)
        self.version = 0

    def node_set(self, row: int, node: NodeInfo) -> None:
        if row >= len(self.zones):
            self.zones = np.concatenate((self.zones, np.full(row + 64 - len(self.zones), -1)))
        self.zones[row] = zone_of(node.name)

    def node_removed(self, row: int, name: str) -> None:
        self.zones[row] = -1

    def assigned(self, pod: AssignedPod) -> None:
        self.per_zone[zone_of(pod.node)] += 1
        self.version += 1

    def unassigned(self, pod: AssignedPod) -> None:
        self.per_zone[zone_of(pod.node)] -= 1
        self.version += 2

    def counts(self, window: Window) -> Floats:
        """Pods in the zone of each row."""
        zones = self.zones[: self.cluster.high][window.rows]
        counts: Floats = np.where(zones >= 0, self.per_zone[zones], 0.0)
        return counts


class Skew(Counting, FilterPlugin):
    """Terms: how many more pods than in the emptiest zone are allowed."""

    name: ClassVar[str] = "Skew"
    filter_locality: ClassVar[Locality] = "cluster"
    filter_terms = Planted.terms

    def filter(self, terms: Terms, window: Window) -> Bools:
        assert isinstance(terms, int)
        ok: Bools = self.counts(window) + 1 - self.per_zone.min() <= 1 + terms
        return ok

    def filter_version(self, terms: Terms) -> int:
        return self.version

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return [Reason("node(s) skewed", ~self.filter(terms, window))]


class Crowd(Counting, ScorePlugin):
    """Adds a score without normalising."""

    name: ClassVar[str] = "Crowd"
    score_locality: ClassVar[Locality] = "cluster"
    score_terms = Planted.terms

    def score(self, terms: Terms, window: Window) -> Floats:
        return np.minimum(100.0, 3 * self.counts(window))

    def score_version(self, terms: Terms) -> int:
        return self.version


class Empty(Crowd):
    """Normalised by the extremes over the feasible rows, the usual way."""

    name: ClassVar[str] = "Empty"
    normalized: ClassVar[bool] = True

    def score(self, terms: Terms, window: Window) -> Floats:
        return self.counts(window)

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        return np.floor((high - raw) * 100 / (high - low)) if high > low else np.full(len(raw), 100.0)


class Share(Crowd):
    """Final scores that depend on how many rows are feasible."""

    name: ClassVar[str] = "Share"
    normalized: ClassVar[bool] = True

    def final(self, terms: Terms, window: Window, feasible: Bools) -> Floats:
        share: Floats = np.floor(np.minimum(100.0, self.counts(window) * 100 / (1 + feasible.sum())))
        return share


class Slots(Planted, FilterPlugin, ScorePlugin, AssignPlugin, NodePlugin):
    """A column of its own: each pod takes one of ``7 + terms`` slots of its row."""

    name: ClassVar[str] = "Slots"
    filter_terms = Planted.terms
    score_terms = Planted.terms

    def attach(self, cluster: Cluster) -> None:
        super().attach(cluster)
        self.used: RowColumn = cluster.column()
        self.on: Counter[str] = Counter()

    def node_set(self, row: int, node: NodeInfo) -> None:
        self.used.data[row] = self.on[node.name]

    def node_removed(self, row: int, name: str) -> None:
        assert self.used.data[row] == 0

    def per_pod(self, terms: Terms) -> Mapping[RowColumn, float]:
        return {self.used: 1.0}

    def filter(self, terms: Terms, window: Window) -> Bools:
        assert isinstance(terms, int)
        ok: Bools = window.column(self.used) < 7 + terms
        return ok

    def score(self, terms: Terms, window: Window) -> Floats:
        return np.maximum(0.0, 100.0 - 9 * window.column(self.used))

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return [Reason("node(s) had no slot", ~self.filter(terms, window))]

    def assigned(self, pod: AssignedPod) -> None:
        self._add(pod.node, 1)

    def unassigned(self, pod: AssignedPod) -> None:
        self._add(pod.node, -1)

    def _add(self, node: str, count: int) -> None:
        self.on[node] += count
        row = self.cluster.index.find(node)
        if row is not None:
            self.used.data[row] += count


class Level(Slots):
    """The same column, as a normalised score whose extremes move; terms: fewest first."""

    name: ClassVar[str] = "Level"
    normalized: ClassVar[bool] = True

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return None

    def score(self, terms: Terms, window: Window) -> Floats:
        raw: Floats = window.column(self.used).copy()
        return raw

    def normalize(self, terms: Terms, raw: Floats, low: float, high: float) -> Floats:
        if terms:
            return Empty.normalize(self, terms, raw, low, high)  # type: ignore[arg-type]
        return np.floor((raw - low) * 100 / (high - low)) if high > low else np.zeros(len(raw))


class Flaky(Crowd):
    """Raises while it is broken."""

    name: ClassVar[str] = "Flaky"
    broken = False

    def score(self, terms: Terms, window: Window) -> Floats:
        if self.broken:
            raise RuntimeError("broken")
        return super().score(terms, window)


class Keys(Planted, ReservePlugin):
    """Gives a numbered key of the row; a row has ``terms`` of them, of which the filters know nothing."""

    name: ClassVar[str] = "Keys"
    reserve_terms = Planted.terms

    def attach(self, cluster: Cluster) -> None:
        super().attach(cluster)
        self.given: dict[str, tuple[int, int]] = {}
        self.taken_back = 0

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        assert isinstance(terms, int)
        free = set(range(terms)) - {key for where, key in self.given.values() if where == row}
        if not free:
            return "node(s) had no key"
        self.given[pod.uid] = (row, min(free))
        return Allocation({"key": str(min(free))})

    def unreserve(self, uid: str) -> None:
        self.taken_back += self.given.pop(uid, None) is not None


class Lockers(Keys):
    """The same; equal pods are placed in runs although their filters know nothing of it."""

    name: ClassVar[str] = "Lockers"

    def looks_ahead(self, terms: Terms) -> bool:
        return True


class Lots(Planted, FilterPlugin, ScorePlugin, ReservePlugin):
    """Gives each pod the next lot of its row, the larger the later; a row has ``10 + terms`` in all. Filter and Score
    look ahead."""

    name: ClassVar[str] = "Lots"
    filter_terms = score_terms = reserve_terms = Planted.terms

    def attach(self, cluster: Cluster) -> None:
        super().attach(cluster)
        self.given: dict[str, tuple[str, int]] = {}

    def looks_ahead(self, terms: Terms) -> bool:
        return True

    def used(self, node: str | None) -> int:
        return sum(size for where, size in self.given.values() if where == node)

    def rows(self, window: Window) -> list[int]:
        """What is used of each row of the window."""
        found: list[int] = []
        rows = np.arange(self.cluster.high)[window.rows].tolist()
        counts = [0.0] * len(rows) if window.counts is None else window.counts.tolist()
        for row, count in zip(rows, counts, strict=True):
            used = self.used(self.cluster.index.name(row))
            for _ in range(int(count)):
                used += used + 1
            found.append(used)
        return found

    def filter(self, terms: Terms, window: Window) -> Bools:
        assert isinstance(terms, int)
        return np.array([used + used + 1 <= 10 + terms for used in self.rows(window)], dtype=np.bool_)

    def score(self, terms: Terms, window: Window) -> Floats:
        return np.array([max(0.0, 90.0 - 7 * used) for used in self.rows(window)])

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return [Reason("node(s) had no lot", ~self.filter(terms, window))]

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        assert isinstance(terms, int)
        node = self.cluster.index.name(row)
        assert node is not None
        size = self.used(node) + 1
        if self.used(node) + size > 10 + terms:
            return "node(s) had no lot"
        self.given[pod.uid] = node, size
        self.cluster.touch(row)
        return Allocation({"lot": str(size)}, slots=(f"lot/{node}/{size}",))

    def unreserve(self, uid: str) -> None:
        node, _ = self.given.pop(uid, ("", 0))
        row = self.cluster.index.find(node)
        if row is not None:
            self.cluster.touch(row)


class Favourite(Planted, PreferPlugin):
    """Prefers two nodes."""

    name: ClassVar[str] = "Favourite"
    prefer_terms = Planted.terms

    def preferred_nodes(self, terms: Terms) -> tuple[str, ...]:
        return (f"n{terms}", "n1")


class Moody(Planted, FilterPlugin):
    """Terms that depend on more than the template; ``epoch`` moves when they may be others."""

    name: ClassVar[str] = "Moody"

    def __init__(self) -> None:
        self.epoch = 0
        self.parity: int | None = None

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return None if self.terms(template, cluster) is None else self.parity

    def filter(self, terms: Terms, window: Window) -> Bools:
        assert isinstance(terms, int)
        rows = np.arange(self.cluster.high)[window.rows]
        ok: Bools = rows % 2 == terms
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return [Reason("node(s) in no mood", ~self.filter(terms, window))]


def planted() -> list[Plugin]:
    """One of each."""
    return [
        Skew(),
        Crowd(),
        Empty(),
        Share(),
        Slots(),
        Level(),
        Flaky(),
        Keys(),
        Lockers(),
        Lots(),
        Favourite(),
        Moody(),
    ]
