"""What counts as growth: a slope that noise, spikes and a saw-tooth do not make."""

import os
import random
import subprocess
import sys
import time

import pytest

from koord.cli.benchmarks.weighing import Growth, Sample, growth, pss_mib, theil_sen, weigh

CHANCE = random.Random(3)


@pytest.mark.parametrize("slope", [0.0, 2.5, -1.0])
def test_the_slope_of_a_noisy_line_with_spikes(slope: float) -> None:
    points = [(float(x), 100 + slope * x + CHANCE.uniform(-1, 1)) for x in range(90)]
    points = [(x, y + 500) if x % 10 == 3 else (x, y) for x, y in points]
    assert theil_sen(points) == pytest.approx(slope, abs=0.1)


def test_a_saw_tooth_does_not_grow() -> None:
    """As a garbage collector's heap: up 20 MiB over ten samples, and down again."""
    samples = [Sample(10.0 * n, {"nats": 50 + 2.0 * (n % 10)}) for n in range(90)]
    assert not growth(samples)["nats"].grows


@pytest.mark.parametrize(
    ("mib", "gain_per_h", "grows"),
    [(100, 15.9, False), (100, 16.1, True), (1000, 99, False), (1000, 101, True), (100, -50, False)],
)
def test_the_limits_of_growth(mib: float, gain_per_h: float, grows: bool) -> None:
    """More than 8 MiB and more than 5 % in half an hour."""
    assert Growth(mib, gain_per_h).grows is grows


def test_every_process_and_all_together() -> None:
    samples = [Sample(60.0 * n, {"a": 10.0 + n, "b": 20.0} | ({"new": 1.0} if n > 3 else {})) for n in range(8)]
    found = growth(samples)
    assert set(found) == {"a", "b", "all"}
    assert found["a"].mib_per_h == pytest.approx(60)
    assert found["b"] == Growth(20.0, 0.0)
    assert found["all"].grows


def test_processes_are_weighed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "x = b'x' * (50 << 20); input()"], stdin=subprocess.PIPE)
    try:
        before, own, deadline = 0.0, pss_mib(os.getpid()), time.monotonic() + 60
        while (size := pss_mib(child.pid) or 0.0) < 50 and time.monotonic() < deadline:
            before = size
        assert own is not None and own > 5
        assert before < 50 <= size < 120
        assert set(weigh({"child": child.pid, "gone": 2**22 + 1}, 0.0).mib) == {"child"}
    finally:
        child.communicate(b"\n")
