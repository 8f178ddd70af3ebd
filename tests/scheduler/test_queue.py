"""The scheduling queue: order, backoff, parking by signature, waking."""

from hypothesis import given
from hypothesis import strategies as st

from koord.kube.protocol.qos import PRIORITY
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.framework.events import ALL_EVENTS, ClusterEvent
from koord.scheduler.queueing.queue import QueueSettings, SchedulingQueue, Unit, backoff_s
from tests.scheduler.clusters import Bed, requests

FIT = frozenset(("NodeResourcesFit",))


class Queued:
    """A queue fed with single pods."""

    def __init__(self, settings: QueueSettings | None = None) -> None:
        self.bed = Bed()
        self.queue = SchedulingQueue(self.bed.profile.events, settings)

    def add(self, name: str, now: float, *, priority: int = 0, cpu: str = "1", sub: str = "") -> Unit:
        pod = self.bed.pod(name, requests(cpu), labels={PRIORITY: sub} if sub else {})
        pod = PodInfo(pod.ref, pod.class_, priority)
        unit = self.queue.unit(pod.uid, "", now)
        unit.pods[pod.uid] = pod
        self.queue.activate(unit, now)
        return unit


def names(units: list[Unit]) -> list[str]:
    return [pod.ref.name for unit in units for pod in unit.pods.values()]


def test_priority_then_time() -> None:
    q = Queued()
    q.add("late", 2.0)
    q.add("early", 1.0)
    q.add("high", 3.0, priority=10)
    assert names(q.queue.pop(10, 4.0)) == ["high", "early", "late"]


def sorted_by(settings: QueueSettings) -> list[str]:
    q = Queued(settings)
    q.add("plain", 1.0)
    q.add("less", 2.0, sub="-1")
    q.add("more", 3.0, sub="7")
    q.add("bad", 4.0, sub="many")
    q.add("high", 5.0, priority=1, sub="-9")
    first = names(q.queue.pop(10, 6.0))
    for unit in list(q.queue.units.values()):
        q.queue.reject(unit, FIT, 6.0)
    q.queue.wake((ClusterEvent.POD_DELETE,), 30.0)
    # parked together, the best of them wakes first
    assert names(q.queue.pop(10, 30.0))[0] == first[0]
    return first


def test_sub_priority_counts_only_if_asked_for() -> None:
    assert sorted_by(QueueSettings()) == ["high", "plain", "less", "more", "bad"]
    assert sorted_by(QueueSettings(sub_priority=True)) == ["high", "more", "plain", "bad", "less"]


def test_a_group_ranks_as_its_most_important_pod() -> None:
    q = Queued(QueueSettings(sub_priority=True))
    q.add("alone", 1.0, sub="5")
    group = q.queue.unit("g", "g", 2.0)
    for name, priority, sub in (("a", 0, "9"), ("b", 1, "-9"), ("c", 1, "-8")):
        pod = q.bed.pod(name, requests("1"), labels={PRIORITY: sub})
        group.pods[pod.uid] = PodInfo(pod.ref, pod.class_, priority)
    assert group.rank(sub_priority=True) == (-1, 8)
    assert group.rank(sub_priority=False) == (-1, 0)
    q.queue.activate(group, 2.0)
    assert q.queue.pop(10, 3.0)[0].key == "g"


def test_of_those_whose_backoff_ends_in_one_second_the_most_important_comes_early() -> None:
    q = Queued()
    units = {
        name: q.add(name, 0.0, priority=priority, cpu=str(n))
        for n, (name, priority) in enumerate((("low", 0), ("high", 5), ("later", 9)), 1)
    }
    q.queue.pop(10, 0.0)
    # they are ready at 11.1, 11.4 and 12.01
    for name, at in (("low", 10.1), ("high", 10.4), ("later", 11.01)):
        q.queue.reject(units[name], FIT, at)
    q.queue.wake((ClusterEvent.POD_DELETE,), 11.05)
    assert names(q.queue.pop(10, 11.05)) == ["high", "low", "later"]


def test_what_backed_off_in_time_is_not_taken_early_as_well() -> None:
    q = Queued()
    units = [q.add(f"p{n}", 0.0, cpu=str(n + 1)) for n in range(200)]
    for turn in range(5):
        now = turn * 100.0
        q.queue.pop(1000, now)
        for unit in units:
            q.queue.reject(unit, FIT, now)
        q.queue.wake((ClusterEvent.POD_DELETE,), now + 0.5)
        assert len(q.queue.pop(1000, now + 50.0)) == 200, "all at once, for all have waited long enough"
        assert q.queue.pop(1000, now + 50.0) == []
        for unit in units:
            q.queue.retry(unit, now + 50.0)
    assert len(q.queue._soon) <= 1


def test_batches_are_bounded() -> None:
    q = Queued()
    for number in range(5):
        q.add(f"p{number}", float(number))
    assert names(q.queue.pop(2, 9.0)) == ["p0", "p1"]
    assert names(q.queue.pop(9, 9.0)) == ["p2", "p3", "p4"]


