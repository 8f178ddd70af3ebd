"""Flags and feature gates (spec 10 section 2.3)."""

import msgspec
import pytest

from koord.runtime.settings import HttpSettings
from koord.scheduler.config.errors import ConfigError
from koord.scheduler.config.flags import FLAGS
from koord.scheduler.config.switches import GATES, read_switches
from koord.scheduler.settings import SchedulerSettings


def failed(*arguments: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read_switches(arguments)
    return [str(problem) for problem in error.value.problems]


def test_defaults() -> None:
    found = read_switches([])
    assert found.flags["scheduling-timeout"] == 30
    assert found.flags["pod-max-in-unschedulable-pods-duration"] == 300
    assert found.flags["sync-hard-timeout"] == 60
    assert found.gates["DynamicSchedulerCheck"]
    assert not found.gates["ResizePod"]
    assert found.warnings == ()


def test_the_charts_command_line_is_taken() -> None:
    found = read_switches(
        [
            "--port=10251",
            "--authentication-skip-lookup=true",
            "--v=4",
            "--feature-gates=",
            "--config=/config/koord-scheduler.config",
            "--enable-network-topology-manager=true",
        ]
    )
    assert found.flags["config"] == "/config/koord-scheduler.config"
    assert found.warnings == (
        "--authentication-skip-lookup: has no effect: koord serves plain HTTP; who needs more puts a proxy before it",
        "-v: has no effect: koord has the setting log.level",
        "--enable-network-topology-manager: has no effect: not there yet; the chart sets it",
    )


def test_values_may_follow_and_names_may_be_short() -> None:
    found = read_switches(["-v", "3", "--pod-max-in-unschedulable-pods-duration", "1m", "--async-log"])
    assert (found.flags["v"], found.flags["pod-max-in-unschedulable-pods-duration"]) == (3, 60)
    assert found.flags["async-log"] is True


def test_what_is_not_there_is_an_error_unless_it_is_the_default() -> None:
    assert read_switches(["--feature-gates=SkipReservationFitsNode=false"]).warnings == ()
    assert failed("--feature-gates=SkipReservationFitsNode=true,SyncBarrier=true") == [
        "--feature-gates: SkipReservationFitsNode: not there in koord: there are no reservations yet",
    ]


def test_what_koord_has_too_comes_to_settings() -> None:
    found = read_switches(
        [
            *("--config=/scheduler.yaml", "--port=10251", "--address", "127.0.0.1", "-s=3", "-f", "--debug-diagnosis"),
            *("--scheduling-timeout=1m", "--pod-max-in-unschedulable-pods-duration=2m", "--enable-workload-auditor"),
            *("--workload-auditor-metric-labels=team=example.com/team, app=app", "--leader-elect=false"),
            "--feature-gates=EnableInlineBatchSchedule=true,SyncBarrier=true,KubeletThing=true",
        ]
    )
    assert found.settings["http"] == {"port": 10251, "host": "127.0.0.1"}
    assert found.settings["scheduler"] == {
        "config": "/scheduler.yaml",
        "debug": {"scores": 3, "filters": True, "diagnosis": True},
        "monitor": {"timeout_s": 60.0},
        "queue": {"flush_after_s": 120.0},
        "auditor": {"enabled": True, "metric_labels": {"team": "example.com/team", "app": "app"}},
        "feature_gates": {"EnableInlineBatchSchedule": True},
    }
    assert [warning.partition(":")[0] for warning in found.warnings] == [
        "--leader-elect",
        "--feature-gates",
        "--feature-gates",
    ]


def test_every_setting_that_a_flag_or_gate_comes_to_is_one() -> None:
    texts = {"text": "x", "whole": "7", "number": "1.5", "bool": "true", "duration": "3s", "pairs": "a=b"}
    gates = ",".join(f"{gate.name}={not gate.default}" for gate in GATES if gate.support == "honoured")
    flags = [f"--{flag.name}={texts[flag.kind]}" for flag in FLAGS if flag.setting]
    found = read_switches([*flags, f"--feature-gates={gates}"]).settings
    msgspec.convert(found["scheduler"], SchedulerSettings)
    msgspec.convert(found["http"], HttpSettings)
    assert set(found) == {"scheduler", "http"}


def test_gates() -> None:
    found = read_switches(["--feature-gates", "SyncBarrier=true, DynamicSchedulerCheck=false,KubeletThing=true"])
    assert found.gates["SyncBarrier"]
    assert not found.gates["DynamicSchedulerCheck"]
    assert found.warnings == (
        "--feature-gates: SyncBarrier: has no effect: the gateway has a barrier of its own, always on",
        "--feature-gates: DynamicSchedulerCheck: has no effect: a Binding's preconditions make the API server check",
        "--feature-gates: KubeletThing: unknown to koord, has no effect",
    )


def test_bad_values() -> None:
    assert failed(
        "--port=x",
        "--async-log=maybe",
        "--scheduling-timeout=5",
        "--what",
        "word",
        "--feature-gates=A",
        "--kube-api-qps=fast",
        "--workload-auditor-metric-labels=a",
    ) == [
        '--port: Invalid value: "x": must be a whole number',
        '--async-log: Invalid value: "maybe": must be true or false',
        '--scheduling-timeout: Invalid value: "5": duration "5": "5" must be a number and one of ns us ms s m h',
        "--what: unknown flag",
        'Invalid value: "word": must be a flag',
        '--feature-gates: A: Invalid value: "": must be true or false, as in Name=true',
        '--kube-api-qps: Invalid value: "fast": must be a number',
        '--workload-auditor-metric-labels: Invalid value: "a": must be name=value, with commas between',
    ]


def test_names_are_unique() -> None:
    names = [flag.name for flag in FLAGS] + [flag.short for flag in FLAGS if flag.short and flag.short != flag.name]
    assert len(names) == len(set(names))
    gates = [gate.name for gate in GATES]
    assert len(gates) == len(set(gates))
