"""One server process per test process, clients for it, and the real kubectl."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koord.localcluster.api.cluster import Cluster
from tests.localcluster.api.rig import Client, Kubectl, Server

KUBECTL = Path(sys.executable).parent / "kubectl"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("apiserver"))
    yield running
    assert running.stop() == 0


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[[], Client]]:
    made: list[Client] = []

    def connect_one() -> Client:
        made.append(Client(server.ready))
        return made[-1]

    yield connect_one
    for client in made:
        client.close()


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


@pytest.fixture
def namespace(client: Client) -> str:
    """A namespace that only this test uses."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    assert client.post("/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    return name


@pytest.fixture
def kubectl(server: Server, namespace: str, tmp_path: Path) -> Kubectl:
    """Run kubectl in the test's namespace; fails the test when kubectl fails, unless `check=False`."""
    environment = {**os.environ, "KUBECONFIG": server.ready["kubeconfig"], "HOME": str(tmp_path)}

    def run(*arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(KUBECTL), "-n", namespace, *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        if check:
            assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done

    return run


@pytest.fixture
def plain() -> Cluster:
    """The operations alone, without HTTP."""
    return Cluster(first_version=1000)
