"""The checks of Filter and the rating of Score, on the rows of one window (spec 10 sections 3.12 and 3.14)."""

from typing import Final

import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.engine.resources import CPU as CPU_COLUMN
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import Reason
from koord.scheduler.numa.amplification import amplify_rows, with_bound_rows
from koord.scheduler.numa.placing import MISSING, NO_POOL
from koord.scheduler.numa.take import NOT_ENOUGH
from koord.scheduler.plugins.nodenumaresource.books import BIND_CODES, NO_CPUS, POLICY_CODES, VALID, Books
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.nodenumaresource.terms import CPU, INTEGER, NUMATerms
from koord.scheduler.plugins.nodenumaresource.zonerows import ZoneRows, mean_rows

POLICY_MISMATCH: Final = "node(s) NUMA Topology policy not match"
INVALID_TOPOLOGY: Final = "node(s) invalid CPU Topology"
INVALID_RATIO: Final = "node(s) invalid CPU amplification ratio"
INSUFFICIENT_AMPLIFIED: Final = "Insufficient amplified cpu"
BIND_CONFLICT: Final = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_WHOLE_CORES: Final = "node(s) requested cpus not multiple cpus per core"

_FULL: Final = BIND_CODES["FullPCPUs"]


class Rows:
    """One class on one window. Arrays are one value per row of the window."""

    def __init__(self, books: Books, terms: NUMATerms, window: Window, settings: NUMASettings) -> None:
        books.flush()
        columns = books.columns
        self._books = books
        self._columns = columns
        self._terms = terms
        self._window = window
        self._settings = settings
        self._node_bind: Ints | None = window.column(columns.bind) if books.binding and terms.cpu else None
        self._node_policy: Ints | None = window.column(columns.policy) if books.aligning else None
        self.bound: Bools | None = None
        """Rows where the pod gets CPUs of its own; None: on no row."""
        self._aligned: ZoneRows | None = None
        if terms.bound:
            self.bound = np.ones(window.size, dtype=np.bool_)
        elif self._node_bind is not None:
            self.bound = self._node_bind > 0

    # Filter ---------------------------------------------------------------------------------------------------------

    def fits(self) -> Bools:
        """Rows that no check refuses."""
        ok: Bools = np.ones(self._window.size, dtype=np.bool_)
        for _, refused, _ in self._checks():
            ok &= ~refused
        policy = self.policy
        if policy is not None:
            self._align(ok, policy)
        return ok

    def _align(self, ok: Bools, policy: Ints) -> ZoneRows | None:
        """Take away the rows whose NUMA nodes do not hold the pod."""
        picked = np.flatnonzero(policy > 0)
        if not len(picked):
            return None
        rows = self._zone_rows(picked)
        ok[picked] &= rows.fits(policy[picked], alone=self._terms.alone)
        return rows

    def reasons(self) -> list[Reason]:
        """Each refused row under the first check that refuses it; reasons of alignment may be several."""
        left: Bools = np.ones(self._window.size, dtype=np.bool_)
        found: list[Reason] = []
        for text, refused, resolvable in self._checks():
            rows: Bools = refused & left
            if rows.any():
                found.append(Reason(text, rows, resolvable))
                left &= ~refused
        policy = self.policy
        if policy is None:
            return found
        before = left.copy()
        zone_rows = self._align(left, policy)
        if zone_rows is None:
            return found
        picked = np.flatnonzero(policy > 0)
        unaligned: Bools = (before & ~left)[picked]
        for text, here in zone_rows.refusals(policy[picked], unaligned):
            rows = np.zeros(self._window.size, dtype=np.bool_)
            rows[picked[here]] = True
            found.append(Reason(text, rows, resolvable=text != MISSING))
        return found

    @property
    def policy(self) -> Ints | None:
        """Effective topology policy as a code; None: no row has one."""
        own = POLICY_CODES[self._terms.numa]
        if own:
            return np.full(self._window.size, own)
        return self._node_policy

    @property
    def required(self) -> Ints:
        """The bind policy that is a must, as a code; the node's before the pod's."""
        own = BIND_CODES[self._terms.policy] if self._terms.required else 0
        if self._node_bind is None:
            return np.full(self._window.size, own)
        return np.where(self._node_bind > 0, self._node_bind, own)

    def _zone_rows(self, picked: Ints) -> ZoneRows:
        """The rows with a policy, read once for Filter and Score."""
        if self._aligned is not None:
            return self._aligned
        bound = self.bound[picked] if self.bound is not None else np.zeros(len(picked), dtype=np.bool_)
        rows = ZoneRows(self._columns, self._terms, self._window, picked, bound, self.required[picked])
        self._aligned = rows
        return rows

    def _checks(self) -> list[tuple[str, Bools, bool]]:
        """Texts, the rows that they refuse, and whether taking pods away could help, in order."""
        terms, window = self._terms, self._window
        found: list[tuple[str, Bools, bool]] = []
        if terms.error:
            return [(terms.error, np.ones(window.size, dtype=np.bool_), False)]
        if terms.numa and self._node_policy is not None:
            own = POLICY_CODES[terms.numa]
            mismatch: Bools = (self._node_policy > 0) & (self._node_policy != own)
            found.append((POLICY_MISMATCH, mismatch, False))
        if self._node_bind is not None and terms.cpu % 1000:
            found.append((INTEGER, self._node_bind > 0, False))
        if self._books.amplified and terms.cpu:
            found += self._amplified()
        if self.bound is not None:
            found += self._binding(self.bound)
        if terms.burst_required:
            found.append((NO_POOL, self._without_pool(), True))
        return found

    def _without_pool(self) -> Bools:
        """Rows that leave a pod with ConstrainedBurst to itself and have no NUMA node for it."""
        terms, window, columns = self._terms, self._window, self._columns
        none: Bools = np.ones(window.size, dtype=np.bool_)
        room = columns.resources.get(CPU)
        for index in range(columns.most_zones if room is not None else 0):
            assert room is not None, "without it there is no NUMA node to look at"
            free = window.column(room.allocatable[index]) - window.column(room.used[index])
            pool = 1000.0 * window.column(columns.zone_free[index][0])
            none &= (pool < terms.burst) | (free < terms.cpu)
        if self.bound is not None:
            none &= ~self.bound
        policy = self.policy
        return none if policy is None else none & (policy == 0)

    def _amplified(self) -> list[tuple[str, Bools, bool]]:
        """Bound CPUs, the pod's and those of pods there, cost the ratio."""
        window, columns = self._window, self._columns
        more: Bools = window.column(columns.ratio) > 1.0
        need, left = self._amplified_cpu()
        short: Bools = more & (need > left)
        invalid: Bools = more & (window.column(columns.topology) == NO_CPUS)
        bad: Bools = window.column(columns.bad_ratio)
        return [(INVALID_RATIO, bad, False), (INVALID_TOPOLOGY, invalid, False), (INSUFFICIENT_AMPLIFIED, short, True)]

    def _amplified_cpu(self) -> tuple[Floats, Floats]:
        """What the pod's cpu counts as, and what is left, in milli-cores as the nodes show them."""
        window, columns = self._window, self._columns
        ratio: Floats = window.column(columns.ratio)
        need: Floats = np.full(window.size, float(self._terms.cpu))
        if self.bound is not None:
            need = np.where(self.bound, amplify_rows(need, ratio), need)
        allocatable = window.allocated(CPU_COLUMN)
        requested = with_bound_rows(allocatable - window.free(CPU_COLUMN), 1000.0 * window.column(columns.bound), ratio)
        return need, allocatable - requested

    def amplified_figures(self, at: int) -> str:
        """What a pod and an amplified node have, with and without the ratio (spec 10 section 7)."""
        need, left = self._amplified_cpu()
        allocatable, ratio = self._window.allocated(CPU_COLUMN), self._window.column(self._columns.ratio)
        asked, counts, free, shown = (
            _cores(amount) for amount in (self._terms.cpu, need[at], left[at], allocatable[at])
        )
        counted = f" and counts as {counts}" if counts != asked else ""
        machine = f"{_cores(allocatable[at] / ratio[at])} times {ratio[at]:g}"
        return f"the pod asks for {asked}{counted}, {free} of {shown} are left; the machine has {machine}"

    def _binding(self, bound: Bools) -> list[tuple[str, Bools, bool]]:
        """Rows where the pod is bound must know their CPUs, be of one mind with it, and have enough."""
        terms, window, columns = self._terms, self._window, self._columns
        required = self.required
        invalid: Bools = bound & (window.column(columns.topology) != VALID)
        found = [(INVALID_TOPOLOGY, invalid, False)]
        if terms.required and self._node_bind is not None:
            own = BIND_CODES[terms.policy]
            conflict: Bools = (self._node_bind > 0) & (self._node_bind != own)
            found.append((BIND_CONFLICT, conflict, False))
        if (required == _FULL).any():
            uneven: Bools = bound & (required == _FULL) & (terms.cpus % window.column(columns.per_core) != 0)
            found.append((NOT_WHOLE_CORES, uneven, False))
        if self._node_bind is None:
            free: Floats = window.column(columns.free[BIND_CODES[terms.policy] if terms.required else 0])
        else:
            free = np.choose(required, [window.column(column) for column in columns.free])
        found.append((NOT_ENOUGH, bound & (free < terms.cpus), True))
        return found

    # Score ----------------------------------------------------------------------------------------------------------

    def score(self) -> Floats:
        """LeastAllocated or MostAllocated over what the pod would share with others; 0 where it could not be placed."""
        scores = self._node_scores()
        if self.bound is not None:
            scores[self.bound & (self._window.column(self._columns.topology) != VALID)] = 0.0
        policy = self.policy
        if policy is None:
            return scores
        picked = np.flatnonzero(policy > 0)
        if not len(picked):
            return scores
        rows, codes = self._zone_rows(picked), policy[picked]
        fit = rows.fits(codes, alone=self._terms.alone)
        chosen = rows.choose(codes, self._settings.zones.scoring, fit, alone=self._terms.alone)
        here: Floats = np.where(fit, scores[picked], 0.0)
        for mask in np.unique(chosen[chosen > 0]).tolist():
            here = np.where(chosen == mask, rows.rated(mask, self._settings.scoring.scoring), here)
        scores[picked] = here
        return scores

    def _node_scores(self) -> Floats:
        """Over what the whole node has, real requests."""
        terms, window = self._terms, self._window
        request = dict(terms.request)
        resources = window.cluster.resources
        parts = []
        for name, weight in self._settings.scoring.scoring.weights:
            asked = float(request.get(name, 0))
            number = resources.find(name)
            if number is None or (not asked and name not in ("cpu", "memory")):
                continue
            capacity = window.allocated(number)
            used: Floats = capacity - window.free(number)
            if name == CPU and self._books.amplified:
                ratio: Floats = window.column(self._columns.ratio)
                used = with_bound_rows(used, 1000.0 * window.column(self._columns.bound), ratio)
                pod: Floats = np.full(window.size, asked)
                used = used + (pod if self.bound is None else np.where(self.bound, amplify_rows(pod, ratio), pod))
            else:
                used = used + asked
            parts.append((capacity, used, weight))
        return mean_rows(parts, window.size, most=self._settings.scoring.scoring.most)


def _cores(milli: float) -> str:
    return f"{milli / 1000.0:.3f}".rstrip("0").rstrip(".")
