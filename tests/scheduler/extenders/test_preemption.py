"""Extenders have a say in who goes for a pod."""

from pathlib import Path
from typing import Any

import pytest

from tests.scheduler.extenders.servers import Answer, ExtenderServer, extender
from tests.scheduler.extenders.test_service import settings
from tests.scheduler.outside import Outside, outside, scheduler, until


def block(server: ExtenderServer, **fields: Any) -> dict[str, Any]:
    head = {"urlPrefix": server.url(), "preemptVerb": "preempt", "nodeCacheCapable": True, "httpTimeout": "60s"}
    return {**head, **fields}


async def crowded(world: Outside) -> None:
    """Three full nodes; who is on ``a`` costs least, on ``c`` are two of which one would do."""
    for name, priority in (("a", 1), ("b", 2)):
        await world.node(name, cpu="2")
        await world.pod(f"on-{name}", cpu="2", priority=priority, nodeName=name)
    await world.node("c", cpu="2")
    for number in range(2):
        await world.pod(f"on-c{number}", cpu="1", priority=3, nodeName="c")
    await world.listed()


def uid(world: Outside, name: str) -> str:
    return str(world.pods[f"default/{name}"]["metadata"]["uid"])


def gone(world: Outside) -> set[str]:
    return {deletion.target.name for deletion in world.deletions}


def leaves(*nodes: str) -> Answer:
    """An extender that leaves these candidates as they are."""
    return lambda question: {
        "NodeNameToMetaVictims": {
            node: found for node, found in question["NodeNameToMetaVictims"].items() if node in nodes
        }
    }


async def test_a_candidate_that_an_extender_leaves_is_taken(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    async with extender(preempt=leaves("b", "c")) as server, outside(nats_url, redis_url, cluster) as world:
        await crowded(world)
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, block(server))):
            await world.pod("high", cpu="1", priority=10)
            await until(lambda: world.node_of("high") == "b", "bound where the extender wants it")
            assert gone(world) == {"on-b"}
            [question] = server.of("preempt")
            assert question["Pod"]["metadata"]["name"] == "high"
            assert question["NodeNameToVictims"] is None
            assert set(question["NodeNameToMetaVictims"]) == {"a", "b", "c"}
            assert server.traces[0].startswith("00-")


async def test_an_extender_may_choose_other_victims(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    async with extender() as server, outside(nats_url, redis_url, cluster) as world:
        await crowded(world)
        pods = [{"UID": uid(world, f"on-c{number}")} for number in range(2)]
        chosen = {"NodeNameToMetaVictims": {"c": {"Pods": pods, "NumPDBViolations": 0}}}
        server.answers["preempt"] = lambda question: chosen
        # This one does not know the pods: it is shown them whole.
        whole = settings(tmp_path, block(server, nodeCacheCapable=False))
        async with scheduler(nats_url, redis_url, cluster, whole):
            await world.pod("high", cpu="1", priority=10)
            await until(lambda: world.node_of("high") == "c", "bound")
            assert gone(world) == {"on-c0", "on-c1"}
            [question] = server.of("preempt")
            assert question["NodeNameToMetaVictims"] is None
            [victim] = question["NodeNameToVictims"]["a"]["Pods"]
            assert (victim["metadata"]["name"], victim["spec"]["nodeName"]) == ("on-a", "a")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda question: {"NodeNameToMetaVictims": {}}, "preemption: extenders leave no candidate"),
        (
            lambda question: {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "nobody"}]}}},
            "preemption: extender: {url} claims to preempt pod (UID: nobody) on node: a, but the pod is not found on "
            "that node",
        ),
        (
            lambda question: {"NodeNameToMetaVictims": {"a": None}},
            'preemption: extender {url}: expected at least one victim pod on node "a"',
        ),
        (
            lambda question: {"NodeNameToMetaVictims": {"z": {"Pods": []}}},
            "preemption: extender {url}: preempt: there is no node 'z'",
        ),
        (lambda question: b"[", "preemption: extender {url}: preempt: the answer is no ExtenderPreemptionResult"),
    ],
)
async def test_nobody_goes_where_the_answer_is_none(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path, answer: Answer, text: str
) -> None:
    async with extender(preempt=answer) as server, outside(nats_url, redis_url, cluster) as world:
        await crowded(world)
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, block(server))):
            await world.pod("high", cpu="2", priority=10)
            wanted = text.format(url=server.url())
            await until(lambda: any(wanted in note for note in world.told("high")), "told")
            assert not world.deletions
            # It waits for an event like any other, and may have better luck then.
            server.answers["preempt"] = leaves("a")
            await world.delete("on-c0")
            await until(lambda: world.node_of("high") == "a", "bound")


async def test_an_extender_that_dies_while_it_is_asked_about_victims(
    nats_url: str, redis_url: str, cluster: str, tmp_path: Path
) -> None:
    async with extender(preempt=leaves("b")) as server, outside(nats_url, redis_url, cluster) as world:
        await crowded(world)
        server.delay_s = 60.0
        async with scheduler(nats_url, redis_url, cluster, settings(tmp_path, block(server, ignorable=True))):
            await world.pod("high", cpu="1", priority=10)
            await until(lambda: server.asked, "asked")
            await world.node("free", cpu="1")
            await world.pod("other", cpu="1")
            await until(lambda: world.node_of("other") == "free", "nobody else waits for it")
            await server.kill()
            await until(lambda: world.node_of("high") == "a", "as without it")
            assert gone(world) == {"on-a"}
