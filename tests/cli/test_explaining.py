"""What ``koord explain pod`` prints of a pod that waits."""

import pytest

from koord.cli.commands.explain import _print
from koord.cli.wakewords import spoken
from koord.contracts.asks import NearNode, NodeReason, PodExplanation
from koord.scheduler.framework.events import ClusterEvent


def test_a_pod_that_waits(capsys: pytest.CaptureFixture[str]) -> None:
    answer = PodExplanation(
        "ml",
        "big",
        "unschedulable",
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
        "waiting for 61 s, refused by NodeResourcesFit; tried again in 4 s at the earliest, "
        "when a pod leaves its node; a node comes" in out
    )
    assert "tried 3 times; 0 of 9 nodes would do now" in out
    assert "n7" in out
    assert "cpu 1500m" in out


def test_an_older_scheduler_says_less(capsys: pytest.CaptureFixture[str]) -> None:
    _print(PodExplanation("ml", "big", "unschedulable", message="no"))
    out = capsys.readouterr().out
    assert "NEAREST" not in out
    assert "waiting for" not in out


@pytest.mark.parametrize(
    ("state", "backoff_s", "says"),
    [
        ("active", 0.0, "waiting for 61 s, refused by NodeName; its turn comes next"),
        ("backoff", 7.6, "waiting for 61 s, refused by NodeName; tried again in 8 s"),
        ("backoff", 0.1, "waiting for 61 s, refused by NodeName; tried again now"),
        ("unschedulable", 0.0, "waiting for 61 s, refused by NodeName; tried again when a node comes"),
    ],
)
def test_when_it_is_tried_again(capsys: pytest.CaptureFixture[str], state: str, backoff_s: float, says: str) -> None:
    _print(
        PodExplanation(
            "ml", "p", state, waiting_s=61.2, backoff_s=backoff_s, rejected_by=["NodeName"], wakes_on=["NodeAdd"]
        )
    )
    assert says in capsys.readouterr().out.splitlines()


def test_events_in_words() -> None:
    assert spoken(["NodeAdd", "NodeUpdateNodeTaint", "NodeUpdateNodeLabel", "AssignedPodDelete"]) == (
        "a node comes, gets other taints or gets other labels; a pod leaves its node"
    )
    assert spoken(["PersistentVolumeClaimAdd", "PersistentVolumeClaimUpdate"]) == (
        "a PersistentVolumeClaim comes or changes"
    )
    assert spoken(["nodemetrics.v1alpha1.slo.koordinator.shUpdate"]) == "a NodeMetric changes"
    assert spoken(["SomethingNew"]) == "SomethingNew"


@pytest.mark.parametrize("event", list(ClusterEvent))
def test_every_event_has_words(event: ClusterEvent) -> None:
    assert event.value not in spoken([event.value])
