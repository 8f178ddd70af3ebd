"""Preemption by the service, against a real NATS and a real Redis: who goes, who waits, and what survives a crash."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.contracts.decisions import Decision, Delete, Patch
from koord.scheduler.config.registry import UPSTREAM
from koord.scheduler.outgoing import Outgoing
from koord.scheduler.plugins.factories import BUILT
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, outside, scheduler, until


@pytest.fixture
def settings(tmp_path: Path) -> SchedulerSettings:
    """kube-scheduler's default profile, as far as it is built."""
    missing = [{"name": name} for name in UPSTREAM if name not in BUILT]
    path = tmp_path / "scheduler.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "podMaxBackoffSeconds": 1,
                "profiles": [{"schedulerName": "koord-scheduler", "plugins": {"multiPoint": {"disabled": missing}}}],
            }
        )
    )
    return SchedulerSettings(config=str(path), queue=QueueSettings())


def patched(world: Outside, name: str, field: str) -> list[Any]:
    """What patches of the pod's status said of a field."""
    found = [json.loads(patch.body)["status"] for patch in world.patches if patch.target.name == name]
    return [status[field] for status in found if field in status]


def targets(world: Outside, name: str) -> list[dict[str, Any]]:
    """The DisruptionTarget conditions that a pod was told."""
    return [
        condition
        for conditions in patched(world, name, "conditions")
        for condition in conditions
        if condition["type"] == "DisruptionTarget"
    ]


async def two_full_nodes(world: Outside) -> None:
    """Each with a pod of its own importance."""
    for name, priority in (("a", 5), ("b", 1)):
        await world.node(name, cpu="2")
        await world.pod(f"on-{name}", cpu="2", priority=priority, nodeName=name)
    await world.listed()


