"""How much memory processes use, and whether it grows.

A process is weighed by its proportional set size (PSS): its own pages, and of those shared with others its share. So
the sizes add up to what the machine really gives; resident sizes would count the interpreter's and the libraries'
pages once per process.

Growth is the Theil-Sen slope, the median of the slopes between all pairs of samples: a garbage collector's saw-tooth
or a single spike does not move it.
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20
GROWTH_SHARE = 0.05
GROWTH_MIB = 8.0
HORIZON_S = 1800.0
_HOUR_S = 3600.0
_SMALLEST = 4
"""Samples below which no slope is told."""


class Sample(NamedTuple):
    """Sizes in MiB by process, at a moment in seconds."""

    at_s: float
    mib: dict[str, float]

    @property
    def total(self) -> float:
        """All processes together."""
        return sum(self.mib.values())


class Growth(NamedTuple):
    """A process over the samples looked at: its median size, and its slope."""

    mib: float
    mib_per_h: float

    @property
    def grows(self) -> bool:
        """Whether it would gain more than 8 MiB and more than 5 % of its size in half an hour."""
        gain = self.mib_per_h * HORIZON_S / _HOUR_S
        return gain >= GROWTH_MIB and gain >= GROWTH_SHARE * self.mib


def pss_mib(pid: int) -> float | None:
    """The process' proportional set size; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return None


def weigh(pids: Mapping[str, int], now: float) -> Sample:
    """The processes that exist."""
    sizes = {name: pss_mib(pid) for name, pid in pids.items()}
    return Sample(now, {name: mib for name, mib in sizes.items() if mib is not None})


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median slope over all pairs of points (x, y); 0 for fewer than four points."""
    if len(points) < _SMALLEST:
        return 0.0
    return statistics.median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 != x1)


def growth(samples: Sequence[Sample], *, apart: str = "") -> dict[str, Growth]:
    """Each process that is in all samples, and ``all`` of them together but ``apart``."""
    names = set.intersection(*(set(sample.mib) for sample in samples)) if samples else set()
    found: dict[str, Growth] = {}
    for name in sorted(names):
        found[name] = _growth([(sample.at_s, sample.mib[name]) for sample in samples])
    if samples:
        found["all"] = _growth([(sample.at_s, sample.total - sample.mib.get(apart, 0.0)) for sample in samples])
    return found


def _growth(points: Sequence[tuple[float, float]]) -> Growth:
    return Growth(statistics.median(y for _, y in points), theil_sen(points) * _HOUR_S)
