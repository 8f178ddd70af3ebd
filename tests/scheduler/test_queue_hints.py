"""Queueing hints: an event wakes only what it may help, and many hopeless units slow nobody down."""

from collections.abc import Callable
from typing import ClassVar

import pytest

from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import FilterPlugin, Reason, Template, Terms
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.framework.happenings import SUBJECTS, Happenings
from koord.scheduler.queueing.hints import MOST_ASKED, Hints
from koord.scheduler.queueing.queue import SchedulingQueue, Unit
from tests.scheduler.clusters import Bed, requests


class WantsColour(FilterPlugin):
    """Pods wait for a node of the colour that their node selector names."""

    name: ClassVar[str] = "WantsColour"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset((ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL))

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []
        self.answer: Callable[[str, object], bool] = lambda colour, subject: (
            not isinstance(subject, NodeInfo) or subject.labels.get("colour") == colour
        )

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return None

    def filter(self, terms: Terms, window: Window) -> "object":  # type: ignore[override]
        raise AssertionError("no class has terms")

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        raise AssertionError("no class has terms")

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        colour = template.spec.node_selector["colour"]
        self.asked.append((colour, subject))
        return self.answer(colour, subject)


class Parked:
    """A queue with one pod of each colour parked, rejected by the plugin."""

    def __init__(self, colours: int, each: int = 1) -> None:
        self.plugin = WantsColour()
        self.bed = Bed(extra=[self.plugin])
        self.queue = SchedulingQueue(self.bed.profile.events, hints=Hints((self.bed.profile,)))
        for colour in range(colours):
            for number in range(each):
                self.add(f"p{colour}-{number}", f"c{colour}")
        self.park(0.0)

    def add(self, name: str, colour: str, now: float = 0.0) -> Unit:
        pod = self.bed.pod(name, requests(nodeSelector={"colour": colour}))
        unit = self.queue.unit(pod.uid, "", now)
        unit.pods[pod.uid] = pod
        self.queue.activate(unit, now)
        return unit

    def park(self, now: float) -> None:
        while units := self.queue.pop(1 << 20, now):
            for unit in units:
                self.queue.reject(unit, (WantsColour.name,), now)

    def tried(self, now: float) -> list[str]:
        return [pod.ref.name for unit in self.queue.pop(1 << 20, now) for pod in unit.pods.values()]


def node(colour: str) -> NodeInfo:
    return NodeInfo("n", {}, {"colour": colour})


def test_only_what_the_event_may_help_is_woken() -> None:
    p = Parked(colours=5)
    assert p.queue.wake({ClusterEvent.NODE_ADD: (node("c3"), node("blue"))}, 100.0) == 1
    assert p.tried(100.0) == ["p3-0"]
    assert p.queue.incoming[("active", "NodeAdd")] == 1
    # An event that nobody of them waits for asks nobody.
    p.plugin.asked.clear()
    assert p.queue.wake({ClusterEvent.POD_DELETE: (None,)}, 101.0) == 0
    assert p.plugin.asked == []


def test_an_event_about_nobody_knows_what_counts_for_all() -> None:
    p = Parked(colours=5)
    assert p.queue.wake({ClusterEvent.NODE_LABEL: (None,)}, 100.0) == 5


def test_a_hint_that_fails_counts_as_yes() -> None:
    p = Parked(colours=2)

    def fails(colour: str, subject: object) -> bool:
        raise RuntimeError("no idea")

    p.plugin.answer = fails
    assert p.queue.wake({ClusterEvent.NODE_ADD: (node("blue"),)}, 100.0) == 2


def test_what_happens_in_flight_is_judged_by_the_hint_too() -> None:
    p = Parked(colours=0)
    for name, happened, state in (("a", "c1", "unschedulable"), ("b", "c0", "backoff")):
        unit = p.add(name, "c0")
        assert unit in p.queue.pop(1, 0.0)
        p.queue.wake({ClusterEvent.NODE_ADD: (node(happened),)}, 0.0)
        p.queue.reject(unit, (WantsColour.name,), 0.0)
        assert unit.state == state


def test_hints_are_not_asked_without_end() -> None:
    """With too many questions the rest counts as helped: tried in vain is better than asked for ever."""
    p = Parked(colours=200)
    p.plugin.answer = lambda colour, subject: False
    woken = p.queue.wake({ClusterEvent.NODE_ADD: tuple(node(str(n)) for n in range(SUBJECTS))}, 100.0)
    assert len(p.plugin.asked) == MOST_ASKED
    assert woken == 200 - MOST_ASKED // SUBJECTS


def test_events_keep_their_subjects_up_to_a_bound() -> None:
    happened = Happenings()
    assert not happened
    for number in range(SUBJECTS):
        happened.add(ClusterEvent.POD_DELETE, number)
    happened.add(ClusterEvent.NODE_ADD, "n")
    happened.add(ClusterEvent.LEDGER_RELEASE)
    assert ClusterEvent.NODE_ADD in happened
    taken = happened.take()
    assert taken[ClusterEvent.POD_DELETE] == tuple(range(SUBJECTS))
    assert (taken[ClusterEvent.NODE_ADD], taken[ClusterEvent.LEDGER_RELEASE]) == (("n",), (None,))
    assert not happened
    for number in range(SUBJECTS + 1):
        happened.add(ClusterEvent.POD_DELETE, number)
    happened.add(ClusterEvent.POD_DELETE, "one more")
    assert happened.take() == {ClusterEvent.POD_DELETE: (None,)}


@pytest.mark.parametrize("helps", [False, True])
def test_five_thousand_hopeless_units_do_not_slow_those_that_fit(helps: bool) -> None:
    """50 signatures of 100 each and 1,000 events, 20 ms apart: what fits is tried at once each time, with at most a few
    of the others; a hint is asked once per signature and not once per unit."""
    p = Parked(colours=50, each=100)
    p.plugin.answer = lambda colour, subject: helps
    p.plugin.asked.clear()
    tried = 0
    for number in range(1000):
        now = 20.0 + number / 50
        fresh = p.add(f"fresh{number}", "fits", now)
        p.queue.wake(dict.fromkeys(WantsColour.events, (node("blue"),)), now)
        units = p.queue.pop(512, now)
        assert fresh in units
        assert len(units) < 200
        tried += len(units) - 1
        for unit in units:
            if unit is fresh:
                p.queue.done(unit, now)
            else:
                p.queue.reject(unit, (WantsColour.name,), now)
    assert len(p.plugin.asked) <= 1000 * 50 * 2
    # Without help nobody is tried in vain; with it each one backs off for 1 to 10 s before it is tried again.
    assert (tried > 1000) if helps else tried == 0
    assert p.queue.counts["unschedulable"] + p.queue.counts["backoff"] == 5000
