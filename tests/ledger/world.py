"""A ledger that is open, with one of each actor, and short ways to say what they do."""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import redis.asyncio

from koord.accounting.takes import Take, pod_takes, unit_takes
from koord.ledger.client import Ledger
from koord.ledger.model import (
    Advance,
    AdvanceAnswer,
    ClaimAnswer,
    ClaimRequest,
    LimitSet,
    Member,
    NodeSeen,
    Observation,
    ObserveAnswer,
    PodGone,
    PodSeen,
    Release,
    ReleaseAnswer,
    UnitSeen,
)

_numbers = itertools.count(1)


class World:
    """Actors of one cluster: two schedulers, a gateway, a reconciler, and a plain connection to look underneath."""

    def __init__(self, url: str, cluster: str, clients: Sequence[Ledger], raw: redis.asyncio.Redis) -> None:
        self.url = url
        self.cluster = cluster
        self.s1, self.s2, self.g, self.r = clients
        self.raw = raw
        self.key = f"{{koord:{cluster}}}"
        self.gateway_epoch = 0
        self.reconciler_epoch = 0

    async def start(self) -> None:
        self.gateway_epoch = await self.g.lead("gateway")
        self.reconciler_epoch = await self.r.lead("reconciler")

    async def open(self) -> int:
        epoch = await self.r.open(self.reconciler_epoch)
        for client in (self.s1, self.s2, self.g):
            await client.status()
        return epoch

    async def see(self, *observations: Observation) -> ObserveAnswer:
        answer = await self.r.observe(observations, role_epoch=self.reconciler_epoch)
        assert answer.status == "ok", answer
        return answer

    async def node(self, name: str, cpu: int, version: str = "1", **more: int) -> ObserveAnswer:
        return await self.see(NodeSeen(f"node/{name}", {"cpu": cpu, "pods": 100, **more}, version))

    async def quota(self, *names: str, cpu: int) -> ObserveAnswer:
        return await self.see(*(LimitSet(name, {"cpu": cpu}) for name in names))

    async def claim(self, *members: Member, by: Ledger | None = None, strict: bool = True) -> "Held":
        by = by or self.s1
        request = ClaimRequest(f"{by.incarnation}-{next(_numbers)}", members, strict=strict, trace="00-trace-span-01")
        [answer] = await by.claim([request])
        return Held(request, answer, by)

    async def advance(
        self, held: "Held", *uids: str, decision: str = "", role_epoch: int = 0, by: Ledger | None = None
    ) -> AdvanceAnswer:
        item = Advance(
            held.request.id, held.answer.token, held.answer.epoch, decision or held.request.id, uids or held.uids
        )
        [answer] = await (by or self.g).advance([item], role_epoch or self.gateway_epoch)
        return answer

    async def release(self, held: "Held", *uids: str) -> ReleaseAnswer:
        [answer] = await held.by.release([Release(held.request.id, held.answer.token, uids)])
        return answer

    async def refuse(self, held: "Held", *uids: str) -> ReleaseAnswer:
        """The gateway releases after a definite refusal."""
        item = Release(held.request.id, held.answer.token, uids or held.uids, "gateway", self.gateway_epoch)
        [answer] = await self.g.release([item])
        return answer

    async def bound(self, member: Member, node: str = "", version: str = "10") -> ObserveAnswer:
        """The API shows the pod assigned: on its own node, or elsewhere."""
        takes = member.takes
        if node and node != member.node:
            takes = tuple(
                Take(f"node/{node}", t.amounts, t.checked) if t.item.startswith("node/") else t for t in takes
            )
        return await self.see(PodSeen(member.uid, "ns", member.name, node or member.node, takes, version))

    async def deleted(self, member: Member, version: str = "20") -> ObserveAnswer:
        return await self.see(PodGone(member.uid, "ns", member.name, version))

    async def state(self, member: Member) -> str:
        record = await self.r.record(member.uid)
        return record.state if record else "-"

    async def amounts(self, item: str, key: str = "cpu") -> tuple[int, int]:
        """(used, held) of an item."""
        found = (await self.r.items(item)).get(item)
        return (found.used.get(key, 0), found.held.get(key, 0)) if found else (0, 0)

    async def free(self, item: str, key: str = "cpu") -> int:
        found = (await self.r.items(item))[item]
        return found.limits.get(key, 0) - found.used.get(key, 0) - found.held.get(key, 0)

    async def lapse(self, held: "Held") -> None:
        """Make its lease over, as if its owner had been silent for 30 s."""
        await self.raw.zadd(self.key + ":leases", {held.request.id: 1}, xx=True)
        await self.raw.zrem(self.key + ":renewals", held.by.incarnation)


class Held:
    """A claim that was made, held or not."""

    def __init__(self, request: ClaimRequest, answer: ClaimAnswer, by: Ledger) -> None:
        self.request = request
        self.answer = answer
        self.by = by

    @property
    def uids(self) -> tuple[str, ...]:
        return tuple(member.uid for member in self.request.members)


def pod(uid: str, node: str, cpu: int, chain: tuple[str, ...] = (), *, check_parents: bool = True) -> Member:
    """A pod that belongs to a QueueUnit, with its quota chain."""
    takes = pod_takes({"cpu": cpu}, node, chain, unit_owned=True, check_parents=check_parents)
    return Member(uid, "ns", uid, node, takes)


def unit(uid: str, cpu: int, chain: tuple[str, ...]) -> Member:
    """A QueueUnit that asks for admission."""
    return Member(uid, "ns", uid, "", unit_takes({"cpu": cpu}, chain))


def admitted(member: Member, version: str = "10") -> UnitSeen:
    """The API shows the unit with admissions."""
    return UnitSeen(member.uid, member.namespace, member.name, member.takes, version)


@asynccontextmanager
async def connected(url: str, cluster: str) -> AsyncIterator[World]:
    """A world whose ledger is still closed."""
    names = [f"{name}-{next(_numbers)}" for name in ("s1", "s2", "g", "r")]
    clients = [await Ledger.connect(url, cluster, name) for name in names]
    raw = redis.asyncio.Redis.from_url(url)
    try:
        world = World(url, cluster, clients, raw)
        await world.start()
        yield world
    finally:
        for client in clients:
            await client.close()
        await raw.aclose()
