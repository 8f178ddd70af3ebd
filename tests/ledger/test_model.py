"""The functions in a real Redis against the plain model, over random sequences of everything that actors do.

Repeats, wrong tokens, old epochs, old leaders, lapsed leases, actors that die between two steps (they simply never go
on), events in any order. After each step the whole state must be equal, and the sums must be those of the records.
"""

import asyncio
import itertools
import os
from collections.abc import Sequence
from typing import Any

import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from koord.accounting.takes import Take, pod_takes, unit_takes
from koord.ledger.client import Ledger
from koord.ledger.model import (
    SHARED,
    Advance,
    ClaimRequest,
    Guard,
    Item,
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
    Role,
    Settled,
    UnitGone,
    UnitSeen,
    UnitUnbound,
)
from koord.ledger.nominations import DISRUPTIONS, NominateRequest, Victim
from tests.ledger.reference import Reference

_numbers = itertools.count()

PODS = [f"p{i}" for i in range(6)]
UNITS = [f"u{i}" for i in range(2)]
NODES = ["n0", "n1", "n2"]
CHAINS = [(), ("leaf", "root"), ("other", "root")]
ACTORS = ["a", "b"]
TERMS = ["term/x", "term/y"]
BUDGETS = ["pdb/ns/x", "pdb/ns/y"]
BUDGET_SETS = [(), ("pdb/ns/x",), ("pdb/ns/x", "pdb/ns/y")]

amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 3), min_size=1)
limits = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "pods"]), st.integers(0, 8))
versions = st.integers(1, 40).map(str)
flags = st.booleans()
Rank = dict[str, Any]
ranks: st.SearchStrategy[Rank] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {"priority": st.integers(0, 2), "wound": flags},
        optional={"ticket": st.integers(1, 3), "group": st.sampled_from(["g", "h"])},
    ),
)


@st.composite
def pods(draw: st.DrawFn, uid: str | None = None) -> Member:
    uid = uid or draw(st.sampled_from(PODS))
    node = draw(st.sampled_from(NODES))
    takes = pod_takes(
        draw(amounts), node, draw(st.sampled_from(CHAINS)), unit_owned=draw(flags), check_parents=draw(flags)
    )
    if draw(st.integers(0, 9)) == 0:
        takes += (Take("quota/leaf", {"cpu": draw(st.integers(-2, 2))}, checked=draw(flags)),)
    return Member(uid, "ns", uid, node, takes)


def pod_member(uid: str, cpu: int, node: str = "n0") -> Member:
    return Member(uid, "ns", uid, node, (Take(f"node/{node}", {"cpu": cpu}),))


def first(pair: tuple[str, object]) -> str:
    return pair[0]


@st.composite
def units(draw: st.DrawFn) -> Member:
    uid = draw(st.sampled_from(UNITS))
    return Member(uid, "ns", uid, "", unit_takes(draw(amounts), draw(st.sampled_from(CHAINS[1:]))))


@st.composite
def member_lists(draw: st.DrawFn) -> tuple[Member, ...]:
    if draw(st.integers(0, 4)) == 0:
        return (draw(units()),)
    uids = draw(st.lists(st.sampled_from(PODS), min_size=1, max_size=3, unique=True))
    return tuple(draw(pods(uid)) for uid in uids)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    version = draw(versions)
    match draw(st.integers(0, 10)):
        case 0:
            return NodeSeen("node/" + draw(st.sampled_from(NODES)), draw(limits), version, draw(st.integers(0, 3)))
        case 1:
            family = draw(st.sampled_from(["quota/", "admitted/"]))
            return LimitSet(family + draw(st.sampled_from(["leaf", "other", "root"])), draw(limits))
        case 2:
            item = draw(st.sampled_from(["node/n0", "node/n1", "quota/leaf", "admitted/root"]))
            return ItemClosed(item, draw(st.sampled_from(["", version])) if item.startswith("node/") else "")
        case 3 | 4 | 5:
            pod = draw(pods())
            bumps = draw(st.lists(st.sampled_from(TERMS), max_size=1))
            return PodSeen(pod.uid, "ns", pod.name, pod.node, pod.takes, version, tuple(bumps))
        case 6:
            return PodGone(draw(st.sampled_from(PODS)), "ns", "x", draw(st.sampled_from(["", version])))
        case 7 if draw(flags):
            return LimitSet(draw(st.sampled_from(BUDGETS)), {DISRUPTIONS: draw(st.integers(0, 3))})
        case 7:
            return PodTerminating(draw(st.sampled_from(PODS)), "ns", "x")
        case 8 | 9:
            pod = draw(pods())
            node = draw(st.sampled_from([pod.node, pod.node, ""]))
            group, foreign = draw(st.sampled_from(["", "g"])), draw(flags)
            return PodNominated(
                pod.uid, "ns", pod.name, node, pod.takes, draw(st.integers(0, 2)), version, group, foreign
            )
        case 10 if draw(flags):
            unit = draw(units())
            return UnitSeen(unit.uid, "ns", unit.name, unit.takes, version)
        case _:
            if draw(st.integers(0, 3)) == 0:
                return UnitGone(draw(st.sampled_from(UNITS)), "ns", "x", version)
            return UnitUnbound(draw(st.sampled_from(UNITS)), "ns", "x", version)


