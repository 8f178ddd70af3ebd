"""ScheduleExplanations in the running scheduler: real NATS, real Redis."""

import time
from pathlib import Path

import pytest
import yaml
from msgspec import UNSET
from msgspec.structs import replace

from koord.kube.explanations import (
    DetailedExplanation,
    Explanation,
    ExplanationStatus,
    NodeFailedDetail,
    PossibleVictim,
    ScheduleExplanation,
    SchedulingResult,
)
from koord.kube.meta import parse_time
from koord.scheduler.config.registry import UPSTREAM
from koord.scheduler.explanations import controller
from koord.scheduler.plugins.factories import BUILT
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.service import SchedulerService
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.explanations.questions import Questions
from tests.scheduler.outside import outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))
GANG = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
JOB = "scheduling.koordinator.sh/questioned-object-key"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions are looked at again soon."""
    monkeypatch.setattr(controller, "AGAIN_S", 0.5)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer whose verdict stays is written again soon, too."""
    monkeypatch.setattr(controller, "HEARTBEAT_S", 1.0)


async def test_who_refuses_which_nodes_until_there_is_room(
    nats_url: str, redis_url: str, cluster: str, soon: None
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        await world.node("small", cpu="1")
        await world.node("tiny", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            uid = await world.pod("p", cpu="2", nodeSelector={"zone": "a"})
            await until(lambda: world.told("p"), "it fits nowhere")
            await questions.ask("why", {"questionObjectKey": "default/p"})
            status = await questions.answered("why")
            assert not status.schedulable
            assert status.failed_message == world.told("p")[0]
            [domain] = status.detailed_explanation
            assert isinstance(domain.schedule_explanation, Explanation)
            assert domain.schedule_explanation.node_failed_details == [
                NodeFailedDetail(
                    "NodeAffinity", "node(s) didn't match Pod's node affinity/selector", False, ["small", "tiny"]
                )
            ]
            await world.node("small", cpu="1", labels={"zone": "a"})
            status = await questions.answered("why", lambda status: "Insufficient cpu" in status.failed_message)
            details = status.detailed_explanation[0].schedule_explanation
            assert isinstance(details, Explanation)
            assert NodeFailedDetail("NodeResourcesFit", "Insufficient cpu", False, ["small"]) in (
                details.node_failed_details
            )
            assert isinstance(status.last_update_time, str)
            assert abs(time.time() - parse_time(status.last_update_time)) < 60
            await world.node("big", cpu="4", labels={"zone": "a"})
            status = await questions.answered("why", lambda status: status.schedulable)
            assert status.failed_message == ""
            found = status.detailed_explanation[0].schedule_explanation
            assert isinstance(found, Explanation)
            assert found == Explanation(True, "", [SchedulingResult("default", "p", uid, "big")])


async def test_gangs_and_jobs_by_their_ids(nats_url: str, redis_url: str, cluster: str, soon: None) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        await world.node("n0", cpu="2")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(2):
                await world.pod(f"g{number}", annotations=GANG, owners=("job",))
            await questions.ask("gang", {"questionObjectKey": "default/g"})
            await questions.ask("job", {"questionObjectKey": "default/job"})
            for name in ("gang", "job"):
                status = await questions.answered(name)
                assert not status.schedulable
                assert "2 pods, default/g0 first: " in status.failed_message
            await world.pod("g2", annotations=GANG, labels={JOB: "team/one"})
            await until(lambda: world.told("g2"), "they do not fit together")
            await questions.ask("label", {"questionObjectKey": "team/one"})
            status = await questions.answered("label", lambda status: "Insufficient cpu" in status.failed_message)
            await questions.answered(
                "gang", lambda status: not status.schedulable and "Insufficient cpu" in status.failed_message
            )
            await world.node("n1", cpu="2")
            status = await questions.answered("gang", lambda status: status.schedulable and len(world.bound) == 3)
            status = await questions.answered("gang", lambda status: status.detailed_explanation)
            found = status.detailed_explanation[0].schedule_explanation
            assert isinstance(found, Explanation)
            assert [one.name for one in found.feasible_scheduling_result] == ["g0", "g1", "g2"]
            assert {one.node_name for one in found.feasible_scheduling_result} == {"n0", "n1"}


async def test_bad_questions_are_named_and_old_ones_go(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await questions.ask("empty", {})
            status = await questions.answered("empty")
            assert status.failed_message.startswith("spec.questionObjectKey: must be ")
            await questions.ask("nobody", {"questionObjectKey": "default/nobody"})
            status = await questions.answered("nobody")
            assert status.failed_message == (
                'spec.questionObjectKey: no pod, job or gang group "default/nobody" is found'
            )
            assert not status.schedulable
            await questions.ask("odd", {"questionObjectKey": "x", "ttl": "soon", "questionObjectTemplate": {"a": 1}})
            reason = "InvalidScheduleExplanation"
            await until(lambda: len(world.told("odd", reason)) == 2, "both are told")
            template, ttl = sorted(world.told("odd", reason))
            assert template == "spec.questionObjectTemplate: not supported, must be left out"
            assert ttl.startswith('spec.ttl: duration "soon": ')
            await questions.ask("kept", {"questionObjectKey": "x", "ttl": "0"}, age_s=1e7)
            uid = await questions.ask("old", {"questionObjectKey": "x", "ttl": "1h"}, age_s=3601)
            await questions.ask("default", {"questionObjectKey": "x"}, age_s=86_300)
            await questions.answered("kept")
            await questions.answered("default")
            await until(lambda: world.deletions, "its time is over")
            assert {(one.target.name, one.target.uid) for one in world.deletions} == {("old", uid)}
            await questions.ask("nobody", {"questionObjectKey": "default/now"})
            await questions.answered("nobody", lambda status: "default/now" in status.failed_message)


async def test_an_answer_that_stays_is_written_again_as_a_sign_of_life(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await questions.ask("why", {"questionObjectKey": "default/p"})
            first = await questions.answered("why")
            await questions.ask("later", {"questionObjectKey": "default/p"})
            await questions.answered("later")
            assert questions.writes == ["why", "later"], "nothing new, nothing written"
            monkeypatch.setattr(controller, "HEARTBEAT_S", 1.0)
            await questions.answered("why", lambda status: status.last_update_time != first.last_update_time)


def test_what_is_news() -> None:
    """Another verdict at once, in any domain; other texts and counts when its time has come."""
    now = parse_time("2026-01-02T03:04:05Z")
    domain = DetailedExplanation("", False, False, "0/4 nodes")
    answer = ExplanationStatus(False, False, "0/4 nodes", UNSET, [domain])
    shown = ScheduleExplanation(status=replace(answer, last_update_time="2026-01-02T03:04:00Z"))
    assert not controller._news(shown, answer, now)
    assert not controller._news(shown, replace(answer, failed_message="0/5 nodes"), now)
    assert controller._news(shown, replace(answer, failed_message="0/5 nodes"), now + 60)
    assert controller._news(shown, replace(answer, schedulable=True), now)
    better = replace(domain, schedulable_after_preemption=True)
    assert controller._news(shown, replace(answer, detailed_explanation=[better]), now)


async def test_one_replica_answers_and_the_next_takes_over(nats_url: str, redis_url: str, cluster: str) -> None:
    def leading(*services: SchedulerService) -> int:
        return sum(service.writes_pod_groups for service in services)

    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        await world.node("n0", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST) as second:
            async with scheduler(nats_url, redis_url, cluster, FAST) as first:
                await until(lambda: leading(first, second) == 1, "one leads")
                for number in range(4):  # both replicas have some of them
                    await world.pod(f"p{number}", cpu="2")
                    await questions.ask(f"p{number}", {"questionObjectKey": f"default/p{number}"})
                for number in range(4):
                    status = await questions.answered(f"p{number}")
                    assert status.failed_message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
                assert sorted(questions.writes) == [f"p{number}" for number in range(4)], "one of them writes"
            await until(lambda: second.writes_pod_groups, "the other leads")
            await questions.ask("last", {"questionObjectKey": "default/p0"})
            await questions.answered("last")


async def test_what_preemption_would_do(nats_url: str, redis_url: str, cluster: str, tmp_path: Path) -> None:
    """The victim takes its time, so the pod still waits when it is asked about."""
    missing = [{"name": name} for name in UPSTREAM if name not in BUILT]
    path = tmp_path / "scheduler.yaml"
    profile = {"schedulerName": "koord-scheduler", "plugins": {"multiPoint": {"disabled": missing}}}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "podMaxBackoffSeconds": 1,
                "profiles": [profile],
            }
        )
    )
    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        world.graceful = True
        await world.node("n0", cpu="2")
        victim = await world.pod("low", cpu="2", priority=1, nodeName="n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SchedulerSettings(config=str(path))):
            await questions.ask("why", {"questionObjectKey": "default/high"})
            await questions.answered("why")
            await world.pod("high", cpu="2", priority=100)
            status = await questions.answered("why", lambda status: status.schedulable_after_preemption)
            assert not status.schedulable
            assert "Insufficient cpu" in status.failed_message
            [domain] = status.detailed_explanation
            assert isinstance(domain.preempt_explanation, Explanation)
            assert domain.preempt_explanation.schedulable
            for node in domain.node_possible_victims:  # none once they were asked to go
                assert node.node_name == "n0"
                assert node.possible_victims == [PossibleVictim("default", "low", victim)]
            await world.delete("low")
            await questions.answered("why", lambda status: status.schedulable)


async def test_of_many_nodes_a_hundred_are_named_and_the_others_counted(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        for number in range(103):
            await world.node(f"n{number:03}", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("p", cpu="2")
            await questions.ask("why", {"questionObjectKey": "default/p"})
            status = await questions.answered("why", lambda status: status.detailed_explanation)
            found = status.detailed_explanation[0].schedule_explanation
            assert isinstance(found, Explanation)
            [detail] = found.node_failed_details
            assert len(detail.failed_nodes) == 101
            assert set(detail.failed_nodes[:-1]) <= {f"n{number:03}" for number in range(103)}
            assert detail.failed_nodes[-1] == "and 3 more"
