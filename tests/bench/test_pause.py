"""Which pods a fault's pause is made of."""

import time
from typing import NamedTuple

import pytest

from koord.cli.benchmarks.faults import FAULTS, parse
from koord.cli.benchmarks.recovery import pause_of


class Seen(NamedTuple):
    """What was seen, in seconds."""

    waits: dict[str, tuple[float, float]]
    waiting: dict[str, float]
    bound_at: list[float]


WAITS = {
    "long before": (90.0, 90.1),
    "waited at the kill": (95.0, 101.0),
    "just before": (99.5, 99.6),
    "in the pause": (101.0, 104.0),
    "at the end": (105.0, 105.1),
    "after it was level": (106.5, 106.6),
}


def test_pods_around_the_kill_until_level() -> None:
    pause = pause_of(Seen(WAITS, {}, [99.6, 101.0, 104.0, 105.1, 106.6]), killed=100.0, level=106.0)
    assert {key: round(wait, 6) for wait, key in pause.waits} == {
        "waited at the kill": 6.0,
        "in the pause": 3.0,
        "just before": 0.1,
        "at the end": 0.1,
    }
    assert pause.waits[0][1] == "waited at the kill"
    assert pause.level_s == 6.0


def test_the_gap_is_the_longest_time_without_a_binding() -> None:
    pause = pause_of(Seen({}, {}, [98.0, 99.6, 101.0, 104.0, 105.1, 106.6]), killed=100.0, level=106.0)
    assert pause.gap_s == pytest.approx(3.0)
    assert pause.gap_at_s == pytest.approx(1.0)


def test_no_binding_at_all_is_a_gap_of_everything() -> None:
    pause = pause_of(Seen({}, {}, []), killed=100.0, level=160.0)
    assert (pause.gap_s, pause.gap_at_s) == (61.0, -1.0)


def test_who_still_waits_has_waited_until_now() -> None:
    now = time.monotonic()
    pause = pause_of(Seen({}, {"stuck": now - 70.0, "later": now + 1.0}, []), killed=now - 60.0, level=now)
    [(wait, key)] = pause.waits
    assert key == "stuck"
    assert wait == pytest.approx(70.0, abs=5.0)


def test_faults_by_name() -> None:
    assert [fault.kind for fault in parse("redis, gateway")] == ["redis", "gateway"]
    assert {fault.kind: fault.limit_s for fault in FAULTS.values() if fault.limit_s} == {
        "gateway": 5.0,
        "scheduler": 5.0,
        "nats": 3.0,
        "redis": 15.0,
    }
    with pytest.raises(ValueError, match="'moon' is unknown"):
        parse("moon")
    with pytest.raises(ValueError, match="none named"):
        parse(" ,")
