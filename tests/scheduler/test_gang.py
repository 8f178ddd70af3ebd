"""Gang state and planning (spec 20 sections 3.1, 3.2); its golden examples are in ``tests/golden``."""

from typing import Any

from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.gang.book import BOUND_WITH, GangBook, GangSettings, mark
from koord.scheduler.gang.planner import GroupPlan, GroupPlanning
from tests.scheduler.clusters import Bed, requests

PREFIX = "gang.scheduling.koordinator.sh/"


def annotations(name: str = "g", minimum: int | str = 3, **more: str) -> dict[str, str]:
    keys = {"name": name, "min-available": str(minimum)} | {key.replace("_", "-"): v for key, v in more.items()}
    return {PREFIX + key: value for key, value in keys.items()}


class Gangs:
    """A bed whose pods join the gang book."""

    def __init__(self) -> None:
        self.bed = Bed()
        self.book: GangBook = self.bed.coscheduling.book

    def member(self, name: str, /, spec: dict[str, Any] | None = None, *, bound: bool = False, **gang: Any) -> PodInfo:
        pod = self.bed.pod(name, spec or requests(), annotations=annotations(**gang))
        self.book.add(pod.ref, bound=bound)
        return pod

    def plan(self, pods: list[PodInfo]) -> GroupPlan:
        gang = self.book.of(pods[0].uid)
        assert gang is not None
        planning = GroupPlanning(self.bed.engine, self.book, gang, pods)
        while not planning.step(0.0):  # the shortest slices there are
            pass
        return planning.result()


def test_groups_wait_for_each_other() -> None:
    gangs = Gangs()
    groups = '["default/a","default/b","default/c"]'
    a = gangs.member("a1", name="a", minimum=1, groups=groups)
    gangs.member("b1", name="b", minimum="many", groups=groups)
    text = gangs.book.hold(a.ref)
    assert text is not None
    assert "memberGangs [default/c] doesn't exists, memberGangs [default/b] has not init" in text


def test_a_pod_group_governs() -> None:
    gangs = Gangs()
    pod = gangs.bed.pod("p", labels={"pod-group.scheduling.sigs.k8s.io": "pg"})
    gangs.book.add(pod.ref, bound=False)
    assert gangs.book.hold(pod.ref) == "gang has not init, gangName: default/pg, podName: default/p"
    gangs.book.set_pod_group("default/pg", 1, None, {}, "")
    assert gangs.book.hold(pod.ref) is None
    gangs.book.remove_pod_group("default/pg")
    assert gangs.book.hold(pod.ref) is not None


def test_once_satisfied_is_derived_and_ends_with_the_pods() -> None:
    gangs = Gangs()
    one = gangs.member("p1", bound=True)
    late = gangs.member("late")
    assert gangs.book.hold(late.ref) is None
    gangs.book.remove(one.uid)
    assert gangs.book.hold(late.ref) is not None
    gangs.book.remove(late.uid)
    assert not gangs.book.gangs


def test_planned_whole_or_not_at_all() -> None:
    gangs = Gangs()
    for number in range(2):
        gangs.bed.node(f"n{number}", cpu=1000)
    pods = [gangs.member(f"p{number}") for number in range(3)]
    before = gangs.bed.cluster.usage.copy()
    plan = gangs.plan(pods)
    assert not plan.placed
    assert not plan.complete
    assert (gangs.bed.cluster.usage == before).all()
    told = {pod.ref.name: diagnosis.message for pod, diagnosis in plan.failed}
    rejection = 'Gang "default/g" gets rejected due to pod is unschedulable'
    assert told["p2"] == f"0/2 nodes are available: 2 Insufficient cpu. {rejection}"
    assert told["p0"] == told["p1"]
    assert told["p0"] == (
        '0/2 nodes are available: GangGroup "default/g" gets rejected due to member Pod "default/p2" is unschedulable '
        'with reason "0/2 nodes are available: 2 Insufficient cpu.", alreadyWaitForBound: 2. ' + rejection
    )
    assert plan.rejecters == {"Coscheduling", "NodeResourcesFit"}


def test_any_subset_of_the_minimum_is_accepted() -> None:
    """Upstream rejects the group with the first member that does not fit."""
    gangs = Gangs()
    for number in range(3):
        gangs.bed.node(f"n{number}", cpu=1000)
    pods = [gangs.member("p0", requests("64"), minimum=2)]
    pods += [gangs.member(f"p{number}", minimum=2) for number in range(1, 4)]
    plan = gangs.plan(pods)
    assert plan.complete
    assert sorted(pod.ref.name for pod, _ in plan.placed) == ["p1", "p2", "p3"]
    assert [pod.ref.name for pod, _ in plan.failed] == ["p0"]


def test_every_gang_of_the_group_must_be_complete() -> None:
    gangs = Gangs()
    groups = '["default/a","default/b"]'
    for number in range(3):
        gangs.bed.node(f"n{number}", cpu=1000)
    pods = [gangs.member(f"a{n}", name="a", minimum=2, groups=groups) for n in range(2)]
    pods += [gangs.member(f"b{n}", name="b", minimum=2, groups=groups) for n in range(2)]
    assert not gangs.plan(pods).placed
    gangs.bed.node("n3", cpu=1000)
    assert len(gangs.plan(pods).placed) == 4


def test_nonstrict_keeps_what_found_a_place() -> None:
    gangs = Gangs()
    gangs.bed.node("n0", cpu=1000)
    pods = [gangs.member(f"p{n}", minimum=2, mode="NonStrict") for n in range(2)]
    plan = gangs.plan(pods)
    assert [pod.ref.name for pod, _ in plan.placed] == ["p0"]
    assert not plan.complete
    gangs.book.plan(pods[0].uid)
    gangs.bed.node("n1", cpu=1000)
    assert gangs.plan(pods[1:]).complete


def test_a_group_beyond_one_claim_is_told_so() -> None:
    gangs = Gangs()
    pod = gangs.member("p", minimum=1)
    plan = gangs.plan([pod] * 4097)
    assert not plan.placed
    assert "4097 pending members, one claim holds at most 4096" in plan.failed[0][1].message


def test_waiting_time() -> None:
    gangs = Gangs()
    pod = gangs.member("p", waiting_time="90m")
    other = gangs.member("q", name="other", waiting_time="-5s")
    assert [gangs.book.wait_s(gangs.book.gangs[id_]) for id_ in ("default/g", "default/other")] == [5400.0, 600.0]
    assert GangBook(GangSettings(default_timeout_s=7.0)).settings.default_timeout_s == 7.0
    assert gangs.book.of(other.uid) is not gangs.book.of(pod.uid)


def test_a_member_left_out_by_a_bind_is_known_from_the_bound() -> None:
    """After a restart: under only-waiting a replacement needs a full new minimum, one that was left out does not."""
    gangs = Gangs()
    gang = annotations(match_policy="only-waiting")
    marks = {BOUND_WITH: ",".join(mark(f"uid-default-p{n}") for n in range(3))}
    for number in range(2):
        gangs.book.add(gangs.bed.pod(f"p{number}", annotations=gang | marks).ref, bound=True)
    replacement = gangs.member("new", match_policy="only-waiting")
    found = gangs.book.of(replacement.uid)
    assert found is not None
    assert not gangs.book.valid(found, 1)
    gangs.book.remove(replacement.uid)
    gangs.member("p2", match_policy="only-waiting")
    assert gangs.book.valid(found, 1)
