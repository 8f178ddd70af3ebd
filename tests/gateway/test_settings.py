"""Settings of the gateway that only make sense together are refused at the start, by name."""

import os
import subprocess
import sys

import pytest

from koord.runtime.service import find
from koord.runtime.settings import SettingsError, load_service


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"lease_duration_s": "2", "lease_renew_s": "1"}, "lease_duration_s: 2 must outlast two renewals .* is 1$"),
        ({"lease_duration_s": "4.5"}, "lease_duration_s: 4.5 must be whole seconds"),
        ({"backlog": "10", "concurrency": "11"}, r"backlog: 10 must not be less than concurrency \(11\)"),
        (
            {"foreign_bindings": "claim", "webhook_host": ""},
            "webhook_host: must be named, for foreign_bindings is claim",
        ),
        ({"connections": "0"}, "connections: 0 must be at least 1"),
        ({"api_timeout_s": "0"}, "api_timeout_s: 0 must be above 0"),
        ({"webhook_port": "70000"}, "webhook_port: 70000 is not in"),
        ({"lease_name": ""}, "lease_name: must not be empty"),
        ({"lease_duration_s": "inf"}, r"gateway\.lease_duration_s \(flag\): inf is not a finite number"),
        ({"api_timeout_s": "nan"}, r"gateway\.api_timeout_s \(flag\): nan is not a finite number"),
    ],
)
def test_of_the_gateway(flags: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_service(find("gateway"), env={}, flags={f"gateway.{key}": value for key, value in flags.items()})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"binding_s": "-1"}, "binding_s: -1 must not be negative"),
        ({"scheduler_names": "[mine]"}, r"reconciler\.scheduler_names .*unknown setting"),
    ],
)
def test_of_the_reconciler(flags: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_service(find("reconciler"), env={}, flags={f"reconciler.{key}": value for key, value in flags.items()})


def test_who_schedules_and_who_keeps_the_ledger_have_the_same_names() -> None:
    """One setting for both: what another scheduler nominates counts otherwise than what koord's pods wait for."""
    for service in ("reconciler", "scheduler"):
        common, _ = load_service(find(service), file={"scheduler_names": ["mine", "koord-scheduler"]}, env={})
        assert common.scheduler_names == ("mine", "koord-scheduler")
        with pytest.raises(SettingsError, match="scheduler_names: at least one name"):
            load_service(find(service), env={"KOORD_SCHEDULER_NAMES": "[]"})


def test_the_defaults_are_right() -> None:
    for service in ("gateway", "reconciler", "queue", "quota", "scheduler"):
        load_service(find(service), env={})


def test_the_process_ends_with_two_and_one_line() -> None:
    argv = [sys.executable, "-m", "koord.cli.main", "run", "gateway", "--set", "gateway.lease_renew_s=9"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KOORD_")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "lease_duration_s: 10 must outlast two renewals and 0.5 s, lease_renew_s is 9" in done.stderr
