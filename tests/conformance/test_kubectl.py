"""What people do with kubectl that needs no running container, verb by verb, on both servers."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.rig import Kubectl, unique
from tests.conformance.servers import DEADLINE

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {app: j}}
spec:
  parallelism: 2
  completions: 2
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "busybox:1", resources: {requests: {cpu: 100m}}}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: web}, annotations: {note: hello}}
spec:
  automountServiceAccountToken: false
  schedulerName: none
  containers: [{name: main, image: "busybox:1", resources: {requests: {cpu: 100m}}}]
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, labels: {app: d}}
spec:
  replicas: 1
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers: [{name: main, image: "web:1", ports: [{containerPort: 80}]}]
"""


def get(kubectl: Kubectl, *what: str) -> Any:
    return json.loads(kubectl("get", *what, "-o", "json").stdout)


# What `kubectl create` makes, and what of it is stored.
CREATED: list[tuple[tuple[str, ...], str, dict[str, Any]]] = [
    (("configmap", "x", "--from-literal=a=b"), "configmap/x", {"data": {"a": "b"}}),
    (("secret", "generic", "x", "--from-literal=a=b"), "secret/x", {"data": {"a": "Yg=="}, "type": "Opaque"}),
    (
        ("secret", "docker-registry", "x", "--docker-username=u", "--docker-password=p", "--docker-server=r"),
        "secret/x",
        {"type": "kubernetes.io/dockerconfigjson"},
    ),
    (("serviceaccount", "x"), "serviceaccount/x", {}),
    (
        ("deployment", "x", "--image=web:1", "--replicas=0", "--port=80"),
        "deployment.apps/x",
        {"spec.replicas": 0, "spec.selector": {"matchLabels": {"app": "x"}}, "spec.strategy.type": "RollingUpdate"},
    ),
    (
        ("job", "x", "--image=busybox", "--", "sleep", "1"),
        "job.batch/x",
        {"spec.completions": 1, "spec.parallelism": 1, "spec.backoffLimit": 6, "spec.completionMode": "NonIndexed"},
    ),
    (
        ("cronjob", "x", "--image=busybox", "--schedule=1 0 * * *", "--", "date"),
        "cronjob.batch/x",
        {"spec.schedule": "1 0 * * *", "spec.concurrencyPolicy": "Allow", "spec.suspend": False},
    ),
    (("quota", "x", "--hard=cpu=1,pods=2"), "resourcequota/x", {"spec.hard": {"cpu": "1", "pods": "2"}}),
    (
        ("poddisruptionbudget", "x", "--selector=app=x", "--min-available=50%"),
        "poddisruptionbudget.policy/x",
        {"spec.minAvailable": "50%", "spec.selector": {"matchLabels": {"app": "x"}}},
    ),
    (
        ("role", "x", "--verb=get,list", "--resource=pods,deployments.apps"),
        "role.rbac.authorization.k8s.io/x",
        {
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
            ]
        },
    ),
    (
        ("rolebinding", "x", "--clusterrole=view", "--user=bob"),
        "rolebinding.rbac.authorization.k8s.io/x",
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}},
    ),
    (
        ("ingress", "x", "--rule=h/p=svc:80"),
        "ingress.networking.k8s.io/x",
        {
            "spec.rules": [
                {
                    "host": "h",
                    "http": {
                        "paths": [
                            {
                                "backend": {"service": {"name": "svc", "port": {"number": 80}}},
                                "path": "/p",
                                "pathType": "Exact",
                            }
                        ]
                    },
                }
            ]
        },
    ),
    (("service", "clusterip", "x", "--tcp=80:8080"), "service/x", {"spec.type": "ClusterIP"}),
    (
        ("service", "nodeport", "x", "--tcp=80"),
        "service/x",
        {"spec.type": "NodePort"},
    ),
]


@pytest.mark.parametrize(("what", "name", "stored"), CREATED, ids=["-".join(case[0][:2]) for case in CREATED])
def test_create(kubectl: Kubectl, what: tuple[str, ...], name: str, stored: dict[str, Any]) -> None:
    assert kubectl("create", *what).stdout.splitlines()[-1] == f"{name} created"
    made = get(kubectl, name)
    for path, expected in stored.items():
        value = made
        for step in path.split("."):
            value = value[step]
        assert value == expected, path
    again = kubectl("create", *what, check=False)
    assert again.returncode == 1 and "already exists" in again.stderr
    assert "deleted" in kubectl("delete", name, "--wait=false").stdout


