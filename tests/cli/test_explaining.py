"""What ``koord explain pod`` prints of a pod that waits."""

import pytest

from koord.cli.commands.explain import _print
from koord.contracts.asks import NearNode, NodeReason, PodExplanation


def test_a_pod_that_waits(capsys: pytest.CaptureFixture[str]) -> None:
    answer = PodExplanation(
        "ml",
        "big",
        "backoff",
        message="0/9 nodes are available: 9 Insufficient cpu.",
        attempts=3,
        total_nodes=9,
        reasons=[NodeReason("NodeResourcesFit", "Insufficient cpu", 9)],
        waiting_s=61.2,
        backoff_s=4.1,
        rejected_by=["NodeResourcesFit"],
        wakes_on=["AssignedPodDelete", "NodeAdd"],
        nearest=[NearNode("n7", ["Insufficient cpu"], {"cpu": 1500, "memory": 1 << 30})],
    )
    _print(answer)
    out = capsys.readouterr().out
    assert (
        "waits since 61 s, refused by NodeResourcesFit; tried again in 4 s at the earliest, "
        "after AssignedPodDelete, NodeAdd" in out
    )
    assert "n7" in out
    assert "cpu 1500m" in out


def test_an_older_scheduler_says_less(capsys: pytest.CaptureFixture[str]) -> None:
    _print(PodExplanation("ml", "big", "unschedulable", message="no"))
    out = capsys.readouterr().out
    assert "NEAREST" not in out
    assert "waits since" not in out
