"""The freeze guard: pure rules with passed time, and the real bus that goes away and comes back."""

import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.bus.connection import Bus
from koord.localcluster.servers import NatsServer
from koord.runtime.freshness import FreezeGuard, Freshness, Reason
from koord.telemetry.metrics import render
from tests.bus.conftest import until

INTERVAL = 60.0


def settled(nodes: int = 10) -> Freshness:
    """All nodes reported at 0, and the first two intervals are over at 120."""
    freshness = Freshness(INTERVAL, -2 * INTERVAL)
    for number in range(nodes):
        freshness.report(f"n{number}", 0.0)
    return freshness


def test_a_fresh_start_is_frozen_for_two_intervals() -> None:
    freshness = Freshness(INTERVAL, 1000.0)
    assert freshness.reason(1000.0) == "recovering"
    assert freshness.reason(1119.9) == "recovering"
    assert freshness.reason(1120.0) == ""


def test_more_than_a_fifth_stale_freezes() -> None:
    freshness = settled()
    now = 121.0
    for number in range(8):
        freshness.report(f"n{number}", 100.0)
    assert freshness.stale_ratio(now) == 0.2
    assert freshness.reason(now) == "", "exactly 20 % is not more than 20 %"
    freshness = settled()
    for number in range(7):
        freshness.report(f"n{number}", 100.0)
    assert freshness.stale_ratio(now) == 0.3
    assert freshness.reason(now) == "stale"
    freshness.report("n8", 125.0)
    assert freshness.reason(130.0) == "", "2 of 10 are stale now"


def test_a_report_is_stale_after_two_intervals() -> None:
    freshness = settled()
    assert freshness.fresh("n1", 120.0) and not freshness.fresh("n1", 120.1)
    assert freshness.reason(120.0) == "" and freshness.reason(126.1) == "stale"


def test_a_missing_value_is_never_fresh() -> None:
    freshness = settled()
    assert not freshness.fresh("nobody", 0.0)
    freshness.forget("n1")
    assert not freshness.fresh("n1", 0.0)


def test_a_node_that_never_reports_counts_once_its_first_report_is_overdue() -> None:
    freshness = Freshness(INTERVAL, -1000.0)
    freshness.known("silent", 0.0)
    assert freshness.reason(120.0) == "" and freshness.reason(130.0) == "stale"
    freshness.known("silent", 130.0)
    assert freshness.reason(140.0) == "stale", "to be known again is no report"


def test_deleted_nodes_do_not_count() -> None:
    freshness = settled()
    assert freshness.reason(130.0) == "stale"
    for number in range(9):
        freshness.forget(f"n{number}")
    freshness.report("n9", 129.0)
    assert freshness.reason(130.0) == "" and len(freshness) == 1
    freshness.forget("n9")
    assert freshness.reason(150.0) == "", "a cluster without nodes has no stale ones"


def test_the_bus_away_freezes_at_once_and_two_intervals_beyond() -> None:
    freshness = settled()
    assert freshness.reason(10.0) == ""
    freshness.bus_lost()
    assert freshness.reason(10.0) == "bus"
    freshness.bus_recovered(100.0)
    assert freshness.reason(100.0) == "recovering"
    for number in range(10):
        freshness.report(f"n{number}", 150.0)
    assert freshness.reason(219.9) == "recovering" and freshness.reason(220.0) == ""
    freshness.bus_lost()
    freshness.bus_recovered(230.0)
    freshness.bus_lost()
    freshness.bus_recovered(300.0)
    assert freshness.reason(419.9) == "recovering", "counted from the last recovery"


def test_an_older_report_changes_nothing() -> None:
    freshness = settled()
    freshness.report("n1", 100.0)
    freshness.report("n1", 50.0)
    assert freshness.fresh("n1", 220.0)


@pytest.mark.parametrize(
    ("interval", "share"), [(0.0, 0.2), (-1.0, 0.2), (float("nan"), 0.2), (60.0, 1.1), (60.0, -0.1)]
)
def test_bad_parameters_are_named(interval: float, share: float) -> None:
    with pytest.raises(ValueError, match=r"interval|share"):
        Freshness(interval, 0.0, share=share)


