"""What the reconciler (limits: also the quota leader) sees and tells the ledger; spec 20 section 3.12, rows 5, 9-13.

Each carries the object's resourceVersion, by which the ledger ignores what is older than what it was told.
"""

from collections.abc import Mapping

import msgspec

from koord.accounting.takes import Take


class NodeSeen(msgspec.Struct, frozen=True):
    """A node exists with these limits (allocatable; a missing key is 0). ``item`` is ``node/<name>``. Opens it.

    ``generation`` is the version of the node's guard, from ``koord.accounting.generation``; 0 leaves it as it is.
    """

    item: str
    limits: Mapping[str, int]
    resource_version: str
    generation: int = 0


class LimitSet(msgspec.Struct, frozen=True):
    """The limits of a ``quota/`` or ``admitted/`` item (a missing key is unlimited), by the quota leader. Opens it."""

    item: str
    limits: Mapping[str, int]


class BudgetSeen(msgspec.Struct, frozen=True):
    """A disruption budget (``item``: ``pdb/<namespace>/<name>``) lets so many pods be evicted now. Opens it."""

    item: str
    allowed: int
    resource_version: str


class ItemClosed(msgspec.Struct, frozen=True):
    """The item takes nothing any more and goes when no record refers to it; HELD claims on a ``node/`` item end."""

    item: str
    resource_version: str = ""


class PodSeen(msgspec.Struct, frozen=True):
    """A live pod assigned to ``node``, charged with ``takes`` (rows 10-12; 5 or 9 if claimed for another node).

    ``bumps``: guards of the terms that the pod carries or matches, raised if it was not claimed (row 11).
    ``recharge``: what the charge depends on changed (its quota appeared), so the same version counts once more.
    ``slots``: what the pod alone has (host ports, CPUs, volumes); it gets those that nobody has, and those of HELD
    claims, which end.
    """

    uid: str
    namespace: str
    name: str
    node: str
    takes: tuple[Take, ...]
    resource_version: str
    bumps: tuple[str, ...] = ()
    recharge: bool = False
    slots: tuple[str, ...] = ()


class PodGone(msgspec.Struct, frozen=True):
    """A pod deleted, terminal, or replaced by another uid under its name (rows 5, 9, 13).

    An empty ``resource_version`` applies in any case (a sweep found no such pod).
    """

    uid: str
    namespace: str
    name: str
    resource_version: str = ""


class UnitSeen(msgspec.Struct, frozen=True):
    """A QueueUnit with non-empty ``status.admissions`` (rows 10-12); ``recharge`` as for pods."""

    uid: str
    namespace: str
    name: str
    takes: tuple[Take, ...]
    resource_version: str
    recharge: bool = False


class UnitGone(msgspec.Struct, frozen=True):
    """A QueueUnit deleted, succeeded or failed: its record ends for good."""

    uid: str
    namespace: str
    name: str
    resource_version: str = ""


class UnitUnbound(msgspec.Struct, frozen=True):
    """A QueueUnit whose admissions are empty (again): an OBSERVED record ends, the unit may be claimed anew.

    A BINDING record stays: the admission may be under way.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str = ""


class Settled(msgspec.Struct, frozen=True):
    """The gateway settled that this BINDING pod or QueueUnit is unbound and that no write for it can succeed (row 9).

    ``token`` and ``attempts`` are those of the record as it was read before the gateway was asked. Each write follows
    an ``advance``, which counts an attempt: if the record has another token or more attempts by now, a write may have
    followed the settling, and the record stays.
    """

    uid: str
    namespace: str
    name: str
    token: int
    attempts: int


class PodNominated(msgspec.Struct, frozen=True):
    """``status.nominatedNodeName`` of a pod that waits; an empty ``node``: it was cleared.

    An offer for this node is noted and has no lease any more; without one the nomination is taken over as it is, for a
    node that is open. ``takes``: what the pod would take there. ``foreign``: by another scheduler, whose nominations
    count only against lower priorities. An empty ``group`` leaves the offer's.
    """

    uid: str
    namespace: str
    name: str
    node: str
    takes: tuple[Take, ...]
    priority: int
    resource_version: str
    group: str = ""
    foreign: bool = False


class PodTerminating(msgspec.Struct, frozen=True):
    """A pod has a deletion time: it is nobody's victim any more, the API counts its disruption from here on."""

    uid: str
    namespace: str
    name: str


Observation = (
    NodeSeen
    | BudgetSeen
    | LimitSet
    | ItemClosed
    | PodSeen
    | PodGone
    | PodNominated
    | PodTerminating
    | UnitSeen
    | UnitGone
    | UnitUnbound
    | Settled
)
