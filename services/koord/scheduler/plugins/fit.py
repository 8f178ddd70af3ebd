"""NodeResourcesFit: room for the pod, and how full the node would be. Spec 10 section 3.15, "Fit strategies"."""

import heapq
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, cast

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.config.rules import is_extended
from koord.scheduler.config.upstreamargs import NodeResourcesFitArgs
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.constants import same
from koord.scheduler.engine.resources import CPU, FIRST, MEMORY, NOWHERE, PODS
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, Reason, ScorePlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.rows import node_of, takes_now

NATIVE = ("cpu", "memory")
MAX_SCORE = 100.0
MOST_UNLISTED = 16
"""Names without a column, of one pod, of which users are told; those that no node offers come first."""


class ResourceWeight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A resource that counts in the score, 1..100."""

    name: str
    weight: int = 1


class ShapePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At ``utilization`` percent, in 0..100, a resource scores ``score``, in 0..10."""

    utilization: int
    score: int


class FitSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``strategy`` and the resources it looks at; extended ones count only for pods that request them.

    ``shape`` is for RequestedToCapacityRatio alone: points of ascending utilization, linear between them.
    ``ignored_resources`` and ``ignored_groups`` (what stands before the slash) are extended resources that the filter
    does not look at.
    """

    strategy: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = (
        ResourceWeight("cpu"),
        ResourceWeight("memory"),
        ResourceWeight("kubernetes.io/batch-cpu"),
        ResourceWeight("kubernetes.io/batch-memory"),
    )
    shape: tuple[ShapePoint, ...] = ()
    ignored_resources: tuple[str, ...] = ()
    ignored_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.strategy == "RequestedToCapacityRatio" and not self.shape:
            raise ValueError("fit.shape: RequestedToCapacityRatio needs at least one point")
        least = 0
        for index, point in enumerate(self.shape):
            if not least <= point.utilization <= 100:
                raise ValueError(f"fit.shape[{index}].utilization: {point.utilization} is not in {least}..100")
            if not 0 <= point.score <= 10:
                raise ValueError(f"fit.shape[{index}].score: {point.score} is not in 0..10")
            least = point.utilization + 1

    @classmethod
    def of(cls, args: NodeResourcesFitArgs) -> Self:
        """From the plugin's arguments in a KubeSchedulerConfiguration, checked and completed."""
        strategy = args.strategy
        ratio = strategy.requested_to_capacity_ratio
        return cls(
            cast(Any, strategy.type),
            tuple(ResourceWeight(resource.name, resource.weight) for resource in strategy.resources),
            tuple(ShapePoint(point.utilization, point.score) for point in ratio.shape) if ratio is not None else (),
            args.ignored_resources,
            args.ignored_resource_groups,
        )


class FitTerms(msgspec.Struct, frozen=True):
    """Requested resources: number, name and amount; the pod itself (``pods``: 1) comes first."""

    needs: tuple[tuple[int, str, float], ...]


class FitScoreTerms(msgspec.Struct, frozen=True, dict=True):
    """Per resource in the score: its number, what the pod adds, its weight."""

    parts: tuple[tuple[int, float, int], ...]
    weight: int

    @cached_property
    def natives(self) -> tuple[Floats, Floats | None] | None:
        """What is added to cpu and memory, and their weights (None: 1 each), as columns; None if other parts count."""
        if [number for number, _, _ in self.parts] != [-len(NATIVE), 1 - len(NATIVE)]:
            return None
        added = np.array([[amount] for _, amount, _ in self.parts])
        return added, None if self.weight == len(NATIVE) else np.array([[float(weight)] for _, _, weight in self.parts])