def test_create_what_belongs_to_the_whole_cluster(kubectl: Kubectl) -> None:
    name = unique("k")
    for what in (
        ("namespace", name),
        ("priorityclass", name, "--value=-5", "--description=low"),
        ("clusterrole", name, "--verb=get", "--resource=nodes"),
        ("clusterrolebinding", name, f"--clusterrole={name}", "--group=g"),
    ):
        assert kubectl("create", *what).stdout.endswith(f"/{name} created\n")
        assert kubectl("delete", what[0], name, "--wait=false").stdout.startswith(f"{what[0]}")


def test_dry_runs(kubectl: Kubectl) -> None:
    assert (
        kubectl("create", "-f", "-", "--dry-run=server", stdin=JOB).stdout == "job.batch/j created (server dry run)\n"
    )
    assert kubectl("get", "jobs", "-o", "name").stdout == ""
    kubectl("create", "-f", "-", stdin=JOB)
    changed = JOB.replace("parallelism: 2", "parallelism: 1")
    assert "configured (server dry run)" in kubectl("apply", "-f", "-", "--dry-run=server", stdin=changed).stdout
    assert "(server dry run)" in kubectl("delete", "job", "j", "--dry-run=server").stdout
    assert get(kubectl, "job", "j")["spec"]["parallelism"] == 2