def test_thousands_of_one_class_cost_one_attempt_per_event() -> None:
    q = Queued()
    for number in range(2000):
        q.add(f"p{number:04}", float(number))
    units = q.queue.pop(5000, 2000.0)
    for unit in units:
        q.queue.reject(unit, FIT, 2000.0, "no")
    assert q.queue.counts["unschedulable"] == 2000
    assert q.queue.wake((ClusterEvent.QUOTA_CHANGE,), 2100.0) == 0
    assert q.queue.wake((ClusterEvent.POD_DELETE,), 2100.0) == 1
    [first] = q.queue.pop(5000, 2100.0)
    assert names([first]) == ["p0000"]
    q.queue.reject(first, FIT, 2100.0, "no")
    assert q.queue.pop(5000, 2100.5) == []
    # Room for many came: each one that fits brings two more, then four.
    assert q.queue.wake((ClusterEvent.NODE_ADD,), 2200.0) == 1
    tried = 0
    while units := q.queue.pop(5000, 2200.0):
        tried += len(units)
        for unit in units:
            q.queue.done(unit, 2200.0)
    assert tried == 2000
    assert not q.queue.units


def test_a_woken_unit_backs_off_but_an_idle_scheduler_takes_it_early() -> None:
    q = Queued()
    unit = q.add("p", 0.0)
    for _ in range(3):
        [popped] = q.queue.pop(1, 0.0)
        assert popped is unit
        q.queue.reject(unit, FIT, 0.0)
        q.queue.wake((ClusterEvent.POD_DELETE,), 0.0)
    assert unit.state == "backoff"
    assert unit.ready_at == 4.0
    other = q.add("other", 0.0)
    assert q.queue.pop(1, 0.0) == [other]
    assert q.queue.pop(1, 0.0) == [unit]


def test_what_happens_while_a_unit_is_in_flight_wakes_it_too() -> None:
    """Its claim is asked for, and a node comes: nobody is parked yet who could be woken."""
    q = Queued()
    q.add("p", 0.0)
    assert q.queue.wake((ClusterEvent.NODE_ADD,), 1.0) == 0  # before it was tried: that says nothing
    [unit] = q.queue.pop(10, 2.0)
    assert q.queue.wake((ClusterEvent.QUOTA_CHANGE,), 3.0) == 0
    q.queue.reject(unit, FIT, 4.0, "no")
    assert unit.state == "unschedulable"
    assert q.queue.wake((ClusterEvent.NODE_ADD,), 100.0) == 1
    [unit] = q.queue.pop(10, 100.0)
    assert q.queue.wake((ClusterEvent.NODE_ADD,), 101.0) == 0
    q.queue.reject(unit, FIT, 102.0, "no")
    assert unit.state == "backoff"
    assert q.queue.pop(10, 102.0) == [unit]


def test_errors_are_not_taken_early() -> None:
    q = Queued()
    unit = q.add("p", 0.0)
    q.queue.pop(1, 0.0)
    q.queue.fail(unit, 0.0, "an error")
    assert q.queue.pop(1, 0.5) == []
    assert q.queue.next_time() == 1.0
    assert q.queue.pop(1, 1.0) == [unit]


def test_flushed_after_five_minutes() -> None:
    q = Queued()
    unit = q.add("p", 0.0)
    q.queue.pop(1, 0.0)
    q.queue.reject(unit, FIT, 0.0)
    assert q.queue.pop(1, 299.0) == []
    assert q.queue.next_time() == 300.0
    assert q.queue.pop(1, 300.0) == [unit]


def test_gated_units_wait_for_their_own_reasons() -> None:
    q = Queued()
    unit = q.add("p", 0.0)
    q.queue.gate(unit)
    assert q.queue.wake(ALL_EVENTS, 1.0) == 0
    assert q.queue.pop(1, 1000.0) == []
    q.queue.activate(unit, 1000.0)
    assert q.queue.pop(1, 1000.0) == [unit]


steps = st.lists(st.tuples(st.sampled_from(("add", "pop", "remove", "wake", "gate", "free")), st.integers(0, 6)))


@given(steps)
def test_every_unit_is_in_exactly_one_place(moves: list[tuple[str, int]]) -> None:
    q = Queued()
    flying: list[Unit] = []
    now = 0.0
    for what, number in moves:
        now += 0.7
        key = f"uid-default-p{number}"
        unit = q.queue.units.get(key)
        if what == "add" and unit is None:
            q.add(f"p{number}", now, priority=number % 2, cpu=str(1 + number % 3))
        elif what == "pop":
            flying += q.queue.pop(3, now)
        elif what == "remove":
            q.queue.remove(key)
            flying = [unit for unit in flying if unit.key != key]
        elif what == "wake":
            q.queue.wake((ClusterEvent.POD_DELETE,), now)
        elif what == "gate" and unit is not None:
            q.queue.gate(unit)
        elif what == "free" and flying:
            unit = flying.pop(0)
            (q.queue.done, q.queue.retry, lambda u, t: q.queue.reject(u, FIT, t), q.queue.fail)[number % 4](unit, now)
        counts = dict.fromkeys(q.queue.counts, 0)
        for unit in q.queue.units.values():
            counts[unit.state] += 1
        assert counts == q.queue.counts
    # Everything that is not gated or in flight comes out sooner or later.
    expected = {u.key for u in q.queue.units.values() if u.state not in ("gated", "inflight")}
    out: set[str] = set()
    for _ in range(20):
        now += 400.0
        out |= {unit.key for unit in q.queue.pop(100, now)}
    assert out == expected


def test_backoff_never_overflows() -> None:
    assert backoff_s(10_000, QueueSettings()) == 10.0