async def test_the_cheapest_victim_goes(
    nats_url: str, redis_url: str, cluster: str, settings: SchedulerSettings
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await two_full_nodes(world)
        async with scheduler(nats_url, redis_url, cluster, settings):
            uid = await world.pod("high", cpu="2", priority=100)
            await until(lambda: world.node_of("high") == "b", "bound where the victim was")
            assert [deletion.target.name for deletion in world.deletions] == ["on-b"]
            [condition] = targets(world, "on-b")
            assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
            assert condition["message"] == (
                "koord-scheduler: preempting to accommodate a higher priority pod, preemptor: default/high"
            )
            assert patched(world, "high", "nominatedNodeName") == ["b"]
            await until(lambda: world.told("on-b", "Preempted"), "told")
            [event] = [event for event in world.events if event.reason == "Preempted"]
            assert (event.note, event.action) == (f"Preempted by pod {uid} on node b", "Preempting")
            assert event.type == "Normal"


async def test_nobody_else_goes_and_nobody_takes_the_room_meanwhile(
    nats_url: str, redis_url: str, cluster: str, settings: SchedulerSettings
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await two_full_nodes(world)
        world.graceful = True
        async with scheduler(nats_url, redis_url, cluster, settings) as service:
            await world.pod("high", cpu="2", priority=100)
            await until(lambda: world.deletions, "the victim goes")
            # Others come and go, so that everybody is tried again and again.
            for number in range(3):
                await world.pod(f"low-{number}", cpu="2", priority=3)
                await until(lambda: world.told(f"low-{number}"), "no room for it")  # noqa: B023
            await world.pod("bystander", cpu="0", nodeName="a")
            await world.delete("bystander")  # so that the one who waits is tried, too
            text = "preemption: not eligible due to a terminating pod on the nominated node."
            await until(lambda: any(text in note for note in world.told("high")), "it waits on")
            assert len(service._engine.nominated) == 1
            assert [deletion.target.name for deletion in world.deletions] == ["on-b"]
            await world.delete("on-b")
            await until(lambda: world.node_of("high") == "b", "the one who waits has it")
            assert not any(world.node_of(f"low-{number}") for number in range(3))
            assert len(world.deletions) == 1
            assert patched(world, "high", "nominatedNodeName") == ["b"]
            await until(lambda: not len(service._engine.nominated), "nobody waits")


async def test_what_cannot_be_helped_is_told(
    nats_url: str, redis_url: str, cluster: str, settings: SchedulerSettings
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await two_full_nodes(world)
        async with scheduler(nats_url, redis_url, cluster, settings):
            await world.pod("equal", cpu="2", priority=1)
            await until(lambda: world.told("equal"), "told")
            assert world.told("equal") == [
                "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, "
                "preemption: 0/2 nodes are available: "
                "2 No preemption victims found for incoming pod."
            ]
            await world.pod("meek", cpu="2", priority=100, preemptionPolicy="Never")
            await until(lambda: world.told("meek"), "told")
            assert world.told("meek")[0].endswith(" preemption: not eligible due to preemptionPolicy=Never.")
            assert world.deletions == []


async def test_who_waits_gives_way_to_who_is_more_important(
    nats_url: str, redis_url: str, cluster: str, settings: SchedulerSettings
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("a", cpu="2")
        await world.pod("on-a", cpu="2", priority=1, nodeName="a")
        await world.listed()
        world.graceful = True
        async with scheduler(nats_url, redis_url, cluster, settings):
            await world.pod("middle", cpu="2", priority=50)
            await until(lambda: patched(world, "middle", "nominatedNodeName") == ["a"], "middle waits")
            await until(lambda: len(world.deletions) == 1, "on-a goes")
            await world.delete("on-a")
            await until(lambda: world.node_of("middle") == "a", "middle is bound")
            await world.pod("high", cpu="2", priority=100)
            await until(lambda: patched(world, "high", "nominatedNodeName") == ["a"], "high waits")
            await until(lambda: len(world.deletions) == 2, "middle goes")
            await world.pod("higher", cpu="2", priority=200)
            await until(lambda: patched(world, "high", "nominatedNodeName") == ["a", None], "high waits no more")
            await world.delete("middle")
            await until(lambda: world.node_of("higher") == "a", "the highest has it")
            assert [deletion.target.name for deletion in world.deletions] == ["on-a", "middle"]


@pytest.mark.parametrize("lost", ["everything", "deletions"])
async def test_a_crash_between_nomination_and_deletion(
    nats_url: str,
    redis_url: str,
    cluster: str,
    settings: SchedulerSettings,
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
) -> None:
    """The ledger keeps the room for the pod, but the decisions, or some, were never published."""
    async with outside(nats_url, redis_url, cluster) as world:
        await two_full_nodes(world)
        world.graceful = True
        kept: list[Decision] = []

        def add(self: Outgoing, decisions: Any) -> None:
            for decision in decisions:
                named = isinstance(decision, Patch) and b"nominatedNodeName" in decision.body
                if lost == "deletions" and named:
                    self._decisions.append(decision)
                else:
                    kept.append(decision)

        with monkeypatch.context() as patch:
            patch.setattr(Outgoing, "add", add)
            async with scheduler(nats_url, redis_url, cluster, settings):
                await world.pod("high", cpu="2", priority=100)
                await until(lambda: kept, "the decisions are lost")
                if lost == "deletions":
                    await until(lambda: patched(world, "high", "nominatedNodeName"), "told for which node it waits")
        assert world.deletions == []
        assert [one.node async for one in world.ledger.nominations()] == ["b"]
        async with scheduler(nats_url, redis_url, cluster, settings):
            await until(lambda: world.deletions, "the next scheduler asks for it")
            await world.delete("on-b")
            await until(lambda: world.node_of("high") == "b", "bound")
            assert [deletion.target.name for deletion in world.deletions] == ["on-b"]
            assert [one async for one in world.ledger.nominations()] == []


async def test_the_pod_is_held_back_until_its_victims_were_told(
    nats_url: str, redis_url: str, cluster: str, settings: SchedulerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions that are lost on their way: nothing wakes the pod, until patience with them is over."""
    async with outside(nats_url, redis_url, cluster) as world:
        await two_full_nodes(world)
        kept: list[Decision] = []
        add = Outgoing.add

        def lose(self: Outgoing, decisions: Any) -> None:
            kept.extend(one for one in decisions if isinstance(one, Delete))
            add(self, [one for one in decisions if not isinstance(one, Delete)])

        async with scheduler(nats_url, redis_url, cluster, settings) as service:
            with monkeypatch.context() as patch:
                patch.setattr(Outgoing, "add", lose)
                await world.pod("high", cpu="2", priority=100)
                await until(lambda: kept, "the deletion is lost")
                await until(lambda: service._queue.counts["gated"] == 1, "held back")
                [unit] = [unit for unit in service._queue.units.values() if unit.state == "gated"]
                assert unit.message == "waiting for the preemption for this pod to be finished"
                for number in range(3):  # pods go, and others are tried
                    await world.pod(f"gone-{number}", cpu="0", nodeName="b")
                    await world.delete(f"gone-{number}")
                    await world.pod(f"low-{number}", cpu="2")
                    await until(lambda: world.told(f"low-{number}"), "no room for it")  # noqa: B023
                assert (unit.attempts, unit.state, len(kept)) == (1, "gated", 1)
            service._preempting.expire(time.monotonic() + 61.0)
            await until(lambda: world.node_of("high") == "b", "asked for again, and bound")
            assert [deletion.target.name for deletion in world.deletions] == ["on-b"]
            assert service._queue.counts["gated"] == 0


async def test_a_crash_after_the_deletion(
    nats_url: str, redis_url: str, cluster: str, settings: SchedulerSettings
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await two_full_nodes(world)
        world.graceful = True
        async with scheduler(nats_url, redis_url, cluster, settings):
            await world.pod("high", cpu="2", priority=100)
            await until(lambda: world.deletions, "the victim goes")
        async with scheduler(nats_url, redis_url, cluster, settings):
            await world.pod("low", cpu="2")
            await until(lambda: world.told("low"), "the next scheduler plans")
            assert len(world.deletions) == 1
            await world.delete("on-b")
            await until(lambda: world.node_of("high") == "b", "bound")
            assert len(world.deletions) == 1
