"""Two schedulers that plan at the same time, each blind to what the other has in flight, break no rule between pods.

The gateway executes nothing until everything is claimed, so neither sees in the API what the other one placed.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from koord.accounting.takes import Take
from koord.contracts.decisions import Bind
from koord.kube.resources import NODE_RESOURCE_TOPOLOGIES
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimAnswer, ClaimRequest, Member, Release
from koord.scheduler import metrics
from koord.scheduler.plugins.topologyspread.constraints import HOSTNAME, ZONE
from koord.scheduler.queueing.queue import QueueSettings, Unit
from koord.scheduler.service import SchedulerService
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.numa.machines import POLICY_LABEL, RESOURCE_STATUS, B, topology, zones
from tests.scheduler.outside import Outside, outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))
WEB = {"app": "web"}


def apart(key: str = HOSTNAME) -> dict[str, object]:
    required = [{"topologyKey": key, "labelSelector": {"matchLabels": WEB}}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


class Blind:
    """Two schedulers, of which ``first`` has the pods whose name says so, and a gateway that stands still."""

    def __init__(self, world: Outside, one: SchedulerService, two: SchedulerService) -> None:
        self.world = world
        self.one = one
        self.two = two
        self.go = asyncio.Event()
        execute = world._bind

        async def held(bind: Bind, trace: str) -> None:
            await self.go.wait()
            await execute(bind, trace)

        world._bind = held  # type: ignore[method-assign]

    def divide(self, firsts: Callable[[str], bool]) -> None:
        for service, own in ((self.one, True), (self.two, False)):

            def mine(unit: Unit, own: bool = own) -> bool:
                return firsts(next(iter(unit.pods.values())).ref.name) is own

            service._queue.mine = mine

    async def claimed(self, pods: int) -> None:
        async def count() -> int:
            return len([record async for record in self.world.ledger.flights()])

        deadline = asyncio.get_running_loop().time() + 60
        while await count() != pods:
            assert asyncio.get_running_loop().time() < deadline, f"{await count()} of {pods} are claimed"
            await asyncio.sleep(0.02)

    async def bound(self, pods: int) -> None:
        self.go.set()
        await until(lambda: len(self.world.bound) == pods, f"{pods} bound, {len(self.world.bound)} are")

    @property
    def came_to_light(self) -> int:
        """How many pods of the other one each saw before the API showed them, together."""
        return self.one._rivals.came + self.two._rivals.came


@asynccontextmanager
async def blind(nats_url: str, redis_url: str, cluster: str, nodes: int, domains: int = 2) -> AsyncIterator[Blind]:
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(nodes):
            await world.node(f"n{number}", labels={HOSTNAME: f"n{number}", ZONE: f"z{number % domains}"})
        await world.listed()
        async with (
            scheduler(nats_url, redis_url, cluster, FAST) as one,
            scheduler(nats_url, redis_url, cluster, FAST) as two,
        ):
            await until(
                lambda: one._replicas.share.replicas == two._replicas.share.replicas == 2, "they know of each other"
            )
            pair = Blind(world, one, two)
            try:
                yield pair
            finally:
                pair.go.set()


async def test_a_plain_pod_and_one_that_repels_it(nats_url: str, redis_url: str, cluster: str) -> None:
    async with blind(nats_url, redis_url, cluster, 16) as pair:
        pair.divide(lambda name: name.startswith("apart"))
        for number in range(8):
            await pair.world.pod(f"apart{number}", labels=WEB, affinity=apart())
            await pair.world.pod(f"plain{number}", labels=WEB)
        await pair.claimed(16)
        assert pair.came_to_light
        await pair.bound(16)
        on = Counter(pair.world.bound.values())
        assert all(on[pair.world.node_of(f"apart{number}") or ""] == 1 for number in range(8)), on


async def test_zones_that_one_pod_of_a_kind_may_have(nats_url: str, redis_url: str, cluster: str) -> None:
    async with blind(nats_url, redis_url, cluster, 16, domains=8) as pair:
        pair.divide(lambda name: int(name[1:]) % 2 == 0)
        for number in range(8):
            await pair.world.pod(f"p{number}", labels=WEB, affinity=apart(ZONE))
        await pair.claimed(8)
        await pair.bound(8)
        assert len({int(node[1:]) % 8 for node in pair.world.bound.values()}) == 8


async def test_spread_over_zones(nats_url: str, redis_url: str, cluster: str) -> None:
    even = [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {"matchLabels": WEB}}]  # fmt: skip
    async with blind(nats_url, redis_url, cluster, 6, domains=3) as pair:
        pair.divide(lambda name: int(name[1:]) < 5)
        for number in range(12):
            await pair.world.pod(f"p{number}", cpu="100m", labels=WEB, topologySpreadConstraints=even)
        await pair.claimed(12)
        await pair.bound(12)
        per_zone = Counter(int(node[1:]) % 3 for node in pair.world.bound.values())
        assert set(per_zone.values()) == {4}, per_zone


async def test_a_gang_and_single_pods(nats_url: str, redis_url: str, cluster: str) -> None:
    async with blind(nats_url, redis_url, cluster, 12) as pair:
        pair.divide(lambda name: name.startswith("member"))
        await pair.world.pod_group("g", 4)
        gang = {**WEB, "pod-group.scheduling.sigs.k8s.io": "g"}
        for number in range(4):
            await pair.world.pod(f"member{number}", labels=gang, affinity=apart())
            await pair.world.pod(f"single{number}", labels=WEB, affinity=apart())
            await pair.world.pod(f"plain{number}", labels=WEB)
        await pair.claimed(12)
        await pair.bound(12)
        on = Counter(pair.world.bound.values())
        strict = [f"{kind}{number}" for kind in ("member", "single") for number in range(4)]
        assert all(on[pair.world.node_of(name) or ""] == 1 for name in strict), on


async def test_a_port_of_one_address_and_of_all(nats_url: str, redis_url: str, cluster: str) -> None:
    async with blind(nats_url, redis_url, cluster, 8) as pair:
        pair.divide(lambda name: name.startswith("all"))
        for number in range(4):
            for name, address in (("all", "0.0.0.0"), ("one", "10.0.0.1")):
                ports = [{"containerPort": 80, "hostPort": 80, "hostIP": address}]
                await pair.world.pod(f"{name}{number}", containers=[{"name": "c", "ports": ports}])
        await pair.claimed(8)
        await pair.bound(8)
        assert len(set(pair.world.bound.values())) == 8


async def test_a_disk_that_only_one_may_write(nats_url: str, redis_url: str, cluster: str) -> None:
    async with blind(nats_url, redis_url, cluster, 6) as pair:
        pair.divide(lambda name: name.startswith("a"))
        disk = [{"name": "d", "gcePersistentDisk": {"pdName": "data"}}]
        for name in ("a0", "b0", "a1", "b1"):
            await pair.world.pod(name, volumes=disk)
        await pair.claimed(4)
        await pair.bound(4)
        assert len(set(pair.world.bound.values())) == 4


async def test_what_another_gives_up_counts_no_longer(nats_url: str, redis_url: str, cluster: str) -> None:
    """A claim of one that dies without a word: its pod counts until the ledger has no record of it."""
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        await world.node("n0", labels={HOSTNAME: "n0"})
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST) as one:
            await another.status()
            uid = await world.pod("theirs", labels=WEB, affinity=apart(), schedulerName="somebody")
            member = Member(uid, "default", "theirs", "n0", (Take("node/n0", {"cpu": 1000}),))
            [answer] = await another.claim([ClaimRequest("another-1", (member,), repels=True)])
            assert answer.status == "ok"
            await world.pod("ours", labels=WEB)
            text = "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
            await until(lambda: any(note.startswith(text) for note in world.told("ours")), "told of theirs")
            assert not world.bound
            assert one._world.engine.counted(uid) is not None
            await another.release([Release("another-1", answer.token)])
            await until(lambda: world.node_of("ours") == "n0", "theirs counts no longer")


async def test_zones_of_a_numa_node(nats_url: str, redis_url: str, cluster: str) -> None:
    """A node takes both by its sums; each zone takes one."""
    async with blind(nats_url, redis_url, cluster, 0) as pair:
        for number in range(3):
            await pair.world.node(f"m{number}", cpu="16", memory="32Gi", labels={POLICY_LABEL: "SingleNUMANode"})
            room = {"cpu": "8", "memory": "16Gi"}
            body = msgspec.json.encode(topology(f"m{number}", B, zones(room, room)))
            name = f"m{number}"
            await pair.world.publisher.publish(NODE_RESOURCE_TOPOLOGIES, "ADDED", "", name, pair.world.version(), body)
        await until(
            lambda: len(pair.one._engine.cluster) == len(pair.two._engine.cluster) == 3, "the machines are known"
        )
        pair.divide(lambda name: int(name[1:]) % 2 == 0)
        for number in range(6):
            await pair.world.pod(f"p{number}", cpu="5")
        await pair.claimed(6)
        await pair.bound(6)
        zones_of = []
        for number in range(6):
            pod = pair.world.pods[f"default/p{number}"]
            status = json.loads(pod["metadata"]["annotations"][RESOURCE_STATUS])
            zones_of += [(pod["spec"]["nodeName"], zone["node"]) for zone in status["numaNodeResources"]]
        assert len(set(zones_of)) == len(zones_of) == 6, zones_of


async def test_one_dies_with_its_claims(nats_url: str, redis_url: str, cluster: str) -> None:
    """What it claimed counts until it is given back; then its pods and the one that was kept off are placed anew."""
    async with blind(nats_url, redis_url, cluster, 4) as pair:
        pair.divide(lambda name: name.startswith("apart"))
        for number in range(4):
            await pair.world.pod(f"apart{number}", labels=WEB, affinity=apart())
        await pair.claimed(4)
        uid = await pair.world.pod("plain", labels=WEB)

        def parked() -> bool:
            unit = pair.two._world.unit_of(uid)
            return unit is not None and unit.state == "unschedulable"

        await until(parked, "every node is taken")
        assert pair.two._rivals.came == 4
        # It is gone with all that it held: its claims are ended by whoever lives, its decisions are void.
        pair.one._queue.mine = lambda unit: False
        pair.two._queue.mine = lambda unit: True
        pair.two._queue.reassign()
        await pair.world.ledger.retire([pair.one._host.incarnation])
        pair.go.set()
        await until(lambda: len(pair.world.bound) == 4, "as many as there are nodes")
        assert len(set(pair.world.bound.values())) == 4


async def test_the_ledger_is_lost_while_both_place(nats_url: str, redis_url: str, cluster: str) -> None:
    async with blind(nats_url, redis_url, cluster, 12) as pair:
        pair.divide(lambda name: name.startswith("apart"))
        for number in range(4):
            await pair.world.pod(f"apart{number}", labels=WEB, affinity=apart())
            await pair.world.pod(f"plain{number}", labels=WEB)
        await pair.claimed(8)
        await pair.world.close_ledger()
        for number in range(12):
            await pair.world.node(f"n{number}", labels={HOSTNAME: f"n{number}", ZONE: f"z{number % 2}"})
        await pair.world.open_ledger()
        pair.go.set()
        await until(lambda: len(pair.world.bound) == 8, "all bound")
        on = Counter(pair.world.bound.values())
        assert all(on[pair.world.node_of(f"apart{number}") or ""] == 1 for number in range(4)), on


async def test_what_the_api_shows_before_the_answer_comes(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned before the other one's pod was anywhere, claimed when it is bound and seen: it is judged all the same."""
    async with blind(nats_url, redis_url, cluster, 1) as pair:
        pair.divide(lambda name: name == "early")
        pair.go.set()
        rounds, sent, seen = pair.two._driver.rounds, asyncio.Event(), asyncio.Event()
        claim = rounds._ledger.claim

        async def held(requests: Sequence[ClaimRequest]) -> list[ClaimAnswer]:
            sent.set()
            await seen.wait()
            return await claim(requests)

        monkeypatch.setattr(rounds._ledger, "claim", held)
        await pair.world.pod("late", labels=WEB, affinity=apart())
        await asyncio.wait_for(sent.wait(), 60)
        uid = await pair.world.pod("early", labels=WEB, affinity=apart())
        await until(lambda: pair.world.node_of("early") == "n0", "the other one's is bound")
        await until(lambda: pair.two._engine.counted(uid) is not None, "it is seen")
        seen.set()
        await until(lambda: pair.world.told("late"), "there is no node for it")
        assert pair.world.node_of("late") is None


async def test_one_that_has_no_rule_waits_for_a_pod_that_may_keep_it_off(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    """A pod that repels was placed and the API does not show it yet: what it may forbid is not bound meanwhile."""
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        await world.node("n0", labels={HOSTNAME: "n0"})
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST) as one:
            await another.status()
            member = Member("unseen", "default", "unseen", "n0", (Take("node/n0", {"cpu": 1000}),))
            [answer] = await another.claim([ClaimRequest("another-1", (member,), repels=True)])
            assert answer.status == "ok"
            withdrawn = metrics.withdrawn._value
            before = withdrawn.get()
            await world.pod("ours", labels=WEB)
            await until(lambda: one._rivals.missing, "told of theirs")
            await until(lambda: withdrawn.get() > before or world.bound, "judged")
            assert not world.bound
            await another.release([Release("another-1", answer.token)])
            await until(lambda: world.node_of("ours") == "n0", "theirs counts no longer")
