"""The real kubectl against the real server, one test per thing a user does."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture
def node(client: Client, namespace: str) -> str:
    name = f"node-{namespace}"
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    body = {
        "metadata": {"name": name},
        "status": {"conditions": [condition], "allocatable": amounts, "capacity": amounts},
    }
    assert client.post("/api/v1/nodes", body).code == 201
    return name


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


def test_create_and_get_in_all_forms(kubectl: Kubectl, namespace: str) -> None:
    assert "pod/a created" in kubectl("create", "-f", "-", stdin=MANIFEST).stdout
    again = kubectl("create", "-f", "-", stdin=MANIFEST, check=False)
    assert (
        again.returncode == 1
        and '(AlreadyExists): error when creating "STDIN": pods "a" already exists' in again.stderr
    )
    lines = kubectl("get", "pods").stdout.splitlines()
    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["a", "0/1", "Pending", "0"]
    wide = kubectl("get", "pods", "-o", "wide").stdout.splitlines()
    assert "NODE" in wide[0].split() and "<none>" in wide[1]
    assert json.loads(kubectl("get", "pod", "a", "-o", "json").stdout)["kind"] == "Pod"
    assert "schedulerName: default-scheduler" in kubectl("get", "po", "a", "-o", "yaml").stdout
    assert kubectl("get", "po,job,pytorchjob", "-o", "name").stdout.split() == [
        "pod/a",
        "job.batch/j",
        "pytorchjob.kubeflow.org/p",
    ]
    assert kubectl("get", "pods", "-l", "app=web", "--no-headers").stdout.startswith("a ")
    assert "No resources found" in kubectl("get", "pods", "-l", "app!=web").stderr
    assert kubectl("get", "pods", "--field-selector", "status.phase=Pending", "-o", "name").stdout == "pod/a\n"
    assert namespace in kubectl("get", "pods", "--all-namespaces").stdout
    assert kubectl("get", "pods", "--sort-by=.metadata.name", "--show-labels").stdout.count("app=web") == 1
    missing = kubectl("get", "pod", "none", check=False)
    assert missing.stderr.strip() == 'Error from server (NotFound): pods "none" not found'
    assert "error: the server doesn't have a resource type" in kubectl("get", "gizmos", check=False).stderr


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


def test_describe(kubectl: Kubectl, client: Client, namespace: str, node: str) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    client.post(f"/api/v1/namespaces/{namespace}/pods/a/binding", {"target": {"name": node}})
    event = {
        "metadata": {"name": "a.1"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": namespace,
            "name": "a",
            "uid": client.get(f"/api/v1/namespaces/{namespace}/pods/a").body["metadata"]["uid"],
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
    assert "Successfully assigned" in text and "koord-scheduler" in text and f"Node:             {node}/" in text
    text = kubectl("describe", "node", node).stdout
    assert "KubeletReady" in text and "100m (1%)" in text
    text = kubectl("describe", "job", "j").stdout
    assert "Suspend:" in text and "Parallelism:" in text
    assert "Pytorch Replica Specs:" in kubectl("describe", "pytorchjob", "p").stdout
    assert "Scheduled" in kubectl("get", "events").stdout
    assert "pod/a" in kubectl("get", "events", "--field-selector", "involvedObject.name=a").stdout


def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl, client: Client, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    done = kubectl("delete", "-f", "-", "--wait=true", stdin=MANIFEST)
    assert len(done.stdout.splitlines()) == 3
    assert kubectl("get", "po,job,pytorchjob", "-o", "name").stdout == ""
    client.post(
        f"/api/v1/namespaces/{namespace}/pods",
        pod("held") | {"metadata": {"name": "held", "finalizers": ["koord.sh/x"]}},
    )
    timed_out = kubectl("delete", "pod", "held", "--wait", "--timeout=1s", check=False)
    assert timed_out.returncode == 1
    client.patch(f"/api/v1/namespaces/{namespace}/pods/held", {"metadata": {"finalizers": None}})
    assert kubectl("get", "pods", "-o", "name").stdout == ""
    for name in ("b", "c"):
        client.post(f"/api/v1/namespaces/{namespace}/pods", pod(name))
    assert len(kubectl("delete", "pods", "--all").stdout.splitlines()) == 2


def test_wait_for_a_condition(kubectl: Kubectl, client: Client, namespace: str, server: Server) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    client.post(path, pod("a"))
    timed_out = kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=1s", check=False)
    assert timed_out.returncode == 1 and "timed out waiting" in timed_out.stderr
    command = [
        str(KUBECTL),
        "--kubeconfig",
        server.ready["kubeconfig"],
        "-n",
        namespace,
        "wait",
        "pod/a",
        "--timeout=60s",
    ]
    with subprocess.Popen([*command, "--for=condition=Ready"], stdout=subprocess.PIPE, text=True) as waiting:
        client.patch(f"{path}/a/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        assert waiting.communicate(timeout=30)[0] == "pod/a condition met\n"
    with subprocess.Popen([*command, "--for=delete"], stdout=subprocess.PIPE, text=True) as waiting:
        client.delete(f"{path}/a")
        assert waiting.wait(30) == 0
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    assert (
        kubectl("wait", "--for=jsonpath={.spec.suspend}=true", "job/j", "--timeout=60s").stdout
        == "job.batch/j condition met\n"
    )


def test_scale(kubectl: Kubectl) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]},
        },
    }
    kubectl("create", "-f", "-", stdin=json.dumps(deployment))
    assert kubectl("scale", "deployment", "d", "--replicas=4").stdout == "deployment.apps/d scaled\n"
    assert kubectl("get", "deployment", "d", "-o", "jsonpath={.spec.replicas}").stdout == "4"
    refused = kubectl("scale", "deployment", "d", "--current-replicas=1", "--replicas=9", check=False)
    assert refused.returncode == 1
    kubectl("apply", "-f", "-", stdin=MANIFEST)
    kubectl("patch", "job", "j", "-p", '{"spec":{"suspend":false}}')
    assert kubectl("get", "job", "j", "-o", "jsonpath={.spec.suspend}").stdout == "false"


def test_label_and_annotate(kubectl: Kubectl, client: Client, namespace: str) -> None:
    client.post(f"/api/v1/namespaces/{namespace}/pods", pod("a"))
    assert kubectl("label", "pod", "a", "tier=front").stdout == "pod/a labeled\n"
    assert kubectl("label", "pod", "a", "tier=back", check=False).returncode == 1
    assert kubectl("label", "pod", "a", "tier=back", "--overwrite").stdout == "pod/a labeled\n"
    assert kubectl("annotate", "pod", "a", "note=x y z").stdout == "pod/a annotated\n"
    metadata: dict[str, Any] = client.get(f"/api/v1/namespaces/{namespace}/pods/a").body["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"tier": "back"}, {"note": "x y z"})
    assert kubectl("label", "pod", "a", "tier-").stdout == "pod/a unlabeled\n"
    bad = kubectl("label", "pod", "a", "tier=not ok", check=False)
    assert bad.returncode == 1


def test_taint_and_cordon(kubectl: Kubectl, client: Client, node: str) -> None:
    assert kubectl("taint", "node", node, "gpu=yes:NoSchedule").stdout == f"node/{node} tainted\n"
    assert client.get(f"/api/v1/nodes/{node}").body["spec"]["taints"] == [
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    ]
    assert kubectl("cordon", node).stdout == f"node/{node} cordoned\n"
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", node).stdout
    assert kubectl("uncordon", node).stdout == f"node/{node} uncordoned\n"
    assert kubectl("taint", "node", node, "gpu-").stdout == f"node/{node} untainted\n"
    assert "SchedulingDisabled" not in kubectl("get", "node", node).stdout
    assert "taints" not in client.get(f"/api/v1/nodes/{node}").body["spec"]


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


def test_what_kubectl_sends_as_protobuf(kubectl: Kubectl, client: Client, namespace: str) -> None:
    name = f"{namespace}-made"
    assert kubectl("create", "namespace", name).stdout == f"namespace/{name} created\n"
    kubectl("create", "configmap", "c", "--from-literal=a=b", "--from-literal=empty=")
    kubectl("create", "secret", "generic", "s", "--from-literal=password=x y")
    assert client.get(f"/api/v1/namespaces/{namespace}/configmaps/c").body["data"] == {"a": "b", "empty": ""}
    secret = client.get(f"/api/v1/namespaces/{namespace}/secrets/s").body
    assert (secret["data"], secret["type"]) == ({"password": "eCB5"}, "Opaque")
    assert kubectl("create", "serviceaccount", "robot").stdout == "serviceaccount/robot created\n"
    kubectl("create", "priorityclass", name, "--value=-5", "--description=low")
    priority = client.get(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}").body
    assert (priority["value"], priority["description"]) == (-5, "low")
    assert kubectl("create", "deployment", "d", "--image=busybox").stdout == "deployment.apps/d created\n"
    assert kubectl("delete", "priorityclass", name).returncode == 0
    assert kubectl("delete", "namespace", name).stdout == f'namespace "{name}" deleted\n'


def test_explicit_namespace_and_version(kubectl: Kubectl) -> None:
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
