"""Lanes: strict priority, one at a time per object, never more than the limit."""

from hypothesis import given
from hypothesis import strategies as st

from koord.gateway.lanes import BIND, CROWD, EVENT, STATUS, Key, Lanes, Work, shares


def key(name: str) -> Key:
    return ("pods_core", "default", name)


class Recorder:
    """Starts work by noting it; the test ends it."""

    def __init__(self, limit: int) -> None:
        self.lanes = Lanes(limit)
        self.started: list[Work] = []
        self.running: list[Work] = []

    def work(self, lane: int, *names: str) -> Work:
        return Work(lane, [key(name) for name in names], self._start)

    def _start(self, work: Work) -> None:
        self.started.append(work)
        self.running.append(work)

    def end(self, work: Work) -> None:
        self.running.remove(work)
        self.lanes.done(work)


def test_bind_goes_before_status_before_event() -> None:
    recorder = Recorder(1)
    first = recorder.work(STATUS, "first")
    event, status, bind = (recorder.work(lane, f"p{lane}") for lane in (EVENT, STATUS, BIND))
    for work in (first, event, status, bind):
        recorder.lanes.submit(work)
    assert recorder.lanes.depth(BIND) == 1
    for work in (first, bind, status, event):
        assert recorder.running == [work]
        recorder.end(work)
    assert recorder.lanes.total == 0


def test_it_is_crowded_when_more_waits_or_runs_than_a_server_that_keeps_up_leaves() -> None:
    recorder = Recorder(CROWD // 2)
    pieces = [recorder.work(BIND, f"p{number}") for number in range(CROWD + 1)]
    for work in pieces[:CROWD]:
        recorder.lanes.submit(work)
    assert (recorder.lanes.running, recorder.lanes.crowded) == (CROWD // 2, False)
    recorder.lanes.submit(pieces[CROWD])
    assert recorder.lanes.crowded
    recorder.end(recorder.running[0])
    assert not recorder.lanes.crowded


def test_one_object_is_served_in_order_whatever_the_lane() -> None:
    recorder = Recorder(8)
    status, bind = recorder.work(STATUS, "a"), recorder.work(BIND, "a")
    gang = recorder.work(BIND, "b", "a", "c")
    after = recorder.work(BIND, "c")
    for work in (status, bind, gang, after):
        recorder.lanes.submit(work)
    assert recorder.running == [status]
    recorder.end(status)
    assert recorder.running == [bind]
    recorder.end(bind)
    assert recorder.running == [gang]
    recorder.end(gang)
    assert recorder.running == [after]


def test_what_stands_before_urgent_work_becomes_urgent() -> None:
    recorder = Recorder(1)
    running, status, other, bind, later = (
        recorder.work(STATUS, "x"),
        recorder.work(STATUS, "a"),
        recorder.work(BIND, "b"),
        recorder.work(BIND, "a"),
        recorder.work(STATUS, "c"),
    )
    for work in (running, later, status, other, bind):
        recorder.lanes.submit(work)
    for work in (running, other, status, bind, later):
        assert recorder.running == [work]
        recorder.end(work)
    assert (recorder.lanes.total, recorder.lanes.depth(BIND), recorder.lanes.depth(STATUS)) == (0, 0, 0)


def test_an_object_named_twice_by_one_decision_does_not_wait_for_itself() -> None:
    recorder = Recorder(8)
    work = recorder.work(BIND, "a", "a")
    recorder.lanes.submit(work)
    assert recorder.running == [work]
    recorder.end(work)
    assert recorder.lanes.total == 0


def test_less_urgent_work_never_has_all_places() -> None:
    """Work that a throttled server puts off keeps its place for seconds: a bind must not wait for it."""
    recorder = Recorder(8)
    for number in range(10):
        recorder.lanes.submit(recorder.work(EVENT, f"e{number}"))
    assert len(recorder.running) == 2
    for number in range(10):
        recorder.lanes.submit(recorder.work(STATUS, f"s{number}"))
    assert [work.lane for work in recorder.running] == [EVENT] * 2 + [STATUS] * 4
    for number in range(3):
        recorder.lanes.submit(recorder.work(BIND, f"b{number}"))
    assert [work.lane for work in recorder.running][-2:] == [BIND] * 2
    assert recorder.lanes.depth(BIND) == 1
    while recorder.running:
        recorder.end(recorder.running[0])
    assert (recorder.lanes.total, len(recorder.started)) == (0, 23)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 4), min_size=1, max_size=3)), min_size=1, max_size=40
    ),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_whatever_comes_everything_runs_once_alone_on_its_objects_and_in_order(
    plan: list[tuple[int, list[int]]], limit: int, random: object
) -> None:
    recorder = Recorder(limit)
    works = [recorder.work(lane, *(f"o{name}" for name in names)) for lane, names in plan]
    choose = getattr(random, "randrange")  # noqa: B009
    waiting = list(works)
    while waiting or recorder.running:
        if waiting and (not recorder.running or choose(2)):
            recorder.lanes.submit(waiting.pop(0))
        elif recorder.running:
            recorder.end(recorder.running[choose(len(recorder.running))])
        for lane, share in enumerate(shares(limit)):
            assert sum(work.lane >= lane for work in recorder.running) <= share
        held = [key for work in recorder.running for key in work.keys]
        assert len(held) == len(set(held))
    assert [recorder.lanes.depth(lane) for lane in (BIND, STATUS, EVENT)] == [0, 0, 0]
    assert sorted(map(id, recorder.started)) == sorted(map(id, works))
    for name in range(5):
        mine = [work for work in works if key(f"o{name}") in work.keys]
        assert [work for work in recorder.started if work in mine] == mine