def test_get_in_all_forms(kubectl: Kubectl, namespace: str) -> None:
    kubectl("create", "-f", "-", stdin=POD + "---" + JOB)
    assert kubectl("get", "pods").stdout.splitlines()[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    wide = kubectl("get", "pods", "-o", "wide").stdout.splitlines()
    assert wide[0].split()[5:8] == ["IP", "NODE", "NOMINATED"] and wide[1].split()[:4] == ["p", "0/1", "Pending", "0"]
    assert yaml.safe_load(kubectl("get", "pod", "p", "-o", "yaml").stdout)["spec"]["schedulerName"] == "none"
    columns = kubectl("get", "pods", "-o", "custom-columns=N:.metadata.name,I:.spec.containers[*].image").stdout
    assert [line.split() for line in columns.splitlines()] == [["N", "I"], ["p", "busybox:1"]]
    images = kubectl("get", "pods", "-o", "jsonpath={range .items[*]}{.spec.containers[0].image}{end}").stdout
    assert images == "busybox:1"
    template = kubectl("get", "pods", "-o", "go-template={{range .items}}{{.metadata.name}}{{end}}").stdout
    assert template == "p"
    names = kubectl("get", "pods,jobs", "-o", "name").stdout.split()
    assert names == ["pod/p", "job.batch/j"]
    assert kubectl("get", "pods", "-l", "app=web", "--no-headers").stdout.startswith("p ")
    assert "No resources found" in kubectl("get", "pods", "-l", "app!=web").stderr
    assert namespace in kubectl("get", "pods", "-A").stdout
    for number in range(5):
        kubectl("create", "configmap", f"c{number}", f"--from-literal=n={9 - number}")
    found = kubectl("get", "configmaps", "--chunk-size=2", "-o", "name").stdout.split()
    assert [name for name in found if name != "configmap/kube-root-ca.crt"] == [f"configmap/c{n}" for n in range(5)]
    ordered = kubectl("get", "configmaps", "--sort-by=.data.n", "-o", "name").stdout.split()
    assert [name for name in ordered if name != "configmap/kube-root-ca.crt"] == [
        f"configmap/c{n}" for n in (4, 3, 2, 1, 0)
    ]
    assert "app=web" in kubectl("get", "pods", "--show-labels", "-L", "app").stdout
    managed = get(kubectl, "pod", "p", "--show-managed-fields")
    assert managed["metadata"]["managedFields"]
    missing = kubectl("get", "pod", "none", check=False)
    assert missing.stderr.strip() == 'Error from server (NotFound): pods "none" not found'
    assert kubectl("get", "pod", "none", "--ignore-not-found").stdout == ""
    assert "doesn't have a resource type" in kubectl("get", "gizmos", check=False).stderr
    raw = json.loads(kubectl("get", "--raw", f"/api/v1/namespaces/{namespace}/pods/p").stdout)
    assert raw["metadata"]["name"] == "p"


def test_get_watch(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a", "--from-literal=x=1")
    # The time is for all of it, the first list included, which a busy machine may need it for.
    for seconds in (1, 5, 25):
        watched = ("configmap", "a", "--watch", f"--request-timeout={seconds}s", "-o", "name")
        seen = kubectl("get", *watched, check=False)
        if seen.stdout:
            break
    assert seen.stdout == "configmap/a\n"


def test_describe(kubectl: Kubectl, node: str) -> None:
    kubectl("create", "-f", "-", stdin=POD + "---" + JOB + "---" + DEPLOYMENT)
    pod = kubectl("describe", "pod", "p").stdout
    assert "Image:      busybox:1" in pod and "QoS Class:" in pod and "note: hello" in pod
    assert "Parallelism:      2" in kubectl("describe", "job", "j").stdout
    assert "web:1" in kubectl("describe", "deployment", "d").stdout
    assert "cpu:     8" in kubectl("describe", "node", node).stdout
    crd = kubectl("describe", "crd", "podgroups.scheduling.sigs.k8s.io", check=False)
    assert "scheduling.sigs.k8s.io" in crd.stdout or "NotFound" in crd.stderr


def test_apply_diff_and_prune(kubectl: Kubectl, tmp_path: Path) -> None:
    both = POD + "---" + JOB
    made = kubectl("apply", "-f", "-", stdin=both)
    assert made.stdout.splitlines() == ["pod/p created", "job.batch/j created"] and made.stderr == ""
    assert kubectl("apply", "-f", "-", stdin=both).stdout.splitlines() == ["pod/p unchanged", "job.batch/j unchanged"]
    assert kubectl("diff", "-f", "-", stdin=both).returncode == 0
    other = both.replace("busybox:1", "busybox:2", 1)
    differs = kubectl("diff", "-f", "-", stdin=other, check=False)
    assert differs.returncode == 1, differs.stderr
    assert "-  - image: busybox:1" in differs.stdout and "+  - image: busybox:2" in differs.stdout
    assert kubectl("apply", "-f", "-", stdin=other).stdout.splitlines()[0] == "pod/p configured"
    assert get(kubectl, "pod", "p")["spec"]["containers"][0]["image"] == "busybox:2"
    assert "busybox:2" in kubectl("apply", "view-last-applied", "pod/p").stdout
    # What is no longer in the set goes.
    pruned = kubectl(
        "apply",
        "-f",
        "-",
        "--prune",
        "-l",
        "app=j",
        "--prune-allowlist=batch/v1/Job",
        stdin=JOB.replace(": j,", ": k,"),
    )
    assert "job.batch/k created" in pruned.stdout and "job.batch/j pruned" in pruned.stdout
    (tmp_path / "cm.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: base}\ndata: {a: b}\n")
    (tmp_path / "kustomization.yaml").write_text("resources: [cm.yaml]\nnamePrefix: my-\ncommonLabels: {team: x}\n")
    assert "configmap/my-base created" in kubectl("apply", "-k", str(tmp_path)).stdout
    assert "configmap/my-base unchanged" in kubectl("apply", "-k", str(tmp_path)).stdout


def test_apply_server_side(kubectl: Kubectl) -> None:
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=DEPLOYMENT).stdout
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=DEPLOYMENT).stdout
    kubectl("scale", "deployment/d", "--replicas=3")
    conflict = kubectl(
        "apply", "--server-side", "-f", "-", stdin=DEPLOYMENT.replace("replicas: 1", "replicas: 2"), check=False
    )
    assert conflict.returncode == 1 and ".spec.replicas" in conflict.stderr and "conflict" in conflict.stderr
    forced = DEPLOYMENT.replace("replicas: 1", "replicas: 2")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=forced)
    assert get(kubectl, "deployment", "d")["spec"]["replicas"] == 2


def test_edit_and_replace(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "configmap", "c", "--from-literal=a=before")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/before/after/" "$1"\n')
    editor.chmod(0o755)
    assert "edited" in kubectl("edit", "configmap", "c", env={"EDITOR": str(editor)}).stdout
    assert get(kubectl, "configmap", "c")["data"] == {"a": "after"}
    body = get(kubectl, "configmap", "c")
    body["data"]["b"] = "more"
    assert "replaced" in kubectl("replace", "-f", "-", stdin=json.dumps(body)).stdout
    stale = kubectl("replace", "-f", "-", stdin=json.dumps(body), check=False)
    assert stale.returncode == 1 and "the object has been modified" in stale.stderr
    uid = body["metadata"]["uid"]
    for field in ("resourceVersion", "uid", "creationTimestamp"):
        del body["metadata"][field]
    assert "replaced" in kubectl("replace", "--force", "-f", "-", stdin=json.dumps(body)).stdout
    assert get(kubectl, "configmap", "c")["metadata"]["uid"] != uid


