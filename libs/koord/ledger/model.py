"""What travels between the ledger and its clients: claims, decisions' members, and the answers; observations beside it.

The rules are spec 20 section 3.12. Amounts are whole numbers within ±2^53 (cpu in milli-cores, all else in base units):
the ledger keeps them as doubles, which are exact that far. An amount key that an item has no limit for means 0 on a
``node/`` item and "unlimited" on every other kind.

Places kept for reservations, so that no client has to change its types: ``Record.via`` is the one claimed through,
``Item.nested`` the part held by those nested in the item.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from koord.accounting.takes import Take
from koord.ledger.observations import BudgetSeen as BudgetSeen
from koord.ledger.observations import ItemClosed as ItemClosed
from koord.ledger.observations import LimitSet as LimitSet
from koord.ledger.observations import NodeSeen as NodeSeen
from koord.ledger.observations import Observation as Observation
from koord.ledger.observations import PodGone as PodGone
from koord.ledger.observations import PodNominated as PodNominated
from koord.ledger.observations import PodSeen as PodSeen
from koord.ledger.observations import PodTerminating as PodTerminating
from koord.ledger.observations import Settled as Settled
from koord.ledger.observations import UnitGone as UnitGone
from koord.ledger.observations import UnitSeen as UnitSeen
from koord.ledger.observations import UnitUnbound as UnitUnbound
from koord.ledger.reading import MAX_AMOUNT as MAX_AMOUNT
from koord.ledger.reading import Fault as Fault
from koord.ledger.reading import Folded as Folded
from koord.ledger.reading import Item as Item
from koord.ledger.reading import LedgerStatus as LedgerStatus
from koord.ledger.reading import Record as Record
from koord.ledger.reading import State as State
from koord.ledger.reading import Sums as Sums

MAX_MEMBERS: Final = 4096
"""Members one call of a ledger function may touch; also the largest claim."""
LEASE_S: Final = 30.0
"""How long a HELD claim lives without a renewal, on the clock of Redis."""
GONE_S: Final = 600.0
"""How long a uid that has ended is remembered, so that a late claim for it is refused."""
SHARED: Final = "*"
"""The key under which an item adds up what is taken of names that nothing limits."""
MOST_NAMES: Final = 999
"""Resource names that limits may be of, in the whole ledger."""

Role = Literal["gateway", "reconciler", "quota"]


class LedgerError(Exception):
    """Base of what the ledger's client raises."""


class LedgerUnavailable(LedgerError):
    """Redis cannot be reached, is out of memory or did not answer in time. Fail closed: nothing may be bound.

    The call may or may not have been executed; every call can be repeated.
    """


class LedgerDamaged(LedgerUnavailable):
    """What is stored cannot be read: the call changed nothing. Only a rebuild helps; until then as good as away."""


class LedgerStale(LedgerError):
    """A newer leader of the caller's role has called."""


class LedgerReset(LedgerError):
    """The ledger is not in the state that this step of a rebuild follows: begin again from the start."""


class LedgerRefused(LedgerError, ValueError):
    """A call that no ledger would accept: too many members, an amount out of range, a misused role."""


# ---- claims ----------------------------------------------------------------------------------------------------------


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """A thing only one holder may have (a host port, a gang group).

    Held by the pod ``uid`` until its record ends; with an empty ``uid`` by the claim until no HELD or BINDING record of
    it is left.
    """

    item: str
    uid: str = ""


class Guard(msgspec.Struct, frozen=True, array_like=True):
    """A rule that is no sum: ``version`` is what the claim was planned with; the ledger's must be the same.

    ``node/<name>``: what the reconciler said with the node (``NodeSeen.generation``). Any other name is a term that
    pods carry or match: 0 until it is bumped for the first time, raised by each claim with ``bump`` and each
    ``PodSeen`` of an unclaimed pod that names it. Bumps by earlier claims of one batch do not count as a change. A
    negative version is not compared (the claim only bumps).
    """

    item: str
    version: int
    bump: bool = False


class Member(msgspec.Struct, frozen=True):
    """One pod (or QueueUnit, then ``node`` is empty) of a claim and what it takes from which item."""

    uid: str
    namespace: str
    name: str
    node: str
    takes: tuple[Take, ...]


class ClaimRequest(msgspec.Struct, frozen=True):
    """All members of one attempt: held all together or not at all.

    ``id`` is ``<incarnation>-<n>`` and never reused. ``token`` non-zero adds members to the HELD claim of that id and
    token (not for strict claims). ``strict``: the claim ends as a whole when one HELD member ends. ``trace`` is the
    traceparent kept with the records.

    ``priority`` (higher first) and ``ticket`` (lower first) are the claim's rank. Without a ticket it is that of its
    ``group``: the ledger gives it one at its first claim, be that refused, and keeps it until the group made none for
    an hour; a claim of no group has its token. ``wound``: if nothing but HELD claims of lower rank stands in the way,
    they end whole and this one is held: the fewest that suffice, the lowest ranks of those.

    ``sees``: its members are placed by rules about other pods, so all that others placed before it is told with the
    answer (:mod:`koord.ledger.placements`). ``repels``: its members keep others off, everybody is told of them.
    ``given``: what members were given on their nodes, as JSON by uid, for those who are told.
    """

    id: str
    members: tuple[Member, ...]
    slots: tuple[Slot, ...] = ()
    guards: tuple[Guard, ...] = ()
    priority: int = 0
    token: int = 0
    trace: str = ""
    strict: bool = True
    ticket: int = 0
    group: str = ""
    wound: bool = False
    sees: bool = False
    repels: bool = False
    given: Mapping[str, str] | None = None


