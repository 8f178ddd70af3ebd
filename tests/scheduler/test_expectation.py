"""Pods that wait before their binding say where they will be: gate NominatedNodeNameForExpectation."""

import json
from pathlib import Path
from typing import Any

import msgspec

from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, scheduler, until
from tests.scheduler.volumes.objects import claim, local
from tests.scheduler.volumes.test_service import CONFIG, FAST, storage

OFF = msgspec.structs.replace(FAST, feature_gates={"NominatedNodeNameForExpectation": False})


def nominated(world: Outside, name: str) -> list[Any]:
    """What patches of the pod said of its node."""
    found = [json.loads(patch.body)["status"] for patch in world.patches if patch.target.name == name]
    return [status["nominatedNodeName"] for status in found if "nominatedNodeName" in status]


async def test_who_waits_for_a_volume_says_where_it_will_be(nats_url: str, redis_url: str, cluster: str) -> None:
    async with storage(nats_url, redis_url, cluster) as world:
        world.before_write = lambda patch: False  # the gateway is slow
        async with scheduler(nats_url, redis_url, cluster, FAST) as service:
            await world.tell("claim", claim("data", class_="made"))
            await world.claiming_pod("p", "data", cpu="3")
            await until(lambda: nominated(world, "p"), "told")
            [node] = nominated(world, "p")
            assert world.node_of("p") is None
            # Its room is taken: nobody need be compared with it, and who comes goes beside it, or elsewhere.
            await world.pod("plain", cpu="3")
            await until(lambda: world.node_of("plain"), "bound")
            assert world.node_of("plain") != node
            assert not len(service._engine.nominated)
        # The next scheduler knows of it from the pod alone.
        await world.pod("other", cpu="1")
        world.before_write = lambda patch: True
        async with scheduler(nats_url, redis_url, cluster, FAST) as service:
            await until(lambda: world.node_of("p"), "bound")
            assert world.node_of("p") == node
            await until(lambda: world.node_of("other"), "bound")
            await until(lambda: not len(service._engine.nominated), "nobody waits")
        assert set(nominated(world, "p")) == {node}
        assert nominated(world, "plain") == nominated(world, "other") == []


async def test_who_waited_in_vain_takes_it_back(nats_url: str, redis_url: str, cluster: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(CONFIG)
    settings = SchedulerSettings(config=str(file))
    async with storage(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, settings):
        world.before_write = lambda patch: False
        await world.tell("volume", local("one", "a"))
        await world.tell("claim", claim("data"))
        await world.claiming_pod("p", "data")
        await until(lambda: len(nominated(world, "p")) >= 2, "told twice")
        assert nominated(world, "p")[:2] == ["a", None]
        world.before_write = lambda patch: True
        await until(lambda: world.node_of("p") == "a", "bound")


async def test_it_can_be_turned_off(nats_url: str, redis_url: str, cluster: str) -> None:
    async with storage(nats_url, redis_url, cluster) as world, scheduler(nats_url, redis_url, cluster, OFF):
        await world.tell("claim", claim("data", class_="made"))
        await world.claiming_pod("p", "data")
        await until(lambda: world.node_of("p"), "bound")
        assert nominated(world, "p") == []
