"""CPUs of one's own through the service: what is written with the binding, and what another scheduler has."""

import json

import msgspec

from koord.kube.resources import NODE_RESOURCE_TOPOLOGIES
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, Slot
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.numa.machines import LSR, RESOURCE_SPEC, RESOURCE_STATUS, B, topology, zones
from tests.scheduler.outside import Outside, outside, scheduler, until

SETTINGS = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))


async def machine(world: Outside, name: str) -> None:
    await world.node(name, cpu="16", memory="32Gi")
    room = {"cpu": "8", "memory": "16Gi"}
    body = msgspec.json.encode(topology(name, B, zones(room, room)))
    await world.publisher.publish(NODE_RESOURCE_TOPOLOGIES, "ADDED", "", name, world.version(), body)


async def on(world: Outside, pod: str, node: str) -> None:
    await until(lambda: world.node_of(pod) == node, f"{pod} is on {node}")


async def test_cpus_are_given_written_seen_and_free_again(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await machine(world, "n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            for number, cpuset in enumerate(("0-3,8-11", "4-7,12-15")):
                await world.pod(f"p{number}", cpu="8", memory="1Gi", labels=LSR)
                await on(world, f"p{number}", "n0")
                written = world.pods[f"default/p{number}"]["metadata"]["annotations"]
                assert json.loads(written[RESOURCE_STATUS]) == {"cpuset": cpuset}
                assert written[RESOURCE_SPEC] == '{"preferredCPUBindPolicy":"FullPCPUs"}'
            await world.pod("p2", cpu="2", memory="1Gi", labels=LSR)
            await until(lambda: world.told("p2"), "none is left")
            await world.delete("p0")
            await on(world, "p2", "n0")
            written = world.pods["default/p2"]["metadata"]["annotations"]
            assert json.loads(written[RESOURCE_STATUS]) == {"cpuset": "0,8"}
        # Another life of the scheduler reads what is there from the annotations.
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            await world.pod("p3", cpu="2", memory="1Gi", labels=LSR)
            await on(world, "p3", "n0")
            written = world.pods["default/p3"]["metadata"]["annotations"]
            assert json.loads(written[RESOURCE_STATUS]) == {"cpuset": "1,9"}


async def test_cpus_that_another_scheduler_gave_away_are_not_given_twice(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        await machine(world, "n0")
        await world.listed()
        rival = ClaimRequest("another-1", (Member("x", "default", "x", "n0", ()),), (Slot("cpu/n0/8", "x"),))
        [answer] = await another.claim([rival])
        assert answer.status == "ok"
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            await world.pod("p0", cpu="2", memory="1Gi", labels=LSR)
            await machine(world, "n1")
            await on(world, "p0", "n1")


async def test_a_ledger_that_was_lost_knows_again_whose_cpus_are_whose(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        await machine(world, "n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            uid = await world.pod("p0", cpu="2", memory="1Gi", labels=LSR)
            await on(world, "p0", "n0")
        written = json.loads(world.pods["default/p0"]["metadata"]["annotations"][RESOURCE_STATUS])
        assert written == {"cpuset": "0,8"}
        await world.close_ledger()
        await world.open_ledger()
        await another.status()
        record = await another.record(uid)
        assert record is not None and record.slots == ("cpu/n0/0", "cpu/n0/8")
        rival = ClaimRequest("another-1", (Member("x", "default", "x", "n0", ()),), (Slot("cpu/n0/8", "x"),))
        [answer] = await another.claim([rival])
        assert answer.shorts[0].holder == uid
