"""Nobody waits while little comes; under load the wait is what brings about the company asked for."""

import pytest

from koord.runtime.gathering import Gathering


def after(rate: float, seconds: float = 1.0, company: int = 8, most_s: float = 0.02) -> tuple[Gathering, float]:
    """What came one by one at ``rate`` a second, and when the last did."""
    gathering = Gathering(company, most_s)
    now = 1000.0
    for _ in range(int(rate * seconds)):
        now += 1 / rate
        gathering.came(1, now)
    return gathering, now


def test_nobody_waits_for_the_first() -> None:
    gathering = Gathering(8, 0.02)
    assert gathering.pause_s(1000.0) == 0.0
    gathering.came(1, 1000.0)
    assert gathering.pause_s(1000.0) == 0.0


@pytest.mark.parametrize("rate", [10, 100, 200, 350])
def test_nobody_waits_below_what_brings_company_in_time(rate: float) -> None:
    gathering, now = after(rate)
    assert gathering.pause_s(now) == 0.0


@pytest.mark.parametrize("rate", [500, 1000, 5000])
def test_the_pause_brings_company_and_gets_shorter_the_more_comes(rate: float) -> None:
    gathering, now = after(rate)
    assert gathering.pause_s(now) == pytest.approx(8 / rate, rel=0.05)


def test_no_pause_is_longer_than_the_most() -> None:
    for rate in range(380, 600, 5):
        gathering, now = after(rate)
        assert gathering.pause_s(now) <= 0.02


def test_a_load_that_is_over_is_forgotten() -> None:
    gathering, now = after(1000)
    assert gathering.pause_s(now) > 0.0
    assert gathering.pause_s(now + 0.2) == 0.0
    gathering.came(1, now + 60.0)
    assert gathering.pause_s(now + 60.0) == 0.0
