"""The topology manager: hints of several resources become one set of NUMA nodes, or reasons why there is none.

Spec 10 section 3.12 "Merge". ``Hint.mask`` None, or no hints wanted at all (None in place of a list), is "don't care".
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod

import msgspec

from koord.kube.protocol.numa import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE
from koord.scheduler.numa.zones import Hint

UNSATISFIED = "Unsatisfied NUMA "
UNALIGNED = "Unaligned NUMA Hint cause "
_MOST_COMBINATIONS = 1 << 14
_ANY = Hint(None, True)


class Merged(msgspec.Struct, frozen=True):
    """The outcome: a set of NUMA nodes (None: not bound to any), or why not. ``reasons`` empty: the pod is admitted.

    ``preferred``: the set is one that all resources prefer; only BestEffort takes others.
    """

    mask: int | None
    reasons: tuple[str, ...] = ()
    preferred: bool = True


def merge(
    policy: str,
    count: int,
    hints: Mapping[str, Sequence[Hint] | None],
    allowed: Callable[[int], bool] = lambda mask: True,
) -> Merged:
    """The set for a pod under a policy on a machine with ``count`` NUMA nodes.

    ``hints`` by resource, in the order in which providers and names come. ``allowed`` says whether a set keeps to what
    pods want for themselves; one that does not is not preferred.
    """
    everything = (1 << count) - 1
    if policy == RESTRICTED:
        unsatisfied = [name for name, listed in hints.items() if listed is not None and not listed]
        if unsatisfied:
            return Merged(None, tuple(UNSATISFIED + name for name in unsatisfied))
    lists = [_ANY_LIST if listed is None else listed for listed in hints.values()]
    if policy == SINGLE_NUMA_NODE:
        lists = [[hint for hint in listed if hint.preferred and _single(hint)] for listed in lists]
    best = _preferred(lists, everything, allowed)
    if best is not None:
        return Merged(None if policy == SINGLE_NUMA_NODE and best == everything else best)
    if policy != BEST_EFFORT:
        return Merged(None, (unaligned(policy, hints),))
    return Merged(_best_effort(lists, everything), preferred=False)


_ANY_LIST = [_ANY]


def _single(hint: Hint) -> bool:
    return hint.mask is None or hint.mask.bit_count() == 1


def _preferred(lists: Sequence[Sequence[Hint]], everything: int, allowed: Callable[[int], bool]) -> int | None:
    """The best set that is preferred for all resources: fewest NUMA nodes, then highest score, then lowest mask."""
    common: dict[int, int] | None = None
    for listed in lists:
        if any(hint.mask is None and hint.preferred for hint in listed):
            continue
        here = {hint.mask: hint.score for hint in listed if hint.preferred and hint.mask is not None}
        if common is None:
            common = here
        else:
            common = {mask: score + here[mask] for mask, score in common.items() if mask in here}
    if common is None:
        return everything
    fit = [mask for mask in common if allowed(mask)]
    if not fit:
        return None
    return min(fit, key=lambda mask: (mask.bit_count(), -common[mask], mask))


def _best_effort(lists: Sequence[Sequence[Hint]], everything: int) -> int:
    """The narrowest set that comes out of any combination, none being preferred; all NUMA nodes where a resource is
    left without, or gets fewer than its hint says."""
    if any(not listed for listed in lists) or prod(map(len, lists)) > _MOST_COMBINATIONS:
        return everything
    mask, score, satisfied = everything, 0, True
    for chosen in product(*lists):
        together = everything
        widest = 0
        for hint in chosen:
            if hint.mask is not None:
                together &= hint.mask
                widest = max(widest, hint.mask.bit_count())
        if not together:
            continue
        points = sum(hint.score for hint in chosen if hint.mask == together)
        size, best = together.bit_count(), mask.bit_count()
        if size < best or (size == best and (together < mask or points > score)):
            mask, score, satisfied = together, points, size >= widest
    return mask if satisfied else everything


def unaligned(policy: str, hints: Mapping[str, Sequence[Hint] | None]) -> str:
    """Why no set does: per resource which sets it prefers among those it can have."""
    parts = []
    for name, listed in hints.items():
        if listed is not None:
            masks = [(_binary(hint.mask), hint.preferred) for hint in listed if hint.mask is not None]
            preferred = " ".join(text for text, wanted in masks if wanted)
            parts.append(f"{name} prefer [{preferred}] among [{' '.join(text for text, _ in masks)}]")
    return UNALIGNED + ("," if policy == SINGLE_NUMA_NODE else " & ").join(sorted(parts))


def _binary(mask: int) -> str:
    return f"{mask:02b}"


def exclusive_check(shared: int, single: int) -> Callable[[int], bool]:
    """What ``singleNUMANodeExclusive: Required`` allows: a set of several touches no NUMA node on which pods live that
    are in it alone, and a set of one is none that pods spanning several use."""

    def allowed(mask: int) -> bool:
        return not mask & single if mask & mask - 1 else not mask & shared

    return allowed
