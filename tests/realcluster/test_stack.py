"""The local stack's own programs on its own files: the dashboard finds what a real job leaves behind.

Prometheus and the OpenTelemetry collector are Go; tests/realcluster/go/stack builds them with the rest.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.test_stack import DASHBOARDS, datasources, queries
from tests.integration.conftest import MANIFESTS, Up
from tests.realcluster import binaries
from tests.realcluster.fixtures import binaries_or_skip
from tests.realcluster.stack import DEPLOY, Stack

PROGRAMS = ("collector", "prometheus")
FILES = {"prometheus": DEPLOY / "prometheus" / "prometheus.yaml", "collector": DEPLOY / "otel" / "collector.yaml"}
INTERVAL = "5m"
"""Long enough for scrapes that a busy machine misses; Grafana takes 20 s or more."""


def programs() -> Path:
    """The folder of the stack's programs; ends the test with one line when it lacks one."""
    folder = binaries_or_skip()
    for name in PROGRAMS:
        if not (folder / name).is_file():
            if binaries.mode() == "required":
                pytest.fail(f"{name} is not there: make realcluster builds it", pytrace=False)
            pytest.skip(f"{name} is not there: make realcluster builds it")
    return folder


def test_the_collectors_own_parser_takes_it() -> None:
    """Prometheus has no such command; it runs on its file below."""
    done = ended("collector", "validate", "--config", str(FILES["collector"]))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "said"),
    [
        ("prometheus", "scrape_interval: 5s", "scrape_intervall: 5s", "scrape_intervall"),
        ("prometheus", "scrape_timeout: 4s", "scrape_timeout: 4 parsecs", "parsecs"),
        ("collector", "limit_mib: 256", "limit_mob: 256", "limit_mob"),
        ("collector", "exporters: [otlp_grpc, span_metrics]", "exporters: [otlp_grpc, nobody]", "nobody"),
    ],
)
def test_and_no_other(kind: str, right: str, wrong: str, said: str, tmp_path: Path) -> None:
    text = FILES[kind].read_text()
    assert right in text
    file = tmp_path / FILES[kind].name
    file.write_text(text.replace(right, wrong))
    paths = {
        "collector": ["--config", str(file)],
        "prometheus": [f"--config.file={file}", f"--storage.tsdb.path={tmp_path}", "--web.listen-address=127.0.0.1:0"],
    }
    done = ended(kind, *paths[kind])
    assert done.returncode != 0
    assert said in done.stderr


def ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([programs() / program, *arguments], capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack after one job, the first that koord saw."""
    folder = tmp_path_factory.mktemp("stack")
    with Stack(programs(), folder) as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", stack.otlp)
        up = Up(folder, "--nodes", "10")
        try:
            services: dict[str, str] = up.ready["http"]
            stack.scrape({f"koord-{name}": url.removeprefix("http://") for name, url in services.items()})
            # All are seen before there is anything to see: else a counter may begin where it ends.
            stack.until(lambda: last(stack.query('sum(up{job="koord"})')) == {str(len(services))}, "all are scraped")
            up.kubectl("apply", "-f", str(MANIFESTS / "quota.yaml"))
            up.kubectl("apply", "-f", str(MANIFESTS / "tfjob.yaml"))

            def run() -> bool:
                phases = [pod["status"].get("phase") for pod in up.objects("pods", "-n", "ml")]
                return len([phase for phase in phases if phase in ("Running", "Succeeded")]) == 3

            up.wait(run, "the pods of the TFJob run", 180)
            yield stack
        finally:
            up.stop()


def last(series: list[dict[str, Any]]) -> set[str]:
    """The latest values of some series."""
    return {one["values"][-1][1] for one in series}


def shows(stack: Stack, expression: str, value: str) -> bool:
    return last(stack.query(expression)) == {value}


def panels() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{title}, {target['refId']}", target)
        for file in DASHBOARDS
        for title, target in queries(json.loads(file.read_text())["panels"])
    ]


def asked(expression: str, services: str) -> str:
    """An expression as Grafana sends it, for all services."""
    return expression.replace("$__rate_interval", INTERVAL).replace("$service", services)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_panel_shows_a_job(stack: Stack) -> None:
    [variable] = [
        one
        for file in DASHBOARDS
        for one in json.loads(file.read_text())["templating"]["list"]
        if one["type"] == "query"
    ]
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
    assert found
    services = stack.label_values(found[2], found[1])
    assert services == ["gateway", "queue", "quota", "reconciler", "scheduler"]
    metrics = [(title, target) for title, target in panels() if target["datasource"]["type"] == "prometheus"]
    assert len(metrics) > 15
    for title, target in metrics:
        expression = asked(target["expr"], "|".join(services))
        series = stack.until(partial(stack.query, expression), title)
        # What the legend names is there.
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            assert all(label in one["metric"] for one in series), title
    for title, value in {"Services that answer": "5", "Gateway that leads": "1", "Ledger open": "1"}.items():
        [expression] = [target["expr"] for name, target in metrics if name == f"{title}, A"]
        stack.until(partial(shows, stack, expression, value), f"{title}: {value}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_from_the_job_to_its_spans_and_back(stack: Stack) -> None:
    """What the search for attempts looks for is in the trace that an exemplar names, and so is the way of the job."""
    [search] = [target["query"] for _, target in panels() if target["datasource"]["type"] == "tempo"]
    found = re.match(r'\{ name = "([\w.]+)" && span\.([\w.]+) =~ ', search)
    assert found
    bucket = 'traces_span_metrics_duration_seconds_bucket{service_name="koord-queue"}'
    exemplars = stack.until(lambda: stack.exemplars(bucket), "exemplars of the queue's spans")
    destination = datasources()[0]["jsonData"]["exemplarTraceIdDestinations"][0]
    [trace] = {exemplar["labels"][destination["name"]] for exemplar in exemplars}
    way = {"queue.enqueue", "queue.admit", "scheduler.plan", "gateway.bind", "pod.running"}
    stack.until(lambda: way <= {span["name"] for span in stack.trace(trace)}, "the job's way is in its trace")
    spans = stack.trace(trace)
    [attempt] = [span for span in spans if span["name"] == found[1]]
    assert "mnist-ps" in attempt["attributes"][found[2]]
    tags = datasources()[1]["jsonData"]["tracesToMetrics"]
    for query in tags["queries"]:
        for service in {span["service"] for span in spans if span["name"] in way}:
            expression = query["query"].replace("$$__tags", f'{tags["tags"][0]["value"]}="{service}"')
            stack.until(partial(stack.query, expression), query["name"])
