"""The local stack's configuration, read by Prometheus' and the OpenTelemetry collector's own parsers.

They are Go; the program around them is in tests/realcluster/go/configcheck and built with the rest.
"""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT
from tests.realcluster import binaries
from tests.realcluster.fixtures import binaries_or_skip

FILES = {
    "prometheus": ROOT / "deploy" / "prometheus" / "prometheus.yaml",
    "collector": ROOT / "deploy" / "otel" / "collector.yaml",
}


def check(kind: str, file: Path) -> subprocess.CompletedProcess[str]:
    program = binaries_or_skip() / "configcheck"
    if not program.is_file():
        if binaries.mode() == "required":
            pytest.fail(f"{program.name} is not there: make realcluster builds it", pytrace=False)
        pytest.skip(f"{program.name} is not there: make realcluster builds it")
    return subprocess.run([program, kind, file], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("kind", FILES)
def test_its_own_parser_takes_it(kind: str) -> None:
    done = check(kind, FILES[kind])
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
    done = check(kind, file)
    assert done.returncode == 1
    assert said in done.stderr
