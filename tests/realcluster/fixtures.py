"""Real control planes for tests: one per test process that is shared, and ones of a test's own.

Registered for all areas by `tests/conftest.py`. A test that takes one of these is skipped, with one line that says what
is missing, when there are no binaries; under `make test-real` it fails.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
import yaml

from koord.localcluster.controlplane.kubeconfigs import impersonation
from koord.localcluster.controlplane.plane import ControlPlane
from tests.realcluster import binaries

T = TypeVar("T")


class RealCluster(Protocol):
    """What tests may ask of a cluster that they share."""

    @property
    def url(self) -> str:
        """Where its API is."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of this user, who has no rights but those that roles give."""


class RunningCluster:
    """A cluster that somebody else runs; the administrator acts as other users by impersonation."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self._folder = folder
        self._content: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
        contexts = {entry["name"]: entry["context"] for entry in self._content["contexts"]}
        self._context: dict[str, Any] = contexts[self._content["current-context"]]

    @property
    def url(self) -> str:
        """Where its API is."""
        clusters = {entry["name"]: entry["cluster"] for entry in self._content["clusters"]}
        return str(clusters[self._context["cluster"]]["server"])

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """The administrator acting as this user."""
        users = [
            {**entry, "user": impersonation(entry["user"], user, groups)}
            if entry["name"] == self._context["user"]
            else entry
            for entry in self._content["users"]
        ]
        path = self._folder / f"kubeconfig-{len(list(self._folder.iterdir()))}"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump({**self._content, "users": users}))
        return path


MakeControlPlane = Callable[..., Awaitable[ControlPlane]]


def binaries_or_skip() -> Path:
    """The folder of binaries; ends the test with one line when it is not there."""
    try:
        return binaries.folder()
    except binaries.Absent as absent:
        if binaries.mode() == "required":
            pytest.fail(str(absent), pytrace=False)
        pytest.skip(str(absent))


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    # As in tests/conftest.py: children die with the thread that started them, and asyncio.run would unset the loop.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """One etcd, kube-apiserver and kube-controller-manager for the test process, or the cluster that was named.

    Tests keep to namespaces of their own and kill nothing.
    """
    named = binaries.running_cluster()
    if named is not None:
        yield RunningCluster(named, tmp_path_factory.mktemp("running-cluster"))
        return
    plane = ControlPlane(binaries_or_skip())
    _run(plane.start())
    try:
        _run(plane.start_controller_manager())
        yield plane
    finally:
        _run(plane.stop())


@pytest.fixture
async def make_control_plane() -> AsyncIterator[MakeControlPlane]:
    """Starts control planes of this test alone, with the arguments of `ControlPlane`; ended after the test."""
    place = binaries_or_skip()
    made: list[ControlPlane] = []

    async def make(**options: Any) -> ControlPlane:
        plane = ControlPlane(place, **options)
        made.append(plane)
        await plane.start()
        return plane

    yield make
    for plane in made:
        await plane.stop()


@pytest.fixture
async def own_control_plane(make_control_plane: MakeControlPlane) -> ControlPlane:
    """A control plane of this test alone, with a controller manager: parts of it may be killed and restarted."""
    plane = await make_control_plane()
    await plane.start_controller_manager()
    return plane


class Kubectl:
    """kubectl with one kubeconfig; output as text, an error is an assertion."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def __call__(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """What kubectl prints (both streams if `check` is off)."""
        done = await asyncio.to_thread(self._call, arguments, stdin)
        if check:
            assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
            return done.stdout
        return done.stdout + done.stderr

    def _call(self, arguments: Sequence[str], stdin: str | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", "--kubeconfig", str(self._kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
