"""One running cluster for all tests of bad input, and who must not notice them."""

import json
import time
from collections.abc import Generator, Iterator

import pytest

from tests.integration.bad_input.looking import (
    NODES_N,
    at_rest,
    documents,
    job,
    namespace,
    phase,
    pod,
    quota,
    remove_leftovers,
    versions,
    wait_for_queues,
)
from tests.integration.conftest import Up

# The cluster and its bystanders ---------------------------------------------------------------------------------------


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("bad-input"), "--nodes", str(NODES_N))
    try:
        limit = {"cpu": "64", "memory": "256Gi"}
        good = [
            namespace("team"),
            namespace("calm"),
            quota("team", min={"cpu": "20"}, max=limit),
            quota("calm", "calm", min={"cpu": "4"}, max=limit),
        ]
        up.kubectl("apply", "-f", "-", stdin=documents(good))
        wait_for_queues(up, {"team", "calm"})
        resident = pod("resident", namespace="calm")
        resident["spec"]["restartPolicy"] = "Always"
        finished = job("finished", quota="calm", count=1)
        finished["metadata"]["namespace"] = "calm"
        begun = time.monotonic()
        up.kubectl("create", "-f", "-", stdin=documents([resident, finished]))
        up.wait(lambda: phase(up, "calm", "resident") == "Running", "the bystander runs")
        up.kubectl("wait", "-n", "calm", "--for=condition=complete", "job/finished", "--timeout=180s")
        at_rest(up, time.monotonic() - begun)
        yield up
    finally:
        up.stop()


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = report.failed or item.stash.get(_FAILED, False)
    return report


@pytest.fixture
def bystanders(cluster: Up, request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing but what the test sends may have changed, and nobody may have died."""
    pids, before = cluster.ready["pids"], versions(cluster)
    yield
    if request.node.stash.get(_FAILED, False):
        remove_leftovers(cluster)  # what a failed test left would fail others, too
    assert cluster.ready["pids"] == pids, "a process was started anew"
    assert versions(cluster) == before


@pytest.fixture(autouse=True, scope="package")
def canary(cluster: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After all of it nothing has died or changed, and a job still goes its whole way."""
    pids, before = cluster.ready["pids"], versions(cluster)
    yield
    file = tmp_path_factory.mktemp("canary") / "job.json"
    file.write_text(json.dumps(job("canary")))
    (row,) = json.loads(cluster.koord("submit", str(file), "--wait", "--timeout", "180", "--json"))
    assert row["stage"] == "succeeded"
    assert cluster.ready["pids"] == pids, "a process was started anew"
    assert versions(cluster) == before
