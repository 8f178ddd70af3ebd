"""Pods that are tried together for an answer: what fits, what does not, domain by domain; and nothing of it stays."""

import numpy as np
import pytest

from koord.kube.explanations import DetailedExplanation, Explanation
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.explanations import together
from koord.scheduler.plugins.fit import NodeResourcesFit
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from koord.scheduler.testkit.bench import PluginBench
from koord.scheduler.testkit.contract import check
from tests.scheduler.explanations.questions import Questions
from tests.scheduler.outside import outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))
KEY = "scheduling.koordinator.sh/topology-key-to-explain"
JOB = "scheduling.koordinator.sh/questioned-object-key"


@pytest.fixture
def bench() -> PluginBench:
    bench = PluginBench(NodeResourcesFit())
    for number in range(9):
        room = {"cpu": "2", "memory": "4Gi", "pods": "10"}
        bench.node(f"n{number}", allocatable=room, labels={"zone": "ab"[number % 2]} if number < 8 else {})
    return bench


def pods(bench: PluginBench, count: int, cpu: str) -> list[PodInfo]:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    return [bench.pod(spec=spec) for _ in range(count)]


def test_what_fits_together_is_taken_back(bench: PluginBench) -> None:
    before = bench.cluster.usage.copy()
    found = together.fit(bench.engine, pods(bench, 9, "2"), 100)
    assert found.failed is None
    assert {node for _, node in found.placed} == {f"n{number}" for number in range(9)}
    assert np.array_equal(bench.cluster.usage, before)
    assert not bench.engine.assumed_count
    assert not len(bench.cluster.pods)
    check(bench, bench.pod())


def test_the_first_that_does_not_fit_says_why(bench: PluginBench) -> None:
    many = pods(bench, 11, "2")
    found = together.fit(bench.engine, many, 100)
    assert found.failed is many[9]
    assert found.message == "0/9 nodes are available: 9 Insufficient cpu."
    [refused] = found.refused
    assert (refused.plugin, refused.reason, refused.nodes) == ("NodeResourcesFit", "Insufficient cpu", 9)
    assert not len(bench.cluster.pods)


def test_domain_by_domain(bench: PluginBench) -> None:
    found, left = together.domains(bench.cluster, "zone", 3)
    assert [(domain.name, len(domain.rows)) for domain in found] == [("a", 4), ("b", 4)]
    assert left == 0
    for domain in found:
        three = together.fit(bench.engine, pods(bench, 4, "2"), 100, domain.rows)
        assert three.failed is None
        assert {int(bench.cluster.index.find(node) or 0) for _, node in three.placed} == set(domain.rows.tolist())
        more = together.fit(bench.engine, pods(bench, 5, "2"), 100, domain.rows)
        assert (len(more.placed), more.message) == (4, "0/4 nodes are available: 4 Insufficient cpu.")
        [refused] = more.refused
        assert set(refused.names) == {node for _, node in three.placed}
    assert not len(bench.cluster.pods)


def test_only_so_many_domains_are_tried(bench: PluginBench) -> None:
    found, left = together.domains(bench.cluster, "zone", together.MOST_PLACED)
    assert ([domain.name for domain in found], left) == (["a"], 1)
    for number in range(40):
        bench.node(f"m{number}", labels={"rack": f"r{number:02}"})
    found, left = together.domains(bench.cluster, "rack", 1)
    assert (len(found), left) == (together.MOST_DOMAINS, 40 - together.MOST_DOMAINS)
    assert together.domains(bench.cluster, "nobody", 1) == ([], 0)


async def test_a_job_that_fits_into_one_zone_and_not_into_another(nats_url: str, redis_url: str, cluster: str) -> None:
    labels = {JOB: "team/job", KEY: "zone"}
    async with outside(nats_url, redis_url, cluster) as world:
        questions = Questions(world)
        for number, zone in enumerate("aab"):
            await world.node(f"n{number}", cpu="2", labels={"zone": zone})
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST) as service:
            for number in range(2):
                await world.pod(f"p{number}", cpu="3", labels=labels)
            await until(lambda: world.told("p0") and world.told("p1"), "they fit nowhere")
            await questions.ask("why", {"questionObjectKey": "team/job"})
            status = await questions.answered("why")
            assert [domain.topology_domain for domain in status.detailed_explanation] == ["", "a", "b"]
            text = "0 of 2 pods fit together; default/p0: 0/{} nodes are available: {} Insufficient cpu."
            for domain, nodes in zip(status.detailed_explanation[1:], (2, 1), strict=True):
                assert domain.failed_message == text.format(nodes, nodes)
                assert not domain.schedulable
                assert isinstance(domain.schedule_explanation, Explanation)
                [detail] = domain.schedule_explanation.node_failed_details
                assert len(detail.failed_nodes) == nodes
            assert not service._engine.assumed_count
            # A gang: each of its pods has a node for itself; together they have none.
            gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
            for number in range(2):
                more = {JOB: "team/gang", KEY: "zone"}
                await world.pod(f"g{number}", cpu="2", labels=more, annotations=gang, nodeSelector={"zone": "b"})
            await until(lambda: world.told("g0") and world.told("g1"), "they do not fit together")
            await questions.ask("gang", {"questionObjectKey": "team/gang"})
            status = await questions.answered("gang")
            a, b = status.detailed_explanation[1:]
            assert a.failed_message.startswith("0 of 2 pods fit together; default/g0: 0/2 nodes are available: ")
            assert isinstance(b, DetailedExplanation)
            assert b.failed_message.startswith("1 of 2 pods fit together; default/g1: 0/1 nodes are available: ")
            assert isinstance(b.schedule_explanation, Explanation)
            assert [one.node_name for one in b.schedule_explanation.feasible_scheduling_result] == ["n2"]
