"""The service against a real NATS and a real Redis."""

import asyncio
import json
import re
from collections.abc import Iterable

import pytest

from koord.accounting.takes import Take
from koord.bus.questions import ask
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.contracts.decisions import Decision, Evict, ObjectRef
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from koord.telemetry.context import TraceContext
from koord.telemetry.metrics import render
from koord.telemetry.spans import Spans
from tests.scheduler.outside import outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))


async def test_pods_are_bound_with_trace_and_event(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(3):
            await world.node(f"n{number}")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster):
            for number in range(9):
                await world.pod(f"p{number}")
            await world.pod("foreign", schedulerName="another")
            await until(lambda: len(world.bound) == 9, "all bound")
            assert world.node_of("foreign") is None
            # LeastAllocated spreads: three on each node.
            assert sorted(list(world.bound.values()).count(f"n{n}") for n in range(3)) == [3, 3, 3]
            member = world.binds[0].members[0]
            assert member.annotations["koord.sh/traceparent"] == member.trace
            await until(lambda: len(world.told("p3", "Scheduled")) == 1, "event")
            assert world.told("p3", "Scheduled") == [f"Successfully assigned default/p3 to {world.node_of('p3')}"]
            items = await world.ledger.items("node/")
            assert sum(item.used.get("pods", 0) for item in items.values()) == 9
            assert all(item.held.get("pods", 0) == 0 for item in items.values())
            line = 'scheduler_schedule_attempts_total{profile="koord-scheduler",result="scheduled"}'
            assert float(re.search(re.escape(line) + r" (\S+)", render().decode())[1]) >= 9  # type: ignore[index]
            await until(lambda: 'scheduler_cache_size{type="nodes"} 3.0' in render().decode(), "gauges")


async def test_what_does_not_fit_is_told_and_woken(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="2")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("first", cpu="2")
            await until(lambda: world.node_of("first"), "first bound")
            await world.pod("second", cpu="2")
            text = (
                "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
                "1 No preemption victims found for incoming pod."
            )
            await until(lambda: world.told("second"), "told")
            assert world.told("second") == [text]
            await until(lambda: world.patches, "condition")
            patch = world.patches[0]
            assert (patch.subresource, patch.target.name, patch.patch) == ("status", "second", "strategic")
            [condition] = json.loads(patch.body)["status"]["conditions"]
            assert (condition["type"], condition["status"], condition["reason"]) == (
                "PodScheduled",
                "False",
                "Unschedulable",
            )
            assert condition["message"] == text
            explained = await ask(world.bus, "scheduler", "explain", ExplainPod("default", "second"), PodExplanation)
            assert (explained.state, explained.total_nodes, explained.feasible_nodes) == ("unschedulable", 1, 0)
            assert [(r.plugin, r.reason, r.nodes) for r in explained.reasons] == [
                ("NodeResourcesFit", "Insufficient cpu", 1)
            ]
            await world.delete("first")
            await until(lambda: world.node_of("second") == "n0", "second bound after the delete")
            await world.pod("third", cpu="2")
            await until(lambda: world.told("third"), "told")
            await world.node("n1", cpu="2")
            await until(lambda: world.node_of("third") == "n1", "third bound on the new node")
            await world.pod("fourth", cpu="2")
            await until(lambda: world.told("fourth"), "told")
            going = world.pods["default/fourth"]
            going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            await world.show(going)
            text = "skip schedule deleting pod: default/fourth"
            await until(lambda: world.told("fourth")[-1] == text, "told that it is passed over")