events = st.lists(
    st.tuples(
        st.sampled_from(("report", "known", "forget", "lost", "recovered", "wait")),
        st.integers(0, 30),
        st.floats(0.0, 50.0),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(events)
def test_equals_a_plain_reference(steps: list[tuple[str, int, float]]) -> None:
    """The same rules written down with a dict, judged without a pause between judgements."""
    now, settled_at, away = 0.0, 2 * INTERVAL, False
    at: dict[str, float] = {}
    freshness = Freshness(INTERVAL, 0.0)
    for kind, number, wait in steps:
        node = f"n{number}"
        now += wait
        if kind == "report":
            freshness.report(node, now)
            at[node] = max(now, at.get(node, now))
        elif kind == "known":
            freshness.known(node, now)
            at.setdefault(node, now)
        elif kind == "forget":
            freshness.forget(node)
            at.pop(node, None)
        elif kind == "lost":
            freshness.bus_lost()
            away = True
        elif kind == "recovered":
            freshness.bus_recovered(now)
            away, settled_at = False, now + 2 * INTERVAL
        freshness._judged_at = float("-inf")
        stale = sum(now - last > 2 * INTERVAL for last in at.values())
        expected = "bus" if away else "recovering" if now < settled_at else "stale" if stale > 0.2 * len(at) else ""
        assert freshness.reason(now) == expected
        assert all(freshness.fresh(name, now) == (now - last <= 2 * INTERVAL) for name, last in at.items())


def test_it_is_ready_for_many_nodes() -> None:
    """10,000 nodes: rows are reused, and judging does not visit nodes one by one."""
    freshness = Freshness(INTERVAL, -1000.0)
    for turn in range(3):
        for number in range(10_000):
            freshness.report(f"{turn}-{number}", float(turn))
        if turn:
            for number in range(10_000):
                freshness.forget(f"{turn - 1}-{number}")
    assert len(freshness) == 10_000 and len(freshness._at) <= 32_768
    assert freshness.reason(100.0) == "" and freshness.reason(200.0) == "stale"
    assert freshness.stale_ratio(200.0) == 1.0


@pytest.fixture
async def bus(own_nats: NatsServer, cluster: str) -> AsyncIterator[Bus]:
    async with await Bus.connect(own_nats.url, cluster, "guard") as bus:
        yield bus


async def test_a_server_that_stops_and_starts_freezes_during_and_two_intervals_after(
    own_nats: NatsServer, bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    ahead = 0.0

    def clock() -> float:
        return time.monotonic() + ahead

    told: list[Reason] = []
    guard = FreezeGuard(bus, 600.0, clock=clock, on_change=told.append)

    def reason() -> str:
        return guard.reason  # a function, for it changes behind the type checker's back

    assert guard.frozen and reason() == "recovering"
    ahead += 1200.0
    guard.reported("n1")
    assert reason() == "" and guard.fresh("n1")
    await own_nats.kill()
    await until(lambda: guard.frozen, timeout=60)
    assert reason() == "bus"
    assert b'koord_frozen{reason="bus"} 1.0' in render() and b'koord_frozen{reason="recovering"} 0.0' in render()
    ahead += 300.0
    assert reason() == "bus"
    await own_nats.restart(empty=False)
    await until(lambda: reason() != "bus", timeout=60)
    assert reason() == "recovering"
    ahead += 1190.0
    assert guard.frozen, "not yet two intervals"
    assert not guard.fresh("n1")
    guard.reported("n1", age_s=5.0)
    ahead += 100.0
    assert reason() == "" and guard.fresh("n1")
    ahead += 1200.0
    assert reason() == "stale", "its one node went silent"
    assert told == ["recovering", "", "bus", "recovering", "", "stale"]
    guard.close()
    assert b'koord_frozen{reason="stale"} 0.0' in render()
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert text.count("[error    ] controllers are frozen") == 3 and text.count("[error    ] controllers go on") == 1
