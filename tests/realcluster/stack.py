"""The local stack as processes on loopback: Prometheus and the collector with the files of deploy/.

Only addresses are other ones. Tempo is not there (its licence is one that we do not build on): in its place a second
collector has the receivers that Tempo's file names, which are the collector's own, and hands what it gets to koord's
trace store.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from koord.localcluster.ports import free_port
from koord.localcluster.process import spawn
from tests.deploy.manifests import ROOT

DEPLOY = ROOT / "deploy"
HOST = "127.0.0.1"


def document(*parts: str) -> Any:
    """A YAML file below deploy/."""
    return yaml.safe_load(DEPLOY.joinpath(*parts).read_text())


def compose_command(service: str) -> list[str]:
    """The arguments that docker-compose.yaml gives a service."""
    command: list[str] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"][service]["command"]
    return command


class Stack:
    """What koord's services report to; `otlp` is where they send spans, `scrape` tells Prometheus where they are."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {
            name: free_port() for name in ("store", "tempo", "grpc", "otlp", "spans", "health", "prometheus")
        }

    @property
    def otlp(self) -> str:
        """The value of OTEL_EXPORTER_OTLP_ENDPOINT."""
        return self._url("otlp")

    def _url(self, name: str) -> str:
        return f"http://{HOST}:{self._ports[name]}"

    def _address(self, name: str) -> str:
        return f"{HOST}:{self._ports[name]}"

    def __enter__(self) -> Self:
        try:
            self._start("store", sys.executable, "-m", "koord.localcluster.traces", "--port", str(self._ports["store"]))
            self._collector("tempo", self._as_tempo())
            self._collector("collector", self._collecting())
            self.until(lambda: self._answers("health", "/"), "the collector is healthy")
            self.until(lambda: self._answers("store", "/healthz"), "the store answers")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _as_tempo(self) -> dict[str, Any]:
        receivers = document("tempo", "tempo.yaml")["distributor"]["receivers"]
        receivers["otlp"]["protocols"]["grpc"]["endpoint"] = self._address("tempo")
        return {
            "receivers": receivers,
            "exporters": {"otlp_http": {"endpoint": self._url("store"), "compression": "none"}},
            "service": {"pipelines": {"traces": {"receivers": list(receivers), "exporters": ["otlp_http"]}}},
        }

    def _collecting(self) -> dict[str, Any]:
        made: dict[str, Any] = document("otel", "collector.yaml")
        protocols = made["receivers"]["otlp"]["protocols"]
        protocols["grpc"]["endpoint"] = self._address("grpc")
        protocols["http"]["endpoint"] = self._address("otlp")
        made["exporters"]["otlp_grpc"]["endpoint"] = self._address("tempo")
        made["exporters"]["prometheus"]["endpoint"] = self._address("spans")
        made["extensions"]["health_check"]["endpoint"] = self._address("health")
        return made

    def _collector(self, name: str, content: dict[str, Any]) -> None:
        # Its own metrics would take port 8888 of everybody.
        content["service"]["telemetry"] = {"metrics": {"level": "none"}}
        file = self._directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content))
        self._start(name, str(self._programs / "collector"), "--config", str(file))

    def scrape(self, services: Mapping[str, str]) -> None:
        """Start Prometheus on services' addresses, by their name in its file (koord-gateway, ...)."""
        content = document("prometheus", "prometheus.yaml")
        places = {f"{name}:8080": address for name, address in services.items()}
        places["otel-collector:8889"] = self._address("spans")
        for group in (group for job in content["scrape_configs"] for group in job["static_configs"]):
            group["targets"] = [places[target] for target in group["targets"]]
        file = self._directory / "prometheus.yaml"
        file.write_text(yaml.safe_dump(content))
        own = {
            "--config.file": str(file),
            "--storage.tsdb.path": str(self._directory / "prometheus"),
            "--web.listen-address": self._address("prometheus"),
        }
        given = [one for one in compose_command("prometheus") if one.partition("=")[0] not in own]
        self._start(
            "prometheus",
            str(self._programs / "prometheus"),
            *(f"{key}={value}" for key, value in own.items()),
            *given,
        )
        self.until(lambda: self._answers("prometheus", "/-/ready"), "Prometheus is ready")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Series of the last five minutes, as a panel shows them; a NaN is no value."""
        now = time.time()
        found: list[dict[str, Any]] = self._ask("query_range", query=expression, start=now - 300, end=now, step=5)[
            "result"
        ]
        for series in found:
            series["values"] = [(at, value) for at, value in series["values"] if value != "NaN"]
        return [series for series in found if series["values"]]

    def exemplars(self, expression: str) -> list[dict[str, Any]]:
        """Exemplars of the last five minutes, flat."""
        now = time.time()
        found = self._ask("query_exemplars", query=expression, start=now - 300, end=now)
        return [exemplar for series in found for exemplar in series["exemplars"]]

    def label_values(self, label: str, match: str) -> list[str]:
        """What a variable of a dashboard lists."""
        found: list[str] = self._ask(f"label/{label}/values", **{"match[]": match})
        return found

    def _ask(self, path: str, **parameters: Any) -> Any:
        answer = self._get("prometheus", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        assert answer["status"] == "success", answer
        return answer["data"]

    def trace(self, identity: str) -> list[dict[str, Any]]:
        """The spans of a trace that have come through both collectors."""
        spans: list[dict[str, Any]] = self._get("store", f"/traces/{identity}")
        return spans

    def _get(self, name: str, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self._url(name)}{path}", timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from None

    def _answers(self, name: str, path: str) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url(name)}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 90) -> Any:
        """Poll until `condition` is true; its value."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            for name, process in self._running.items():
                assert process.poll() is None, f"{name} ended: {self._log(name)}"
            assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
            time.sleep(0.1)
        return value

    def _start(self, name: str, *argv: str) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            self._running[name] = spawn(argv, stdout=log, stderr=subprocess.STDOUT)

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """End what runs, the last started first."""
        for process in reversed(self._running.values()):
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