class Machine(RuleBasedStateMachine):
    """One ledger, two incarnations of everybody."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.cluster = f"model-{os.getpid()}-{next(_numbers)}"
        self.key = f"{{koord:{self.cluster}}}"
        self.redis = redis.Redis.from_url(self.url)
        self.actors = {
            name: self.do(Ledger.connect(self.url, self.cluster, f"{name}-{self.cluster}")) for name in ACTORS
        }
        self.sent: list[ClaimRequest] = []
        self.roles: dict[str, list[int]] = {}

    def do(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        for actor in self.actors.values():
            self.do(actor.close())
        keys = self.redis.keys(self.key + "*")
        if keys:
            self.redis.delete(*keys)
        self.redis.close()
        self.loop.close()

    @initialize(listed=flags)
    def start(self, listed: bool) -> None:
        first = self.actors["a"]
        epochs = {role: self.do(first.lead(role)) for role in ("gateway", "reconciler", "quota")}
        epoch = self.do(first.open(epochs["reconciler"]))
        for actor in self.actors.values():
            self.do(actor.status())
        self.model = Reference(epoch)
        for role, highest in epochs.items():
            self.model.roles[role] = (highest, first.incarnation)
            self.roles[role] = [highest]
        # Without a limit it has no column: what is taken of it is moved there when it gets one.
        gpu = {"gpu": 2} if listed else {}
        self.watch(
            "a",
            "reconciler",
            True,
            [NodeSeen(f"node/{node}", {"cpu": 8, "memory": 6, "pods": 9, **gpu}, "1") for node in NODES[:2]]
            + [LimitSet(f"{family}/{q}", {"cpu": 7}) for family in ("quota", "admitted") for q in ("leaf", "root")]
            + [LimitSet(budget, {DISRUPTIONS: 2}) for budget in BUDGETS],
        )

    def leader(self, actor: str, role: str, current: bool) -> tuple[Ledger, int]:
        """Who leads, with its epoch; or any actor with the first epoch that there was, most often a stale one."""
        if not current:
            return self.actors[actor], self.roles[role][0]
        epoch, incarnation = self.model.roles[role]
        return next(ledger for ledger in self.actors.values() if ledger.incarnation == incarnation), epoch

    def watch(self, actor: str, role: Role, current: bool, seen: Sequence[Observation]) -> None:
        ledger, epoch = self.leader(actor, role, current)
        answer = named(self.do(ledger.observe(seen, role=role, role_epoch=epoch)))
        assert answer == self.model.observe(ledger.epoch, role, epoch, ledger.incarnation, seen)
        self.learn_guards()

    def learn_guards(self) -> None:
        """Versions come from the clock of Redis: take over those of the bumped guards, each above its last."""
        found = self.do(self.actors["a"].guards(TERMS))
        for term in self.model.bumped:
            assert found[term] > self.model.guards.get(term, 0)
            self.model.guards[term] = found[term]
        self.model.bumped.clear()
        assert found == {term: self.model.guard(term) for term in TERMS}

    def guarded(self, kind: int) -> tuple[Guard, ...]:
        """Guards at their version or next to it."""
        if kind > 5:
            return ()
        name = TERMS[kind % 2] if kind < 4 else "node/" + NODES[kind % 2]
        return (Guard(name, self.model.guard(name) + (kind % 3 == 0), bump=kind < 3),)

    # ---- what may happen ----

    @rule(
        actor=st.sampled_from(ACTORS),
        claims=st.lists(
            st.tuples(member_lists(), flags, st.integers(0, 5), st.integers(0, 11), ranks), min_size=1, max_size=3
        ),
        old_epoch=st.integers(0, 19),
    )
    def claim(self, actor: str, claims: list[tuple[tuple[Member, ...], bool, int, int, Rank]], old_epoch: int) -> None:
        requests = []
        for members, strict, kind, guard, rank in claims:
            guards = self.guarded(guard)
            request = ClaimRequest(f"{actor}-{next(_numbers)}", members, (), guards, strict=strict, trace="t", **rank)
            if kind == 0 and self.sent:
                request = self.sent[-1]
            elif kind == 1 and self.sent:
                base = self.sent[len(members) % len(self.sent)]
                known = self.model.claims.get(base.id)
                token = known.token if known else 10**9
                request = ClaimRequest(base.id, members, (), guards, token=token, wound=bool(rank.get("wound")))
            else:
                self.sent.append(request)
            requests.append(request)
        ledger = self.actors[actor]
        epoch = ledger.epoch - (old_epoch == 0)
        ledger._epoch = epoch
        expected = self.model.claim(epoch, ledger.incarnation, requests)
        assert self.do(ledger.claim(requests)) == expected
        assert ledger.epoch == self.model.epoch
        self.learn_guards()

    @rule(
        crowd=st.lists(
            st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=2), st.integers(0, 2), st.integers(0, 4)),
            min_size=2,
            max_size=5,
        ),
        needed=st.integers(1, 6),
        high=st.booleans(),
    )
    def crowd_out(self, crowd: list[tuple[list[int], int, int]], needed: int, high: bool) -> None:
        """A node full of claims of all ranks, and one that may take the room of some of them."""

        def on_node(cpu: int) -> Member:
            return pod_member(f"w{next(_numbers)}", cpu)

        requests = [
            ClaimRequest(f"a-{next(_numbers)}", tuple(map(on_node, sizes)), priority=priority, ticket=ticket)
            for sizes, priority, ticket in crowd
        ]
        last = ClaimRequest(f"b-{next(_numbers)}", (on_node(needed),), priority=1 + high, ticket=2, wound=True)
        self.sent += requests
        for actor, batch in (("a", requests), ("b", [last])):
            ledger = self.actors[actor]
            expected = self.model.claim(ledger.epoch, ledger.incarnation, batch)
            assert self.do(ledger.claim(batch)) == expected

    @rule(
        members=st.lists(st.tuples(st.sampled_from(NODES[:2]), st.integers(1, 4)), min_size=1, max_size=3),
        victims=st.lists(st.tuples(st.sampled_from(PODS), st.sampled_from(BUDGET_SETS)), max_size=2, unique_by=first),
        rank=st.tuples(st.integers(0, 2), st.sampled_from(["", "g", "h"])),
        again=st.integers(0, 7),
        claims=st.lists(st.tuples(st.integers(2, 8), st.integers(0, 2), st.sampled_from(["", "g"]), flags), max_size=3),
    )
    def nominate(
        self,
        members: list[tuple[str, int]],
        victims: list[tuple[str, tuple[str, ...]]],
        rank: tuple[int, str],
        again: int,
        claims: list[tuple[int, int, str, bool]],
    ) -> None:
        """Room for some, made by others; and claims of all ranks for a node of it."""
        offers, nominees = sorted(self.model.victims), sorted(self.model.nominees)
        id_ = offers[0] if again == 0 and offers else f"o{next(_numbers)}"
        uids = [f"m{next(_numbers)}" for _ in members]
        if again in (1, 2) and nominees:
            uids[0] = nominees[0]
        elif again == 3:
            uids[0] = PODS[0]
        named = tuple(pod_member(uid, cpu, node) for uid, (node, cpu) in zip(uids, members, strict=True))
        taken = tuple(Victim(uid, budgets) for uid, budgets in victims if uid not in uids)
        request = NominateRequest(id_, named, *rank, taken)
        ledger = self.actors["a"]
        assert self.do(ledger.nominate([request])) == self.model.nominate(ledger.epoch, [request])
        requests = [
            ClaimRequest(
                f"b-{next(_numbers)}",
                (pod_member(uids[0] if own else f"w{next(_numbers)}", cpu, members[0][0]),),
                priority=priority,
                group=group,
                wound=own,
            )
            for cpu, priority, group, own in claims
        ]
        self.sent += requests
        expected = self.model.claim(ledger.epoch, ledger.incarnation, requests) if requests else []
        assert self.do(ledger.claim(requests)) == expected

    @rule(
        index=st.integers(0, 9),
        node=st.sampled_from(["", "n0", "n1", "same", "same"]),
        cpu=st.integers(1, 3),
        rank=st.integers(0, 2),
        version=versions,
        foreign=flags,
    )
    def note(self, index: int, node: str, cpu: int, rank: int, version: str, foreign: bool) -> None:
        """The reconciler sees the field of a nominated pod."""
        nominees = sorted(self.model.nominees)
        if nominees:
            uid = nominees[index % len(nominees)]
            where = self.model.nominees[uid].item.removeprefix("node/") if node == "same" else node
            takes = pod_member(uid, cpu, where).takes
            self.watch(
                "a", "reconciler", True, [PodNominated(uid, "ns", uid, where, takes, rank, version, "", foreign)]
            )

    @rule(index=st.integers(0, 9))
    def lapse_offer(self, index: int) -> None:
        """Its time is over."""
        offers = sorted(self.model.victims)
        if offers:
            offer = offers[index % len(offers)]
            self.redis.zadd(self.key + ":offers", {offer: 1}, xx=True)
            self.model.lapsed_offers.add(offer)

    @rule(actor=st.sampled_from(ACTORS), index=st.integers(0, 50))
    def repeat(self, actor: str, index: int) -> None:
        if self.sent:
            request = self.sent[-1 - index % len(self.sent)]
            ledger = self.actors[actor]
            assert self.do(ledger.claim([request])) == self.model.claim(ledger.epoch, ledger.incarnation, [request])
            self.learn_guards()

    @rule(actor=st.sampled_from(ACTORS))
    def renew(self, actor: str) -> None:
        ledger = self.actors[actor]
        self.model.sweep()
        self.model.forget_closed()
        expected = sum(
            c.owner == ledger.incarnation and bool(self.model.held(id_)) for id_, c in self.model.claims.items()
        )
        assert self.do(ledger.renew()) == expected

    @rule(
        actor=st.sampled_from(ACTORS),
        index=st.integers(0, 50),
        part=st.integers(0, 3),
        wrong=st.integers(0, 15),
        current=flags,
    )
    def advance(self, actor: str, index: int, part: int, wrong: int, current: bool) -> None:
        if not self.sent:
            return
        request = self.sent[-1 - index % len(self.sent)]
        claim = self.model.claims.get(request.id)
        uids = tuple(member.uid for member in request.members)
        item = Advance(request.id, claim.token if claim else 1, self.model.epoch, "d", uids[:1] if part == 0 else uids)
        if wrong == 0:
            item = Advance(item.claim, item.token + 1, item.epoch, item.decision, item.uids)
        elif wrong == 1:
            item = Advance(item.claim, item.token, item.epoch - 1, item.decision, item.uids)
        elif wrong == 2:
            item = Advance(item.claim, item.token, item.epoch, "other", item.uids)
        ledger, epoch = self.leader(actor, "gateway", current)
        expected = self.model.advance(ledger.incarnation, [item], epoch)
        assert self.do(ledger.advance([item], epoch)) == expected

    @rule(
        actor=st.sampled_from(ACTORS),
        index=st.integers(0, 50),
        part=st.integers(0, 2),
        wrong=st.integers(0, 9),
        by=st.sampled_from(["scheduler", "queue", "gateway"]),
        current=flags,
    )
    def release(self, actor: str, index: int, part: int, wrong: int, by: Any, current: bool) -> None:
        if not self.sent:
            return
        request = self.sent[-1 - index % len(self.sent)]
        claim = self.model.claims.get(request.id)
        token = (claim.token if claim else 1) + (wrong == 0)
        uids = tuple(member.uid for member in request.members)
        ledger, role_epoch = self.leader(actor, "gateway", current) if by == "gateway" else (self.actors[actor], 0)
        item = Release(request.id, token, [(), uids[:1], uids][part], by, role_epoch)
        expected = self.model.release(ledger.epoch, ledger.incarnation, [item])
        assert self.do(ledger.release([item])) == expected

    @rule(actor=st.sampled_from(ACTORS), seen=st.lists(observations(), min_size=1, max_size=4), current=flags)
    def observe(self, actor: str, seen: list[Observation], current: bool) -> None:
        self.watch(actor, "reconciler", current, seen)

    @rule(actor=st.sampled_from(ACTORS), uid=st.sampled_from(PODS + UNITS), wrong=st.integers(0, 5), current=flags)
    def settle(self, actor: str, uid: str, wrong: int, current: bool) -> None:
        """The gateway says that nothing can bind it; the record may have moved on since it was read."""
        record = self.model.records.get(uid)
        token, attempts = (record.token, record.attempts) if record else (1, 1)
        seen = Settled(uid, "ns", "x", token + (wrong == 0), attempts - (wrong == 1))
        self.watch(actor, "reconciler", current, [seen])

    @rule(actor=st.sampled_from(ACTORS), quota=st.sampled_from(["leaf", "other", "root"]), limit=limits, shut=flags)
    def set_quota(self, actor: str, quota: str, limit: dict[str, int], shut: bool) -> None:
        seen: list[Observation] = [ItemClosed(f"quota/{quota}") if shut else LimitSet(f"quota/{quota}", limit)]
        self.watch(actor, "quota", True, seen)

    @rule(actor=st.sampled_from(ACTORS), role=st.sampled_from(["gateway", "reconciler", "quota"]))
    def lead(self, actor: str, role: str) -> None:
        epoch = self.do(self.actors[actor].lead(role))
        assert epoch == self.model.lead(role, self.actors[actor].incarnation, epoch)
        self.roles[role].append(epoch)

    @rule(index=st.integers(0, 50))
    def lapse(self, index: int) -> None:
        """The owner died long ago: its claim's time is over."""
        if self.sent:
            claim = self.sent[-1 - index % len(self.sent)].id
            if claim in self.model.claims and self.model.held(claim):
                self.redis.zadd(self.key + ":leases", {claim: 1}, xx=True)
                self.redis.zrem(self.key + ":renewals", self.model.claims[claim].owner)
                self.model.lapsed.add(claim)

    @rule(current=flags)
    def sweep(self, current: bool) -> None:
        ledger, epoch = self.leader("a", "reconciler", current)
        answer = self.do(ledger.sweep(epoch))
        expected = self.model.observe(ledger.epoch, "reconciler", epoch, ledger.incarnation, [])
        assert answer == expected

    # ---- what must hold ----

    @invariant()
    def state_is_the_models(self) -> None:
        if not hasattr(self, "model"):
            return
        ledger = self.actors["a"]
        records = self.do(collect(ledger))
        assert records == {uid: entry.record() for uid, entry in self.model.records.items()}
        binding = self.do(collect_binding(ledger))
        assert binding == {uid: record for uid, record in records.items() if record.state == "BINDING"}
        items = self.do(ledger.items())
        if not self.redis.hexists(self.key + ":columns", "gpu"):
            items = {name: named_item(item) for name, item in items.items()}
        assert items == self.model.items()
        assert self.do(collect_nominations(ledger)) == self.model.nominations()
        status = self.do(ledger.status())
        states = [record.state for record in records.values()]
        assert (status.held, status.binding, status.observed) == tuple(
            states.count(state) for state in ("HELD", "BINDING", "OBSERVED")
        )
        assert status.token == self.model.token
        assert status.roles == self.model.roles

        # Whatever the model says: the stored sums are those of the stored records.
        sums: dict[tuple[str, str, str], int] = {}
        for record in records.values():
            part = "used" if record.state == "OBSERVED" else "held"
            for take in record.takes:
                for key, amount in take.amounts.items():
                    sums[take.item, part, key] = sums.get((take.item, part, key), 0) + amount
        for victims in self.model.victims.values():
            for budget in (name for victim in victims for name in victim.budgets):
                sums[budget, "held", DISRUPTIONS] = sums.get((budget, "held", DISRUPTIONS), 0) + 1
        stored = {
            (name, part, key): amount
            for name, item in items.items()
            for part, of in (("used", item.used), ("held", item.held))
            for key, amount in of.items()
        }
        assert stored == {where: amount for where, amount in sums.items() if amount}


