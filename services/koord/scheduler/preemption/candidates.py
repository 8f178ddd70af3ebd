"""What taking pods from a node costs, and which node is cheapest (spec 10 section 3.15, DefaultPreemption step 4)."""

from collections.abc import Sequence
from math import inf

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats, Ints
from koord.scheduler.framework.contract import AssignedPod

_SHIFT = 1 << 31
"""Added to each victim's priority, so that one more victim always costs, of negative priority too."""


class Candidate(msgspec.Struct, frozen=True):
    """A node on which the pod fits once ``victims`` (most important first) are gone.

    ``violating``: uids of those that no disruption budget has room for.
    """

    node: str
    victims: tuple[AssignedPod, ...]
    violating: frozenset[str] = frozenset()


def started(pod: AssignedPod) -> float:
    """When the pod started; one that did not is the youngest of all."""
    return pod.started or inf


def importance(pod: AssignedPod) -> tuple[int, float, str]:
    """Sorts the most important first: higher priority, then the earlier start; the uid, so that there is an order."""
    return -pod.priority, started(pod), pod.ref.uid


def cost(candidate: Candidate) -> tuple[int, int, int, int, float]:
    """Less is better: budgets violated, the top victim's priority, the sum of priorities, how many victims, and, with
    the opposite sign, the earliest start among the victims of the top priority."""
    top = max(victim.priority for victim in candidate.victims)
    earliest = min(started(victim) for victim in candidate.victims if victim.priority == top)
    return (
        len(candidate.violating),
        top,
        sum(victim.priority + _SHIFT for victim in candidate.victims),
        len(candidate.victims),
        -earliest,
    )


def costs(gone: Bools, priorities: Ints, starts: Floats, violating: Bools) -> Ints:
    """The rows of ``gone`` (victims by row and place, at least one a row) from the cheapest on, as :func:`cost` has it;
    of equal ones the first comes first. The other arrays say of each pod what that asks."""
    top = np.where(gone, priorities, np.iinfo(np.int64).min).max(axis=1)
    earliest = np.where(gone & (priorities == top[:, None]), starts, inf).min(axis=1)
    total = np.where(gone, priorities + _SHIFT, 0).sum(axis=1)
    order: Ints = np.lexsort((-earliest, gone.sum(axis=1), total, top, (gone & violating).sum(axis=1)))
    return order


def cheapest(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate to take; of equal ones the first."""
    return min(candidates, key=cost)


def wanted(nodes: int, percentage: int, absolute: int) -> int:
    """How many candidates are enough of so many nodes that may become one."""
    return min(nodes, max(nodes * percentage // 100, absolute))