ShortKind = Literal["amount", "closed", "slot", "guard", "nomination"]


class Short(msgspec.Struct, frozen=True, array_like=True):
    """One reason of a conflict.

    ``amount``: the claim needs ``needed`` of ``key`` in all, ``available`` is the most that would be admissible.
    ``closed``: the item is unknown or closed. ``slot``: ``holder`` (a uid or a claim) has it. ``guard``: it was planned
    at version ``needed`` and is at ``version`` now. ``nomination``: enough is free, but it is kept for ``holder``.
    """

    item: str
    key: str
    kind: ShortKind
    needed: int
    available: int
    version: int = 0
    holder: str = ""


ClaimStatus = Literal["ok", "conflict", "busy", "stale", "epoch", "closed"]


class Wounded(msgspec.Struct, frozen=True, array_like=True):
    """A claim that ended for another of higher rank: ``items`` got room back; ``owner``'s incarnation plans it anew."""

    claim: str
    owner: str
    uids: tuple[str, ...]
    items: tuple[str, ...]


class ClaimAnswer(msgspec.Struct, frozen=True):
    """What became of one claim of a batch.

    ``ok``: held under ``token``. ``conflict``: ``shorts`` names everything that was short. ``busy``: ``busy_uid`` has a
    record of ``busy_claim``; empty: it runs without a claim, or has ended. ``stale``: members were to be added to a
    claim that is not HELD under that token any more. ``epoch``: the ledger was rebuilt, ``epoch`` is current;
    ``closed``: being rebuilt. ``wounded``: claims that an accepted one ended; whoever gets this answer tells their
    owners at once (the reconciler does it too, with what expired; a repeated claim does not list them again).
    """

    status: ClaimStatus
    token: int = 0
    epoch: int = 0
    shorts: tuple[Short, ...] = ()
    busy_uid: str = ""
    busy_claim: str = ""
    wounded: tuple[Wounded, ...] = ()


# ---- the gateway's and the schedulers' moves -------------------------------------------------------------------------


class Advance(msgspec.Struct, frozen=True):
    """Move the members a decision names to BINDING, right before the API write. ``epoch``: the decision's."""

    claim: str
    token: int
    epoch: int
    decision: str
    uids: tuple[str, ...]


AdvanceStatus = Literal["ok", "gone", "stale", "epoch", "closed"]


class AdvanceAnswer(msgspec.Struct, frozen=True):
    """What the gateway may write.

    ``ok``: every named uid that is neither in ``gone`` nor in ``observed`` is BINDING by this decision and may be
    written; ``attempt`` counts the advances of this decision (1 = nothing of it can be under way yet). ``gone``: none
    may. ``observed`` maps uids that the API already shows assigned to their node. ``stale``: a newer gateway leads.
    """

    status: AdvanceStatus
    attempt: int = 0
    gone: tuple[str, ...] = ()
    observed: Mapping[str, str] = {}
    epoch: int = 0


class Release(msgspec.Struct, frozen=True):
    """Give members back; no uids = the whole claim.

    By the scheduler or the queue: HELD members only (of a strict claim always all). By the gateway, fenced by
    ``role_epoch``: BINDING members after a definite refusal.
    """

    claim: str
    token: int
    uids: tuple[str, ...] = ()
    by: Literal["scheduler", "gateway", "queue"] = "scheduler"
    role_epoch: int = 0


class ReleaseAnswer(msgspec.Struct, frozen=True):
    """``released`` uids are gone, ``refused`` are in a state the caller may not end, ``items`` got room back."""

    status: Literal["ok", "stale", "epoch", "closed"]
    released: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    epoch: int = 0


# ---- what observations change ----------------------------------------------------------------------------------------


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """Members of a claim that ended without being observed, and why (``expired``, ``wounded``, ``nomination``, ...)."""

    claim: str
    uids: tuple[str, ...]
    reason: str


class Nameless(msgspec.Struct, frozen=True, array_like=True):
    """``count`` resource names that an item has limits of, ``name`` the first of them, for which no column is left.

    A node has no room for them, a quota does not limit them, until a rebuild has forgotten names that are not used.
    """

    item: str
    count: int
    name: str


class ObserveAnswer(msgspec.Struct, frozen=True):
    """What observations changed; the source of the hints on the bus.

    ``changed``: items whose free amount changed. ``freed``: those of them that may have got room. ``released``: HELD
    and BINDING members that ended (rows 5, 9) and ``expired`` claims (rows 4 and 6, and offers that lapsed; in
    anyone's call since the last answer). ``observed`` and ``gone``: uids that entered and left OBSERVED.
    ``overcommitted``: node amounts left below zero. ``nameless``: limits that could not be taken in.
    """

    status: Literal["ok", "stale", "epoch", "closed"]
    epoch: int = 0
    changed: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    released: tuple[Ended, ...] = ()
    expired: tuple[Ended, ...] = ()
    observed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    overcommitted: tuple[Short, ...] = ()
    nameless: tuple[Nameless, ...] = ()


class RetireAnswer(msgspec.Struct, frozen=True):
    """The claims that ended because their owners are dead; ``items`` got room back."""

    status: Literal["ok", "epoch", "closed"]
    ended: tuple[Ended, ...] = ()
    items: tuple[str, ...] = ()