async def test_a_gang_is_one_claim_and_one_bind(nats_url: str, redis_url: str, cluster: str) -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(3):
            await world.node(f"n{number}", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("g0", annotations=gang)
            await world.pod("g1", annotations=gang)
            await world.pod("alone", cpu="100m")
            await until(lambda: world.node_of("alone"), "the single pod is bound")
            explained = await ask(world.bus, "scheduler", "explain", ExplainPod("default", "g0"), PodExplanation)
            assert explained.state == "gated"
            assert "child pod not collect enough" in explained.message
            assert (explained.gang, explained.gang_members, explained.gang_minimum) == ("default/g", 2, 3)
            await world.pod("g2", annotations=gang)
            await until(lambda: world.told("g2"), "the gang does not fit beside the single pod")
            assert not any(world.node_of(f"g{n}") for n in range(3))
            assert len({note for n in range(3) for note in world.told(f"g{n}")}) >= 2
            for number in range(3):
                assert 'Gang "default/g" gets rejected due to pod is unschedulable' in world.told(f"g{number}")[-1]
            await world.delete("alone")
            await until(lambda: all(world.node_of(f"g{n}") for n in range(3)), "the gang is bound")
            [bind] = [bind for bind in world.binds if len(bind.members) > 1]
            assert bind.minimum == {"default/g": 3}
            assert {member.gang for member in bind.members} == {"default/g"}
            assert bind.members[0].annotations["internal.scheduling.koordinator.sh/bind-gang-member-count"] == "3"


@pytest.mark.parametrize("policy", ["once-satisfied", "only-waiting", "waiting-and-running"])
async def test_a_gang_bound_in_part_is_told_and_made_whole(
    nats_url: str, redis_url: str, cluster: str, policy: str
) -> None:
    """Spec 20 section 3.12: the bound members count under every match policy."""
    prefix = "gang.scheduling.koordinator.sh"
    gang = {f"{prefix}/name": "g", f"{prefix}/min-available": "3", f"{prefix}/match-policy": policy}
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        world.decide = lambda bind: "all but g1" if len(bind.members) == 3 else "bind"
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(3):
                await world.pod(f"g{number}", annotations=gang)
            await until(lambda: world.node_of("g1"), "the missing member is bound, too")
            await until(lambda: world.told("g1", "GangPartiallyBound"), "told")
            text = "gang default/g: 2 of 3 bound, the missing are tried again"
            assert world.told("g1", "GangPartiallyBound") == [text]
            assert [len(bind.members) for bind in world.binds] == [3, 1]


async def test_gang_larger_than_the_cluster(nats_url: str, redis_url: str, cluster: str) -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "big", "gang.scheduling.koordinator.sh/min-available": "5"}
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="2")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(5):
                await world.pod(f"b{number}", annotations=gang)
            await until(lambda: all(world.told(f"b{n}") for n in range(5)), "every member is told")
            assert [len(world.told(f"b{n}")) for n in range(5)] == [1] * 5
            root = [n for n in range(5) if world.told(f"b{n}")[0].startswith("0/1 nodes are available: 1 Insufficient")]
            assert len(root) == 1
            assert not world.binds


async def test_quota_bounds_and_raising_it_wakes(nats_url: str, redis_url: str, cluster: str) -> None:
    label = {"quota.scheduling.koordinator.sh/name": "team"}
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="16")
        await world.quota("org", {"cpu": "3"})
        await world.quota("team", {"cpu": "2"}, parent="org")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(4):
                await world.pod(f"q{number}", labels=label)
            await until(lambda: len(world.bound) == 2, "two fit the leaf")
            refused = [n for n in range(4) if not world.node_of(f"q{n}")]
            await until(lambda: all(world.told(f"q{n}") for n in refused), "told")
            assert world.told(f"q{refused[0]}") == [
                "0/1 nodes are available: Insufficient quotas, quotaName: team, runtime: cpu:2, "
                "used: cpu:2,memory:2Gi, "
                "pod's request: cpu:1,memory:1Gi, exceedDimensions: [cpu]. "
                "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
            ]
            await world.quota("team", {"cpu": "8"}, parent="org")
            await until(lambda: len(world.bound) == 3, "one more fits the parent")
            last = next(n for n in range(4) if not world.node_of(f"q{n}"))
            await until(lambda: "quotaNameTopo: [org team]" in (world.told(f"q{last}") or [""])[-1], "parent refuses")
            done = next(n for n in range(4) if world.node_of(f"q{n}"))
            await world.delete(f"q{done}")
            await until(lambda: world.node_of(f"q{last}"), "the last is bound")


async def test_another_schedulers_claim_is_masked(nats_url: str, redis_url: str, cluster: str) -> None:
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        await world.node("n0")
        await world.node("n1")
        await world.listed()
        takes = (Take("node/n0", {"cpu": 4000, "pods": 1}),)
        [answer] = await another.claim([ClaimRequest("another-1", (Member("x", "default", "x", "n0", takes),))])
        assert answer.status == "ok"
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(4):
                await world.pod(f"p{number}")
            await until(lambda: len(world.bound) == 4, "all bound beside the foreign claim")
            assert set(world.bound.values()) == {"n1"}


async def test_refused_and_lost_binds_come_back(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="1")
        await world.listed()
        seen: list[str] = []

        def decide(bind: object) -> str:
            seen.append("x")
            return "no such luck" if len(seen) == 1 else "bind"

        world.decide = decide
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("p")
            await until(lambda: world.node_of("p"), "bound at the second attempt")
            assert world.told("p") == ["binding rejected: no such luck"]
            assert len({bind.id for bind in world.binds}) == 2
            items = await world.ledger.items("node/")
            assert items["node/n0"].used["cpu"] == 1000
            assert items["node/n0"].held.get("cpu", 0) == 0


async def test_a_deleted_pod_gives_its_claim_back(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="1")
        await world.listed()
        world.decide = lambda bind: "drop" if bind.members[0].name == "p" else "bind"
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("p")
            await until(lambda: world.binds, "decided")
            await world.delete("p")
            await world.pod("next")
            await until(lambda: world.node_of("next"), "the room is free again")


async def test_malformed_pods_stop_nobody(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("bad", cpu="lots")
            await world.pod(
                "selector",
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]
                        }
                    }
                },
            )
            await world.publisher.publish(
                "pods_core", "ADDED", "default", "torn", world.version(), b'{"metadata": {"name": "torn", "uid": 7}}'
            )
            await world.pod("good")
            await until(lambda: world.node_of("good"), "the good one is bound")
            for name, part in (("bad", 'requests[cpu]: quantity "lots"'), ("selector", "Near"), ("torn", "uid")):
                reason = "InvalidField" if name == "selector" else "FailedScheduling"
                await until(lambda: world.told(name, reason), name)  # noqa: B023
                assert part in world.told(name, reason)[0], world.told(name, reason)


