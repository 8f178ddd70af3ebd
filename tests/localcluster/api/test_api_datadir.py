"""A server with a data directory, as a process: killed and started again, damaged, locked, its disk full."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.localcluster.api.rig import Client, Server, pod

PODS = "/api/v1/namespaces/default/pods"
KUBECTL = Path(sys.executable).parent / "kubectl"
Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Server] = []

    def run(*arguments: str) -> Server:
        (tmp_path / "ready.json").unlink(missing_ok=True)
        made.append(Server(tmp_path, "--data-dir", str(tmp_path / "data"), *arguments))
        return made[-1]

    yield run
    for server in made:
        server.process.kill()
        server.process.wait()


def kill(server: Server) -> None:
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(60)


def second(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """A server that is expected not to start."""
    command = [sys.executable, "-m", "koord.localcluster.api", "--dir", str(tmp_path / "other")]
    return subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data")], capture_output=True, text=True, timeout=240, check=False
    )


def test_a_killed_server_comes_back_as_it_was(start: Start) -> None:
    first = start("--nodes", "2")
    client = Client(first.ready)
    acknowledged: dict[str, str] = {}

    def write() -> None:
        number = 0
        while True:
            name = f"p-{number}"
            try:
                answer = client.post(PODS, pod(name))
            except OSError:
                return
            assert answer.code == 201
            acknowledged[name] = answer.body["metadata"]["uid"]
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    while len(acknowledged) < 100:
        time.sleep(0.005)
    kill(first)  # in the middle of writes
    writer.join(30)
    again = start("--nodes", "2")
    assert {key: again.ready[key] for key in ("url", "token", "ca")} == {
        key: first.ready[key] for key in ("url", "token", "ca")
    }
    client = Client(again.ready)
    found = {item["metadata"]["name"]: item["metadata"]["uid"] for item in client.get(PODS).body["items"]}
    # One may have been written whose answer did not arrive any more.
    assert acknowledged.items() <= found.items() and len(found) <= len(acknowledged) + 1
    assert len(client.get("/api/v1/nodes").body["items"]) == 2
    assert client.get("/apis/scheduling.x-k8s.io/v1alpha1/queueunits").code == 200
    client.close()
    assert again.stop() == 0


def test_a_watch_goes_on_over_a_kill(start: Start) -> None:
    first = start()
    client = Client(first.ready)
    version = client.get(PODS).body["metadata"]["resourceVersion"]
    for name in ("a", "b"):
        client.post(PODS, pod(name))
    kill(first)
    client = Client(start().ready)
    client.post(PODS, pod("c"))
    events = Client(first.ready).watch(f"{PODS}?watch=1&resourceVersion={version}")
    assert [next(events)["object"]["metadata"]["name"] for _ in range(3)] == ["a", "b", "c"]


def test_one_server_at_a_time(start: Start, tmp_path: Path) -> None:
    first = start()
    done = second(tmp_path)
    assert done.returncode == 2
    assert f"another API server (process {first.process.pid}) is using it" in done.stderr
    assert Client(first.ready).get(PODS).code == 200


def test_damage_ends_the_start_with_a_clear_word(start: Start, tmp_path: Path) -> None:
    first = start()
    client = Client(first.ready)
    for name in ("a", "b", "c"):
        client.post(PODS, pod(name))
    assert first.stop() == 0
    log = tmp_path / "data" / "store" / "log-1"
    data = bytearray(log.read_bytes())
    data[data.index(b'"name":"b"')] ^= 1
    log.write_bytes(data)
    done = second(tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"error: {log}: record" in done.stderr and "checksum" in done.stderr


def test_a_full_disk_refuses_writes_and_nothing_else(start: Start, tmp_path: Path) -> None:
    server = start("--nodes", "1")
    client = Client(server.ready)
    assert client.post(PODS, pod("before")).code == 201
    log = tmp_path / "data" / "store" / "log-1"
    events = Client(server.ready).watch(f"{PODS}?watch=1")
    assert next(events)["object"]["metadata"]["name"] == "before"
    # The kernel itself refuses to let the file grow, in the middle of a record.
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 100, hard))
    kept = set()
    for number in range(5):
        answer = client.post(PODS, pod(f"full-{number}"))
        if answer.code == 201:
            kept.add(f"full-{number}")
        else:
            assert (answer.code, answer.body["reason"]) == (507, "InsufficientStorage")
            assert "write was refused and nothing has changed" in answer.body["message"]
    assert len(kept) < 5
    assert client.delete(f"{PODS}/before").code == 507
    assert client.patch(f"{PODS}/before", {"metadata": {"labels": {"x": "y"}}}).code == 507
    assert client.get(f"{PODS}/before").body["metadata"].get("labels") is None
    assert {item["metadata"]["name"] for item in client.get(PODS).body["items"]} == {"before"} | kept
    environment = os.environ | {"KUBECONFIG": server.ready["kubeconfig"], "HOME": str(tmp_path)}
    shown = subprocess.run(
        [str(KUBECTL), "create", "configmap", "x", "--from-literal=a=b"],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert shown.returncode == 1 and "the data directory cannot be written (File too large)" in shown.stderr
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert client.post(PODS, pod("after")).code == 201
    while (name := next(events)["object"]["metadata"]["name"]) != "after":
        assert name in kept  # the watch went on, and saw nothing of what was refused
    assert server.process.poll() is None
    kill(server)
    client = Client(start("--nodes", "1").ready)
    assert {item["metadata"]["name"] for item in client.get(PODS).body["items"]} == {"before", "after"} | kept


def test_a_taken_port_is_named(start: Start, tmp_path: Path) -> None:
    first = start()
    port = int(first.ready["url"].rsplit(":", 1)[1])
    assert first.stop() == 0
    identity = json.loads((tmp_path / "data" / "identity.json").read_text())
    assert identity == {"token": first.ready["token"], "port": port}
    blocker = Server(tmp_path / "blocker", "--port", str(port))
    try:
        done = second(tmp_path)
    finally:
        blocker.stop()
    assert done.returncode == 2 and f"its port {port}: Address already in use" in done.stderr