class NodeResourcesFit(FilterPlugin, ScorePlugin):
    """Filter: every request within what is free. Score: least or most allocated."""

    name: ClassVar[str] = "NodeResourcesFit"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (
            ClusterEvent.POD_DELETE,
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.LEDGER_RELEASE,
        )
    )

    def __init__(self, settings: FitSettings | None = None) -> None:
        self.settings = settings or FitSettings()
        self.ignores = bool(self.settings.ignored_resources or self.settings.ignored_groups)
        self._curve: Floats | None = None
        if self.settings.strategy == "RequestedToCapacityRatio":
            self._curve = curve(self.settings.shape)

    def attach(self, cluster: Cluster) -> None:
        """Keeps the cluster for its hint."""
        self._cluster = cluster

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Whether the node that it is about has room for the pod now."""
        name = node_of(subject)
        if name is None or template.footprint.unlisted or self.ignores:
            return takes_now(self, self._cluster, template, subject)
        row = self._cluster.index.find(name)
        if row is None:
            return False
        wanted = template.footprint.vector[FIRST:]
        free = self._cluster.usage[FIRST : FIRST + len(wanted), row]
        return bool(((free >= wanted) | (wanted == 0.0)).all())

    # Filter ---------------------------------------------------------------------------------------------------------

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """Everything requested above zero; names without a column last."""
        vector, unlisted = template.footprint.vector, template.footprint.unlisted
        numbers = np.flatnonzero(vector[FIRST:]).tolist()
        needs = [(n, cluster.resources[n], float(vector[FIRST + n])) for n in numbers]
        names: Iterable[str] = unlisted
        if self.ignores:
            needs = [need for need in needs if not self.ignored(need[1])]
            names = [name for name in unlisted if not self.ignored(name)]
        if unlisted:
            needs += [(NOWHERE, name, float(unlisted[name])) for name in sorted(names)]
        return FitTerms(tuple(needs))

    def ignored(self, name: str) -> bool:
        """Whether the filter does not look at a resource."""
        if not is_extended(name):
            return False
        return name in self.settings.ignored_resources or name.partition("/")[0] in self.settings.ignored_groups

    def filter(self, terms: Terms, window: Window) -> Bools:
        """Request ≤ free for every resource."""
        assert isinstance(terms, FitTerms)
        needs = terms.needs
        number, _, amount = needs[0]
        ok: Bools = window.free(number) >= amount
        for number, name, amount in needs[1:]:
            if number != NOWHERE:
                ok &= window.free(number) >= amount
            elif name in window.cluster.rare:
                ok &= window.unlisted(name)[0] >= amount
            else:
                return np.zeros(window.size, dtype=np.bool_)
        return ok

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """Every resource that is short is a reason; not resolvable where the node could never hold the request."""
        assert isinstance(terms, FitTerms)
        found: list[Reason] = []
        rare = window.cluster.rare
        unlisted = [need for need in terms.needs if need[0] == NOWHERE]
        few = heapq.nsmallest(MOST_UNLISTED, unlisted, key=lambda need: (need[1] in rare, need[1]))
        for number, name, amount in [*terms.needs[: len(terms.needs) - len(unlisted)], *few]:
            free, allocated = (
                window.unlisted(name) if number == NOWHERE else (window.free(number), window.allocated(number))
            )
            short: Bools = free < amount
            if not short.any():
                continue
            text = "Too many pods" if number == PODS else f"Insufficient {name}"
            never: Bools = short & (allocated < amount)
            if never.any():
                found.append(Reason(text, never, resolvable=False))
                short = short & ~never
            if short.any():
                found.append(Reason(text, short))
        return found

    # Score ----------------------------------------------------------------------------------------------------------

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The native two always, with the non-zero floor; others only if requested."""
        parts: list[tuple[int, float, int]] = []
        for resource in self.settings.resources:
            if resource.name in NATIVE:
                which = NATIVE.index(resource.name)
                parts.append((which - len(NATIVE), float(template.footprint.vector[which]), resource.weight))
            elif template.request.get(resource.name, 0):
                number = cluster.resources.find(resource.name)
                if number is None:
                    continue  # no node offers it, so no node passes the filter
                parts.append((number, float(template.footprint.vector[FIRST + number]), resource.weight))
        return FitScoreTerms(tuple(parts), sum(weight for _, _, weight in parts)) if parts else None

    def score(self, terms: Terms, window: Window) -> Floats:
        """Floor of the weighted mean of the resources' floors; resources a node lacks are left out of its mean."""
        assert isinstance(terms, FitScoreTerms)
        if self._curve is not None:
            return self._by_ratio(terms, window, self._curve)
        most = self.settings.strategy == "MostAllocated"
        if terms.natives is not None and (both := window.natives(nonzero=True)) is not None:
            # The usual case, as everything below would do it but on both resources at once.
            added_both, weights_both = terms.natives
            shares = _share(both[0] - added_both, both[1], most)
            if weights_both is not None:
                shares *= weights_both
            mean: Floats = shares[0]
            mean += shares[1]
            mean /= terms.weight
            return np.floor(mean, out=mean)
        total: Floats | None = None
        missing: list[tuple[Bools, int]] = []
        for number, added, weight in terms.parts:
            free, capacity = _room(window, number)
            with np.errstate(divide="ignore", invalid="ignore"):
                part = _share(free - added, capacity, most)
            if capacity.size and capacity.min() <= 0.0:
                lacking: Bools = capacity <= 0.0
                part[lacking] = 0.0
                missing.append((lacking, weight))
            if weight != 1:
                part *= weight
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None, "score terms have at least one part"
        if not missing:
            if terms.weight != 1:
                total /= terms.weight
            return np.floor(total, out=total)
        weights = np.full(window.size, float(terms.weight))
        for lacking, weight in missing:
            weights[lacking] -= weight
        mean = np.divide(total, weights, out=np.zeros(window.size), where=weights > 0)
        return np.floor(mean, out=mean)

    def _by_ratio(self, terms: FitScoreTerms, window: Window, points: Floats) -> Floats:
        """Rounded weighted mean of the curve at each resource's utilization; resources that score 0 are left out."""
        total, weights = np.zeros(window.size), np.zeros(window.size)
        for number, added, weight in terms.parts:
            free, capacity = _room(window, number)
            requested = capacity - free
            requested += added
            has: Bools = capacity > 0.0
            utilization = np.full(window.size, MAX_SCORE)
            np.divide(requested * MAX_SCORE, capacity, out=utilization, where=has & (requested <= capacity))
            part = points[np.maximum(utilization, 0.0).astype(np.int64)]
            part[~has] = 0.0
            total += part * weight
            weights += (part > 0.0) * float(weight)
        mean: Floats = np.divide(total, weights, out=total, where=weights > 0.0)
        mean += 0.5
        return np.floor(mean, out=mean)


