"""Golden examples of spec 20 section 6 on gangs (section 3.1): who is allowed when, and who may enter the queue."""

import pytest

from koord.kube.groups import PodGroupStatus
from koord.scheduler.gang.phases import Tally, step
from tests.scheduler.test_gang import Gangs


@pytest.mark.parametrize(
    ("policy", "waiting", "bound", "once", "allowed"),
    [
        ("only-waiting", 2, 5, True, False),
        ("only-waiting", 3, 0, False, True),
        ("waiting-and-running", 1, 2, True, True),
        ("waiting-and-running", 1, 1, True, False),
        ("once-satisfied", 1, 0, True, True),
        ("once-satisfied", 2, 0, False, False),
    ],
)
def test_g15_match_policies(policy: str, waiting: int, bound: int, once: bool, allowed: bool) -> None:
    gangs = Gangs()
    pod = gangs.member("p", minimum=3, match_policy=policy)
    for number in range(bound):
        gangs.member(f"b{number}", bound=True, minimum=3, match_policy=policy)
    gang = gangs.book.of(pod.uid)
    assert gang is not None
    gang.satisfied_phase = once
    assert gangs.book.valid(gang, waiting) is allowed


def test_g16_pre_enqueue() -> None:
    gangs = Gangs()
    first = gangs.member("p1")
    gangs.member("p2")
    assert gangs.book.hold(first.ref) == (
        "gangGroup [default/g] basic check: memberGangs [default/g] child pod not collect enough, "
        "current gang: default/g, podName: default/p1"
    )
    gangs.member("p3")
    assert gangs.book.hold(first.ref) is None


def test_g15_a_group_is_allowed_whole() -> None:
    """Two gangs of two: with one member missing nobody goes, with all of them all four go."""
    gangs = Gangs()
    groups = '["default/a","default/b"]'
    for number in range(4):
        gangs.bed.node(f"n{number}", cpu=1000)
    pods = [gangs.member(f"a{n}", name="a", minimum=2, groups=groups) for n in range(2)]
    pods.append(gangs.member("b0", name="b", minimum=2, groups=groups))
    assert not gangs.plan(pods).complete
    pods.append(gangs.member("b1", name="b", minimum=2, groups=groups))
    plan = gangs.plan(pods)
    assert plan.complete
    assert len(plan.placed) == 4


def test_g17_pod_group_phase() -> None:
    status = PodGroupStatus()

    def now(**tally: int) -> str:
        nonlocal status
        status = step(2, status, Tally(**tally), "default/job", "2026-03-02T09:00:00Z")
        return status.phase

    assert now() == "Pending"
    assert now(pods=1) == "Pending"
    assert now(pods=2) == "PreScheduling"
    assert status.occupied_by == "default/job"
    assert now(pods=2, scheduled=1) == "Scheduling"
    assert status.schedule_start_time == "2026-03-02T09:00:00Z"
    assert now(pods=2, scheduled=2, running=1) == "Scheduled"
    assert now(pods=2, scheduled=2, running=2) == "Running"
    running = status
    assert now() == "Pending"
    status = running
    assert now(pods=2, scheduled=2, running=1, failed=1) == "Failed"
    assert now() == "Failed"
    status = running
    assert now(pods=2, scheduled=2, succeeded=2) == "Finished"
    assert now() == "Finished"
