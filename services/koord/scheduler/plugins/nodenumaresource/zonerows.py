"""NUMA nodes of many machines at once: which machines hold a pod under a topology policy, on which set of NUMA nodes.

The same questions as :mod:`koord.scheduler.numa.placing` answers for one machine, as a few passes over columns. Arrays
are one value per row; lists of arrays are by index of the NUMA node.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.cluster import RowColumn
from koord.scheduler.engine.window import Window
from koord.scheduler.numa.amplification import amplify_rows
from koord.scheduler.numa.merge import UNSATISFIED, unaligned
from koord.scheduler.numa.placing import MISSING, Scoring
from koord.scheduler.numa.zones import INSUFFICIENT, Hint, members, subsets
from koord.scheduler.plugins.nodenumaresource.books import POLICY_CODES, Columns
from koord.scheduler.plugins.nodenumaresource.terms import CPU, NUMATerms

_MILLION = 1e6
BEST_EFFORT, RESTRICTED, SINGLE = POLICY_CODES["BestEffort"], POLICY_CODES["Restricted"], POLICY_CODES["SingleNUMANode"]
POLICY_NAMES = {code: name for name, code in POLICY_CODES.items()}


class RowNeed:
    """One requested resource. ``units`` is 0, and every NUMA node has some, on rows whose NUMA nodes do not list it."""

    __slots__ = ("free", "listed", "name", "room", "units")

    def __init__(self, name: str, listed: Bools, free: list[Floats], room: list[Floats], units: Floats) -> None:
        self.name = name
        self.listed = listed
        self.free = [np.where(listed, amount, 1.0) for amount in free]
        self.room = room
        self.units: Floats = np.where(listed, units, 0.0)


class ZoneRows:
    """The rows ``picked`` of a window for a class of pods.

    ``bound``: on which of them the pod gets CPUs of its own; ``code``: the bind policy that is a must there, as
    ``BIND_CODES``. All are arrays over the picked rows.
    """

    def __init__(
        self, columns: Columns, terms: NUMATerms, window: Window, picked: Ints, bound: Bools, code: Ints
    ) -> None:
        self._columns = columns
        self._window = window
        self._picked = picked
        self._terms = terms
        self._bound = bound
        self._any_bound = bool(bound.any())
        self.size = len(picked)
        self.count = columns.most_zones
        self.zones = self._read(columns.zones)
        self._ratio: Floats = self._read(columns.ratio)
        self._allocatable: dict[str, list[Floats]] = {}
        self._used: dict[str, list[Floats]] = {}
        self._asked_of: dict[str, Floats | None] = {}
        self._fits: Bools | None = None
        self.needs: list[RowNeed] = []
        for name, amount in terms.request:
            made = columns.resources.get(name)
            if made is None:
                continue
            listed: Bools = self._read(made.listed)
            if not listed.any():
                continue
            free: list[Floats] = [
                np.maximum(there - used, 0.0)
                for there, used in zip(self.allocatable(name), self.used(name), strict=True)
            ]
            room, units = free, np.full(self.size, float(amount))
            if name == CPU and self._any_bound:
                free, room, units = self._cpus(free, amount, code)
            self.needs.append(RowNeed(name, listed, free, room, units))
        self._shared = [self._read(column) for column in columns.shared]
        self._single = [self._read(column) for column in columns.single]

    def _read(self, column: RowColumn) -> NDArray[Any]:
        return self._window.column(column)[self._picked]

    def allocatable(self, name: str) -> list[Floats]:
        """What NUMA nodes have of a resource."""
        return self._kept(self._allocatable, name, used=False)

    def used(self, name: str) -> list[Floats]:
        """What is used of it."""
        return self._kept(self._used, name, used=True)

    def _kept(self, kept: dict[str, list[Floats]], name: str, *, used: bool) -> list[Floats]:
        found = kept.get(name)
        if found is None:
            made = self._columns.resources.get(name)
            if made is None:
                found = [np.zeros(self.size)] * self.count
            else:
                found = [self._read(column) for column in (made.used if used else made.allocatable)]
            kept[name] = found
        return found

    def _cpus(self, free: list[Floats], amount: int, code: Ints) -> tuple[list[Floats], list[Floats], Floats]:
        """Cpu where CPUs are bound: at most what the CPUs there are worth; in CPUs, or cores, of the pod's."""
        step = np.where(code == 1, self._read(self._columns.per_core), 1.0)
        per_unit = np.round(np.maximum(self._ratio, 1.0) * _MILLION) * 1000.0
        capped, room = [], []
        for there, columns in zip(free, self._columns.zone_free, strict=True):
            count = np.choose(code, [self._read(column) for column in columns])
            least = np.minimum(there, amplify_rows(1000.0 * count, self._ratio))
            capped.append(np.where(self._bound, least, there))
            units = np.floor(np.floor(least * _MILLION / per_unit) / step)
            room.append(np.where(self._bound, units, there))
        wanted = np.ceil(float(amount) / 1000.0 / step)
        return capped, room, np.where(self._bound, wanted, float(amount))

    # Which rows -----------------------------------------------------------------------------------------------------

    def fits(self, policy: Ints, *, alone: bool) -> Bools:
        """Rows that hold the pod under ``policy`` (codes). Do not write."""
        if self._fits is not None:
            return self._fits
        relaxed = policy == BEST_EFFORT
        ok: Bools = self._all() if relaxed.any() else relaxed
        for code, answer in ((SINGLE, self._any_single), (RESTRICTED, self._any_set)):
            rows = policy == code
            if rows.any():
                ok = np.where(rows, answer(alone=alone), ok)
        self._fits = ok & (self.zones > 0)
        return self._fits

    def _all(self) -> Bools:
        """All NUMA nodes together have enough."""
        ok: Bools = np.ones(self.size, dtype=np.bool_)
        for need in self.needs:
            ok &= added(need.room, range(self.count), self.size) >= need.units
        return ok

    def _any_single(self, *, alone: bool) -> Bools:
        """Some one NUMA node has enough, or nothing is asked of them."""
        ok: Bools = ~self._asked()
        for index in range(self.count):
            here: Bools = np.ones(self.size, dtype=np.bool_) if not alone else ~self._shared[index]
            for need in self.needs:
                here &= need.room[index] >= need.units
            ok |= here
        return ok

    def _any_set(self, *, alone: bool) -> Bools:
        """Some set has enough, each member having some of everything: the largest such set is enough to look at."""
        ok = self._any_single(alone=alone)
        totals = [np.zeros(self.size) for _ in self.needs]
        members_: Floats = np.zeros(self.size)
        for index in range(self.count):
            inside: Bools = np.ones(self.size, dtype=np.bool_) if not alone else ~self._single[index]
            for need in self.needs:
                inside &= need.free[index] > 0
            members_ += inside
            for total, need in zip(totals, self.needs, strict=True):
                total += np.where(inside, need.room[index], 0.0)
        many: Bools = members_ >= 2
        for total, need in zip(totals, self.needs, strict=True):
            many &= total >= need.units
        ok |= many
        return ok

    def _asked(self) -> Bools:
        """Rows whose NUMA nodes list something that the pod requests."""
        asked: Bools = np.zeros(self.size, dtype=np.bool_)
        for need in self.needs:
            asked |= need.listed
        return asked

    # Which set ------------------------------------------------------------------------------------------------------

    def choose(self, policy: Ints, scoring: Scoring, wanted: Bools, *, alone: bool) -> Ints:
        """The set that each row of ``wanted`` would give, 0 for none of its own (or not wanted): sets by size, best
        score, lowest mask. Under BestEffort without a preferred one it is all NUMA nodes."""
        chosen: Ints = np.zeros(self.size, dtype=np.int64)
        asked = self._asked()
        open_: Bools = wanted & asked
        if not open_.any():
            return chosen
        smallest = [np.full(self.size, 99) for _ in self.needs]
        best = np.zeros(self.size)
        size = 0
        for mask in subsets(self.count):
            if mask.bit_count() != size:
                open_ = open_ & (chosen == 0) & ((policy != SINGLE) | (size == 0))
                if not open_.any():
                    break
                size = mask.bit_count()
                best = np.full(self.size, -1.0)
            inside = members(mask)
            passing = open_ & self._passing(inside)
            whole = passing
            for need, least in zip(self.needs, smallest, strict=True):
                usable = passing & self._has_some(need, inside)
                np.minimum(least, np.where(usable | ~need.listed, size, 99), out=least)
                whole = whole & usable
            whole &= self._allowed(inside, alone=alone)
            whole &= (policy == RESTRICTED) | self._smallest(smallest, size)
            if not whole.any():
                continue
            score = self.score(mask, scoring)
            better = whole & (score > best)
            chosen[better] = mask
            best[better] = score[better]
        everything = (1 << self.zones.astype(np.int64)) - 1
        chosen[(policy == SINGLE) & (chosen == everything)] = 0
        late = wanted & (policy == BEST_EFFORT) & (chosen == 0) & asked
        chosen[late] = everything[late]
        return chosen

    def _smallest(self, smallest: Sequence[Ints], size: int) -> Bools:
        ok: Bools = np.ones(self.size, dtype=np.bool_)
        for need, least in zip(self.needs, smallest, strict=True):
            ok &= (least == size) | ~need.listed
        return ok

    def _passing(self, inside: Sequence[int]) -> Bools:
        ok: Bools = np.ones(self.size, dtype=np.bool_)
        for need in self.needs:
            ok &= added(need.room, inside, self.size) >= need.units
        return ok & (self.zones > inside[-1])

    def _has_some(self, need: RowNeed, inside: Sequence[int]) -> Bools:
        ok: Bools = np.ones(self.size, dtype=np.bool_)
        for index in inside:
            ok &= need.free[index] > 0
        return ok

    def _allowed(self, inside: Sequence[int], *, alone: bool) -> Bools:
        ok: Bools = np.ones(self.size, dtype=np.bool_)
        if alone:
            for index in inside:
                ok &= ~(self._single[index] if len(inside) > 1 else self._shared[index])
        return ok

    def score(self, mask: int, scoring: Scoring) -> Floats:
        """How well the pod suits a set, as ``numa.placing.score_of``."""
        inside = members(mask)
        parts = []
        for name, weight in scoring.weights:
            asked = self.asked(name)
            if asked is None:
                continue
            capacity = added(self.allocatable(name), inside, self.size)
            used = added(self.used(name), inside, self.size)
            parts.append((capacity, used + asked, weight))
        return mean_rows(parts, self.size, most=scoring.most)

    def rated(self, mask: int, scoring: Scoring) -> Floats:
        """The rating of the plugin: as :meth:`score`, but what is used of cpu is the CPUs that pods have there, where
        this pod's are bound."""
        inside = members(mask)
        parts = []
        for name, weight in scoring.weights:
            asked = self.asked(name)
            if asked is None:
                continue
            used = added(self.used(name), inside, self.size)
            if name == CPU and self._any_bound:
                cpus = added([self._read(column) for column in self._columns.zone_bound], inside, self.size)
                used = np.where(self._bound, amplify_rows(1000.0 * cpus, self._ratio), used)
            parts.append((added(self.allocatable(name), inside, self.size), used + asked, weight))
        return mean_rows(parts, self.size, most=scoring.most)

    def asked(self, name: str) -> Floats | None:
        """What the pod adds of a resource, amplified where its CPUs are bound; None: it does not count in scores."""
        if name not in self._asked_of:
            amount = float(dict(self._terms.request).get(name, 0))
            asked: Floats | None = None
            if amount or name in ("cpu", "memory"):
                asked = np.full(self.size, amount)
                if name == CPU and self._any_bound:
                    asked = np.where(self._bound, amplify_rows(asked, self._ratio), asked)
            self._asked_of[name] = asked
        return self._asked_of[name]

    # Why not --------------------------------------------------------------------------------------------------------

    def refusals(self, policy: Ints, refused: Bools) -> list[tuple[str, Bools]]:
        """Texts for the rows ``refused``, each with its rows."""
        found: dict[str, Bools] = {}
        missing: Bools = refused & (self.zones == 0)
        if missing.any():
            found[MISSING] = missing
        relaxed: Bools = refused & (policy == BEST_EFFORT) & ~missing
        for need in self.needs:
            short: Bools = relaxed & (added(need.room, range(self.count), self.size) < need.units)
            if short.any():
                found[INSUFFICIENT + need.name] = short
        refused = refused & ~missing & (policy != BEST_EFFORT)
        rows = np.flatnonzero(refused)
        if not len(rows):
            return list(found.items())
        sets = subsets(self.count)
        usable: list[list[Bools]] = [[] for _ in self.needs]
        for mask in sets:
            inside = members(mask)
            passing = refused & self._passing(inside)
            for number, need in enumerate(self.needs):
                usable[number].append(passing & need.listed & self._has_some(need, inside))
        flat = [bits for listed in usable for bits in listed] + [need.listed for need in self.needs] + [policy]
        stacked: Ints = np.stack(flat).astype(np.int64)[:, rows]
        patterns, which = np.unique(stacked, axis=1, return_inverse=True)
        for number in range(patterns.shape[1]):
            pattern = patterns[:, number]
            texts = self._texts(pattern, sets)
            here = np.zeros(self.size, dtype=np.bool_)
            here[rows[which.reshape(-1) == number]] = True
            for text in texts:
                found[text] = found[text] | here if text in found else here
        return list(found.items())

    def _texts(self, pattern: Ints, sets: Sequence[int]) -> list[str]:
        count = len(sets)
        policy = int(pattern[-1])
        hints: dict[str, list[Hint]] = {}
        for number, need in enumerate(self.needs):
            if pattern[len(self.needs) * count + number]:
                bits = pattern[number * count : (number + 1) * count]
                masks = [mask for mask, bit in zip(sets, bits, strict=True) if bit]
                smallest = masks[0].bit_count() if masks else 0
                hints[need.name] = [Hint(mask, policy == RESTRICTED or mask.bit_count() == smallest) for mask in masks]
        if policy == RESTRICTED:
            unsatisfied = [UNSATISFIED + name for name, listed in hints.items() if not listed]
            if unsatisfied:
                return unsatisfied
        return [unaligned(POLICY_NAMES[policy], hints)]


def added(columns: Sequence[Floats], inside: Iterable[int], size: int) -> Floats:
    """The sum over some NUMA nodes."""
    total: Floats = np.zeros(size)
    for index in inside:
        total += columns[index]
    return total


def mean_rows(parts: Sequence[tuple[Floats, Floats, int]], size: int, *, most: bool) -> Floats:
    """``numa.scores.mean`` for columns of (capacity, used, weight)."""
    total: Floats = np.zeros(size)
    weights: Floats = np.zeros(size)
    for capacity, used, weight in parts:
        there = capacity > 0
        part = np.minimum(used, capacity) if most else capacity - used
        np.maximum(part, 0.0, out=part)
        part *= 100.0
        share = np.divide(part, capacity, out=np.zeros(size), where=there)
        np.floor(share, out=share)
        if weight != 1:
            share *= weight
        total += share
        weights += there * weight
    return np.floor(np.divide(total, weights, out=total, where=weights > 0))
