"""The real kubectl on what only this server has: koord's own definitions, its namespaces, and watches that go on.

What kubectl does on every server is stated in `tests/conformance/test_kubectl.py`.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.localcluster.api.conftest import KUBECTL
from tests.localcluster.api.rig import Client, Kubectl, Server, pod

MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {app: web}}
spec:
  containers: [{name: main, image: "busybox:1", resources: {requests: {cpu: 100m}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  parallelism: 2
  completions: 2
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox}]
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: p}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: pytorch, image: busybox}]}}
"""


def test_apply_creates_changes_and_keeps(kubectl: Kubectl) -> None:
    first = kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert first.stdout.splitlines() == ["pod/a created", "job.batch/j created", "pytorchjob.kubeflow.org/p created"]
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=MANIFEST).stdout
    assert kubectl("apply", "-f", "-", stdin=MANIFEST).stderr == ""
    changed = kubectl(
        "apply", "-f", "-", stdin=MANIFEST.replace("busybox:1", "busybox:2").replace("replicas: 2", "replicas: 3")
    )
    assert changed.stdout.splitlines() == [
        "pod/a configured",
        "job.batch/j unchanged",
        "pytorchjob.kubeflow.org/p configured",
    ]
    assert kubectl("get", "pod", "a", "-o", "jsonpath={.spec.containers[0].image}").stdout == "busybox:2"
    replicas = "jsonpath={.spec.pytorchReplicaSpecs.Worker.replicas}"
    assert kubectl("get", "pytorchjob", "p", "-o", replicas).stdout == "3"
    refused = kubectl("apply", "-f", "-", stdin=MANIFEST.replace("cpu: 100m", "cpu: many"), check=False)
    assert refused.returncode == 1 and "quantities must match" in refused.stderr


def test_get_watch_shows_changes(
    kubectl: Kubectl, client: Client, namespace: str, server: Server, tmp_path: Path
) -> None:
    client.post(f"/api/v1/namespaces/{namespace}/pods", pod("a"))
    command = [
        str(KUBECTL),
        "--kubeconfig",
        server.ready["kubeconfig"],
        "-n",
        namespace,
        "get",
        "pods",
        "-w",
        "-o",
        "wide",
    ]
    output = tmp_path / "watch"
    with output.open("w") as file, subprocess.Popen(command, stdout=file) as watch:
        _until(lambda: "Pending" in output.read_text())
        client.post(f"/api/v1/namespaces/{namespace}/pods/a/binding", {"target": {"name": "n1"}})
        client.patch(f"/api/v1/namespaces/{namespace}/pods/a/status", {"status": {"phase": "Running"}})
        _until(lambda: "Running" in output.read_text())
        watch.terminate()
    assert " n1 " in output.read_text()


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_describe(kubectl: Kubectl, client: Client, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    pod_path = f"/api/v1/namespaces/{namespace}/pods/a"
    event = {
        "metadata": {"name": "a.1"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": namespace,
            "name": "a",
            "uid": client.get(pod_path).body["metadata"]["uid"],
        },
        "reason": "Scheduled",
        "message": "Successfully assigned",
        "type": "Normal",
        "source": {"component": "koord-scheduler"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    assert client.post(f"/api/v1/namespaces/{namespace}/events", event).code == 201
    text = kubectl("describe", "pod", "a").stdout
    assert "Successfully assigned" in text and "koord-scheduler" in text
    assert "Pytorch Replica Specs:" in kubectl("describe", "pytorchjob", "p").stdout
    assert "pod/a" in kubectl("get", "events", "--field-selector", "involvedObject.name=a").stdout


def test_custom_resources_of_koord(kubectl: Kubectl, namespace: str) -> None:
    quota = f"""
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {{name: team, namespace: {namespace}}}
spec: {{max: {{cpu: "40"}}, min: {{cpu: "10"}}}}
"""
    kubectl("apply", "-f", "-", stdin=quota)
    header, row = kubectl("get", "elasticquota").stdout.splitlines()
    assert header.startswith("NAME") and row.startswith("team")
    assert "Spec:" in kubectl("describe", "elasticquota", "team").stdout
    assert "scheduling.sigs.k8s.io" in kubectl("api-resources", "--api-group=scheduling.sigs.k8s.io").stdout


def test_version_and_namespaces(kubectl: Kubectl) -> None:
    assert "Server Version: v1.37" in kubectl("version").stdout
    assert "Active" in kubectl("get", "namespaces").stdout
    assert "koord-system" in kubectl("get", "ns", "-o", "name").stdout


@pytest.mark.parametrize("verb", ["create", "apply"])
def test_a_list_of_objects(kubectl: Kubectl, verb: str) -> None:
    items = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "b"}},
        {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "two"}, "spec": {"tfReplicaSpecs": {}}},
    ]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    done = kubectl(verb, "-f", "-", stdin=body)
    assert done.stdout.splitlines() == ["configmap/one created", "tfjob.kubeflow.org/two created"]
