"""``koord up --replicas``: what may be said, how the processes are named, and what is refused."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.cli.errors import UsageProblem
from koord.cli.replicas import MOST, SERVICES, parse, slots
from koord.cli.settings import local_settings

ALL = dict.fromkeys(SERVICES, 2)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (2, ALL),
        ("2", ALL),
        ("gateway=2,scheduler=3", {"gateway": 2, "scheduler": 3}),
        (" gateway = 2 , queue=1", {"gateway": 2, "queue": 1}),
        ("2,scheduler=1", ALL | {"scheduler": 1}),
        ("scheduler=1,2", ALL | {"scheduler": 1}),
        ({"quota": 4}, {"quota": 4}),
    ],
)
def test_what_may_be_said(said: int | str | dict[str, int], wanted: dict[str, int]) -> None:
    assert parse(said, SERVICES) == wanted


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (0, "'0': the number of replicas"),
        ("", "'': the number of replicas"),
        ("two", "'two': the number of replicas"),
        ("gateway=", "'gateway=': the number of replicas"),
        ("gateway=0", "'gateway=0': the number of replicas"),
        ("gateway=-1", "'gateway=-1': the number of replicas"),
        (f"queue={MOST + 1}", f"must be a whole number from 1 to {MOST}"),
        ("gatewy=2", "'gatewy': no service that is run here; there are: gateway, reconciler"),
        ("gateway=2,gateway=3", "'gateway=3': gateway is named twice"),
        ("2,queue=1,3", "'3': there is a number for every service already"),
        ({"gateway": 0}, "'gateway=0': the number of replicas"),
    ],
)
def test_what_is_refused(said: int | str | dict[str, int], named: str) -> None:
    with pytest.raises(ValueError) as error:
        parse(said, SERVICES)
    assert named in str(error.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(said: str) -> None:
    try:
        found = parse(said, SERVICES)
    except ValueError:
        return
    assert set(found) <= set(SERVICES) and all(1 <= count <= MOST for count in found.values())


def test_one_replica_keeps_its_services_name() -> None:
    replicas = {"gateway": 2, "queue": 1}
    assert [slots(service, replicas) for service in ("gateway", "queue", "quota")] == [
        ["gateway-1", "gateway-2"],
        ["queue"],
        ["quota"],
    ]


def test_the_setting_in_file_environment_and_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("local: {replicas: {gateway: 2}}\n")
    assert local_settings(file, None).processes() == {"gateway": 2}
    monkeypatch.setenv("KOORD_LOCAL__REPLICAS", "gateway=3")
    assert local_settings(file, None).processes() == {"gateway": 3}
    assert local_settings(file, None, "scheduler=2").processes() == {"scheduler": 2}
    file.write_text("local: {replicas: {gateway: many}}\n")
    monkeypatch.delenv("KOORD_LOCAL__REPLICAS")
    with pytest.raises(UsageProblem, match=r"local\.replicas"):
        local_settings(file, None)


@pytest.mark.parametrize("name", ["up", "demo"])
def test_bad_replicas_are_wrong_usage(name: str) -> None:
    command = [sys.executable, "-m", "koord.cli.main", name, "--replicas", "gatewy=2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert "replicas: 'gatewy': no service that is run here" in done.stderr
