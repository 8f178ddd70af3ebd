"""``koord up`` whose services do not start: it ends and says so, instead of trying again for ever; killed, all end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from koord.cli.errors import CommandError, UsageProblem
from koord.cli.local import LocalCluster, LocalOptions


async def test_a_service_that_refuses_its_settings_ends_the_start(tmp_path: Path) -> None:
    config = tmp_path / "koord.yaml"
    config.write_text("scheduler:\n  nosuch: 1\n")
    lines: list[str] = []
    cluster = LocalCluster(LocalOptions(nodes=0, services=("scheduler",), config=config), sink=lines.append)
    with pytest.raises(UsageProblem, match="scheduler refuses its settings"):
        async with cluster:
            pytest.fail("it started")
    assert any("[scheduler]" in line and "scheduler.nosuch" in line and "unknown setting" in line for line in lines)
    assert not (cluster.pids.keys() - {"up"}), "nothing is left"


async def test_a_service_that_dies_at_each_start_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "sitecustomize.py"
    site.write_text(
        "import sys\n"
        "if 'run' in sys.orig_argv and 'scheduler' in sys.orig_argv:\n"
        "    print('it broke', flush=True); import os; os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lines: list[str] = []
    cluster = LocalCluster(LocalOptions(nodes=0, services=("scheduler",)), sink=lines.append)
    with pytest.raises(CommandError, match="scheduler ended 5 times while starting, the last time with code 3"):
        async with cluster:
            pytest.fail("it started")
    assert "[scheduler] it broke" in lines


_UP = """
import asyncio
from koord.cli.local import LocalCluster, LocalOptions
async def main():
    async with LocalCluster(LocalOptions(nodes=1, nats_servers=3, services=())) as cluster:
        print(*cluster.pids.values(), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def test_all_that_it_started_ends_with_it() -> None:
    """SIGKILL, so that it can do nothing about it."""
    up = subprocess.Popen([sys.executable, "-c", _UP], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert up.stdout is not None
    pids: list[int] = []
    try:
        pids = [int(word) for word in up.stdout.readline().split()]
        assert len(pids) >= 7
    finally:
        up.send_signal(signal.SIGKILL)
        up.wait()
        up.stdout.close()
    deadline = time.monotonic() + 60
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


_RUNNER = """
import subprocess, sys, time
up = subprocess.Popen([sys.executable, "-m", "koord.cli.main", "up", "--with-parent", "--nodes", "1", *sys.argv[1:]])
print(up.pid, flush=True)
up.wait()
"""


def test_it_ends_with_its_parent_if_asked_to(tmp_path: Path) -> None:
    """SIGKILL of whoever started it, as of a test runner: all processes end, and tidily."""
    ready, log = tmp_path / "ready.json", tmp_path / "up.log"
    with log.open("wb") as file:
        runner = subprocess.Popen(
            [sys.executable, "-c", _RUNNER, "--ready-file", str(ready)], stdout=subprocess.PIPE, stderr=file, text=True
        )
    pids: list[int] = []
    try:
        assert runner.stdout is not None
        pids = [int(runner.stdout.readline())]
        deadline = time.monotonic() + 120
        while not ready.exists():
            assert runner.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)
        pids += json.loads(ready.read_text())["pids"].values()
        assert len(pids) >= 8
    finally:
        runner.kill()
        runner.wait()
        assert runner.stdout is not None
        runner.stdout.close()
    deadline = time.monotonic() + 60
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < deadline, (left, log.read_text()[-3000:])
        time.sleep(0.05)
    assert not ready.exists(), "it ended tidily"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z" and pid != os.getpid()
    except OSError:
        return False
