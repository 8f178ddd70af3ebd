"""A running cluster for tests: ``koord up`` as a process, found and used as users do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

KOORD = (sys.executable, "-m", "koord.cli.main")
MANIFESTS = Path(__file__).parent / "manifests"


class Up:
    """A cluster started by ``koord up`` and the clients to talk to it."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.ready_file = directory / "ready.json"
        self.kubeconfig = directory / "kubeconfig"
        self.log = directory / "up.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *KOORD,
                    "up",
                    "--ready-file",
                    str(self.ready_file),
                    "--kubeconfig-out",
                    str(self.kubeconfig),
                    *arguments,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.wait(self.ready_file.exists, "the cluster is ready", 90)

    @property
    def ready(self) -> dict[str, Any]:
        """The ready file as it is now."""
        loaded: dict[str, Any] = json.loads(self.ready_file.read_text())
        return loaded

    def koord(self, *arguments: str, code: int = 0, timeout: float = 120) -> str:
        """Run a command of the CLI on this cluster; its standard output."""
        environment = os.environ | {"KOORD_CLUSTER": str(self.ready_file), "COLUMNS": "250"}
        done = subprocess.run(
            [*KOORD, *arguments], capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )
        assert done.returncode == code, f"koord {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def kubectl(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run the pinned kubectl; its standard output."""
        command = [str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == code, f"kubectl {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        """``kubectl get ... -o json`` as a list."""
        loaded = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        items: list[dict[str, Any]] = loaded.get("items", [loaded])
        return items

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
        """Poll until ``condition`` is true; its value. On failure the end of the cluster's log is shown."""
        deadline = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            assert self.process.poll() is None, f"koord up ended while waiting until {what}\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"not in {seconds} s: {what}\n{self.log_tail()}"
            time.sleep(0.05)

    def log_tail(self) -> str:
        """The end of what the cluster printed."""
        return self.log.read_text(errors="replace")[-6000:]

    def kill(self, name: str) -> None:
        """SIGKILL one process of the cluster."""
        os.kill(self.ready["pids"][name], signal.SIGKILL)

    def stop(self) -> None:
        """Interrupt, and kill what does not end."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One cluster for all tests of a worker that share nothing but the cluster."""
    started = Up(tmp_path_factory.mktemp("up"), "--nodes", "40", "--gpu-nodes", "8")
    yield started
    started.stop()


@pytest.fixture
def own_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Makes clusters for one test alone."""
    made: list[Up] = []

    def make(*arguments: str) -> Up:
        made.append(Up(tmp_path, *arguments))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()