def test_patch_label_and_annotate(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)
    strategic = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}}
    assert "patched" in kubectl("patch", "deployment", "d", "-p", json.dumps(strategic)).stdout
    assert "patched (no change)" in kubectl("patch", "deployment", "d", "-p", json.dumps(strategic)).stdout
    containers = get(kubectl, "deployment", "d")["spec"]["template"]["spec"]["containers"]
    assert [one["name"] for one in containers] == ["side", "main"]
    merge = json.dumps({"spec": {"replicas": 0}, "metadata": {"labels": {"app": None, "new": "yes"}}})
    kubectl("patch", "deployment", "d", "--type=merge", "-p", merge)
    operations = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "side:2"}]
    kubectl("patch", "deployment", "d", "--type=json", "-p", json.dumps(operations))
    now = get(kubectl, "deployment", "d")
    assert now["metadata"]["labels"] == {"new": "yes"} and now["spec"]["replicas"] == 0
    assert now["spec"]["template"]["spec"]["containers"][0]["image"] == "side:2"
    wrong = [{"op": "test", "path": "/spec/replicas", "value": 7}]
    assert kubectl("patch", "deployment", "d", "--type=json", "-p", json.dumps(wrong), check=False).returncode == 1
    scaled = kubectl("patch", "deployment", "d", "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    assert "patched" in scaled.stdout and get(kubectl, "deployment", "d")["spec"]["replicas"] == 2
    assert "labeled" in kubectl("label", "deployment", "d", "tier=gold").stdout
    assert kubectl("label", "deployment", "d", "tier=iron", check=False).returncode == 1
    kubectl("label", "deployment", "d", "tier=iron", "--overwrite")
    kubectl("label", "deployment", "d", "new-")
    kubectl("annotate", "deployment", "d", "why=because")
    now = get(kubectl, "deployment", "d")["metadata"]
    assert now["labels"] == {"tier": "iron"} and now["annotations"]["why"] == "because"


def test_nodes_are_tainted_and_cordoned(kubectl: Kubectl, node: str) -> None:
    assert "tainted" in kubectl("taint", "nodes", node, "dedicated=a:NoSchedule").stdout
    taints = get(kubectl, "node", node)["spec"]["taints"]
    assert {"key": "dedicated", "value": "a", "effect": "NoSchedule"} in taints
    assert kubectl("taint", "nodes", node, "dedicated=b:NoSchedule", check=False).returncode == 1
    assert "modified" in kubectl("taint", "nodes", node, "dedicated=b:NoSchedule", "--overwrite").stdout
    assert "untainted" in kubectl("taint", "nodes", node, "dedicated-").stdout
    assert "cordoned" in kubectl("cordon", node).stdout
    assert "SchedulingDisabled" in kubectl("get", "node", node).stdout
    assert "uncordoned" in kubectl("uncordon", node).stdout
    assert "unschedulable" not in get(kubectl, "node", node)["spec"]


def test_drain(kubectl: Kubectl, node: str, namespace: str) -> None:
    kubectl("create", "-f", "-", stdin=POD.replace("schedulerName: none", f"nodeName: {node}"))
    # The pod runs nowhere, so nobody would confirm its end: it has ended.
    kubectl("patch", "pod", "p", "--subresource=status", "-p", '{"status":{"phase":"Succeeded"}}')
    drained = kubectl("drain", node, "--force", "--ignore-daemonsets", "--timeout=60s", "--grace-period=0")
    assert f"evicting pod {namespace}/p" in drained.stderr + drained.stdout and "drained" in drained.stdout
    assert kubectl("get", "pods", "-o", "name").stdout == ""
    assert get(kubectl, "node", node)["spec"]["unschedulable"] is True


def test_scale_autoscale_expose_and_set(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)
    assert "scaled" in kubectl("scale", "deployment/d", "--replicas=0").stdout
    assert kubectl("scale", "deployment/d", "--current-replicas=5", "--replicas=1", check=False).returncode == 1
    assert "autoscaled" in kubectl("autoscale", "deployment/d", "--min=1", "--max=4", "--cpu=50%").stdout
    hpa = get(kubectl, "hpa", "d")["spec"]
    assert (hpa["minReplicas"], hpa["maxReplicas"], hpa["scaleTargetRef"]["name"]) == (1, 4, "d")
    assert "exposed" in kubectl("expose", "deployment/d", "--port=80").stdout
    service = get(kubectl, "service", "d")["spec"]
    assert service["selector"] == {"app": "d"} and service["ports"][0]["port"] == 80
    assert "image updated" in kubectl("set", "image", "deployment/d", "main=web:2").stdout
    assert "env updated" in kubectl("set", "env", "deployment/d", "A=1").stdout
    assert "requirements updated" in kubectl("set", "resources", "deployment/d", "--requests=cpu=250m").stdout
    assert "selector updated" in kubectl("set", "selector", "service/d", "app=other").stdout
    assert "serviceaccount updated" in kubectl("set", "serviceaccount", "deployment/d", "default").stdout
    (main,) = get(kubectl, "deployment", "d")["spec"]["template"]["spec"]["containers"]
    assert (main["image"], main["env"]) == ("web:2", [{"name": "A", "value": "1"}])
    assert main["resources"]["requests"] == {"cpu": "250m"}
    assert get(kubectl, "service", "d")["spec"]["selector"] == {"app": "other"}


def test_wait_and_delete(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=POD + "---" + JOB)
    assert "condition met" in kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Pending", "--timeout=60s").stdout
    kubectl("wait", "job/j", "--for=condition=Suspended", "--timeout=0s", check=False)
    late = kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=3s", check=False)
    assert late.returncode == 1 and "timed out" in late.stderr
    ready = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "pod", "p", "--subresource=status", "-p", ready)
    assert "condition met" in kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=60s").stdout
    assert kubectl("delete", "pod", "p", "--grace-period=0", "--force").stdout.startswith('pod "p" force deleted')
    assert kubectl("wait", "pod/p", "--for=delete", "--timeout=60s").returncode == 0
    assert "deleted" in kubectl("delete", "jobs", "-l", "app=j", "--cascade=foreground", "--timeout=60s").stdout
    for name in ("a", "b"):
        kubectl("create", "configmap", name)
    assert kubectl("delete", "configmap/a", "configmap/b").stdout.count("deleted") == 2
    assert kubectl("delete", "pod", "p", "--ignore-not-found").returncode == 0
    assert kubectl("delete", "pod", "p", check=False).returncode == 1


