"""``koord up --kubeconfig``: on a cluster that is not its own it serves koord-scheduler's pods and no others."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Up

pytestmark = pytest.mark.slow


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an API server with three nodes that ``koord up`` did not start."""
    directory, ready = tmp_path / "api", tmp_path / "api-ready.json"
    directory.mkdir()
    command = [sys.executable, "-m", "koord.localcluster.api", "--dir", str(directory), "--ready-file", str(ready)]
    server = subprocess.Popen([*command, "--nodes", "3"])
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert server.poll() is None and time.monotonic() < deadline, "the API server did not start"
            time.sleep(0.02)
        yield Path(json.loads(ready.read_text())["kubeconfig"])
        assert server.poll() is None, "the end of koord up ended the cluster of others"
    finally:
        server.terminate()
        server.wait(60)


def pod(name: str, scheduler: str) -> str:
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "registry.example/x:1"}]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def test_only_koord_schedulers_pods_are_served(elsewhere: Path, tmp_path: Path) -> None:
    up = Up(tmp_path, "--kubeconfig", str(elsewhere), "--name", "elsewhere")
    try:
        up.kubectl("create", "-f", "-", stdin=pod("theirs", "default-scheduler"))
        up.kubectl("create", "-f", "-", stdin=pod("ours", "koord-scheduler"))
        up.kubectl("wait", "--for=condition=Ready", "pod/ours", "--timeout=180s")
        (theirs,) = up.objects("pod", "theirs")
        assert "nodeName" not in theirs["spec"]
        assert not theirs["status"].get("conditions"), "its scheduler's business"
        assert "apiserver" not in up.ready["pids"]
    finally:
        up.stop()
