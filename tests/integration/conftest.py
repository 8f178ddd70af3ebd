"""A running cluster for tests: ``koord up`` as a process, found and used as users do.

By default on the embedded API. With ``CONFORMANCE=real`` (``make test-real``) each cluster is a real control
plane of its own, with the controller manager's Job controller, fake nodes that are driven over its API, and stand-ins
for the other kinds of jobs; what a test makes is the same.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from koord.localcluster.controlplane.plane import ControlPlane
from tests.realcluster.fixtures import binaries_or_skip

T = TypeVar("T")

REAL = os.environ.get("CONFORMANCE") == "real"
"""Whether clusters have a real API server."""
KOORD = (sys.executable, "-m", "koord.cli.main")
MANIFESTS = Path(__file__).parent / "manifests"


class Up:
    """A cluster started by ``koord up`` and the clients to talk to it."""

    def __init__(self, directory: Path, *arguments: str, plane: ControlPlane | None = None) -> None:
        self.plane = plane
        self._own_plane = REAL and plane is None and "--kubeconfig" not in arguments
        if self._own_plane:
            self.plane = start_plane()
        if self.plane is not None:
            arguments = (*on_plane(self.plane), *arguments)
        self.ready_file = directory / "ready.json"
        self.kubeconfig = directory / "kubeconfig"
        self.log = directory / "up.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *KOORD,
                    "up",
                    "--with-parent",
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
        try:
            self.wait(self.ready_file.exists, "the cluster is ready", 400)
        except BaseException:
            self.stop()
            raise

    @property
    def ready(self) -> dict[str, Any]:
        """The ready file as it is now."""
        loaded: dict[str, Any] = json.loads(self.ready_file.read_text())
        return loaded

    def koord(self, *arguments: str, code: int = 0, timeout: float = 240) -> str:
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
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=240, check=False)
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
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)
            raise
        finally:
            if self._own_plane and self.plane is not None:
                run_alone(self.plane.stop())


def run_alone(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own, in this thread: children end with the thread that started them."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def start_plane() -> ControlPlane:
    """A real control plane with a controller manager; whoever starts it stops it."""
    plane = ControlPlane(binaries_or_skip())

    async def start() -> None:
        await plane.start()
        await plane.start_controller_manager()

    try:
        run_alone(start())
    except BaseException:
        run_alone(plane.stop())
        raise
    return plane


def on_plane(plane: ControlPlane) -> tuple[str, ...]:
    """What ``koord up`` is told to run on a control plane as it does on its own API, both names served."""
    names = ("--scheduler-name", "koord-scheduler", "--scheduler-name", "default-scheduler")
    return ("--kubeconfig", str(plane.kubeconfig), "--install-crds", *names)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A control plane on the same cores takes its part of them."""
    if REAL:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One cluster for all tests of a worker that share nothing but the cluster."""
    started = Up(tmp_path_factory.mktemp("up"), "--nodes", "40", "--gpu-nodes", "8")
    yield started
    started.stop()


@pytest.fixture
def own_up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Makes clusters for one test alone; on a real control plane all of them are on the same."""
    made: list[Up] = []
    plane = start_plane() if REAL else None

    def make(*arguments: str) -> Up:
        made.append(Up(tmp_path, *arguments, plane=plane))
        return made[-1]

    yield make
    try:
        for cluster in made:
            cluster.stop()
    finally:
        if plane is not None:
            run_alone(plane.stop())
