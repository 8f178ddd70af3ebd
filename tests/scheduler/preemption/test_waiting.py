"""Pods that wait for a node, or for victims to be told: who is kept off meanwhile, and when they are tried again."""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import pytest

from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed, PodInfo
from koord.scheduler.framework.contract import AssignedPod, AssignPlugin, Pending, PreFilterPlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.defaultpreemption import HELD, DefaultPreemption
from koord.scheduler.preemption.attempt import HELPLESS, NO_VICTIMS
from koord.scheduler.preemption.budgets import Budgets
from koord.scheduler.preemption.candidates import Candidate
from koord.scheduler.preemption.search import Search
from koord.scheduler.queueing.hints import Hints
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.preemption.beds import Crowd

WEB = {"app": "web"}


def keeping_off(side: str = "podAntiAffinity") -> dict[str, Any]:
    """An affinity that concerns pods of ``WEB`` on the same host."""
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": WEB}}
    return {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


# Beside those who are nominated ---------------------------------------------------------------------------------------


def web(crowd: Crowd, name: str, priority: int) -> PodInfo:
    return crowd.catalogue.renewed(crowd.pod(name, requests("1", priority=priority), labels=WEB))


@pytest.mark.parametrize("together", (True, False))
def test_who_waits_keeps_others_off_though_nobody_that_runs_does(together: bool) -> None:
    crowd = Crowd()
    for name in ("a", "b"):
        crowd.node(name, cpu=8000, labels={"host": name})
    assert isinstance(crowd.engine.place_one(web(crowd, "before", 1)), Placed)  # compiled when nobody was concerned
    waiting = crowd.wanting("waiting", 10, affinity=keeping_off())
    crowd.nominate(waiting, "a")
    outcomes: list[Outcome] = []
    pods = [web(crowd, f"w{number}", 5) for number in range(6)]
    if together:
        crowd.engine.place(pods, outcomes)
    else:
        outcomes = [crowd.engine.place_one(pod) for pod in pods]
    assert {one.node for one in outcomes if isinstance(one, Placed)} == {"b"}
    assert all(isinstance(one, Placed) for one in outcomes)
    # Who is more important need not care, nor anybody once it waits no longer.
    crowd.node("b", cpu=8000, labels={"host": "b"}, unschedulable=True)
    refused = crowd.engine.place_one(web(crowd, "equal", 10))
    assert isinstance(refused, Diagnosis)
    assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in refused.message
    above = crowd.engine.place_one(web(crowd, "above", 11))
    assert isinstance(above, Placed)
    assert above.node == "a"
    crowd.engine.nominated.clear(waiting.uid)
    assert isinstance(crowd.engine.place_one(web(crowd, "equal", 10)), Placed)


@pytest.mark.parametrize("together", (True, False))
def test_a_node_may_take_a_pod_because_of_who_waits_there(together: bool) -> None:
    """Gate SkipFilterWithNominatedPods; without it a pod must fit on a node as it is, too."""
    crowd = Crowd()
    for name in ("a", "b"):
        crowd.node(name, cpu=4000, labels={"host": name})
    crowd.nominate(web(crowd, "waiting", 10), "a")
    pods = [crowd.wanting(f"p{number}", 5, affinity=keeping_off("podAffinity")) for number in range(4)]
    refused = crowd.engine.place_one(pods[0])
    assert isinstance(refused, Diagnosis)
    assert refused.message == "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."
    crowd.engine.nominated.only_beside = True
    outcomes: list[Outcome] = []
    if together:
        crowd.engine.place(pods, outcomes)
    else:
        outcomes = [crowd.engine.place_one(pod) for pod in pods]
    # One cpu of the four is left to the one who waits.
    assert [one.node for one in outcomes if isinstance(one, Placed)] == ["a"] * 3
    assert isinstance(outcomes[3], Diagnosis)


def test_what_is_known_of_who_waits_is_forgotten_with_it() -> None:
    crowd = Crowd()
    crowd.node("a", labels={"host": "a"})
    [index] = [plugin.index for plugin in crowd.engine.plugins if plugin.name == "InterPodAffinity"]  # type: ignore[attr-defined]
    waiting = crowd.wanting("waiting", 10, affinity=keeping_off())
    for node in ("a", "b", "a"):
        crowd.nominate(waiting, node)
        assert len(index.terms) == 1
    crowd.nominate(crowd.wanting("waiting", 10), "a")  # it changed
    assert len(index.terms) == 0
    crowd.nominate(waiting, "a")
    crowd.engine.nominated.clear(waiting.uid)
    assert len(index.terms) == 0


# What PreFilter refuses -----------------------------------------------------------------------------------------------


class Seats(PreFilterPlugin, AssignPlugin):
    """At most so many pods in the whole cluster."""

    name: ClassVar[str] = "Seats"
    prefilter_in_trials: ClassVar[bool] = True

    def __init__(self, most: int) -> None:
        self.most = most
        self.seated: set[str] = set()

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return "seats"

    def prefilter(self, terms: Terms) -> str | None:
        return "no seat is free" if len(self.seated) >= self.most else None

    def assigned(self, pod: AssignedPod) -> None:
        self.seated.add(pod.ref.uid)

    def unassigned(self, pod: AssignedPod) -> None:
        self.seated.discard(pod.ref.uid)


class Untried(Seats):
    """Says that pods that go help, but cannot be asked about that."""

    prefilter_in_trials: ClassVar[bool] = False


class Stubborn(Seats):
    """Says that no pod that goes helps."""

    prefilter_resolvable: ClassVar[bool] = False


def seated(plugin: Seats) -> tuple[Bed, Candidate | str]:
    bed = Bed(extra=[plugin])
    for name in ("a", "b"):
        bed.node(name, cpu=8000)
    for name, node, priority in (("low", "a", 1), ("lower", "b", 0), ("same", "b", 9)):
        pod = bed.pod(name, requests("1", priority=priority))
        bed.engine.count(msgspec.structs.replace(pod.planned(node, 0.0), planned=False))
    pod = bed.pod("p", requests("1", priority=9))
    assert isinstance(bed.engine.place_one(pod), Diagnosis)
    return bed, Search(bed.engine, Budgets()).find(pod)


def test_a_plugin_that_is_asked_again_without_some_pods() -> None:
    plugin = Seats(3)
    _, found = seated(plugin)
    assert isinstance(found, Candidate), found
    assert (found.node, [pod.ref.name for pod in found.victims]) == ("b", ["lower"])
    assert len(plugin.seated) == 3
    _, found = seated(Seats(2))
    assert found == f"preemption: 0/2 nodes are available: 2 {NO_VICTIMS}."


def test_plugins_that_cannot_be_asked_or_helped() -> None:
    assert seated(Untried(3))[1] == f"preemption: 0/2 nodes are available: 2 {NO_VICTIMS}."
    assert seated(Stubborn(3))[1] == f"preemption: 0/2 nodes are available: 2 {HELPLESS}."


def test_what_prefilter_refused_is_asked_anew_when_nothing_but_its_answer_changed() -> None:
    plugin = Untried(3)
    bed, found = seated(plugin)
    assert found == f"preemption: 0/2 nodes are available: 2 {NO_VICTIMS}."
    search, pod = Search(bed.engine, Budgets()), bed.pod("big", requests("9", priority=9))
    assert search.find(pod) == f"preemption: 0/2 nodes are available: 2 {NO_VICTIMS}."
    plugin.most = 4
    assert search.find(pod) == f"preemption: 0/2 nodes are available: 2 {HELPLESS}."


# While victims are told -----------------------------------------------------------------------------------------------


def test_the_plugin_holds_back_whose_victims_are_being_told() -> None:
    plugin, pod = DefaultPreemption(), Bed().pod("p")
    assert plugin.pre_enqueue(pod.ref) is None
    plugin.begun(pod.uid)
    assert plugin.pre_enqueue(pod.ref) == HELD
    plugin.finished(pod.uid)
    plugin.finished(pod.uid)
    assert plugin.pre_enqueue(pod.ref) is None


# Waiting for something outside ----------------------------------------------------------------------------------------


class Outside(PreFilterPlugin):
    """Something has to be made first."""

    name: ClassVar[str] = "Outside"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.PVC_ADD,))

    def __init__(self, text: str) -> None:
        self.text = text

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return "outside"

    def prefilter(self, terms: Terms) -> str | None:
        return self.text