def test_what_is_served(kubectl: Kubectl) -> None:
    listed = {line.split()[0]: line for line in kubectl("api-resources", "--no-headers").stdout.splitlines()}
    assert listed["pods"].split() == ["pods", "po", "v1", "true", "Pod"]
    assert listed["deployments"].split() == ["deployments", "deploy", "apps/v1", "true", "Deployment"]
    names = kubectl("api-resources", "--namespaced=false", "-o", "name").stdout.split()
    assert {"nodes", "namespaces", "customresourcedefinitions.apiextensions.k8s.io"} <= set(names)
    assert {"v1", "apps/v1", "batch/v1", "policy/v1"} <= set(kubectl("api-versions").stdout.split())
    assert "is running at" in kubectl("cluster-info").stdout
    assert "gitVersion" in kubectl("version", "-o", "json", check=False).stdout


def test_access(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").stdout == "yes\n"
    assert kubectl("auth", "can-i", "get", "/version").stdout == "yes\n"
    assert "*.*" in kubectl("auth", "can-i", "--list").stdout


@pytest.mark.since("1.28", "SelfSubjectReview")
def test_who_i_am(kubectl: Kubectl) -> None:
    assert "Username" in kubectl("auth", "whoami").stdout
    assert "system:masters" in kubectl("auth", "whoami", "-o", "json").stdout


def test_events(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=DEPLOYMENT)
    deadline = time.monotonic() + DEADLINE
    while "ScalingReplicaSet" not in (told := kubectl("events", "--for=deployment/d").stdout):
        assert time.monotonic() < deadline, told
    assert "Scaled up replica set" in kubectl("get", "events", "--sort-by=.lastTimestamp").stdout


def test_what_needs_containers_or_metrics_is_refused(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=POD)
    for what in (("top", "pods"), ("exec", "p", "--", "ls")):
        refused = kubectl(*what, check=False)
        assert refused.returncode == 1 and refused.stderr


def test_explain(kubectl: Kubectl) -> None:
    assert "FIELDS:" in kubectl("explain", "pod").stdout
    assert "containerPort" in kubectl("explain", "pods.spec.containers.ports").stdout
