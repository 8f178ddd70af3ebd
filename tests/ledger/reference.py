"""The ledger in plain Python, as spec 20 section 3.12 reads, for comparison with the functions in Redis.

Slow and simple on purpose: it stores no sums at all but adds up the records whenever it needs one. Time is not
modelled: a test says which claims' leases are over (``lapse``), the next call ends them.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from koord.ledger.model import (
    Advance,
    AdvanceAnswer,
    ClaimAnswer,
    ClaimRequest,
    Ended,
    ItemClosed,
    LimitSet,
    Member,
    NodeSeen,
    Observation,
    ObserveAnswer,
    PodGone,
    PodNominated,
    PodSeen,
    PodTerminating,
    Release,
    ReleaseAnswer,
    Settled,
    Short,
    UnitGone,
    UnitSeen,
    UnitUnbound,
    Wounded,
)
from tests.ledger.reference_nominations import Nominations
from tests.ledger.reference_state import Claim, Entry, Limits, number


@dataclass
class Reference(Nominations):
    """The functions."""

    def claim(self, epoch: int, owner: str, requests: Sequence[ClaimRequest]) -> list[ClaimAnswer]:
        if epoch != self.epoch:
            return [ClaimAnswer("epoch", 0, self.epoch)] * len(requests)
        self.sweep()
        answers = [self.judge(owner, request) for request in requests]
        self.forget_closed()
        return answers

    def judge(self, owner: str, request: ClaimRequest) -> ClaimAnswer:
        entry = self.claims.get(request.id)
        if entry and not request.token:
            return ClaimAnswer("ok", entry.token, self.epoch)
        if request.token and (
            not entry
            or entry.token != request.token
            or any(e.claim == request.id and e.state == "BINDING" for e in self.records.values())
        ):
            return ClaimAnswer("stale", 0, self.epoch)
        fresh: list[Member] = []
        for member in request.members:
            record = self.records.get(member.uid)
            if record and record.claim != request.id:
                return ClaimAnswer("busy", 0, self.epoch, (), member.uid, record.claim)
            if record and not entry:
                return ClaimAnswer("ok", record.token, self.epoch)
            if not record and member.uid in self.marks:
                return ClaimAnswer("busy", 0, self.epoch, (), member.uid, "")
            if not record:
                fresh.append(member)
        shorts = self.shorts(request, fresh) if fresh else []
        shorts += [
            Short(guard.item, "", "guard", guard.version, 0, self.guard(guard.item))
            for guard in request.guards
            if fresh and guard.version >= 0 and guard.version != self.guard(guard.item)
        ]
        if not fresh:
            return ClaimAnswer("ok", request.token, self.epoch)
        ticket = self.ticket(request)
        wounded: list[Wounded] = []
        if shorts:
            victims = self.to_wound(request, ticket, fresh) if request.wound else ()
            if not victims or any(short.kind not in ("amount", "nomination") for short in shorts):
                return ClaimAnswer("conflict", 0, self.epoch, tuple(shorts))
            wounded = [self.wound(victim) for victim in victims]
        if not entry:
            self.token += 1
            entry = self.claims[request.id] = Claim(
                self.token, owner, request.strict, [], request.priority, ticket or self.token
            )
        for m in fresh:
            self.records[m.uid] = Entry(
                m.uid, "HELD", request.id, entry.token, owner, m.namespace, m.name, m.node, m.takes, trace=request.trace
            )
            entry.uids.append(m.uid)
            self.end_nominee(m.uid)
        self.bumped |= {guard.item for guard in request.guards if guard.bump}
        return ClaimAnswer("ok", entry.token, self.epoch, wounded=tuple(wounded))

    def ticket(self, request: ClaimRequest) -> int:
        if request.ticket or not request.group:
            return request.ticket
        if request.group not in self.tickets:
            self.token += 1
            self.tickets[request.group] = self.token
        return self.tickets[request.group]

    def to_wound(self, request: ClaimRequest, ticket: int, members: Sequence[Member]) -> Sequence[str]:
        """The fewest HELD claims of lower rank whose end makes room; of those the lowest, compared from below."""
        entry = self.claims.get(request.id)
        mine = (entry.priority, -entry.ticket) if entry else (request.priority, -(ticket or self.token + 1))
        needed: dict[tuple[str, str], int] = defaultdict(int)
        checked = {(take.item, key) for m in members for take in m.takes if take.checked for key in take.amounts}
        for take in (take for member in members for take in member.takes):
            for key, amount in take.amounts.items():
                needed[take.item, key] += amount
        own = {member.uid for member in members}
        missing = {
            at: needed[at] - self.free(*at) + self.reserved(*at, request.priority, request.group, own)
            for at in checked
            if needed[at] > 0
        }

        def gives(claim: str, at: tuple[str, str]) -> int:
            takes = [take for uid in self.held(claim) for take in self.records[uid].takes if take.item == at[0]]
            return sum(take.amounts.get(at[1], 0) for take in takes)

        candidates = [
            id_
            for id_, claim in self.claims.items()
            if self.held(id_) == claim.live(self.records)
            and (claim.priority, -claim.ticket) < mine
            and any(gap > 0 and gives(id_, at) > 0 for at, gap in missing.items())
        ]
        candidates.sort(key=lambda id_: (self.claims[id_].priority, -self.claims[id_].ticket, -self.claims[id_].token))
        for size in range(1, len(candidates) + 1):
            for chosen in itertools.combinations(candidates, size):
                if all(sum(gives(id_, at) for id_ in chosen) >= gap for at, gap in missing.items()):
                    return chosen
        return ()

    def wound(self, claim: str) -> Wounded:
        uids, owner = self.held(claim), self.claims[claim].owner
        items = sorted({take.item for uid in uids for take in self.records[uid].takes})
        self.report_items |= set(items)
        self.reports.append(Ended(claim, tuple(uids), "wounded"))
        self.drop(uids)
        return Wounded(claim, owner, tuple(uids), tuple(items))

    def shorts(self, request: ClaimRequest, members: Sequence[Member]) -> list[Short]:
        needed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        checked: dict[str, set[str]] = defaultdict(set)
        must_be_open: set[str] = set()
        for take in (take for member in members for take in member.takes):
            for key, amount in take.amounts.items():
                needed[take.item][key] += amount
            needed.setdefault(take.item, defaultdict(int))
            if take.checked:
                checked[take.item] |= set(take.amounts)
                must_be_open.add(take.item)
        shorts = []
        for item, amounts in needed.items():
            version = self.guard(item) if item.startswith("node/") else 0
            if item in must_be_open and not self.is_open(item):
                shorts.append(Short(item, "", "closed", 0, 0, version))
                continue
            for key in sorted(checked[item]):
                rivals = request.priority, request.group, {member.uid for member in members}
                free = self.free(item, key)
                left = free - self.reserved(item, key, *rivals)
                if amounts[key] > 0 and free < amounts[key]:
                    shorts.append(Short(item, key, "amount", amounts[key], int(max(left, 0)), version))
                elif amounts[key] > 0 and left < amounts[key]:
                    holder = self.holder(item, *rivals)
                    shorts.append(Short(item, key, "nomination", amounts[key], int(max(left, 0)), version, holder))
        return shorts

    def advance(self, incarnation: str, items: Sequence[Advance], role_epoch: int) -> list[AdvanceAnswer]:
        if not self.leads("gateway", role_epoch, incarnation):
            return [AdvanceAnswer("stale", 0, item.uids, {}, self.epoch) for item in items]
        self.sweep()
        self.forget_closed()
        return [self.advance_one(item) for item in items]

    def advance_one(self, item: Advance) -> AdvanceAnswer:
        if item.epoch != self.epoch:
            return AdvanceAnswer("epoch", 0, item.uids, {}, self.epoch)
        going, gone, observed = [], [], {}
        for uid in item.uids:
            record = self.records.get(uid)
            if record and record.state == "OBSERVED":
                observed[uid] = record.node
            elif (
                record
                and (record.claim, record.token) == (item.claim, item.token)
                and (record.state == "HELD" or record.decision == item.decision)
            ):
                going.append(record)
            else:
                gone.append(uid)
        held = {record.uid for record in going if record.state == "HELD"}
        strict = bool(held) and self.claims[item.claim].strict
        if strict and (gone or held != set(self.held(item.claim))):
            return AdvanceAnswer("gone", 0, item.uids, observed, self.epoch)
        for record in going:
            record.state, record.decision, record.attempts = "BINDING", item.decision, record.attempts + 1
        attempt = max((record.attempts for record in going), default=0)
        return AdvanceAnswer("ok" if going or observed else "gone", attempt, tuple(gone), observed, self.epoch)

    def release(self, epoch: int, incarnation: str, items: Sequence[Release]) -> list[ReleaseAnswer]:
        if epoch != self.epoch:
            return [ReleaseAnswer("epoch", epoch=self.epoch)] * len(items)
        self.sweep()
        answers = [self.release_one(incarnation, item) for item in items]
        self.forget_closed()
        return answers

    def release_one(self, incarnation: str, item: Release) -> ReleaseAnswer:
        gateway = item.by == "gateway"
        if gateway and not self.leads("gateway", item.role_epoch, incarnation):
            return ReleaseAnswer("stale", (), item.uids, (), self.epoch)
        entry = self.claims.get(item.claim)
        if entry and entry.token != item.token:
            return ReleaseAnswer("stale", (), item.uids, (), self.epoch)
        uids: Sequence[str] = item.uids
        if entry and (not uids or (entry.strict and not gateway)):
            uids = entry.uids
        wanted = "BINDING" if gateway else "HELD"
        ours = [
            uid
            for uid in uids
            if uid in self.records and (self.records[uid].claim, self.records[uid].token) == (item.claim, item.token)
        ]
        released = [uid for uid in ours if self.records[uid].state == wanted]
        refused = tuple(uid for uid in ours if self.records[uid].state != wanted)
        items = sorted({take.item for uid in released for take in self.records[uid].takes})
        self.drop(released)
        return ReleaseAnswer("ok", tuple(released), refused, tuple(items), self.epoch)

    # ---- observations ----

    def observe(
        self, epoch: int, role: str, role_epoch: int, incarnation: str, observations: Sequence[Observation]
    ) -> ObserveAnswer:
        if epoch != self.epoch:
            return ObserveAnswer("epoch", self.epoch)
        if not self.leads(role, role_epoch, incarnation):
            return ObserveAnswer("stale", self.epoch)
        before, was_open = self.free_amounts(), {name for name in self.names() if self.is_open(name)}
        self.sweep()
        self.ended: list[Ended] = []
        self.seen: list[str] = []
        self.gone: list[str] = []
        self.pressed: set[str] = set()
        self.unreserved = set()
        closed: set[str] = set()
        for seen in observations:
            self.fold(seen, closed)
        self.press(closed)
        changed, freed = set(), set()
        for name in before.keys() | self.names():
            missing = 0 if name.startswith("node/") else math.inf
            old = before.get(name, {})
            rows = [(old.get(key, missing), self.free(name, key)) for key in old.keys() | self.keys(name)]
            opened = self.is_open(name) and name not in was_open
            if opened or (name in was_open) != self.is_open(name) or any(now != was for was, now in rows):
                changed.add(name)
            if self.is_open(name) and (opened or any(now > was for was, now in rows)):
                freed.add(name)
        changed |= {name for name in self.unreserved if self.is_open(name)}
        freed |= {name for name in self.unreserved if self.is_open(name)}
        self.forget_closed()
        expired: tuple[Ended, ...] = ()
        if role == "reconciler":
            expired = tuple(self.reports)
            freed |= self.report_items
            self.reports, self.report_items = [], set()
        return ObserveAnswer(
            "ok",
            self.epoch,
            tuple(sorted(changed | freed)),
            tuple(sorted(freed)),
            tuple(self.ended),
            expired,
            tuple(self.seen),
            tuple(self.gone),
            tuple(self.overcommitted()),
        )

    def fold(self, seen: Observation, closed: set[str]) -> None:
        match seen:
            case NodeSeen():
                known = self.known.get(seen.item)
                if known and number(seen.resource_version) < number(known.version):
                    return
                generation = seen.generation or self.guard(seen.item)
                self.known[seen.item] = Limits(True, dict(seen.limits), seen.resource_version, generation)
                self.pressed.add(seen.item)
            case LimitSet():
                self.known[seen.item] = Limits(True, dict(seen.limits))
            case ItemClosed():
                known = self.known.get(seen.item)
                if not known or not known.open:
                    return
                if seen.resource_version and number(seen.resource_version) < number(known.version):
                    return
                known.open, known.version = False, seen.resource_version or known.version
                if seen.item.startswith("node/"):
                    closed.add(seen.item)
                    self.end_room(seen.item)
            case PodNominated():
                self.fold_nominated(seen)
            case PodTerminating():
                self.end_victim(seen.uid)
            case PodSeen() | UnitSeen():
                self.fold_seen(seen, seen.node if isinstance(seen, PodSeen) else "")
            case PodGone() | UnitGone():
                record = self.records.get(seen.uid)
                old = number(seen.resource_version) < number(record.version) if record else False
                if record and record.state == "OBSERVED" and seen.resource_version and old:
                    return
                self.end_nominee(seen.uid)
                self.end_victim(seen.uid)
                if record:
                    self.end(record, "gone")
                self.marks.add(seen.uid)
            case UnitUnbound():
                record = self.records.get(seen.uid)
                if record and record.state == "OBSERVED":
                    version = seen.resource_version
                    if not version or number(version) > number(record.version):
                        self.end(record, "unbound")
            case Settled():
                record = self.records.get(seen.uid)
                if record and (record.state, record.token, record.attempts) == ("BINDING", seen.token, seen.attempts):
                    self.end(record, "unbound")

    def fold_seen(self, seen: PodSeen | UnitSeen, node: str) -> None:
        self.end_nominee(seen.uid)
        if seen.uid in self.marks:
            return
        record = self.records.get(seen.uid)
        items = {take.item for take in seen.takes}
        if record and record.state == "OBSERVED":
            if number(seen.resource_version) > number(record.version):
                if record.takes != seen.takes:
                    self.pressed |= items
                record.takes, record.version, record.node = seen.takes, seen.resource_version, node
            return
        if record and record.node != node:
            self.end(record, "elsewhere")
            record = None
        if not record or record.takes != seen.takes:
            self.pressed |= items
        if not record:
            record = Entry(seen.uid, "", "", 0, "", seen.namespace, seen.name, node, ())
            self.records[seen.uid] = record
            self.bumped |= set(seen.bumps) if isinstance(seen, PodSeen) else set()
        record.state, record.takes, record.version = "OBSERVED", seen.takes, seen.resource_version
        self.seen.append(seen.uid)
        self.tidy()

    def end(self, record: Entry, reason: str) -> None:
        if record.state == "OBSERVED":
            self.gone.append(record.uid)
            self.drop([record.uid])
            return
        uids = [record.uid]
        if record.state == "HELD" and self.claims[record.claim].strict:
            uids = self.held(record.claim)
        self.ended.append(Ended(record.claim, tuple(uids), reason))
        self.drop(uids)

    def below_zero(self, item: str) -> set[str]:
        return {key for key in self.keys(item) if self.free(item, key) < 0}

    def press(self, closed: set[str]) -> None:
        """HELD claims on closed nodes and on overcommitted ones go, newest token first."""
        pressed = {item for item in self.pressed if item.startswith("node/") and self.is_open(item)}
        for claim in sorted(self.claims, key=lambda claim: -self.claims[claim].token):
            for uid in list(self.claims[claim].uids):
                record = self.records.get(uid)
                if not record or record.claim != claim or record.state != "HELD":
                    continue
                for take in record.takes:
                    if take.item in closed and not self.is_open(take.item):
                        self.end(record, "node")
                        break
                    if take.item in pressed and any(take.amounts.get(key, 0) > 0 for key in self.below_zero(take.item)):
                        self.end(record, "overcommit")
                        break

    def overcommitted(self) -> list[Short]:
        return [
            Short(
                item,
                key,
                "amount",
                self.total(item, key, "HELD", "BINDING", "OBSERVED"),
                self.known[item].limits.get(key, 0),
                self.guard(item),
            )
            for item in sorted(self.pressed)
            if item.startswith("node/") and self.is_open(item)
            for key in sorted(self.below_zero(item))
        ]
