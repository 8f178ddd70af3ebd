"""Plans of jobs on the engine alone: spec 10 sections 3.4 (FindOneNode) and 3.10b (inline batch)."""

from typing import Any

import pytest

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.framework.contract import JobPlan, Template
from koord.scheduler.jobs.asking import Asked, JobPlans, Undesignated
from koord.scheduler.jobs.batch import InlineBatch
from koord.scheduler.plugins.hint import HINT
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.jobs.planners import JOB, Jobs, nodes
from tests.scheduler.test_gang import annotations


class Planned:
    """Three nodes of 4 cpus, and the pods of one job."""

    def __init__(self, count: int = 3, cpu: str = "1", **meta: Any) -> None:
        self.plugin = Jobs()
        self.bed = Bed(extra=(self.plugin,))
        for number in range(3):
            self.bed.node(f"n{number}")
        labels = {JOB: "a"}
        self.pods = [self.bed.pod(f"p{number}", requests(cpu), labels=labels, **meta) for number in range(count)]
        self.waiting = {pod.uid: pod for pod in self.pods}
        self.jobs = JobPlans(self.bed.engine, self.waiting, inline=True)
        self.held: dict[str, str] = {}

    def ask(self, pod: PodInfo | None = None) -> Asked | Diagnosis | None:
        return self.jobs.ask(pod or self.pods[0])

    def batch(self, plan: JobPlan) -> InlineBatch:
        engine, book = self.bed.engine, self.bed.coscheduling.book
        asked = Asked(self.plugin, plan)
        held = lambda pod: self.held.get(pod.ref.name)  # noqa: E731
        made = InlineBatch(engine, book, asked, self.pods[0], self.waiting, held, Undesignated())
        while not made.step(0.0 if len(made.placed) % 2 else float("inf"), 7.0):
            pass
        return made

    def plan(self, *names: str) -> JobPlan:
        return JobPlan({pod.uid: name for pod, name in zip(self.pods, names, strict=False)})


def test_all_pods_go_to_their_nodes() -> None:
    job = Planned()
    made = job.batch(job.plan("n2", "n0", "n2"))
    assert made.failure is None
    assert [(pod.ref.name, placed.node) for pod, placed in made.placed] == [("p1", "n0"), ("p0", "n2"), ("p2", "n2")]
    assert all(job.bed.engine.assumed(pod.uid) for pod in job.pods)
    counted = job.bed.engine.counted("uid-default-p2")
    assert counted is not None
    assert (counted.node, counted.since) == ("n2", 7.0)


def test_the_first_that_fails_takes_all_back() -> None:
    job = Planned(cpu="3")
    before = job.bed.cluster.usage.copy()
    made = job.batch(job.plan("n0", "n1", "n1"))
    assert made.failure is not None
    assert made.failure.message == (
        "batch schedule plan of 3 pods failed at pod default/p2 on node n1: 0/3 nodes are available: "
        "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [Jobs]."
    )
    assert not made.failure.resolvable, "nobody is preempted for it"
    assert not made.failure.error
    assert made.failure.plugins == {"Jobs", "NodeResourcesFit"}
    assert not made.placed
    assert (job.bed.cluster.usage == before).all()
    assert not job.bed.engine.assumed_count


def test_every_pod_needs_a_node() -> None:
    job = Planned()
    plan = job.plan("n0", "n1")
    made = job.batch(JobPlan(plan.nodes, tuple(job.waiting)))
    assert made.failure is not None
    assert made.failure.message == "batch schedule plan missing node for pod default/p2"
    assert made.failure.error


def test_a_pod_without_a_node_in_its_own_plan_is_an_error() -> None:
    job = Planned()
    job.plugin.answer = nodes(p1="n0")
    told = job.ask()
    assert isinstance(told, Diagnosis)
    assert told.message == 'FindOneNodePlugin "Jobs" succeeded but produced no node for pod default/p0'
    assert told.error


def test_who_has_a_node_or_is_gone_is_skipped() -> None:
    job = Planned()
    job.bed.engine.assume(job.pods[1], "n1")
    del job.waiting[job.pods[2].uid]
    made = job.batch(job.plan("n0", "n0", "n0"))
    assert [pod.ref.name for pod, _ in made.placed] == ["p0"]


def test_who_is_held_back_fails_the_job() -> None:
    job = Planned()
    job.held["p1"] = "waiting for scheduling gates: [x]"
    made = job.batch(job.plan("n0", "n0", "n0"))
    assert made.failure is not None
    assert made.failure.message == (
        "batch schedule plan names pod default/p1, which is held back: waiting for scheduling gates: [x]"
    )


def test_unknown_nodes() -> None:
    job = Planned()
    made = job.batch(job.plan("n0", "gone", "n0"))
    assert made.failure is not None
    assert made.failure.message == (
        "batch schedule plan of 3 pods failed at pod default/p1 on node gone: 0/3 nodes are available: "
        "3 node(s) didn't satisfy plugin(s) [Jobs]."
    )


