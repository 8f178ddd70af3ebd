"""Which node and which victims: the rules of spec 10 section 3.15, DefaultPreemption."""

from typing import Any

import pytest

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.engine.resources import Resources
from koord.scheduler.preemption.candidates import Candidate, cheapest, wanted
from koord.scheduler.preemption.search import NEVER, TERMINATING, Search, fits_unmasked
from tests.scheduler.clusters import pod_view
from tests.scheduler.preemption.beds import Crowd


def victims(found: Candidate | str) -> list[str]:
    assert isinstance(found, Candidate), found
    return [pod.ref.name for pod in found.victims]


@pytest.fixture(params=[(), (80,)], ids=["amounts", "books"])
def ports(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """The preemptor's host ports: with one its rows are tried on the books, one by one."""
    found: tuple[int, ...] = request.param
    return found


def test_only_lower_pods_go_and_no_more_than_have_to(ports: tuple[int, ...]) -> None:
    crowd = Crowd()
    crowd.node("n", cpu=4000)
    crowd.running("same", "n", 10)
    crowd.running("low", "n", 1)
    crowd.running("mid", "n", 5)
    crowd.running("mid-2", "n", 5, cpu="500m")
    found = crowd.search.find(crowd.wanting("p", 10, cpu="1500m", ports=ports))
    # Given back in their order: mid (one cpu) fits, then mid-2 does, low does not.
    assert victims(found) == ["low"]


def test_the_younger_goes_of_equal_priority(ports: tuple[int, ...]) -> None:
    crowd = Crowd()
    crowd.node("n", cpu=2000)
    crowd.running("young", "n", 1, started=200)
    crowd.running("old", "n", 1, started=100)
    assert victims(crowd.search.find(crowd.wanting("p", 10, ports=ports))) == ["young"]
    crowd.running("unstarted", "n", 1, cpu="0")
    crowd.engine.uncount("uid-default-young")
    crowd.running("unstarted-2", "n", 1)
    assert victims(crowd.search.find(crowd.wanting("p", 10, ports=ports))) == ["unstarted-2"]


def test_the_search_leaves_the_books_as_they_were(ports: tuple[int, ...]) -> None:
    crowd = Crowd()
    for node in range(5):
        crowd.node(f"n{node}", cpu=4000)
        for pod in range(4):
            crowd.running(f"r{node}-{pod}", f"n{node}", pod, ports=[80] if pod == 1 else [])
    before = crowd.cluster.usage.copy()
    counted = {pod.ref.uid: pod for pod in crowd.engine.pods()}
    assert victims(crowd.search.find(crowd.wanting("p", 10, cpu="2", ports=ports)))
    assert (crowd.cluster.usage == before).all()
    assert {pod.ref.uid: pod for pod in crowd.engine.pods()} == counted
    assert isinstance(crowd.engine.place_one(crowd.wanting("p2", 10, cpu="2", ports=ports)), Diagnosis)


def test_a_port_is_freed_by_its_holder_alone() -> None:
    crowd = Crowd()
    crowd.node("n", cpu=8000)
    crowd.running("other", "n", 0)
    crowd.running("holder", "n", 3, ports=[80])
    assert victims(crowd.search.find(crowd.wanting("p", 10, ports=[80]))) == ["holder"]


def test_fewest_budget_violations_first() -> None:
    crowd = Crowd()
    for node in ("a", "b"):
        crowd.node(node, cpu=1000)
    crowd.running("guarded", "a", 0, labels={"app": "x"})
    crowd.running("free", "b", 9)
    crowd.budget("x", 0, {"app": "x"})
    found = crowd.search.find(crowd.wanting("p", 10))
    assert victims(found) == ["free"]
    crowd.budget("x", 1, {"app": "x"})
    assert victims(crowd.search.find(crowd.wanting("p", 10))) == ["guarded"]


def test_pods_that_a_budget_has_no_room_for_come_back_first(ports: tuple[int, ...]) -> None:
    crowd = Crowd()
    crowd.node("n", cpu=2000)
    crowd.running("guarded", "n", 1, labels={"app": "x"})
    crowd.running("more-important", "n", 5)
    crowd.budget("x", 0, {"app": "x"})
    found = crowd.search.find(crowd.wanting("p", 10, ports=ports))
    assert victims(found) == ["more-important"]
    assert isinstance(found, Candidate)
    assert found.violating == frozenset()
    crowd.engine.uncount("uid-default-more-important")
    crowd.running("fixed", "n", 10)
    found = crowd.search.find(crowd.wanting("p", 10, ports=ports))
    assert victims(found) == ["guarded"]
    assert isinstance(found, Candidate)
    assert found.violating == {"uid-default-guarded"}


def test_a_budget_is_used_up_pod_by_pod() -> None:
    crowd = Crowd()
    pods = [crowd.running(f"r{i}", "n", 5 - i, labels={"app": "x"}) for i in range(3)]
    crowd.budget("x", 2, {"app": "x"})
    assert crowd.budgets.violated(pods) == [False, False, True]
    crowd.budget("x", 2, {"app": "x"}, disruptedPods={"r0": "2026-01-01T00:00:00Z"})
    assert crowd.budgets.violated(pods) == [False, False, False]
    crowd.budget("x", 2, {"app": "x"}, observedGeneration=0)
    assert crowd.budgets.violated(pods) == [True, True, True]
    crowd.budgets.remove("default", "x")
    assert crowd.budgets.violated(pods) == [False, False, False]
    assert not crowd.budgets


def test_budgets_that_are_nobodys_or_wrong() -> None:
    crowd = Crowd()
    pod = crowd.running("r", "n", 1, labels={"app": "x"})
    crowd.budget("empty", 0, {})
    assert crowd.budgets.of(pod) == ()
    crowd.budget("good", 0, {"app": "x"})
    with pytest.raises(ValueError, match=r"spec.selector: matchLabels\[app\]"):
        crowd.budget("good", 0, {"app": "not a value"})
    assert [budget.key for budget in crowd.budgets.of(pod)] == ["default/good"]
    crowd.budget("good", 0, {})
    assert crowd.budgets.of(pod) == ()


def candidate(node: str, *pods: tuple[int, float], violating: int = 0) -> Candidate:
    crowd = Crowd()
    made = [crowd.running(f"{node}{i}", node, priority, started=start) for i, (priority, start) in enumerate(pods)]
    made.sort(key=lambda pod: -pod.priority)
    return Candidate(node, tuple(made), frozenset(pod.ref.uid for pod in made[:violating]))


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([candidate("b", (0, 1), violating=1)], "fewer violations"),
        ([candidate("b", (6, 1))], "a lower top priority"),
        ([candidate("b", (5, 1), (2, 1))], "a lower sum of priorities"),
        ([candidate("b", (5, 1), (-3, 1), (1, 1))], "fewer victims: negative priorities do not make up for them"),
        ([candidate("b", (5, 50), (1, 900))], "the top victim started later"),
        ([candidate("b", (5, 100), (1, 1))], "all the same: the first"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_order_of_choice(others: list[Candidate], why: str) -> None:
    best = candidate("a", (5, 100), (1, 1))
    assert cheapest([best, *others]) is best
    if why != "all the same: the first":
        assert cheapest([*others, best]) is best


@pytest.mark.parametrize(
    ("nodes", "percentage", "absolute", "expected"),
    [(50, 10, 100, 50), (5000, 10, 100, 500), (500, 10, 100, 100), (10, 0, 3, 3), (10, 50, 1, 5)],
)
def test_how_many_candidates_are_enough(nodes: int, percentage: int, absolute: int, expected: int) -> None:
    assert wanted(nodes, percentage, absolute) == expected


def test_the_search_stops_at_enough_candidates_from_a_random_offset(ports: tuple[int, ...]) -> None:
    chosen = set()
    for seed in range(12):
        crowd = Crowd(percentage=0, absolute=1, seed=str(seed))
        for node in range(6):
            crowd.node(f"n{node}", cpu=1000)
            crowd.running(f"r{node}", f"n{node}", node)
        found = crowd.search.find(crowd.wanting("p", 10, ports=ports))
        assert isinstance(found, Candidate)
        chosen.add(found.node)
    assert len(chosen) > 2  # with all of them looked at it would be n0 each time


def test_it_does_not_stop_while_every_candidate_breaks_a_budget(ports: tuple[int, ...]) -> None:
    crowd = Crowd(percentage=0, absolute=1)
    for node in range(6):
        crowd.node(f"n{node}", cpu=1000)
        crowd.running(f"r{node}", f"n{node}", node, labels={"app": "x"} if node != 4 else None)
    crowd.budget("x", 0, {"app": "x"})
    assert victims(crowd.search.find(crowd.wanting("p", 10, ports=ports))) == ["r4"]


def test_who_may_not_preempt_at_all() -> None:
    crowd = Crowd()
    crowd.node("n", cpu=1000)
    crowd.running("r", "n", 1)
    assert crowd.search.find(crowd.wanting("p", 10, preemptionPolicy="Never")) == NEVER
    assert NEVER == "preemption: not eligible due to preemptionPolicy=Never."


def test_nobody_else_goes_while_a_victim_goes_on_the_nominated_node() -> None:
    crowd = Crowd()
    for node in ("a", "b"):
        crowd.node(node, cpu=1000)
    crowd.running("going", "a", 1, preempted=True)
    crowd.running("r", "b", 0)
    pod = crowd.wanting("p", 10)
    crowd.nominate(pod, "a")
    assert crowd.search.find(pod) == TERMINATING
    assert TERMINATING == "preemption: not eligible due to a terminating pod on the nominated node."
    # Who goes for another reason is waited for by nobody: it may take its time.
    crowd.running("going", "a", 1, terminating=True)
    assert victims(crowd.search.find(pod)) == ["r"]
    crowd.running("going", "a", 1, preempted=True)
    # The node cannot do any more: another one may.
    crowd.node("a", cpu=1000, taints=[("k", "", "NoSchedule")])
    assert victims(crowd.search.find(pod)) == ["r"]


def test_planned_pods_are_no_victims() -> None:
    crowd = Crowd()
    crowd.node("n", cpu=1000)
    crowd.engine.place_one(crowd.wanting("planned", 1))
    assert crowd.search.find(crowd.wanting("p", 10)) == (
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_messages(ports: tuple[int, ...]) -> None:
    crowd = Crowd()
    crowd.node("tainted", cpu=1000, taints=[("k", "", "NoSchedule")])
    crowd.node("small", cpu=500)
    crowd.node("full", cpu=4000)
    crowd.running("same", "full", 10, cpu="4")
    crowd.node("short", cpu=4000)
    crowd.running("high", "short", 11, cpu="3")
    crowd.running("low", "short", 1)
    assert crowd.search.find(crowd.wanting("p", 10, cpu="2", ports=ports)) == (
        "preemption: 0/4 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_more_priorities_than_levels() -> None:
    crowd = Crowd()
    for node in range(10):
        crowd.node(f"n{node}", cpu=10_000)
        for pod in range(10):
            crowd.running(f"r{node}-{pod}", f"n{node}", (node * 10 + pod) * 1000 + 7)
    found = crowd.search.find(crowd.wanting("p", 55_007, cpu="5500m"))
    assert victims(found) == ["r0-5", "r0-4", "r0-3", "r0-2", "r0-1", "r0-0"]
    # Of node 5 five pods are lower: too few, though their level has more.
    for node in range(5):
        crowd.engine.remove_node(f"n{node}")
    assert crowd.search.find(crowd.wanting("p", 55_007, cpu="5500m")) == (
        "preemption: 0/5 nodes are available: 1 Insufficient cpu, 4 No preemption victims found for incoming pod."
    )


def test_what_changed_since_the_last_search_counts() -> None:
    crowd = Crowd()
    crowd.node("a", cpu=1000)
    crowd.running("r", "a", 5)
    pod = crowd.wanting("p", 10)
    assert victims(crowd.search.find(pod)) == ["r"]
    crowd.engine.uncount("uid-default-r")
    crowd.running("s", "a", 6)
    assert victims(crowd.search.find(pod)) == ["s"]
    crowd.node("b", cpu=1000)
    crowd.running("t", "b", 4)
    assert victims(crowd.search.find(pod)) == ["t"]
    crowd.engine.remove_node("b")
    assert victims(crowd.search.find(pod)) == ["s"]


# Nominated pods -------------------------------------------------------------------------------------------------------


def test_room_is_left_to_those_who_wait_for_it(ports: tuple[int, ...]) -> None:
    crowd = Crowd()
    crowd.node("n", cpu=2000)
    waiting = crowd.wanting("waiting", 10, cpu="1500m", ports=ports)
    crowd.nominate(waiting, "n")
    for priority, fits in ((9, False), (10, False), (11, True)):
        pod = crowd.wanting(f"p{priority}", priority, ports=ports)
        outcome = crowd.engine.place_one(pod)
        assert isinstance(outcome, Placed) is fits
        if fits:
            crowd.engine.forget(pod.uid)
        else:
            assert isinstance(outcome, Diagnosis)
            assert outcome.message == "0/1 nodes are available: 1 Insufficient cpu." if not ports else outcome.message
    assert isinstance(crowd.engine.place_one(waiting), Placed)


def test_equals_of_other_schedulers_are_not_waited_for() -> None:
    crowd = Crowd()
    crowd.node("n", cpu=2000)
    crowd.nominate(crowd.wanting("foreign", 10, cpu="1500m"), "n", foreign=True)
    assert isinstance(crowd.engine.place_one(crowd.wanting("low", 9)), Diagnosis)
    assert isinstance(crowd.engine.place_one(crowd.wanting("equal", 10)), Placed)


def test_the_nominated_node_comes_first() -> None:
    crowd = Crowd()
    for node in ("a", "b", "c"):
        crowd.node(node, cpu=4000)
    crowd.running("r", "b", 1)  # so that b scores least
    pod = crowd.wanting("p", 10)
    crowd.nominate(pod, "b")
    outcome = crowd.engine.place_one(pod)
    assert isinstance(outcome, Placed)
    assert outcome.node == "b"
    crowd.engine.forget(pod.uid)
    crowd.node("b", cpu=100)
    outcome = crowd.engine.place_one(pod)
    assert isinstance(outcome, Placed)
    assert outcome.node != "b"


def test_runs_leave_room_too() -> None:
    crowd = Crowd()
    for node in ("a", "b"):
        crowd.node(node, cpu=4000)
    crowd.nominate(crowd.wanting("waiting", 10, cpu="3"), "a")
    pods = [crowd.wanting(f"p{i}", 1) for i in range(8)]
    outcomes: list[Any] = []
    assert crowd.engine.place(pods, outcomes) == 8
    nodes = [outcome.node for outcome in outcomes if isinstance(outcome, Placed)]
    assert sorted(nodes) == ["a", "b", "b", "b", "b"]


def test_who_is_placed_is_not_counted_twice() -> None:
    crowd = Crowd()
    crowd.node("n", cpu=4000)
    waiting = crowd.wanting("waiting", 10, cpu="2")
    crowd.nominate(waiting, "n")
    assert isinstance(crowd.engine.place_one(waiting), Placed)
    assert isinstance(crowd.engine.place_one(crowd.wanting("p", 1, cpu="2")), Placed)


def test_victims_are_not_taken_for_room_that_others_wait_for(ports: tuple[int, ...]) -> None:
    crowd = Crowd()
    for node in ("a", "b"):
        crowd.node(node, cpu=1000)
        crowd.running(f"r-{node}", node, 1 if node == "a" else 5)
    first = crowd.wanting("first", 10, ports=ports)
    found = crowd.search.find(first)
    assert victims(found) == ["r-a"]
    crowd.nominate(first, "a")
    second = crowd.wanting("second", 10, ports=ports)
    assert victims(crowd.search.find(second)) == ["r-b"]
    # A higher one may have it.
    assert victims(crowd.search.find(crowd.wanting("third", 11, ports=ports))) == ["r-a"]


def test_nominations_come_and_go() -> None:
    crowd = Crowd()
    crowd.node("a", cpu=1000)
    pod = crowd.wanting("p", 10)
    nominated = crowd.engine.nominated
    assert nominated.clear(pod.uid) is None
    crowd.nominate(pod, "gone")
    assert nominated.rivals("", 0) == {}
    crowd.nominate(pod, "a")
    assert [other.ref.name for other in nominated.on("a")] == ["p"]
    assert nominated.on("gone") == []
    assert (nominated.node_of(pod.uid), len(nominated)) == ("a", 1)
    assert nominated.clear(pod.uid) is not None
    assert (nominated.node_of(pod.uid), len(nominated)) == ("", 0)


def test_pods_that_change_on_their_node_are_seen_as_they_are(ports: tuple[int, ...]) -> None:
    crowd = Crowd()
    crowd.node("n", cpu=2000)
    planned = crowd.wanting("planned", 1)
    assert isinstance(crowd.engine.place_one(planned), Placed)
    crowd.running("r", "n", 5)
    pod = crowd.wanting("p", 10, ports=ports)
    assert victims(crowd.search.find(pod)) == ["r"]
    crowd.running("planned", "n", 1)  # seen bound
    assert victims(crowd.search.find(pod)) == ["planned"]
    crowd.running("planned", "n", 1, terminating=True)
    found = crowd.search.find(pod)
    assert isinstance(found, Candidate)
    assert found.victims[0].terminating
    crowd.budget("x", 0, {"app": "x"})
    crowd.running("planned", "n", 1, labels={"app": "x"})
    assert victims(crowd.search.find(pod)) == ["r"]


def test_resources_without_a_column_are_tried_for_real() -> None:
    crowd = Crowd()
    crowd.cluster.resources = Resources(most=len(crowd.cluster.resources))
    crowd.node("n", cpu=4000, more={"example.com/rare": 2})
    crowd.node("m", cpu=4000)
    assert crowd.cluster.resources.find("example.com/rare") is None
    rare: dict[str, Any] = {"resources": {"requests": {"cpu": "1", "memory": "1Gi", "example.com/rare": "2"}}}
    spec = {"containers": [{"name": "main", **rare}]}
    crowd.running("other", "n", 0)
    holder = crowd.catalogue.assigned(pod_view("holder", {**spec, "priority": 5}), "n")
    crowd.engine.count(holder)
    pod = crowd.catalogue.pod(pod_view("p", {**spec, "priority": 10}))
    assert isinstance(crowd.engine.place_one(pod), Diagnosis)
    assert victims(crowd.search.find(pod)) == ["holder"]
    assert crowd.search.find(crowd.catalogue.pod(pod_view("low", {**spec, "priority": 1}))) == (
        "preemption: 0/2 nodes are available: 1 Insufficient example.com/rare, "
        "1 Preemption is not helpful for scheduling."
    )


def test_what_the_ledger_masks_for_a_moment_is_no_reason_to_preempt() -> None:
    crowd = Crowd()
    crowd.node("n", cpu=2000)
    crowd.node("m", cpu=2000)
    crowd.running("r", "m", 1, cpu="2")
    pod = crowd.wanting("p", 10, cpu="2")
    assert not fits_unmasked(crowd.engine, pod)
    assert crowd.cluster.correct("n", "cpu", 0)
    assert isinstance(crowd.engine.place_one(pod), Diagnosis)
    assert fits_unmasked(crowd.engine, pod)
    assert not fits_unmasked(crowd.engine, crowd.wanting("large", 10, cpu="3"))
    named = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}]
            }
        }
    }
    assert not fits_unmasked(crowd.engine, crowd.wanting("named", 10, cpu="2", affinity=named))
    crowd.cluster.uncorrect("n")
    assert not fits_unmasked(crowd.engine, pod)


def test_that_nothing_helps_is_remembered_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()
    crowd.node("n", cpu=2000)
    crowd.running("r", "n", 10, cpu="2")
    searched: list[str] = []
    find = Search._find

    def spied(self: Search, pod: PodInfo, program: Any) -> Candidate | str:
        searched.append(pod.ref.name)
        return find(self, pod, program)

    monkeypatch.setattr(Search, "_find", spied)
    pods = [crowd.wanting(f"p{number}", 10) for number in range(4)]
    first = crowd.search.find(pods[0])
    for pod in pods[1:]:
        assert crowd.search.find(pod) == first
    assert searched == ["p0"]
    crowd.running("low", "n", 1, cpu="0")
    assert crowd.search.find(crowd.wanting("p4", 10)) != first
    crowd.budget("x", 1, {"app": "x"})
    crowd.search.find(crowd.wanting("p5", 10))
    crowd.nominate(crowd.wanting("waiting", 10), "n")
    crowd.search.find(crowd.wanting("p6", 10))
    crowd.search.find(crowd.wanting("other", 11))
    assert searched == ["p0", "p4", "p5", "p6", "other"]
