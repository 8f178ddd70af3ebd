"""The server as a process: its files, its certificates, its end; and pods that kubelets must let go."""

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from koord.localcluster.api.__main__ import find_components, parse_arguments
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.server import ApiServer
from tests.localcluster.api.rig import Client, Server, pod


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def graceful(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, "--graceful-deletion")
    yield server
    server.process.kill()
    server.process.wait()


def test_ready_file_kubeconfig_and_certificates(graceful: Server) -> None:
    ready = graceful.ready
    assert ready["pid"] == graceful.process.pid
    assert stat.S_IMODE(graceful.ready_file.stat().st_mode) == 0o600
    kubeconfig = Path(ready["kubeconfig"])
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE((kubeconfig.parent / "server.key").stat().st_mode) == 0o600
    config = yaml.safe_load(kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] == ready["url"]
    assert config["users"][0]["user"]["token"] == ready["token"]
    for host in ("127.0.0.1", "localhost"):
        url = ready["url"].replace("127.0.0.1", host) + "/healthz"
        with urllib.request.urlopen(url, context=ssl.create_default_context(cafile=ready["ca"])) as answer:
            assert answer.read() == b"ok"
    with pytest.raises(OSError, match="certificate verify failed"):
        urllib.request.urlopen(ready["url"] + "/healthz", context=ssl.create_default_context())


def test_sigterm_ends_watches_and_the_process(graceful: Server) -> None:
    client = Client(graceful.ready)
    events = client.watch("/api/v1/namespaces?watch=1")
    assert next(events)["type"] == "ADDED"
    graceful.process.send_signal(signal.SIGTERM)
    assert all(event["type"] == "ADDED" for event in events)
    assert graceful.process.wait(60) == 0
    assert not graceful.ready_file.exists()


def test_the_server_ends_with_its_parent(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [sys.executable, "-m", "koord.localcluster.api", "--dir", str(tmp_path / "d"), "--ready-file", str(ready)]
    script = f"import subprocess, time; subprocess.Popen({command!r}, stdout=subprocess.DEVNULL); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        _until(ready.exists)
        pid = json.loads(ready.read_text())["pid"]
    finally:
        parent.kill()
        parent.wait()

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
        except FileNotFoundError:
            return True

    _until(gone)
    with pytest.raises(ProcessLookupError):
        _until(lambda: _reaped(pid))
        os.kill(pid, 0)


def _reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_bound_pods_wait_for_their_kubelet(graceful: Server) -> None:
    client = Client(graceful.ready)
    path = "/api/v1/namespaces/default/pods"
    for name in ("pending", "bound", "done", "quick"):
        client.post(path, pod(name, terminationGracePeriodSeconds=7))
        if name != "pending":
            client.post(f"{path}/{name}/binding", {"target": {"name": "n"}})
    client.patch(f"{path}/done/status", {"status": {"phase": "Succeeded"}})
    for name in ("pending", "bound", "done"):
        assert client.delete(f"{path}/{name}").code == 200
    assert client.delete(f"{path}/quick?gracePeriodSeconds=0").code == 200
    (left,) = client.get(path).body["items"]
    assert left["metadata"]["name"] == "bound" and left["metadata"]["deletionGracePeriodSeconds"] == 7
    again = client.delete(f"{path}/bound").body
    assert again["metadata"]["deletionTimestamp"] == left["metadata"]["deletionTimestamp"]
    # The kubelet's last two steps.
    assert client.patch(f"{path}/bound/status", {"status": {"phase": "Succeeded"}}).code == 200
    assert (
        client.delete(
            f"{path}/bound", {"gracePeriodSeconds": 0, "preconditions": {"uid": left["metadata"]["uid"]}}
        ).code
        == 200
    )
    assert client.get(f"{path}/bound").code == 404
    client.close()


def test_fake_nodes_live_in_the_process(tmp_path: Path) -> None:
    server = Server(tmp_path, "--nodes", "3")
    client = Client(server.ready)
    nodes = client.get("/api/v1/nodes").body["items"]
    assert len(nodes) == 3
    path = "/api/v1/namespaces/default/pods"
    client.post(path, pod("a"))
    client.post(f"{path}/a/binding", {"target": {"name": nodes[0]["metadata"]["name"]}})
    _until(lambda: client.get(f"{path}/a").body["status"]["phase"] == "Running")
    client.delete(f"{path}/a")
    _until(lambda: client.get(f"{path}/a").code == 404)
    client.close()
    assert server.stop() == 0


def test_a_bad_option_of_the_components_ends_before_serving() -> None:
    options, rest = parse_arguments(["--dir", "d", "--nodes", "2", "--gpu-nodes", "5"])
    with pytest.raises(SystemExit):
        find_components(options, rest)
    options, rest = parse_arguments(["--dir", "d"])
    assert find_components(options, rest) is None


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--port", "65536"), "--port 65536: must be from 0 to 65535"),
        (("--crds", "nowhere"), "nowhere: no such folder"),
    ],
)
def test_an_option_out_of_range_is_named(
    option: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--dir", "d", *option])
    assert ended.value.code == 2 and words in capsys.readouterr().err


async def test_a_taken_port_is_refused_and_a_stopped_one_is_free_again(tmp_path: Path) -> None:
    first = ApiServer(Cluster(), tmp_path / "a")
    port = int((await first.start()).url.rsplit(":", 1)[1])
    with pytest.raises(OSError, match=f"Address already in use: '127.0.0.1:{port}'"):
        await ApiServer(Cluster(), tmp_path / "b", port=port).start()
    await first.stop()
    again = ApiServer(Cluster(), tmp_path / "c", port=port)
    assert (await again.start()).url == first.url
    await again.stop()