async def test_nonstrict_gang_holds_room_until_it_is_whole(nats_url: str, redis_url: str, cluster: str) -> None:
    gang = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "2",
        "gang.scheduling.koordinator.sh/mode": "NonStrict",
        "gang.scheduling.koordinator.sh/waiting-time": "1h",
    }
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("g0", annotations=gang)
            await world.pod("g1", annotations=gang)
            await until(lambda: world.told("g0") or world.told("g1"), "one member finds no place")
            held = await world.ledger.items("node/")
            assert held["node/n0"].held.get("cpu") == 1000
            assert not world.binds
            await world.node("n1", cpu="1")
            await until(lambda: len(world.bound) == 2, "both bound once the second fits")


async def test_two_replicas_never_double_book(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(5):
            await world.node(f"n{number}", cpu="4")
        await world.listed()
        async with (
            scheduler(nats_url, redis_url, cluster, FAST),
            scheduler(nats_url, redis_url, cluster, FAST),
        ):
            await asyncio.gather(*(world.pod(f"p{number}") for number in range(30)))
            await until(lambda: len(world.bound) == 20, "as many as fit")
            items = await world.ledger.items("node/")
            assert all(item.used["cpu"] == 4000 for item in items.values())


async def test_nothing_is_bound_while_the_ledger_is_closed(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("before")
            await until(lambda: world.node_of("before"), "bound")
            await world.close_ledger()
            await world.pod("meanwhile")
            await asyncio.sleep(0.3)
            assert not world.node_of("meanwhile")
            await world.node("n0")
            await world.open_ledger()
            await until(lambda: world.node_of("meanwhile"), "bound once the ledger is open again")
            assert not world.told("meanwhile")


async def test_a_restarted_scheduler_goes_on(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(2):
            await world.node(f"n{number}", cpu="4")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(5):
                await world.pod(f"p{number}")
            await until(lambda: len(world.bound) == 5, "first five")
        for number in range(5, 9):
            await world.pod(f"p{number}")
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await until(lambda: len(world.bound) == 8, "as many as fit")
            await until(lambda: [n for n in range(9) if world.told(f"p{n}")], "the ninth is told")


async def test_a_finished_member_still_counts_for_its_gang(nats_url: str, redis_url: str, cluster: str) -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="2")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("g0", annotations=gang)
            await world.pod("g1", annotations=gang)
            await until(lambda: len(world.bound) == 2, "bound")
            for number, phase in enumerate(("Succeeded", "Failed")):
                body = world.pods[f"default/g{number}"]
                body["status"]["phase"] = phase
                await world.show(body)
            # The operator makes the failed one anew; alone it could never reach the minimum.
            await world.delete("g1")
            await world.pod("g1", annotations=gang)
            await until(lambda: world.node_of("g1"), "the replacement is bound alone")


async def test_plan_claim_and_bind_are_one_trace(nats_url: str, redis_url: str, cluster: str) -> None:
    spans = Spans(enabled=True)
    parent = TraceContext.new()
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    job = {"koord.sh/traceparent": parent.traceparent}
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST, spans=spans):
            await world.pod("alone", annotations=job)
            for number in range(2):
                await world.pod(f"g{number}", annotations=job | gang)
            await until(lambda: len(world.bound) == 3, "bound")
    records = spans.take(0, final=True)
    assert {record.context.trace_id for record in records} == {parent.trace_id}
    plans = {record.context: record for record in records if record.name == "scheduler.plan"}
    claims = [record for record in records if record.name == "ledger.claim"]
    assert len(plans) == len(claims) == 2
    assert all(plan.parent == parent for plan in plans.values())
    assert {claim.parent for claim in claims} == set(plans)
    sent = {bind.members[0].trace for bind in world.binds} | set(world.traces)
    assert sent == {claim.context.traceparent for claim in claims}
    # The pods keep the trace they came with.
    assert all("koord.sh/traceparent" not in member.annotations for bind in world.binds for member in bind.members)


async def test_what_is_decided_while_notices_are_sent_is_sent_next(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings=FAST) as service:
            publish, late = (
                service._publisher.publish_many,
                Evict("late", ObjectRef("pods_core", "ns", "gone", "u"), "x"),
            )
            joined = False

            async def slow(decisions: Iterable[tuple[Decision, TraceContext]]) -> None:
                nonlocal joined
                await publish(decisions)
                if not joined:
                    joined = True
                    service._outgoing.add([late])

            monkeypatch.setattr(service._publisher, "publish_many", slow)
            await world.pod("p")
            await until(lambda: joined, "notices of p are sent")
            await until(lambda: late in world.evictions, "the eviction is sent, too")
