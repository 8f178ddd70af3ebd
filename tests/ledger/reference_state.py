"""The state of the reference ledger and its sums, added up from the records whenever one is needed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from koord.accounting.takes import Take
from koord.ledger.model import (
    Ended,
    Item,
    Record,
)


@dataclass
class Entry:
    """One record."""

    uid: str
    state: str
    claim: str
    token: int
    owner: str
    namespace: str
    name: str
    node: str
    takes: tuple[Take, ...]
    decision: str = ""
    attempts: int = 0
    version: str = ""
    trace: str = ""

    def record(self) -> Record:
        return Record(
            self.uid,
            self.state,  # type: ignore[arg-type]
            self.claim,
            self.token,
            self.owner,
            self.namespace,
            self.name,
            self.node,
            self.takes,
            self.decision,
            self.attempts,
            self.version,
            self.trace,
        )


@dataclass
class Claim:
    """What is known of a claim while a member of it is HELD or BINDING."""

    token: int
    owner: str
    strict: bool
    uids: list[str]
    priority: int = 0
    ticket: int = 0

    def live(self, records: dict[str, Entry]) -> list[str]:
        """Members that are HELD or BINDING by it."""
        found = ((uid, records.get(uid)) for uid in self.uids)
        return [uid for uid, e in found if e and e.token == self.token and e.state in ("HELD", "BINDING")]


@dataclass
class Limits:
    """What an item may give."""

    open: bool
    limits: dict[str, int]
    version: str = ""
    generation: int = 0


def number(version: str) -> int:
    return int(version) if version else 0


@dataclass
class State:
    """One ledger of one epoch: what is in it, its sums, and the moves that several functions share."""

    epoch: int
    token: int = 0
    known: dict[str, Limits] = field(default_factory=dict)
    records: dict[str, Entry] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    lapsed: set[str] = field(default_factory=set)
    roles: dict[str, tuple[int, str]] = field(default_factory=dict)
    reports: list[Ended] = field(default_factory=list)
    report_items: set[str] = field(default_factory=set)
    guards: dict[str, int] = field(default_factory=dict)
    bumped: set[str] = field(default_factory=set)
    tickets: dict[str, int] = field(default_factory=dict)

    # ---- sums ----

    def total(self, item: str, key: str, *states: str) -> int:
        return sum(
            take.amounts.get(key, 0)
            for entry in self.records.values()
            if entry.state in states
            for take in entry.takes
            if take.item == item
        )

    def free(self, item: str, key: str) -> float:
        missing = 0 if item.startswith("node/") else math.inf
        known = self.known.get(item)
        limit = known.limits.get(key, missing) if known else missing
        return limit - self.total(item, key, "HELD", "BINDING", "OBSERVED")

    def is_open(self, item: str) -> bool:
        return item in self.known and self.known[item].open

    def keys(self, item: str) -> set[str]:
        keys = set(self.known[item].limits) if item in self.known else set()
        return keys.union(*(t.amounts for e in self.records.values() for t in e.takes if t.item == item))

    def refs(self, item: str) -> int:
        return sum(take.item == item for entry in self.records.values() for take in entry.takes)

    def names(self) -> set[str]:
        return {name for name, known in self.known.items() if known.open} | {
            take.item for entry in self.records.values() for take in entry.takes
        }

    def items(self) -> dict[str, Item]:
        found = {}
        for name in self.names():
            amounts: dict[str, tuple[float, int, int]] = {}
            missing = 0 if name.startswith("node/") else math.inf
            for key in self.keys(name):
                limit = self.known[name].limits.get(key, missing) if name in self.known else missing
                row = (limit, self.total(name, key, "OBSERVED"), self.total(name, key, "HELD", "BINDING"))
                if row != (missing, 0, 0):
                    amounts[key] = row
            found[name] = Item(
                {key: int(row[0]) for key, row in amounts.items() if row[0] != math.inf},
                {key: row[1] for key, row in amounts.items() if row[1]},
                {key: row[2] for key, row in amounts.items() if row[2]},
                {},
                self.is_open(name),
                self.refs(name),
                self.guard(name) if name in self.known else 0,
            )
        return found

    def free_amounts(self) -> dict[str, dict[str, float]]:
        return {name: {key: self.free(name, key) for key in self.keys(name)} for name in self.names()}

    def guard(self, name: str) -> int:
        """Its version. Terms get theirs from the clock: a test reads the new version of what is in ``bumped``."""
        if name.startswith("node/"):
            return self.known[name].generation if name in self.known else 0
        return self.guards.get(name, 0)

    # ---- moves ----

    def held(self, claim: str) -> list[str]:
        uids = self.claims[claim].uids
        return [u for u in uids if u in self.records and self.is_of(u, claim) and self.records[u].state == "HELD"]

    def is_of(self, uid: str, claim: str) -> bool:
        return self.records[uid].claim == claim

    def drop(self, uids: Iterable[str]) -> None:
        for uid in uids:
            del self.records[uid]
        self.tidy()

    def tidy(self) -> None:
        """Claims without a HELD or BINDING member are gone."""
        for claim in list(self.claims):
            if not any(e.claim == claim and e.state in ("HELD", "BINDING") for e in self.records.values()):
                del self.claims[claim]
                self.lapsed.discard(claim)

    def forget_closed(self) -> None:
        """At the end of a call, closed items that no record refers to are gone."""
        for name in [name for name, known in self.known.items() if not known.open and not self.refs(name)]:
            del self.known[name]

    def sweep(self) -> None:
        for claim in sorted(self.lapsed):
            if claim in self.claims and (uids := self.held(claim)):
                self.report_items |= {take.item for uid in uids for take in self.records[uid].takes}
                self.reports.append(Ended(claim, tuple(uids), "expired"))
                self.drop(uids)
        self.lapsed.clear()

    def leads(self, role: str, epoch: int, incarnation: str) -> bool:
        highest, holder = self.roles.get(role, (0, ""))
        if epoch < highest or (epoch == highest and incarnation != holder):
            return False
        self.roles[role] = (epoch, incarnation)
        return True

    def lead(self, role: str, incarnation: str, given: int) -> int:
        """``given``: the epoch that the clock gave, which must be above the highest."""
        highest, holder = self.roles[role]
        if holder != incarnation:
            self.roles[role] = (max(highest + 1, given), incarnation)
        return self.roles[role][0]
