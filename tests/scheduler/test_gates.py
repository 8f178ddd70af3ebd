"""Feature gates by name: what is known, what they turn on, what is refused."""

import pytest

from koord.scheduler.config.switches import GATES
from koord.scheduler.gates import read_gates
from koord.scheduler.settings import SchedulerSettings
from koord.scheduler.transformers.pods import PodGates


def test_without_any_all_are_as_the_original_has_them() -> None:
    gates = read_gates({})
    assert gates.on == {gate.name for gate in GATES if gate.default}
    assert not gates.inline_batch
    assert not gates.resize_pod
    assert gates.transformers(PodGates()) == PodGates()
    assert not gates.notes


def test_what_they_turn_on() -> None:
    gates = read_gates({"EnableInlineBatchSchedule": True, "ResizePod": True, "PriorityTransformer": True})
    assert gates.inline_batch
    assert gates.resize_pod
    assert gates.transformers(PodGates(replace_resources=True)) == PodGates(replace_resources=True, priority=True)
    assert not gates.notes


def test_what_changes_nothing_is_noted() -> None:
    gates = read_gates({"SyncBarrier": True, "LazyReservationRestore": False})
    assert gates.notes == ("feature_gates.SyncBarrier: has no effect: the gateway has a barrier of its own, always on",)


def test_unknown_gates_are_named() -> None:
    with pytest.raises(ValueError, match=r"feature_gates.NoSuchGate: unknown feature gate; known: ") as failed:
        SchedulerSettings(feature_gates={"NoSuchGate": False, "Other": True})
    assert "feature_gates.Other: unknown feature gate" in str(failed.value)


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"feature_gates.SkipReservationFitsNode: not there in koord"):
        read_gates({"SkipReservationFitsNode": True})
    assert read_gates({"SkipReservationFitsNode": False})
