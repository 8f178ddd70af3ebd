"""What the ledger shows of itself: records, items, their sums, and the ledger at a glance."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from koord.accounting.takes import Take

MAX_AMOUNT: Final = 2**53
"""Largest magnitude of an amount: doubles are exact up to here."""

State = Literal["HELD", "BINDING", "OBSERVED"]


class Record(msgspec.Struct, frozen=True):
    """The one record of a pod or QueueUnit.

    ``claim`` and ``trace`` outlive the claim; both are empty if the pod was not placed through the ledger. ``takes`` is
    what is stored: held, or charged once OBSERVED. ``via`` is the reservation claimed through (later).
    """

    uid: str
    state: State
    claim: str
    token: int
    owner: str
    namespace: str
    name: str
    node: str
    takes: tuple[Take, ...]
    decision: str = ""
    attempts: int = 0
    resource_version: str = ""
    trace: str = ""
    slots: tuple[str, ...] = ()
    via: str = ""


class Item(msgspec.Struct, frozen=True):
    """One item's amounts by key; ``limits`` misses keys that have none. ``refs``: records that refer to it."""

    limits: Mapping[str, int]
    used: Mapping[str, int]
    held: Mapping[str, int]
    nested: Mapping[str, int] = {}
    open: bool = True
    refs: int = 0
    version: int = 0


class Folded(msgspec.Struct, frozen=True, array_like=True):
    """Up to where the ledger was told of the state stream: its epoch and a sequence in it; empty: not known."""

    epoch: str = ""
    sequence: int = 0


class LedgerStatus(msgspec.Struct, frozen=True):
    """The ledger at a glance. ``roles`` maps a role to its highest epoch and the incarnation that has it."""

    open: bool
    epoch: int
    run_id: str
    token: int
    held: int
    binding: int
    observed: int
    items: int
    roles: Mapping[str, tuple[int, str]] = {}
    folded: Folded = Folded()


class Sums(msgspec.Struct, frozen=True):
    """What an item says and what the records say of it, at one moment: equal unless the ledger is damaged."""

    item: Item | None
    used: Mapping[str, int]
    held: Mapping[str, int]
    refs: int

    @property
    def right(self) -> bool:
        """Whether they are equal, as far as the ledger's sums are exact."""
        item = self.item or Item({}, {}, {})
        return item.refs == self.refs and _equal(item.used, self.used) and _equal(item.held, self.held)


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """Something that no call of the library leaves behind: the ledger is damaged. ``text`` says what is wrong.

    ``kind``: ``claim``, ``slot``, ``record``, ``item``, or ``count`` for a number kept beside what it counts.
    """

    kind: str
    name: str
    text: str


def _equal(left: Mapping[str, int], right: Mapping[str, int]) -> bool:
    pairs = ((left.get(key, 0), right.get(key, 0)) for key in {*left, *right})
    return all(a == b or max(abs(a), abs(b)) >= MAX_AMOUNT for a, b in pairs)
