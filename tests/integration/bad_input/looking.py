"""What the tests of bad input send and look at: manifests, the versions of bystanders, events and the log."""

import json
import re
import time
from typing import Any

from tests.integration.conftest import Up

NODES_N = 20
QUOTA = "quota.scheduling.koordinator.sh/name"
PARENT = "quota.scheduling.koordinator.sh/parent"
GANG = "pod-group.scheduling.sigs.k8s.io"
Manifest = dict[str, Any]


# Manifests ------------------------------------------------------------------------------------------------------------


def template(cpu: str = "1", **resources: str) -> Manifest:
    requests = {"cpu": cpu, **resources}
    container = {"name": "main", "image": "registry.example/x:1", "resources": {"requests": requests}}
    spec = {"schedulerName": "koord-scheduler", "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": {"koord.sh/fake-run-seconds": "0.1"}}, "spec": spec}


def pod(name: str, cpu: str = "1", namespace: str = "default", **labels: str) -> Manifest:
    meta = {"name": name, "namespace": namespace, "labels": {key.replace("__", "/"): labels[key] for key in labels}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template(cpu)["spec"]}


def job(name: str, cpu: str = "1", quota: str = "team", count: int = 2) -> Manifest:
    spec = {"suspend": True, "parallelism": count, "completions": count, "template": template(cpu)}
    meta = {"name": name, "namespace": "team", "labels": {QUOTA: quota}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def tfjob(name: str, roles: Any) -> Manifest:
    meta = {"name": name, "namespace": "team", "labels": {QUOTA: "team"}}
    spec = {"runPolicy": {"suspend": True}} | ({} if roles is None else {"tfReplicaSpecs": roles})
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": meta, "spec": spec}


def rayjob(name: str, **spec: Any) -> Manifest:
    meta = {"name": name, "namespace": "team", "labels": {QUOTA: "team"}}
    spec = {"suspend": True, "entrypoint": "python x.py"} | spec
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": spec}


def quota(name: str, namespace: str = "team", parent: str = "", **spec: Any) -> Manifest:
    meta = {"name": name, "namespace": namespace, "labels": {PARENT: parent} if parent else {}}
    version = "scheduling.sigs.k8s.io/v1alpha1"
    return {"apiVersion": version, "kind": "ElasticQuota", "metadata": meta, "spec": spec}


def queue(name: str, policy: str) -> Manifest:
    meta = {"name": name, "namespace": "koord-queue"}
    version = "scheduling.x-k8s.io/v1alpha1"
    return {"apiVersion": version, "kind": "Queue", "metadata": meta, "spec": {"queuePolicy": policy}}


def documents(manifests: list[Manifest]) -> str:
    return "\n---\n".join(json.dumps(manifest) for manifest in manifests)


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def wait_for_queues(up: Up, names: set[str]) -> None:
    up.wait(lambda: names <= {item["metadata"]["name"] for item in up.objects("queues", "-A")}, f"queues {names}")


def phase(up: Up, where: str, name: str) -> str:
    return str(up.objects("pod", name, "-n", where)[0]["status"].get("phase", ""))


def versions(up: Up) -> dict[str, Manifest]:
    """Every bystander as it is; equal means that nobody wrote it, for each write makes a new version."""
    items = up.objects("pods,jobs,queueunits,elasticquotas", "-n", "calm")
    (calm,) = up.objects("queue", "calm", "-n", "koord-queue")
    # The list of who waits is written up to 15 s late, on purpose.
    del calm["metadata"]["resourceVersion"]
    calm["status"].pop("queueItemDetails", None)
    items.append(calm)
    return {f"{item['kind']} {item['metadata']['name']}": item for item in items}


def remove_leftovers(up: Up) -> None:
    """Delete what tests make."""
    up.kubectl("delete", "jobs,tfjobs,pytorchjobs,rayjobs,pods,queueunits", "--all", "-n", "team")
    up.kubectl("delete", "pods", "--all", "-n", "default")
    quotas = [item["metadata"]["name"] for item in up.objects("elasticquotas", "-n", "team")]
    if made := [name for name in quotas if name != "team"]:
        up.kubectl("delete", "elasticquotas", *made, "-n", "team")


def at_rest(up: Up, lived_s: float) -> None:
    """Wait until every write that follows from the bystanders' own lives has been made.

    They stand still for as long as they took to live, so that a slow machine has its time, too.
    """
    quiet_s = max(2.5, lived_s)
    last, since = versions(up), time.monotonic()

    def still() -> bool:
        nonlocal last, since
        now = versions(up)
        if now != last:
            last, since = now, time.monotonic()
        (unit,) = up.objects("queueunits", "-n", "calm")
        return unit["status"].get("phase") == "Succeed" and time.monotonic() - since > quiet_s

    up.wait(still, "the bystanders are at rest", 240)


def told(up: Up, kind: str, name: str, reason: str, pattern: str, where: str = "team") -> Manifest:
    """Wait for an Event on an object, with this reason and words."""

    def look() -> list[Manifest]:
        return [event for event in events(up, kind, name, reason, where) if re.search(pattern, event["message"])]

    try:
        return dict(up.wait(look, f"{kind} {name} is told {reason}: {pattern}", 60)[0])
    except AssertionError as error:
        seen = {(event["reason"], event["message"]) for event in events(up, kind, name, "", where)}
        raise AssertionError(f"{kind} {name}: nothing like {reason}: {pattern}, but {seen}") from error


def events(up: Up, kind: str, name: str, reason: str, where: str) -> list[Manifest]:
    return [
        event
        for event in up.objects("events", "-n", where)
        if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
        and (not reason or event["reason"] == reason)
    ]


def logged(up: Up, *words: str) -> str:
    """Wait for a line of the cluster's log that holds all of the words."""

    def look() -> list[str]:
        lines = up.log.read_text(errors="replace").splitlines()
        return [line for line in lines if all(word in line for word in words)]

    return str(up.wait(look, f"the log names {words}", 60)[0])
