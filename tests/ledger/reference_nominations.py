"""Nominations in the reference ledger: sums are added up from the nominations whenever one is needed."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from koord.ledger.model import Ended, Member, PodNominated, Short
from koord.ledger.nominations import DISRUPTIONS, NominateAnswer, NominateRequest, Nomination, Victim
from tests.ledger.reference_state import State, number


@dataclass
class Nominee:
    """One nominated pod."""

    offer: str
    item: str
    amounts: dict[str, int]
    noted: bool
    priority: int
    group: str
    foreign: bool = False
    version: str = ""


@dataclass
class Nominations(State):
    """What is nominated, offered and locked."""

    nominees: dict[str, Nominee] = field(default_factory=dict)
    victims: dict[str, list[Victim]] = field(default_factory=dict)
    lapsed_offers: set[str] = field(default_factory=set)
    unreserved: set[str] = field(default_factory=set)

    # ---- sums: units of budgets are held without a record ----

    def units(self, item: str) -> int:
        return sum(victim.budgets.count(item) for victims in self.victims.values() for victim in victims)

    def total(self, item: str, key: str, *states: str) -> int:
        extra = self.units(item) if key == DISRUPTIONS and "HELD" in states else 0
        return super().total(item, key, *states) + extra

    def keys(self, item: str) -> set[str]:
        return super().keys(item) | ({DISRUPTIONS} if self.units(item) else set())

    def refs(self, item: str) -> int:
        return super().refs(item) + self.units(item)

    def names(self) -> set[str]:
        budgets = {name for victims in self.victims.values() for victim in victims for name in victim.budgets}
        return super().names() | budgets

    def nominations(self) -> dict[str, Nomination]:
        return {
            uid: Nomination(
                uid,
                one.offer,
                "ns",
                uid,
                one.item.removeprefix("node/"),
                one.amounts,
                one.noted,
                one.priority,
                one.group,
                one.foreign,
            )
            for uid, one in self.nominees.items()
        }

    # ---- what others must leave ----

    def rivals(self, item: str, priority: int, group: str, own: Collection[str]) -> dict[str, Nominee]:
        return {
            uid: one
            for uid, one in self.nominees.items()
            if one.item == item
            and uid not in own
            and not (group and one.group == group)
            and (one.priority > priority or (one.priority == priority and not one.foreign))
        }

    def reserved(self, item: str, key: str, priority: int, group: str, own: Collection[str]) -> int:
        return sum(one.amounts.get(key, 0) for one in self.rivals(item, priority, group, own).values())

    def holder(self, item: str, priority: int, group: str, own: Collection[str]) -> str:
        rivals = self.rivals(item, priority, group, own)
        return min(rivals, key=lambda uid: (-rivals[uid].priority, uid), default="")

    # ---- the function ----

    def nominate(self, epoch: int, requests: Sequence[NominateRequest]) -> list[NominateAnswer]:
        if epoch != self.epoch:
            return [NominateAnswer("epoch", self.epoch)] * len(requests)
        self.sweep()
        answers = [self.nominate_one(request) for request in requests]
        self.forget_closed()
        return answers

    def nominate_one(self, request: NominateRequest) -> NominateAnswer:
        if request.id in self.victims:
            return NominateAnswer("ok", self.epoch)
        for member in request.members:
            if member.uid in self.records:
                return NominateAnswer("busy", self.epoch, (), member.uid, self.records[member.uid].claim)
            if member.uid in self.marks:
                return NominateAnswer("busy", self.epoch, (), member.uid, "")
        own = {member.uid for member in request.members}
        offers = {self.nominees[uid].offer for uid in own if uid in self.nominees} - {""}
        replaced = {o for o in offers if {uid for uid, one in self.nominees.items() if one.offer == o} <= own}
        shorts = self.shorts_on_nodes(request, own) + self.shorts_of_victims(request.victims, replaced)
        if shorts:
            return NominateAnswer("conflict", self.epoch, tuple(shorts))
        for uid in own:
            self.end_nominee(uid)
        for m in request.members:
            amounts = on_node(m)
            self.nominees[m.uid] = Nominee(
                request.id, f"node/{m.node}", amounts, False, request.priority, request.group
            )
        self.victims[request.id] = list(request.victims)
        return NominateAnswer("ok", self.epoch)

    def shorts_on_nodes(self, request: NominateRequest, own: Collection[str]) -> list[Short]:
        needed: dict[str, Counter[str]] = defaultdict(Counter)
        for member in request.members:
            needed[f"node/{member.node}"].update(on_node(member))
        locked = [self.records.get(victim.uid) for victim in request.victims]
        shorts = []
        for item, sums in needed.items():
            if not self.is_open(item):
                shorts.append(Short(item, "", "closed", 0, 0, self.guard(item)))
                continue
            for key in sorted(sums):
                charged = sum(
                    take.amounts.get(key, 0)
                    for record in locked
                    if record and record.state == "OBSERVED"
                    for take in record.takes
                    if take.item == item
                )
                room = self.free(item, key) + charged
                left = room - self.reserved(item, key, request.priority, "", own)
                if sums[key] > 0 and left < sums[key]:
                    nomination = room >= sums[key]
                    shorts.append(
                        Short(
                            item,
                            key,
                            "nomination" if nomination else "amount",
                            sums[key],
                            int(max(left, 0)),
                            self.guard(item),
                            self.holder(item, request.priority, "", own) if nomination else "",
                        )
                    )
        return shorts

    def shorts_of_victims(self, victims: Sequence[Victim], replaced: Collection[str]) -> list[Short]:
        shorts = []
        locked = {v.uid: id_ for id_, vs in self.victims.items() if id_ not in replaced for v in vs}
        for victim in victims:
            if victim.uid in locked:
                holder = f"nomination:{locked[victim.uid]}"
                shorts.append(Short(f"victim/{victim.uid}", "", "slot", 1, 0, 0, holder))
        units: Counter[str] = Counter(name for victim in victims for name in victim.budgets)
        for name, needed in units.items():
            back = sum(v.budgets.count(name) for id_ in replaced for v in self.victims.get(id_, ()))
            free = self.free(name, DISRUPTIONS) + back
            if not self.is_open(name):
                shorts.append(Short(name, "", "closed", 0, 0))
            elif free < needed:
                shorts.append(Short(name, DISRUPTIONS, "amount", needed, int(max(free, 0))))
        return shorts

    # ---- ends ----

    def end_nominee(self, uid: str) -> None:
        one = self.nominees.pop(uid, None)
        if one is None:
            return
        self.unreserved.add(one.item)
        if one.offer and not any(other.offer == one.offer for other in self.nominees.values()):
            self.victims.pop(one.offer, None)

    def end_victim(self, uid: str) -> None:
        for victims in self.victims.values():
            victims[:] = [victim for victim in victims if victim.uid != uid]

    def end_room(self, item: str) -> None:
        for uid in [uid for uid, one in self.nominees.items() if one.item == item]:
            self.end_nominee(uid)

    def sweep(self) -> None:
        for id_ in sorted(self.lapsed_offers):
            if id_ not in self.victims:
                continue
            members = {uid: one for uid, one in self.nominees.items() if one.offer == id_}
            ended = [uid for uid, one in members.items() if not one.noted]
            items = {members[uid].item for uid in ended}
            items |= {name for victim in self.victims[id_] for name in victim.budgets}
            for one in members.values():
                one.offer = ""
            for uid in ended:
                del self.nominees[uid]
            del self.victims[id_]
            self.reports.append(Ended(id_, tuple(ended), "nomination"))
            self.report_items |= items
        self.lapsed_offers.clear()
        super().sweep()

    def fold_nominated(self, seen: PodNominated) -> None:
        if seen.uid in self.records or seen.uid in self.marks:
            return
        one = self.nominees.get(seen.uid)
        if one and number(seen.resource_version) < number(one.version):
            return
        if not seen.node:
            if one and one.noted:
                self.end_nominee(seen.uid)
            return
        item = f"node/{seen.node}"
        amounts = on_node(Member(seen.uid, "ns", seen.uid, seen.node, seen.takes))
        if one and one.item == item:
            one.amounts, one.noted, one.priority, one.foreign = amounts, True, seen.priority, seen.foreign
            one.group, one.version = seen.group or one.group, seen.resource_version
            return
        self.end_nominee(seen.uid)
        if self.is_open(item):
            self.nominees[seen.uid] = Nominee(
                "", item, amounts, True, seen.priority, seen.group, seen.foreign, seen.resource_version
            )


def on_node(member: Member) -> dict[str, int]:
    total: Counter[str] = Counter()
    for take in member.takes:
        if take.item == f"node/{member.node}":
            for key, amount in take.amounts.items():
                total[key] += amount
    return dict(total)
