"""Runtime quotas by the letter of spec 20 sections 3.7 and 3.8: one resource, one child at a time, exact fractions."""

from dataclasses import dataclass, field
from fractions import Fraction
from math import floor


@dataclass
class Child:
    """One child as its parent sees it."""

    name: str
    weight: int
    request: int
    least: int = 0
    guaranteed: int = 0
    lends: bool = True
    scales: bool = True
    runtime: int = 0


def scale_mins(total: int, children: list[Child]) -> dict[str, int]:
    """Step 1."""
    mins = {child.name: child.least for child in children}
    if total >= sum(mins.values()):
        return mins
    left = total - sum(child.least for child in children if not child.scales)
    together = sum(child.least for child in children if child.scales)
    for child in children:
        if child.scales:
            mins[child.name] = 0 if left <= 0 or not together else floor(Fraction(left * child.least, together))
    return mins


def water_fill(total: int, children: list[Child], *, known: bool = True) -> dict[str, int]:
    """Steps 1 to 5 for one parent and one resource."""
    mins = scale_mins(total, children) if known else {child.name: child.least for child in children}
    below: list[Child] = []
    for child in children:
        m = max(mins[child.name], child.guaranteed)
        if child.request > m:
            child.runtime = m
            below.append(child)
        elif child.lends:
            child.runtime = child.request
        else:
            child.runtime = m
    rest = total - sum(child.runtime for child in children)
    while rest > 0:
        weights = sum(child.weight for child in below if child.weight > 0)
        if weights <= 0:
            break
        parts = {child.name: Fraction(child.weight * rest, weights) for child in below if child.weight > 0}
        gift = {name: floor(part) for name, part in parts.items()}
        by_remainder = sorted(parts, key=lambda name: (floor(parts[name]) - parts[name], name))
        for name in by_remainder[: rest - sum(gift.values())]:
            gift[name] += 1
        surplus = 0
        for child in below:
            child.runtime += gift.get(child.name, 0)
            if child.runtime > child.request:
                surplus += child.runtime - child.request
                child.runtime = child.request
        below = [child for child in below if child.runtime < child.request]
        rest = surplus
    return {child.name: child.runtime for child in children}


@dataclass
class Quota:
    """A quota of a tree, one resource. ``most`` None: max does not name the resource."""

    name: str
    weight: int
    least: int
    most: int | None
    own_request: int = 0
    own_used: int = 0
    lends: bool = True
    children: list["Quota"] = field(default_factory=list)
    runtime: int = 0

    def request(self) -> int:
        """What it asks for, lifted to min where it does not lend."""
        asked = self.own_request + sum(child.limited() for child in self.children)
        return asked if self.lends else max(asked, self.least)

    def limited(self) -> int:
        """The request that its parent counts."""
        return self.request() if self.most is None else min(self.request(), self.most)

    def allocated(self) -> int:
        """What it holds: its own pods and what its children are guaranteed."""
        return self.own_used + sum(child.guaranteed() for child in self.children)

    def guaranteed(self) -> int:
        """With the guarantee: what it keeps."""
        return max(self.allocated(), self.least)


def run_tree(total: int, tops: list[Quota], *, guarantee: bool = False, scale: bool = True, known: bool = True) -> None:
    """Fill every level below ``total``, root to leaf."""
    seen = [
        Child(
            quota.name,
            quota.weight,
            quota.limited(),
            quota.least,
            quota.guaranteed() if guarantee else 0,
            quota.lends and not guarantee,
            scale,
        )
        for quota in tops
    ]
    runtime = water_fill(total, seen, known=known)
    for quota in tops:
        quota.runtime = runtime[quota.name]
        run_tree(quota.runtime, quota.children, guarantee=guarantee, scale=scale)