def test_a_plan_against_the_pods_own_affinity() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec = {**requests("1"), "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    job = Planned(0)
    job.pods = [job.bed.pod("p0", spec, labels={JOB: "a"})]
    job.waiting.update({pod.uid: pod for pod in job.pods})
    made = job.batch(job.plan("n0"))
    assert made.failure is not None
    assert made.failure.message.endswith("node(s) didn't satisfy plugin(s) [Jobs NodeAffinity] simultaneously.")
    assert job.batch(job.plan("n1")).failure is None


def test_a_gang_that_would_wait_on_is_rolled_back() -> None:
    job = Planned(3, annotations=annotations(minimum=3))
    for pod in job.pods:
        job.bed.coscheduling.book.add(pod.ref, bound=False)
    made = job.batch(job.plan("n0", "n1"))
    assert made.failure is not None
    assert made.failure.message == (
        "inline batch permit did not complete: 2 pods are still waiting after all pods were permitted"
    )
    assert not made.failure.error
    assert not job.bed.engine.assumed_count
    assert job.batch(job.plan("n0", "n1", "n2")).failure is None


def test_a_plan_is_for_one_gang_group() -> None:
    job = Planned(1, annotations=annotations(minimum=1))
    job.bed.coscheduling.book.add(job.pods[0].ref, bound=False)
    stranger = job.bed.pod("stranger", labels={JOB: "a"})
    job.pods.append(stranger)
    job.waiting[stranger.uid] = stranger
    made = job.batch(job.plan("n0", "n0"))
    assert made.failure is not None
    assert made.failure.message == (
        "batch schedule plan of Jobs: pod default/stranger is not of the gang group of the pod that it is for"
    )


def test_texts_are_verdicts() -> None:
    job = Planned()
    job.plugin.answer = lambda pods: "the job is too large"
    told = job.ask()
    assert isinstance(told, Diagnosis)
    assert told.message == "0/3 nodes are available: the job is too large."
    assert (told.plugins, told.error, told.resolvable) == (frozenset(("Jobs",)), False, False)
    job.plugin.answer = lambda pods: None
    assert job.ask() is None


@pytest.mark.parametrize("answer", [lambda pods: pods["none"], lambda pods: {"p0": "n0"}])
def test_a_plugin_that_fails_is_named(answer: Any) -> None:
    job = Planned()
    job.plugin.answer = answer
    told = job.ask()
    assert isinstance(told, Diagnosis)
    assert told.error
    assert told.message.startswith('running "Jobs" FindOneNodePlugin plugin: ')


def test_only_concerned_pods_are_asked_about() -> None:
    job = Planned()
    job.plugin.answer = nodes(p0="n0")
    other = job.bed.pod("other")
    assert job.jobs.any
    assert job.jobs.concerns(job.pods[0])
    assert not job.jobs.concerns(other)
    assert job.ask(other) is None
    assert not job.plugin.asked

    class Broken(Jobs):
        def plans(self, template: Template) -> bool:
            raise RuntimeError("no idea")

    bed = Bed(extra=(Broken(),))
    bed.node("n0")
    pod = bed.pod("p")
    jobs = JobPlans(bed.engine, {pod.uid: pod}, inline=True)
    assert jobs.concerns(pod)
    told = jobs.ask(pod)
    assert isinstance(told, Diagnosis)
    assert told.message == 'running "Jobs" FindOneNodePlugin plugin: RuntimeError: no idea'


def test_alone_on_the_planned_node_or_nowhere() -> None:
    job = Planned(cpu="3")
    job.plugin.answer = nodes(p0="n1", p1="n1")
    first, second, third = (job.jobs.place_alone(pod, 0.0) for pod in (*job.pods[:2], job.bed.pod("other")))
    assert isinstance(first, Placed)
    assert first.node == "n1"
    assert isinstance(second, Diagnosis)
    assert second.message == ("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [Jobs].")
    assert isinstance(third, Placed)


def test_designated_hints_do_not_count_in_a_batch() -> None:
    hint = '{"nodeNames":["n1"],"extensions":{"NodeNUMAResource":{}}}'
    job = Planned(1, annotations={HINT: hint})
    [pod] = job.pods
    plain = Undesignated()
    other = plain.pod(pod)
    assert other.ref is pod.ref
    assert other.class_ is not pod.class_
    assert other.class_.template.annotations == {HINT: '{"nodeNames":["n1"]}'}
    assert plain.pod(pod).class_ is other.class_, "made once"
    made = job.batch(job.plan("n0"))
    assert made.failure is not None, "the names of the hint do count"
    assert job.batch(job.plan("n1")).failure is None
    bare = job.bed.pod("bare")
    assert plain.pod(bare) is bare
