"""The local stack of docker-compose.yaml: read by the parsers of those who will read it, and true to the code.

Prometheus and the collector run on their files in tests/realcluster/test_stack.py, for those are built with Go. Tempo
does not: its module is under a licence that we do not build on.
"""

import json
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import urlsplit

import compose_spec
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

import koord.runtime.run  # noqa: F401 - its metrics, too
from koord.runtime.service import ServiceSpec
from koord.runtime.settings import load_service
from koord.telemetry.export import endpoint_configured
from koord.telemetry.metrics import REGISTRY
from tests.deploy.manifests import ROOT, base, container

SPECS: dict[str, ServiceSpec] = {point.name: point.load() for point in entry_points(group="koord.services")}
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
SPAN_METRICS = "traces_span_metrics"


def compose() -> dict[str, Any]:
    """docker-compose.yaml as Compose reads it: variables filled in, merge keys applied, checked."""
    text = (ROOT / "docker-compose.yaml").read_text()
    given = {"KUBECONFIG_FILE": "./kubeconfig"}
    text = re.sub(r"\$\{(\w+)(?::?[-?]([^}]*))?\}", lambda found: given.get(found[1], found[2] or ""), text)
    # A word of Docker's that the specification leaves to it.
    text = text.replace(":host-gateway", ":192.0.2.1")
    stack = compose_spec.PyOptions(apply_merge=True).from_yaml(text)
    stack.validate()
    made: dict[str, Any] = stack.to_dict()
    return made


STACK = compose()
SERVICES: dict[str, Any] = STACK["services"]


def mounts(service: str) -> dict[str, str]:
    """What is mounted into a container, by the path inside."""
    made = {}
    for volume in SERVICES[service].get("volumes", []):
        source, target = (
            volume.split(":")[:2] if isinstance(volume, str) else (volume.get("source", ""), volume["target"])
        )
        made[target] = source
    return made


def test_every_service_is_there_and_what_is_mounted_too() -> None:
    assert {name for name in SERVICES if name.startswith("koord-")} == {f"koord-{name}" for name in SPECS} | {
        "koord-nats",
        "koord-redis",
    }
    for name in SERVICES:
        for source in mounts(name).values():
            if source.startswith("./") and source != "./kubeconfig":
                assert (ROOT / source).exists(), source
    named = {source for name in SERVICES for source in mounts(name).values() if not source.startswith(".")}
    assert named == set(STACK["volumes"])


def test_only_this_machine_reaches_it() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:") or port["host_ip"] == "127.0.0.1", name


@pytest.mark.parametrize("name", sorted(SPECS))
def test_settings_of_the_services_are_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = SERVICES[f"koord-{name}"]
    environment: dict[str, str] = service["environment"]
    command = service["command"]
    assert command == ["run", name, "--config", "/etc/koord/koord.yaml"]
    file = ROOT / mounts(f"koord-{name}")["/etc/koord/koord.yaml"]
    common, _ = load_service(SPECS[name], file=file, env=environment)
    assert urlsplit(common.nats.url).hostname in SERVICES
    assert urlsplit(common.redis.url).hostname in SERVICES
    assert (common.http.host, common.http.port) == ("0.0.0.0", 8080)
    may = name == "gateway"
    assert (common.kubeconfig in mounts(f"koord-{name}")) is may
    assert bool(common.kubeconfig) is may
    for key, value in environment.items():
        monkeypatch.setenv(key, str(value))
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    assert endpoint_configured()
    collector = urlsplit(environment["OTEL_EXPORTER_OTLP_ENDPOINT"])
    assert collector.hostname in SERVICES
    assert collector.port == 4318


def test_images_are_those_of_the_manifests() -> None:
    for store in ("koord-nats", "koord-redis"):
        assert SERVICES[store]["image"] == container(base().one("StatefulSet", store))["image"]
    for name in SPECS:
        build = SERVICES[f"koord-{name}"]["build"]
        assert build["args"] == {"SERVICE": name} or build["args"] == [f"SERVICE={name}"]


