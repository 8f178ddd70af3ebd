"""The timer wheel against a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from koord.localcluster.wheel import TimerWheel

TIMES = st.floats(min_value=0, max_value=100, allow_nan=False)


@given(st.lists(TIMES, max_size=50), st.lists(TIMES, max_size=20))
def test_nothing_is_early_late_lost_or_twice(dues: list[float], looks: list[float]) -> None:
    wheel: TimerWheel[int] = TimerWheel(0.02)
    for item, due in enumerate(dues):
        wheel.add(due, item)
    taken: list[int] = []
    for now in [*sorted(looks), 200.0]:
        batch = wheel.pop_due(now)
        assert all(dues[item] <= now + 1e-9 for item in batch), "early"
        taken.extend(batch)
        assert all(item in taken for item, due in enumerate(dues) if due <= now - 0.021), "late"
    assert sorted(taken) == list(range(len(dues)))
    assert wheel.next_due() is None


@given(st.lists(TIMES, min_size=1, max_size=50))
def test_who_sleeps_until_next_due_finds_something(dues: list[float]) -> None:
    wheel: TimerWheel[float] = TimerWheel()
    for due in dues:
        wheel.add(due, due)
    while (next_s := wheel.next_due()) is not None:
        assert wheel.pop_due(next_s)


def test_items_of_a_tick_come_in_the_order_they_were_added() -> None:
    wheel: TimerWheel[str] = TimerWheel(1.0)
    wheel.add(0.9, "a")
    wheel.add(0.1, "b")
    wheel.add(1.5, "c")
    assert wheel.pop_due(1.0) == ["a", "b"]
    assert wheel.pop_due(2.0) == ["c"]