def parked(text: str, rejections: Iterable[float]) -> tuple[SchedulingQueue, Unit]:
    """A pod that was refused at those times."""
    bed = Bed(extra=[Outside(text)])
    bed.node("n")
    queue = SchedulingQueue(bed.profile.events, hints=Hints((bed.profile,)))
    pod = bed.pod("p")
    unit = queue.unit(pod.uid, "", 0.0)
    unit.pods[pod.uid] = pod
    for now in rejections:
        queue.activate(unit, now)
        assert queue.pop(10, now) == [unit]
        refused = bed.engine.place_one(pod)
        assert isinstance(refused, Diagnosis)
        assert refused.message == f"0/1 nodes are available: {text}."
        assert type(refused.reasons[0].reason) is str
        queue.reject(unit, refused.plugins, now, refused.message, refused.pending)
    return queue, unit


@pytest.mark.parametrize(("text", "state"), ((Pending("not made yet"), "active"), ("not made yet", "backoff")))
def test_who_waits_for_something_outside_does_not_back_off(text: str, state: str) -> None:
    queue, unit = parked(text, (0.0, 10.0, 20.0))
    assert unit.state == "unschedulable"
    assert queue.wake([ClusterEvent.POD_DELETE], 20.1) == 0
    assert queue.wake([ClusterEvent.PVC_ADD], 20.2) == 1
    assert unit.state == state


def test_an_event_that_was_missed_counts_at_once_as_well() -> None:
    queue, unit = parked(Pending("soon"), (0.0, 10.0))
    queue.activate(unit, 20.0)
    assert queue.pop(10, 20.0) == [unit]
    queue.wake([ClusterEvent.PVC_ADD], 20.1)
    queue.reject(unit, {"Outside"}, 20.2, "", frozenset({"Outside"}))
    assert unit.state == "active"


def test_who_is_let_go_waits_as_it_would_have() -> None:
    queue, unit = parked("not made yet", (0.0,))
    queue.gate(unit)
    assert queue.wake([ClusterEvent.PVC_ADD], 1.0) == 0
    assert queue.counts["gated"] == 1
    queue.let_go(unit, 5.0)
    assert (unit.state, queue.counts["gated"]) == ("unschedulable", 0)
    assert queue.wake([ClusterEvent.PVC_ADD], 6.0) == 1
    assert unit.state == "active"
    queue.let_go(unit, 7.0)
    assert unit.state == "active"
