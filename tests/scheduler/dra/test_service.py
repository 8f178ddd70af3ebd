"""The service with claims on devices: written before their pods are bound, once, whoever dies in between."""

import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from koord.bus.connection import Bus
from koord.bus.decisions import Delivery
from koord.contracts.decisions import Patch
from koord.contracts.results import Result
from koord.kube.dynamicresources import FINALIZER
from koord.kube.resources import RESOURCE_CLAIMS
from koord.ledger.client import Ledger
from koord.scheduler.dra import trying
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.dra.objects import DRIVER, KINDS, Object, claim, device_class, request, slice_, using
from tests.scheduler.outside import Outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))


class DeviceOutside(Outside):
    """With devices, and writes of claims executed as the gateway and the API server do."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        super().__init__(bus, ledger)
        self.objects: dict[tuple[str, str], Object] = {}
        self.writes: list[Patch] = []
        self.before_write: Callable[[Patch], bool] = lambda patch: True
        """Whether a write is executed; those that are not are in ``held``."""
        self.held: list[Delivery] = []

    async def tell(self, kind: str, body: Object) -> None:
        body = copy.deepcopy(body)
        resource, meta = KINDS[kind], body["metadata"]
        namespace = meta.get("namespace", "")
        key = f"{namespace}/{meta['name']}" if namespace else meta["name"]
        type_: Any = "MODIFIED" if (kind, key) in self.objects else "ADDED"
        version = meta["resourceVersion"] = self.version()
        meta.setdefault("uid", f"uid-{kind}-{meta['name']}")
        self.objects[kind, key] = body
        await self.publisher.publish(resource, type_, namespace, meta["name"], version, msgspec.json.encode(body))

    def claim(self, name: str) -> Object:
        return self.objects["claim", f"default/{name}"]

    def devices(self, name: str) -> list[str]:
        """The devices of a claim, as ``pool/device``."""
        results = self.claim(name)["status"].get("allocation", {}).get("devices", {}).get("results", [])
        return [f"{one['pool']}/{one['device']}" for one in results]

    async def claiming_pod(self, name: str, *claims: str, **more: Any) -> str:
        return await self.pod(name, resourceClaims=using(*claims)["resourceClaims"], **more)

    async def _execute(self, delivery: Delivery) -> None:
        decision = delivery.decision
        if not isinstance(decision, Patch) or decision.target.resource != RESOURCE_CLAIMS.token:
            await super()._execute(delivery)
            return
        delivery.ack()
        self.writes.append(decision)
        if self.before_write(decision):
            await self.execute(delivery)
        else:
            self.held.append(delivery)

    async def execute(self, delivery: Delivery) -> None:
        decision, trace = delivery.decision, delivery.trace
        assert isinstance(decision, Patch)
        assert trace is not None, "every decision carries a trace"
        target = decision.target
        body = self.claim(target.name)
        if target.uid != body["metadata"]["uid"] or target.resource_version != body["metadata"]["resourceVersion"]:
            self._consumer.answer("scheduler", Result(decision.id, "conflict", "resourceVersion"), trace.traceparent)
            return
        changed = copy.deepcopy(body)
        for part, fields in msgspec.json.decode(decision.body).items():
            assert part == (decision.subresource or "metadata")
            for field, value in fields.items():
                if value is None:
                    changed[part].pop(field, None)
                else:
                    changed[part][field] = value
        await self.tell("claim", changed)
        self._consumer.answer("scheduler", Result(decision.id, "done"), trace.traceparent)


@contextlib.asynccontextmanager
async def devices(nats_url: str, redis_url: str, cluster: str, count: int = 1) -> AsyncIterator[DeviceOutside]:
    async with (
        await Bus.connect(nats_url, cluster, "outside") as bus,
        await Ledger.connect(redis_url, cluster, "outside") as ledger,
    ):
        world = DeviceOutside(bus, ledger)
        await world.start()
        try:
            await world.tell("class", device_class("gpu", f'device.driver == "{DRIVER}"'))
            for name in ("a", "b"):
                await world.node(name)
                await world.tell("slice", slice_(f"s-{name}", count, node=name))
            await world.listed()
            yield world
        finally:
            await world.stop()


async def test_devices_come_before_their_pods(nats_url: str, redis_url: str, cluster: str) -> None:
    async with devices(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, FAST):
        await world.claiming_pod("early", "c")
        await world.claiming_pod("greedy", "two")
        await world.tell("claim", claim("two", request(count=2)))
        await until(lambda: world.told("greedy"), "told")
        assert world.told("greedy")[0].startswith("0/2 nodes are available: 2 cannot allocate all claims.")
        assert world.told("early") == []  # it is held back, which is no event
        await world.tell("claim", claim("c"))
        await until(lambda: world.node_of("early"), "bound")
        [device] = world.devices("c")
        assert device == f"{world.node_of('early')}/gpu-0"
        assert world.claim("c")["metadata"]["finalizers"] == [FINALIZER]
        [user] = world.claim("c")["status"]["reservedFor"]
        assert (user["name"], user["resource"]) == ("early", "pods")
        # Another device is found, and a node with more serves who could not be served.
        await world.tell("claim", claim("d"))
        await world.claiming_pod("late", "d")
        await until(lambda: world.node_of("late"), "bound")
        assert world.devices("c") != world.devices("d")
        await world.node("big")
        await world.tell("slice", slice_("s-big", 3, node="big"))
        await until(lambda: world.node_of("greedy"), "bound")
        assert world.devices("two") == ["big/gpu-0", "big/gpu-1"]
        # One that shares a claim goes where it is.
        await world.claiming_pod("friend", "two")
        await until(lambda: world.node_of("friend") == "big", "bound")
        assert [user["name"] for user in world.claim("two")["status"]["reservedFor"]] == ["greedy", "friend"]


async def test_a_scheduler_that_dies_between_the_claim_and_the_bind(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    async with devices(nats_url, redis_url, cluster) as world:
        world.decide = lambda bind: "ignore"
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.tell("claim", claim("c"))
            await world.claiming_pod("p", "c")
            await until(lambda: world.binds, "the bind is asked for, its claim is written")
        given = world.devices("c")
        assert given
        count = len(world.writes)
        world.decide = lambda bind: "bind"
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.tell("claim", claim("d"))
            await world.claiming_pod("q", "d")
            await until(lambda: world.node_of("q"), "bound")
            assert world.devices("d") != given
            await world.sweep()
            assert world.devices("c") == given
            assert all(write.target.name == "d" for write in world.writes[count:])


async def test_a_scheduler_that_dies_before_its_write_is_executed(nats_url: str, redis_url: str, cluster: str) -> None:
    async with devices(nats_url, redis_url, cluster) as world:
        await world.tell("claim", claim("c", finalizers=[FINALIZER]))
        world.before_write = lambda patch: False
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.claiming_pod("p", "c")
            await until(lambda: world.held, "asked for")
        world.before_write = lambda patch: True
        async with scheduler(nats_url, redis_url, cluster, FAST):
            # The write happens after all, before the next scheduler's or after it: one of the two is void.
            await world.execute(world.held[0])
            await until(lambda: world.node_of("p"), "bound", 90.0)
        assert world.devices("c") == [f"{world.node_of('p')}/gpu-0"]
        assert [user["name"] for user in world.claim("c")["status"]["reservedFor"]] == ["p"]


async def test_writes_that_are_lost_and_come_again(nats_url: str, redis_url: str, cluster: str) -> None:
    async with devices(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, FAST):

        def touched(patch: Patch) -> bool:
            """Somebody else is faster, once."""
            if len(world.writes) == 1:
                world.claim("c")["metadata"]["resourceVersion"] = world.version()
            return True

        world.before_write = touched
        await world.tell("claim", claim("c"))
        await world.claiming_pod("p", "c")
        await until(lambda: world.told("p"), "told")
        assert world.told("p") == ['running PreBind plugin "DynamicResources": conflict: resourceVersion']
        await world.tell("claim", world.claim("c"))
        await until(lambda: world.node_of("p"), "bound")
        assert world.devices("c") == [f"{world.node_of('p')}/gpu-0"]


async def test_a_gang_that_shares_one_claim(nats_url: str, redis_url: str, cluster: str) -> None:
    async with devices(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, FAST):
        await world.tell("claim", claim("shared"))
        await world.tell("claim", claim("alone"))
        await world.pod_group("gang", 3)
        labels = {"pod-group.scheduling.sigs.k8s.io": "gang"}
        await world.claiming_pod("m-0", "shared", labels=labels)
        await world.claiming_pod("m-1", "shared", labels=labels)
        await world.claiming_pod("m-2", "alone", labels=labels)
        await until(lambda: all(world.node_of(f"m-{n}") for n in range(3)), "all bound")
        assert world.node_of("m-0") == world.node_of("m-1") != world.node_of("m-2")
        assert {user["name"] for user in world.claim("shared")["status"]["reservedFor"]} == {"m-0", "m-1"}
        assert sum(write.target.name == "shared" for write in world.writes) == 2


async def test_a_pod_that_goes_gives_its_promise_back(nats_url: str, redis_url: str, cluster: str) -> None:
    async with devices(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, FAST):
        world.before_write = lambda patch: False
        names = ("one", "two")
        for name in names:
            await world.tell("claim", claim(f"c-{name}"))
            await world.claiming_pod(name, f"c-{name}")
        await until(lambda: len(world.held) == 2, "both devices are promised")
        await world.tell("claim", claim("c-three"))
        await world.claiming_pod("three", "c-three")
        await until(lambda: world.told("three"), "told")
        assert "2 cannot allocate all claims" in world.told("three")[0]
        world.before_write = lambda patch: True
        await world.delete("one")
        await until(lambda: world.node_of("three"), "bound")


async def test_two_replicas_never_give_a_device_twice(nats_url: str, redis_url: str, cluster: str) -> None:
    async with devices(nats_url, redis_url, cluster, count=4) as world:
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(scheduler(nats_url, redis_url, cluster, FAST))
            second = await stack.enter_async_context(scheduler(nats_url, redis_url, cluster, FAST))
            await until(lambda: first._replicas.share.replicas == second._replicas.share.replicas == 2, "they share")
            for number in range(4):
                await world.tell("claim", claim(f"c-{number}"))
                await world.claiming_pod(f"p-{number}", f"c-{number}", cpu="100m")
            await until(lambda: all(world.node_of(f"p-{number}") for number in range(4)), "the first half is bound")
        # Whoever comes after them knows what they gave.
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(4, 9):
                await world.tell("claim", claim(f"c-{number}"))
                await world.claiming_pod(f"p-{number}", f"c-{number}", cpu="100m")
            await until(lambda: sum(bool(world.node_of(f"p-{number}")) for number in range(9)) == 8, "all but one")
            await until(lambda: any(world.told(f"p-{number}") for number in range(9)), "one is told why not")
        given = [device for number in range(9) for device in world.devices(f"c-{number}")]
        assert len(given) == len(set(given)) == 8


async def test_devices_that_take_long_to_look_at(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trying, "SLICE_S", 0.0)  # one node at a time
    async with devices(nats_url, redis_url, cluster) as world:
        await world.node("n1")
        await world.node("n2")
        await world.tell("slice", slice_("s-n1", 1, node="n1"))
        await world.tell("slice", slice_("s-n2", 2, node="n2"))
        await world.tell("claim", claim("c", request(count=2)))
        await world.claiming_pod("p", "c")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await until(lambda: world.node_of("p") == "n2", "tried again until all nodes were looked at")
            assert any("devices of nodes are still being looked at" in text for text in world.told("p"))
