"""Pods that an extender binds: the ledger holds their room until they are seen bound, whatever the extender does."""

import asyncio
from pathlib import Path
from typing import Any

from koord.bus.questions import ask
from koord.contracts.asks import ExplainPod, PodExplanation
from tests.scheduler.extenders.servers import extender
from tests.scheduler.extenders.test_service import GPU, settings
from tests.scheduler.outside import Outside, outside, scheduler, until

RESOURCES = {"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}}
GANG = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
PROFILE = {"schedulerName": "koord-scheduler", "plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}}


def binds(url: str, **fields: Any) -> dict[str, Any]:
    """The block of an extender that binds what asks for its resource."""
    head = {"urlPrefix": url, "bindVerb": "bind", "managedResources": [{"name": GPU}], "httpTimeout": "60s"}
    return {**head, **fields}


async def gpu(world: Outside, name: str, **more: Any) -> None:
    await world.pod(name, containers=[{"name": "main", "resources": RESOURCES}], **more)


def binding(world: Outside) -> Any:
    """An extender that binds what it is told to."""

    async def bind(question: dict[str, Any]) -> dict[str, Any]:
        await bind_it(world, question)
        return {"Error": ""}

    return bind


async def bind_it(world: Outside, question: dict[str, Any]) -> None:
    body = world.pods[f"{question['PodNamespace']}/{question['PodName']}"]
    assert body["metadata"]["uid"] == question["PodUID"]
    if body["spec"].setdefault("nodeName", question["Node"]) == question["Node"]:
        await world.show(body)


async def held(world: Outside) -> float:
    return sum(item.held.get("cpu", 0) for item in (await world.ledger.items("node/")).values())


async def used(world: Outside) -> float:
    return sum(item.used.get("cpu", 0) for item in (await world.ledger.items("node/")).values())


def bound(world: Outside, name: str) -> str:
    return str(world.pods[f"default/{name}"]["spec"].get("nodeName", ""))


async def test_an_extender_binds_what_it_manages(nats_url: str, redis_url: str, cluster: str, tmp_path: Path) -> None:
    async with extender() as server, outside(nats_url, redis_url, cluster) as world:
        server.answers["bind"] = binding(world)
        await world.node("n0", more={GPU: "4"})
        await world.listed()
        chosen = settings(tmp_path, binds(server.url()))
        async with scheduler(nats_url, redis_url, cluster, chosen) as service:
            await gpu(world, "mine")
            await world.pod("plain")
            await until(lambda: bound(world, "mine") and world.node_of("plain"), "bound")
            await until(lambda: not len(service._binds.flights), "seen")
            assert [bind.members[0].name for bind in world.binds] == ["plain"]
            assert server.of("bind") == [
                {
                    "PodName": "mine",
                    "PodNamespace": "default",
                    "PodUID": world.pods["default/mine"]["metadata"]["uid"],
                    "Node": "n0",
                }
            ]
            assert (await held(world), await used(world)) == (0, 2000)


async def test_a_refusal_gives_the_room_back_and_the_pod_is_tried_again(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    async with extender() as server, outside(nats_url, redis_url, cluster) as world:
        server.answers["bind"] = lambda question: {"Error": "device lost"}
        await world.node("n0", cpu="1", more={GPU: "4"})
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, binds(server.url()))):
            await gpu(world, "mine")
            await until(lambda: world.told("mine"), "told")
            assert world.told("mine") == [f"extender {server.url()}: device lost"]
            server.answers["bind"] = binding(world)
            await until(lambda: bound(world, "mine"), "tried again")


async def test_an_extender_that_dies_while_it_binds(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    """It has bound the pod, and nobody hears of it from the extender: the pod is seen bound, and that is that."""
    async with extender() as server, outside(nats_url, redis_url, cluster) as world:
        late = asyncio.Event()

        async def bind(question: dict[str, Any]) -> dict[str, Any]:
            await late.wait()
            await asyncio.sleep(0)
            raise AssertionError("was killed")

        server.answers["bind"] = bind
        await world.node("n0", more={GPU: "4"})
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, binds(server.url()))) as service:
            assert service._extending is not None
            service._extending._binder._doubt_s = 60.0
            await gpu(world, "mine")
            await until(lambda: server.asked, "asked")
            assert await held(world) == 1000
            explained = await ask(world.bus, "scheduler", "explain", ExplainPod("default", "mine"), PodExplanation)
            assert (explained.state, explained.node) == ("binding", "n0")
            assert explained.message == "claimed, an extender binds the pod"
            await server.kill()
            await bind_it(world, server.of("bind")[0])
            await until(lambda: not len(service._binds.flights), "seen bound")
            assert not world.told("mine")
            assert (await held(world), await used(world)) == (0, 1000)
            service._extending._binder._doubt_s = 0.5
            # This one it has not bound: once nobody needs to expect that any more the pod is tried again.
            await server.start()
            server.answers["bind"] = lambda question: b"cut off"
            await gpu(world, "other")
            await until(lambda: world.told("other"), "given up")
            assert world.told("other")[0].startswith(f"extender {server.url()}: bind: the answer is no ")
            server.answers["bind"] = binding(world)
            await until(lambda: bound(world, "other"), "tried again")


async def test_a_failure_that_may_be_ignored_leaves_the_pod_to_the_gateway(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    async with extender() as server, outside(nats_url, redis_url, cluster) as world:
        await server.kill()
        await world.node("n0", more={GPU: "4"})
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, binds(server.url(), ignorable=True))):
            await gpu(world, "mine")
            await until(lambda: world.node_of("mine") == "n0", "bound by the gateway")


async def test_a_gang_of_which_an_extender_binds_one(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    async with extender() as server, outside(nats_url, redis_url, cluster) as world:
        server.answers["bind"] = binding(world)
        await world.node("n0", more={GPU: "4"})
        await world.listed()
        chosen = settings(tmp_path, binds(server.url()), profiles=[PROFILE])
        async with scheduler(nats_url, redis_url, cluster, chosen) as service:
            await gpu(world, "mine", annotations=GANG)
            await world.pod("plain", annotations=GANG)
            await until(lambda: bound(world, "mine") and bound(world, "plain"), "bound")
            await until(lambda: not len(service._binds.flights), "seen")
            assert (await held(world), await used(world)) == (0, 2000)


async def test_the_scheduler_dies_while_an_extender_binds(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    """The next one finds the pod as it is: bound by then, or to be tried again; it is never bound twice."""
    async with extender() as server, outside(nats_url, redis_url, cluster) as world:
        late = asyncio.Event()

        async def bind(question: dict[str, Any]) -> dict[str, Any]:
            await late.wait()
            return {"Error": ""}

        server.answers["bind"] = bind
        await world.node("n0", cpu="1", more={GPU: "4"})
        await world.listed()
        chosen = settings(tmp_path, binds(server.url()))
        async with scheduler(nats_url, redis_url, cluster, chosen):
            await gpu(world, "mine")
            await until(lambda: server.asked, "asked")
        await bind_it(world, server.of("bind")[0])
        async with scheduler(nats_url, redis_url, cluster, chosen) as service:
            late.set()
            await world.node("n1", cpu="1", more={GPU: "4"})
            await gpu(world, "next")
            server.answers["bind"] = binding(world)
            await until(lambda: bound(world, "next") == "n1", "the room of the first is taken")
            assert bound(world, "mine") == "n0"
            await until(lambda: not len(service._binds.flights), "seen")
        assert (await held(world), await used(world)) == (0, 2000)
