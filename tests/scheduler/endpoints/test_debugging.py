"""Debug flags: the replies, and what the log says then, by a running service."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from koord.kube.protocol.scheduler import TOPOLOGY_KEY_TO_EXPLAIN
from koord.scheduler.debugging import PER_SECOND, Debugging, DebugSettings, diagnosis_report
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.inspecting import refusals
from koord.scheduler.settings import SchedulerSettings
from koord.telemetry import logs
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.endpoints.asking import site
from tests.scheduler.outside import outside, until

Lines = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """The log of the service, as it grows."""
    logs.configure("scheduler", format_="json")
    told: list[str] = []

    def read(event: str) -> list[dict[str, Any]]:
        told.append(capsys.readouterr().err)
        found = [json.loads(line) for line in "".join(told).splitlines() if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    yield read
    logs.configure("test")


async def test_flags_and_what_they_log(nats_url: str, redis_url: str, cluster: str, lines: Lines) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="2")
        await world.node("n1", cpu="8")
        await world.listed()
        async with site(nats_url, redis_url, cluster) as pages:
            flags = "/debug/flags"
            assert await pages.ask(f"{flags}/s", "PUT", "2") == (200, "successfully set debugTopNScores to 2")
            assert await pages.ask(f"{flags}/f", "PUT", "true") == (200, "successfully set debugFilterFailure to true")
            assert await pages.ask(f"{flags}/d", "PUT", "1") == (200, "successfully set dumpDiagnosis to 1")
            assert await pages.ask(f"{flags}/v", "PUT", "4") == (200, "successfully set klog.logging.verbosity to 4")
            for flag, value in (("s", "many"), ("s", "-1"), ("f", "yes"), ("d", ""), ("v", "-1"), ("db", "2")):
                status, text = await pages.ask(f"{flags}/{flag}", "PUT", value)
                assert status == 400, (flag, value, text)
                assert f"flag {flag}" in text
            for method in ("GET", "POST", "DELETE"):
                assert (await pages.ask(f"{flags}/s", method))[0] == 406
            assert (await pages.ask(f"{flags}/x", "PUT", "1"))[0] == 404

            await world.pod("small", cpu="1")
            await until(lambda: world.node_of("small") == "n1", "bound on the emptier node")
            [scores] = [line for line in lines("scores of the best nodes") if line["pod"] == "default/small"]
            assert [row["node"] for row in scores["nodes"]] == ["n1", "n0"]
            for row in scores["nodes"]:
                parts = {key: value for key, value in row.items() if key not in ("node", "score")}
                assert sum(parts.values()) == row["score"]
                assert "NodeResourcesFit" in parts

            await world.pod("large", cpu="100")
            await until(lambda: world.told("large"), "told")
            [refused, *_] = [line for line in lines("nodes were filtered out") if line["pod"] == "default/large"]
            assert (refused["plugin"], refused["nodes"], refused["names"]) == ("NodeResourcesFit", 2, ["n0", "n1"])
            await until(lambda: lines("diagnosis"), "dumped")
            diagnosis = json.loads(lines("diagnosis")[0]["diagnosis"])
            assert diagnosis["questionedKey"] == "default/large"
            assert diagnosis["isRootCausePod"] is True
            assert diagnosis["scheduleDiagnosis"]["nodeFailedDetails"] == [
                {
                    "failedPlugin": "NodeResourcesFit",
                    "reason": "Insufficient cpu",
                    "preemptMightHelp": False,
                    "nodes": 2,
                    "failedNodes": ["n0", "n1"],
                }
            ]
            for flag, value in (("s", "0"), ("f", "false"), ("d", "F")):
                assert (await pages.ask(f"{flags}/{flag}", "PUT", value))[0] == 200
            assert not pages.service._debugging.watches
            assert not pages.service._debugging.diagnosis


@pytest.mark.parametrize("how", ["setting", "file"])
async def test_flags_can_be_turned_off(nats_url: str, redis_url: str, cluster: str, tmp_path: Path, how: str) -> None:
    if how == "setting":
        settings = SchedulerSettings(debug=DebugSettings(flags=False))
    else:
        path = tmp_path / "scheduler.json"
        body = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        profiles = [{"schedulerName": "koord-scheduler"}]
        path.write_text(json.dumps({**body, "enableProfiling": False, "profiles": profiles}))
        settings = SchedulerSettings(config=str(path))
    async with outside(nats_url, redis_url, cluster) as world:
        await world.listed()
        async with site(nats_url, redis_url, cluster, settings) as pages:
            assert (await pages.ask("/debug/flags/s", "PUT", "3"))[0] == 404
            assert not pages.service._debugging.watches


async def test_dumps_are_bounded(lines: Lines) -> None:
    bed = Bed()
    bed.node("n0", cpu=1000)
    pod = bed.pod("large", {"containers": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}]})
    diagnosis = bed.engine.explain(pod.class_)
    log = logs.get_logger("koord.test")
    debugging = Debugging(bed.engine, log, DebugSettings(diagnosis=True, queue_size=5))
    debugging.failed([(pod, diagnosis)] * 8)
    assert len(debugging._waiting) == 5
    assert lines("diagnosis") == []
    blocking = Debugging(bed.engine, log, DebugSettings(diagnosis=True, blocking=True))
    blocking.failed([(pod, diagnosis)])
    [line] = lines("diagnosis")
    assert json.loads(line["diagnosis"])["scheduleDiagnosis"]["failedMessage"] == diagnosis.message
    blocking.failed([(pod, diagnosis)] * 10 * PER_SECOND)
    assert len(lines("diagnosis")) < 5 * PER_SECOND


def report(bed: Bed, name: str, spec: dict[str, Any], nominated: str = "", **meta: Any) -> dict[str, Any]:
    pod = bed.pod(name, spec, **meta)
    diagnosis = bed.engine.place_one(pod)
    assert isinstance(diagnosis, Diagnosis)
    return diagnosis_report(pod, diagnosis, refusals(bed.engine, pod.class_, 5), nominated, 0.0)


def test_a_diagnosis_says_who_refused_which_nodes_and_whether_preemption_might_help() -> None:
    bed = Bed()
    bed.node("full", cpu=1000)
    bed.node("tainted", taints=[("a", "", "NoSchedule")])
    found = report(bed, "p", requests("2"), "full", labels={TOPOLOGY_KEY_TO_EXPLAIN: "zone"})
    assert found == {
        "timestamp": "1970-01-01T00:00:00.000000Z",
        "questionedKey": "default/p",
        "isRootCausePod": True,
        "topologyKeyToExplain": "zone",
        "nominatedNode": "full",
        "scheduleDiagnosis": {
            "failedMessage": "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).",
            "nodeFailedDetails": [
                {
                    "failedPlugin": "NodeResourcesFit",
                    "reason": "Insufficient cpu",
                    "preemptMightHelp": False,  # the node is too small
                    "nodes": 1,
                    "failedNodes": ["full"],
                },
                {
                    "failedPlugin": "TaintToleration",
                    "reason": "node(s) had untolerated taint(s)",
                    "preemptMightHelp": False,
                    "nodes": 1,
                    "failedNodes": ["tainted"],
                },
            ],
        },
    }


def test_a_diagnosis_of_a_pod_that_prefilter_rejected_names_no_nodes() -> None:
    bed = Bed()
    bed.node("n0")
    key = "scheduling.koordinator.sh/resource-spec"
    found = report(bed, "p", requests("1"), annotations={key: "{"})
    assert found["preFilterMessage"].startswith(f"{key}: ")
    assert "nodeFailedDetails" not in found["scheduleDiagnosis"]
    assert "nominatedNode" not in found
    assert "topologyKeyToExplain" not in found
