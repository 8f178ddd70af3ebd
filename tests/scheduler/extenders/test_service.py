"""Extenders through the service: real HTTP, real bus, real ledger."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.bus.questions import ask
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.runtime.settings import SettingsError
from koord.scheduler.extenders.stage import WAITING
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from koord.telemetry.metrics import render
from tests.scheduler.extenders.servers import ExtenderServer, extender, names, only, rating
from tests.scheduler.outside import Outside, outside, scheduler, until

GPU = "example.com/gpu"


def settings(folder: Path, *extenders: dict[str, Any], **fields: Any) -> SchedulerSettings:
    """A scheduler with a configuration file that names these extenders."""
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "podInitialBackoffSeconds": 1,
        "profiles": [{"schedulerName": "koord-scheduler"}],
        "extenders": list(extenders),
        **fields,
    }
    file = folder / "scheduler.yaml"
    file.write_text(yaml.safe_dump(content))
    return SchedulerSettings(config=str(file), queue=QueueSettings())


def asks(server: ExtenderServer, **fields: Any) -> dict[str, Any]:
    """The block of an extender that knows the nodes itself. A busy machine is no extender that is slow."""
    head = {"urlPrefix": server.url(), "filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": "60s"}
    return {**head, **fields}


async def _nodes(world: Outside, count: int = 4, **more: Any) -> None:
    for number in range(count):
        await world.node(f"n{number}", **more)
    await world.listed()


async def test_an_extender_filters_and_rates(nats_url: str, redis_url: str, cluster: str, tmp_path: Path) -> None:
    async with extender(filter=only("n1", "n2"), rate=rating(n1=1, n2=7)) as server:
        block = asks(server, prioritizeVerb="rate", weight=5)
        async with outside(nats_url, redis_url, cluster) as world:
            await _nodes(world)
            async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, block)):
                for number in range(3):
                    await world.pod(f"p{number}", annotations={"own": "x"})
                await until(lambda: len(world.bound) == 3, "bound")
                assert set(world.bound.values()) == {"n2"}
        first = server.of("filter")[0]  # several are asked about at a time, so any of them
        assert first["Pod"]["metadata"]["annotations"] == {"own": "x"}
        assert {question["Pod"]["metadata"]["name"] for question in server.of("filter")} == {"p0", "p1", "p2"}
        assert (first["Nodes"], first["NodeNames"]) == (None, ["n0", "n1", "n2", "n3"])
        assert server.of("rate")[0]["NodeNames"] == ["n1", "n2"]
        assert all(trace.startswith("00-") for trace in server.traces)
        line = f'koord_scheduler_extender_calls_total{{extender="{server.url()}",result="ok",verb="filter"}} '
        assert float(render().decode().partition(line)[2].split()[0]) >= 3


async def test_only_pods_that_ask_for_a_managed_resource_are_shown(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    """The resource is on no node: the extender alone knows where it is."""
    async with extender(filter=only("n3")) as server:
        managed = [{"name": GPU, "ignoredByScheduler": True}]
        async with outside(nats_url, redis_url, cluster) as world:
            await _nodes(world)
            async with scheduler(
                nats_url, redis_url, cluster, settings(tmp_path, asks(server, managedResources=managed))
            ):
                for number in range(8):
                    await world.pod(f"plain{number}", cpu="100m")
                resources = {"requests": {"cpu": "100m", GPU: "1"}, "limits": {GPU: "1"}}
                await world.pod("gpu", containers=[{"name": "main", "resources": resources}])
                await until(lambda: len(world.bound) == 9, "bound")
                assert world.node_of("gpu") == "n3"
        assert [question["Pod"]["metadata"]["name"] for question in server.of("filter")] == ["gpu"]


async def test_whole_nodes_are_shown_to_whom_does_not_know_them(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    def answer(question: dict[str, Any]) -> dict[str, Any]:
        items = [node for node in question["Nodes"]["items"] if node["metadata"]["labels"]["rack"] == "r1"]
        return {"nodes": {"items": items}, "nodeNames": None, "failedNodes": None, "error": ""}

    async with extender(filter=answer) as server:
        async with outside(nats_url, redis_url, cluster) as world:
            for number in range(3):
                await world.node(f"n{number}", labels={"rack": f"r{number}"})
            await world.listed()
            block = asks(server, nodeCacheCapable=False)
            async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, block)):
                await world.pod("p")
                await until(lambda: world.node_of("p") == "n1", "bound")
        [question] = server.of("filter")
        assert question["NodeNames"] is None
        assert names(question) == ["n0", "n1", "n2"]
        assert question["Nodes"]["items"][0]["status"]["allocatable"]["cpu"] == "4"


async def test_what_is_refused_is_told_and_tried_again_on_any_event(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    async with extender(filter=only()) as server, outside(nats_url, redis_url, cluster) as world:
        await _nodes(world, 2)
        await world.node("full", cpu="100m")
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, asks(server))):
            await world.pod("p")
            await until(lambda: world.told("p"), "told")
            assert world.told("p")[0].startswith("0/3 nodes are available: 1 Insufficient cpu, 2 no such thing here.")
            server.answers["filter"] = only("n1")
            await world.node("n0", labels={"any": "change"})
            await until(lambda: world.node_of("p") == "n1", "woken")


async def test_an_extender_that_dies_is_an_error_until_it_is_back(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    async with extender(filter=only("n1")) as server, outside(nats_url, redis_url, cluster) as world:
        await _nodes(world)
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, asks(server))):
            server.delay_s = 60.0
            await world.pod("p")
            await until(lambda: server.asked, "asked")
            await server.kill()  # in the middle of its answer
            await until(lambda: world.told("p"), "told")
            assert world.told("p")[0].startswith(f'Post "{server.url()}/filter": ')
            assert not world.bound
            server.delay_s = 0.0
            await server.start()
            await until(lambda: world.node_of("p") == "n1", "asked again")


async def test_a_slow_extender_holds_up_nobody_else(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    waiting = asyncio.Event()

    async def answer(question: dict[str, Any]) -> dict[str, Any]:
        await waiting.wait()
        return {"NodeNames": ["n0"]}

    async with extender(filter=answer) as server:
        block = asks(server, managedResources=[{"name": GPU}])
        async with outside(nats_url, redis_url, cluster) as world:
            await _nodes(world, more={GPU: "100"})
            async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, block, parallelism=3)) as service:
                resources = {"requests": {"cpu": "10m", GPU: "1"}, "limits": {GPU: "1"}}
                for number in range(6):
                    await world.pod(f"slow{number}", containers=[{"name": "main", "resources": resources}])
                await until(lambda: server.at_once == 3, "asked, so many at a time")
                began = [service._queue.units[uid].popped_at for uid in service._world.pending]
                assert began.count(math.inf) == 3, "who only waits is not late"
                explained = await ask(world.bus, "scheduler", "explain", ExplainPod("default", "slow5"), PodExplanation)
                assert explained.message == WAITING
                for number in range(5):
                    await world.pod(f"plain{number}", cpu="10m")
                await until(lambda: len(world.bound) == 5, "the others are bound")
                await world.delete("slow5")  # it never gets to be asked about, or its answer finds nobody
                waiting.set()
                await until(lambda: len(world.bound) == 10, "bound")
                assert {world.node_of(f"slow{number}") for number in range(5)} == {"n0"}
                assert server.most_at_once == 3


async def test_what_became_of_nodes_meanwhile_counts(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    """The node that the extender lets pass is full by the time it answers: the pod is not put there."""
    waiting = asyncio.Event()

    async def answer(question: dict[str, Any]) -> dict[str, Any]:
        await waiting.wait()
        return {"NodeNames": [name for name in question["NodeNames"] if name in ("n0", "late")]}

    async with extender(filter=answer) as server:
        block = asks(server, managedResources=[{"name": GPU}])
        async with outside(nats_url, redis_url, cluster) as world:
            await world.node("n0", cpu="1", more={GPU: "100"})
            await world.listed()
            async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, block)):
                resources = {"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}}
                await world.pod("asking", containers=[{"name": "main", "resources": resources}])
                await until(lambda: server.asked, "asked")
                await world.pod("quick", cpu="1")
                await until(lambda: world.node_of("quick") == "n0", "the room is taken")
                await world.node("late", cpu="1", more={GPU: "100"})
                waiting.set()
                await until(lambda: world.node_of("asking") == "late", "asked again about the node that is new")
                assert len(server.of("filter")) >= 2


async def test_members_of_a_gang_are_asked_about_and_bound_together(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
    profile = {
        "schedulerName": "koord-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}},
    }
    async with extender(filter=only("n1", "n2")) as server:
        async with outside(nats_url, redis_url, cluster) as world:
            await _nodes(world)
            chosen = settings(tmp_path, asks(server), profiles=[profile])
            async with scheduler(nats_url, redis_url, cluster, chosen):
                for number in range(3):
                    await world.pod(f"g{number}", annotations=gang)
                await until(lambda: len(world.bound) == 3, "bound")
                assert set(world.bound.values()) == {"n1", "n2"}
        assert len(world.binds) == 1
        assert {question["Pod"]["metadata"]["name"] for question in server.of("filter")} == {"g0", "g1", "g2"}


async def test_a_pod_that_changes_while_it_is_asked_about_is_asked_about_again(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    waiting = asyncio.Event()

    async def answer(question: dict[str, Any]) -> dict[str, Any]:
        await waiting.wait()
        return {"NodeNames": [name for name in names(question) if name != "n0"]}

    async with extender(filter=answer) as server, outside(nats_url, redis_url, cluster) as world:
        for number in range(2):
            await world.node(f"n{number}", labels={"rack": f"r{number}"})
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, asks(server))):
            await world.pod("p")
            await world.pod("gone")
            await until(lambda: len(server.asked) == 2, "asked")
            body = world.pods["default/p"]
            body["spec"]["nodeSelector"] = {"rack": "r1"}
            await world.show(body)
            await world.delete("gone")
            # The change has been seen when a pod that came after it is asked about.
            await world.pod("last")
            await until(lambda: len(server.asked) == 3, "asked")
            waiting.set()
            await until(lambda: len(world.bound) == 2, "bound")
            shown = [
                question["NodeNames"] for question in server.of("filter") if question["Pod"]["metadata"]["name"] == "p"
            ]
            assert shown == [["n0", "n1"], ["n1"]]
            assert set(world.bound.values()) == {"n1"}


async def test_a_service_does_not_start_with_tls_of_no_use(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    block = {"urlPrefix": "https://x", "filterVerb": "f", "tlsConfig": {"caFile": "nowhere.pem"}}
    with pytest.raises(SettingsError) as error:
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, block)):
            pass
    assert str(error.value).startswith(f"{tmp_path}/scheduler.yaml: extenders[0].tlsConfig.caFile: no certificates")