def test_who_is_named_is_there() -> None:
    """Prometheus' targets, the datasources' addresses and where the collector sends to."""
    deploy = ROOT / "deploy"
    prometheus = yaml.safe_load((deploy / "prometheus" / "prometheus.yaml").read_text())
    targets = {
        target: group.get("labels", {})
        for job in prometheus["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }
    assert {target for target in targets if target.startswith("koord-")} == {f"koord-{name}:8080" for name in SPECS}
    assert all(labels == {"service": target[6:-5]} for target, labels in targets.items() if "koord-" in target)
    collector = yaml.safe_load((deploy / "otel" / "collector.yaml").read_text())
    exporters = collector["exporters"]
    assert f"otel-collector:{exporters['prometheus']['endpoint'].rpartition(':')[2]}" in targets
    tempo = yaml.safe_load((deploy / "tempo" / "tempo.yaml").read_text())
    receiver = tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert exporters["otlp_grpc"]["endpoint"] == f"tempo:{receiver.rpartition(':')[2]}"
    # What Tempo writes lies where it may write.
    paths = [tempo["storage"]["trace"][part]["path"] for part in ("wal", "local")]
    assert all(path.startswith("/var/tempo/") for path in paths)
    assert SERVICES["tempo"]["tmpfs"] in ("/var/tempo", ["/var/tempo"])
    sources = {one["uid"]: one for one in datasources()}
    assert sources["prometheus"]["url"] == "http://prometheus:9090"
    assert sources["tempo"]["url"] == f"http://tempo:{tempo['server']['http_listen_port']}"
    for target, source in mounts("grafana").items():
        if target == "/etc/grafana/provisioning":
            provider = yaml.safe_load((ROOT / source / "dashboards" / "koord.yaml").read_text())["providers"][0]
            assert provider["options"]["path"] in mounts("grafana")


def datasources() -> list[dict[str, Any]]:
    file = ROOT / "deploy" / "grafana" / "provisioning" / "datasources" / "koord.yaml"
    made: list[dict[str, Any]] = yaml.safe_load(file.read_text())["datasources"]
    return made


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_grafana_knows_all_that_a_dashboard_says(file: Any) -> None:
    """Read into Grafana's own types and written again: what they do not know would be missing."""
    register_default_plugins()
    ours = json.loads(file.read_text())
    theirs = json.loads(JSONEncoder().encode(Dashboard.from_json(ours)))
    assert list(missing(ours, theirs, "dashboard")) == []


def missing(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """Where a value of ours is not, or is another one."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                # Left out by the types because it is empty.
                if value not in ("", [], {}, None, False):
                    yield f"{path}.{key}"
            else:
                yield from missing(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from missing(one, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


def queries(panels: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in panels:
        for target in panel.get("targets", []):
            yield panel["title"], target
        yield from queries(panel.get("panels", []))


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_asks_for_what_there_is(file: Any) -> None:
    dashboard = json.loads(file.read_text())
    sources = {one["uid"]: one["type"] for one in datasources()}
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identities)) == len(identities)
    names = known_metrics()
    asked = list(queries(dashboard["panels"]))
    assert {target["datasource"]["type"] for _, target in asked} == {"prometheus", "tempo"}
    for title, target in asked:
        source = target["datasource"]
        assert sources[source["uid"]] == source["type"], title
        if source["type"] == "prometheus":
            found = set(re.findall(r"\b(?:koord_|process_|traces_span_metrics_)\w+", target["expr"]))
            assert found or target["expr"].startswith("sum(up{"), title
            assert found <= names, title
    for one in datasources():
        for query in one["jsonData"].get("tracesToMetrics", {}).get("queries", []):
            assert set(re.findall(r"traces_span_metrics_\w+", query["query"])) <= names
            assert "$$__tags" in query["query"]


def known_metrics() -> set[str]:
    """Every sample that the services of this process may serve, and what the collector makes of spans."""
    names = {f"{SPAN_METRICS}_calls_total", f"{SPAN_METRICS}_duration_seconds_bucket"}
    collector = yaml.safe_load((ROOT / "deploy" / "otel" / "collector.yaml").read_text())
    assert collector["connectors"]["span_metrics"]["namespace"].replace(".", "_") == SPAN_METRICS
    for family in REGISTRY.collect():
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {f"{family.name}{ending}" for ending in endings}
    return names


def test_spans_are_searched_by_what_the_queue_writes() -> None:
    """The dashboard finds a job's traces by the name and the attribute of an attempt's root span."""
    source = (ROOT / "services" / "koord" / "queue" / "traces.py").read_text()
    assert '"queue.enqueue"' in source
    assert '"koord.unit"' in source
    [search] = [
        target["query"]
        for file in DASHBOARDS
        for _, target in queries(json.loads(file.read_text())["panels"])
        if target["datasource"]["type"] == "tempo"
    ]
    assert search.startswith('{ name = "queue.enqueue" && span.koord.unit =~ ')