def named(answer: ObserveAnswer) -> ObserveAnswer:
    """With the name of the only resource that may have no column."""
    shorts = [replace(short, key="gpu") if short.key == SHARED else short for short in answer.overcommitted]
    return replace(answer, overcommitted=tuple(sorted(shorts, key=lambda short: (short.item, short.key))))


def named_item(item: Item) -> Item:
    """As in :func:`named`."""
    limits, used, held = (
        {"gpu" if key == SHARED else key: of[key] for key in of} for of in (item.limits, item.used, item.held)
    )
    return replace(item, limits=limits, used=used, held=held)


async def collect(ledger: Ledger) -> dict[str, Any]:
    return {record.uid: record async for record in ledger.records()}


async def collect_nominations(ledger: Ledger) -> dict[str, Any]:
    return {one.uid: one async for one in ledger.nominations()}


async def collect_binding(ledger: Ledger) -> dict[str, Any]:
    return {record.uid: record async for record in ledger.binding()}


PHASES = (Phase.explicit, Phase.reuse, Phase.generate) if os.environ.get("KOORD_LEDGER_NO_SHRINK") else tuple(Phase)


def test_functions_do_what_the_model_does(redis_url: str) -> None:
    machine = type("Bound", (Machine,), {"url": redis_url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(os.environ.get("KOORD_LEDGER_EXAMPLES", "60")),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
        ),
    )
