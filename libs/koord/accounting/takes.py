"""Takes: what a pod or a QueueUnit takes from which item of the ledger (spec 20 section 3.12).

Four families of items: ``node/<name>`` is a node's room, ``quota/<name>`` what pods of a quota use,
``guaranteed/<name>`` what those of them use that must not be preempted, ``admitted/<name>`` what QueueUnits hold plus
pods that belong to no unit. Takes and charges come from these pure functions alone, so that what was claimed for a pod
and what is later charged for it are the same sums.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

NODE: Final = "node/"
QUOTA: Final = "quota/"
ADMITTED: Final = "admitted/"
GUARANTEED: Final = "guaranteed/"
BUDGET: Final = "pdb/"
PODS: Final = "pods"


class Take(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Amounts taken from one item. An unchecked take is counted and never refused."""

    item: str
    amounts: dict[str, int]
    checked: bool = True


def node_item(name: str) -> str:
    """The item of a node's room."""
    return NODE + name


def budget_item(namespace: str, name: str) -> str:
    """The item of a disruption budget."""
    return f"{BUDGET}{namespace}/{name}"


def quota_item(name: str) -> str:
    """The item of what a quota's pods use."""
    return QUOTA + name


def admitted_item(name: str) -> str:
    """The item of what a quota's QueueUnits hold."""
    return ADMITTED + name


def guaranteed_item(name: str) -> str:
    """The item of what a quota's pods use that must not be preempted."""
    return GUARANTEED + name


def pod_takes(
    request: Mapping[str, int],
    node: str,
    chain: tuple[str, ...],
    *,
    unit_owned: bool,
    check_parents: bool = True,
    preemptible: bool = True,
) -> tuple[Take, ...]:
    """What a pod on ``node`` takes: the node's room and one pod slot, then its quota chain, leaf to top.

    The leaf is checked, its ancestors when ``check_parents``. A pod that is not ``preemptible`` also takes from what
    its leaf guarantees (section 3.9). A pod that no QueueUnit stands for (``unit_owned`` False) also counts,
    unchecked, as admitted. Resources it asks 0 of are left out.
    """
    asked = {name: amount for name, amount in request.items() if amount}
    takes = [Take(NODE + node, {**asked, PODS: asked.get(PODS, 0) + 1})]
    for level, quota in enumerate(chain):
        takes.append(Take(QUOTA + quota, asked, checked=check_parents or level == 0))
    if not preemptible and chain:
        takes.append(Take(GUARANTEED + chain[0], asked))
    if not unit_owned:
        takes.extend(Take(ADMITTED + quota, asked, checked=False) for quota in chain)
    return tuple(takes)


def unit_takes(total: Mapping[str, int], chain: tuple[str, ...]) -> tuple[Take, ...]:
    """What a QueueUnit takes: its total from every level of its quota chain, leaf to top, all checked."""
    asked = {name: amount for name, amount in total.items() if amount}
    return tuple(Take(ADMITTED + quota, asked) for quota in chain)
