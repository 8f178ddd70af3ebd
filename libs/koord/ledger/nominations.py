"""Nominations: room that is kept for pods until their victims are gone (spec 20 section 3.12)."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from koord.ledger.model import Member, Short

OFFER_S: Final = 60.0
"""How long a nomination may go without being seen at its pod, and how long victims are locked at most."""
DISRUPTIONS: Final = "disruptions"
"""The one key of a disruption budget's item, ``pdb/<namespace>/<name>``; limit: status.disruptionsAllowed."""


class Victim(msgspec.Struct, frozen=True, array_like=True):
    """A running pod that is to be evicted, and the items of the disruption budgets of which that takes a unit."""

    uid: str
    budgets: tuple[str, ...] = ()


class NominateRequest(msgspec.Struct, frozen=True):
    """Room kept for all ``members`` of a preemptor, before any eviction: all together or not at all.

    ``id`` is never reused; the same again is no second offer. Of a member's takes only those of its node count. Per
    node they must be at most what is free, plus what ``victims`` are charged with there, minus nominations of
    ``priority`` or more. Victims are locked for this offer, and it holds a unit (key ``disruptions``) of each of their
    budgets. A member that is nominated already loses that nomination to this one. ``group`` is that of its claims.
    ``lease_s``, at most 60: how long members are offered; victims and units stay locked no longer, even when all
    members were noted.
    """

    id: str
    members: tuple[Member, ...]
    priority: int = 0
    group: str = ""
    victims: tuple[Victim, ...] = ()
    lease_s: float = OFFER_S


class NominateAnswer(msgspec.Struct, frozen=True):
    """What became of it, in the words of :class:`ClaimAnswer`."""

    status: Literal["ok", "conflict", "busy", "epoch", "closed"]
    epoch: int = 0
    shorts: tuple[Short, ...] = ()
    busy_uid: str = ""
    busy_claim: str = ""


class Nomination(msgspec.Struct, frozen=True):
    """One nominated pod as it is stored. ``offer`` is empty once its victims are not locked any more, or never were."""

    uid: str
    offer: str
    namespace: str
    name: str
    node: str
    amounts: Mapping[str, int]
    noted: bool
    priority: int
    group: str
    foreign: bool