def curve(shape: Sequence[ShapePoint]) -> Floats:
    """The score, in 0..100, at each whole utilization from 0 to 100; integer interpolation, rounded towards zero."""
    return np.array([_at(shape, utilization) for utilization in range(101)], dtype=np.float64)


def _at(shape: Sequence[ShapePoint], utilization: int) -> int:
    before: ShapePoint | None = None
    for point in shape:
        if utilization <= point.utilization:
            if before is None:
                return 10 * point.score
            rise, run = 10 * (point.score - before.score), point.utilization - before.utilization
            return 10 * before.score + int(rise * (utilization - before.utilization) / run)
        before = point
    return 10 * shape[-1].score


def _room(window: Window, number: int) -> tuple[Floats, Floats]:
    """What is free and what is allocatable; numbers below 0 are cpu and memory, counted with the non-zero floor."""
    if number >= 0:
        return window.free(number), window.allocated(number)
    which = number + len(NATIVE)
    return window.nonzero_free(which), window.allocated(CPU if which == 0 else MEMORY)


def _share(left: Floats, capacity: Floats, most: bool) -> Floats:
    """floor(100·left/capacity), or of what is used; ``left`` is what remains after the pod, and is written over.

    Exact: both are whole numbers below 2^46 in practice, so the rounded quotient never crosses a whole number.
    """
    np.maximum(left, same(0.0, left.shape[1]) if left.ndim == 2 else 0.0, out=left)
    if most:
        used = np.subtract(capacity, left, out=left)
        used *= MAX_SCORE
        used /= capacity
        return np.floor(used, out=used)
    left *= MAX_SCORE
    left /= capacity
    return np.floor(left, out=left)


def resource_weights(pairs: Sequence[tuple[str, int]]) -> tuple[ResourceWeight, ...]:
    """Shorthand for settings made in code."""
    return tuple(ResourceWeight(name, weight) for name, weight in pairs)
