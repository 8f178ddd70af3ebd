"""A user's way: manifests written for the real operators reach running pods, by kubectl and by ``koord submit``."""

import json
from functools import partial
from typing import Any

import pytest

from tests.integration.conftest import MANIFESTS, Up


@pytest.fixture(scope="module")
def quota(up: Up) -> Up:
    up.kubectl("apply", "-f", str(MANIFESTS / "quota.yaml"))
    up.wait(lambda: any(row["name"] == "ml" for row in json.loads(up.koord("get", "queues", "--json"))), "queue ml")
    return up


def pods_of(up: Up, prefix: str) -> list[dict[str, Any]]:
    return [pod for pod in up.objects("pods", "-n", "ml") if pod["metadata"]["name"].startswith(prefix)]


@pytest.mark.parametrize(
    ("manifest", "kind", "name", "pods", "gang"),
    [
        ("tfjob.yaml", "tfjob", "mnist-ps", 3, 3),
        ("pytorchjob.yaml", "pytorchjob", "resnet-ddp", 4, 4),
        ("rayjob.yaml", "rayjob", "tune-batch", 4, None),
        ("job.yaml", "job", "etl", 3, 3),
    ],
)
def test_kubectl_apply_reaches_running_pods(
    quota: Up, manifest: str, kind: str, name: str, pods: int, gang: int | None
) -> None:
    up = quota
    up.kubectl("apply", "-f", str(MANIFESTS / manifest))

    def all_ran() -> list[dict[str, Any]]:
        seen = pods_of(up, name)
        ran = [pod for pod in seen if pod["status"].get("phase") in ("Running", "Succeeded")]
        return ran if len(ran) >= pods else []

    ran = up.wait(all_ran, f"{pods} pods of {kind} {name} run")
    assert len(pods_of(up, name)) == pods
    for pod in ran:
        annotations = pod["metadata"]["annotations"]
        assert annotations["koord.sh/traceparent"].startswith("00-")
        assert pod["spec"]["nodeName"]
        if gang is not None:
            assert annotations["gang.scheduling.koordinator.sh/min-available"] == str(gang)
    (unit,) = [unit for unit in up.objects("queueunits", "-n", "ml") if unit["spec"]["consumerRef"]["name"] == name]
    assert unit["status"]["phase"] in ("Dequeued", "Running", "Succeed")
    assert unit["spec"]["queue"] == "ml"
    up.kubectl("delete", kind, name, "-n", "ml")


def test_submit_waits_and_says_what_happens(quota: Up, tmp_path: Any) -> None:
    up = quota
    manifest = (MANIFESTS / "job.yaml").read_text().replace("name: etl", "name: submitted")
    file = tmp_path / "job.yaml"
    file.write_text(manifest)
    (row,) = json.loads(up.koord("submit", str(file), "--wait", "--json"))
    assert (row["job"], row["stage"]) == ("ml/submitted", "succeeded")
    listed = {row["name"]: row for row in json.loads(up.koord("get", "jobs", "-n", "ml", "--json"))}
    assert listed["submitted"]["kind"] == "Job"

    names = {
        span["name"]
        for span in up.wait(
            lambda: _trace_with(up, "ml/submitted", "pod.running"), "the trace has reached the store", 20
        )
    }
    assert {
        "queue.enqueue", "queue.admit", "ledger.claim", "scheduler.plan", "gateway.bind", "pod.running",
    } <= names  # fmt: skip
    assert "queue.admit" in up.koord("trace", "job", "ml/submitted")


def _trace_with(up: Up, job: str, name: str) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = json.loads(up.koord("trace", "job", job, "--json"))
    return spans if any(span["name"] == name for span in spans) else []


def test_submit_until_running(quota: Up, tmp_path: Any) -> None:
    file = tmp_path / "job.yaml"
    file.write_text((MANIFESTS / "pytorchjob.yaml").read_text().replace("name: resnet-ddp", "name: until-running"))
    (row,) = json.loads(quota.koord("submit", str(file), "--wait", "--until", "running", "--json"))
    assert row["stage"] in ("running", "succeeded")


def test_one_trace_per_job_and_a_new_one_for_the_next(quota: Up, tmp_path: Any) -> None:
    traces = set()
    for name in ("trace-a", "trace-b"):
        file = tmp_path / f"{name}.yaml"
        file.write_text((MANIFESTS / "job.yaml").read_text().replace("name: etl", f"name: {name}"))
        quota.koord("submit", str(file), "--wait")
        spans = quota.wait(partial(_trace_with, quota, f"ml/{name}", "pod.running"), "its trace is there", 20)
        ids = {span["trace_id"] for span in spans}
        assert len(ids) == 1
        traces |= ids
    assert len(traces) == 2


def test_explain_names_what_refuses_a_pod(quota: Up) -> None:
    up = quota
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "too-big", "namespace": "ml"},
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "main", "image": "registry.example/x:1", "resources": {"requests": {"cpu": "33"}}}],
        },
    }
    up.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    # Its quota's runtime grows with what it asks for: until that is known, the quota may be what is named.
    up.wait(
        lambda: [
            condition
            for condition in up.objects("pod", "too-big", "-n", "ml")[0]["status"].get("conditions", ())
            if condition["type"] == "PodScheduled"
            and condition["status"] == "False"
            and condition["message"]
            == "0/40 nodes are available: 40 Insufficient cpu. preemption: 0/40 nodes are available: "
            "40 Preemption is not helpful for scheduling."
        ],
        "the pod says why it is not scheduled",
    )
    explained = json.loads(up.koord("explain", "pod", "ml/too-big", "--json"))
    assert explained["total_nodes"] == 40
    assert [(reason["reason"], reason["nodes"]) for reason in explained["reasons"]] == [("Insufficient cpu", 40)]
    up.wait(
        lambda: [
            event
            for event in up.objects("events", "-n", "ml")
            if event["reason"] == "FailedScheduling" and event["involvedObject"]["name"] == "too-big"
        ],
        "an event FailedScheduling",
    )
    up.kubectl("delete", "pod", "too-big", "-n", "ml")


def test_reading_commands(quota: Up) -> None:
    nodes = json.loads(quota.koord("get", "nodes", "--json"))
    assert len(nodes) == 40
    assert {row["status"] for row in nodes} == {"Ready"}
    assert "ml" in quota.koord("get", "quotas")
    assert json.loads(quota.koord("get", "quotas", "ml", "--json"))[0]["max"]["cpu"] == "64"
    quota.koord("get", "pods", "-n", "ml")
