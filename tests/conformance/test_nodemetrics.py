"""NodeMetric: the definition that koord brings and, where it was built, Koordinator's own take the same reports."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.cli.benchmarks.nodereports import report_status
from koord.kube import crds
from koord.kube.resources import NODE_METRICS
from tests.conformance.client import Client
from tests.conformance.definitions import DEFINITIONS
from tests.conformance.rig import unique
from tests.conformance.test_schemas import define
from tests.realcluster.binaries import Absent, folder

NAME = f"{NODE_METRICS.plural}.{NODE_METRICS.group}"


def _own() -> dict[str, Any]:
    [found] = [one for one in crds.load() if one["metadata"]["name"] == NAME]
    return found


def _koordinators() -> dict[str, Any]:
    try:
        file: Path = folder() / "koordinator-crds" / f"{NODE_METRICS.group}_{NODE_METRICS.plural}.yaml"
    except Absent as error:
        pytest.skip(str(error))
    if not file.is_file():
        pytest.skip("Koordinator's definitions were not built")
    made: dict[str, Any] = yaml.safe_load(file.read_text())
    return made


@pytest.fixture(params=[_own, _koordinators], ids=["koord", "koordinator"])
async def group(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The definition under a group of the test alone."""
    body = request.param()
    body["spec"]["group"] = f"{unique()}.example.com"
    body["metadata"] = {"name": f"{NODE_METRICS.plural}.{body['spec']['group']}"}
    await define(client, body)
    yield body["spec"]["group"]
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")


async def test_reports_are_taken_and_what_is_wrong_is_refused(client: Client, group: str) -> None:
    path = f"/apis/{group}/{NODE_METRICS.version}/{NODE_METRICS.plural}"
    policy = {"reportIntervalSeconds": 60, "nodeAggregatePolicy": {"durations": ["5m"]}}
    body = {
        "apiVersion": f"{group}/{NODE_METRICS.version}",
        "kind": NODE_METRICS.kind,
        "metadata": {"name": "node-1"},
        "spec": {"metricCollectPolicy": policy},
        "status": {"updateTime": "2026-01-01T00:00:00Z"},
    }
    made = await client.post(path, body)
    assert (made.status, "status" in made.body) == (201, False), made.body
    # All that a node reports, and a word that nobody knows.
    status = report_status(5300)
    patched = await client.patch(f"{path}/node-1/status", {"status": {**status, "nobody": 1}, "spec": {"gone": 1}})
    assert (patched.status, patched.body["status"]) == (200, status), patched.body
    assert patched.body["spec"] == {"metricCollectPolicy": policy}
    assert patched.body["metadata"]["generation"] == 1
    for wrong, field in (
        ({"nodeMetric": {"nodeUsage": {"resources": {"cpu": "much"}}}}, "status.nodeMetric.nodeUsage.resources.cpu"),
        ({"updateTime": "yesterday"}, "status.updateTime"),
        ({"podsMetric": {}}, "status.podsMetric"),
    ):
        refused = await client.patch(f"{path}/node-1/status", {"status": wrong})
        causes = [cause["field"] for cause in refused.body["details"]["causes"]]
        assert (refused.status, set(causes)) == (422, {field}), refused.body
    policy = {"metricCollectPolicy": {"nodeMemoryCollectPolicy": "all"}}
    refused = await client.patch(f"{path}/node-1", {"spec": policy})
    assert (refused.status, "nodeMemoryCollectPolicy" in refused.message) == (422, True)
    assert (await client.get(f"{path}/node-1")).body["status"] == status
