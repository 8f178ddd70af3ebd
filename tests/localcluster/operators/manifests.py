"""Jobs and pods for tests of the stand-in operators."""

import itertools
from collections.abc import Iterable
from typing import Any

import msgspec

from koord.kube.meta import now_rfc3339
from koord.localcluster.clusterapi import Object
from koord.localcluster.operators.observed import Observed, PodSeen
from koord.localcluster.operators.plan import Operator, Plan

NOW = 1_800_000_000.0
_uids = itertools.count(1)


def template(policy: str = "", *, seconds: float | None = None, exit_: str = "", cpu: str = "1") -> Object:
    """A pod template with a label and an annotation of its own."""
    annotations = {"team.example.com/note": "kept"}
    if seconds is not None:
        annotations["koord.sh/fake-run-seconds"] = str(seconds)
    if exit_:
        annotations["koord.sh/fake-exit"] = exit_
    spec: Object = {"containers": [{"name": "main", "image": "img", "resources": {"requests": {"cpu": cpu}}}]}
    if policy:
        spec["restartPolicy"] = policy
    return {"metadata": {"labels": {"app": "x"}, "annotations": annotations}, "spec": spec}


def batch_job(name: str = "job", *, of: Object | None = None, **spec: Any) -> Object:
    return _job("batch/v1", "Job", name, {"template": of or template("Never"), **spec})


def kubeflow_job(kind: str, roles: dict[str, Any], name: str = "job", **run_policy: Any) -> Object:
    field = {"TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs"}[kind]
    return _job("kubeflow.org/v1", kind, name, {"runPolicy": run_policy, field: roles})


def ray_job(name: str = "job", *, groups: list[Object] | None = None, **spec: Any) -> Object:
    groups = [{"groupName": "Small", "replicas": 2, "template": template()}] if groups is None else groups
    cluster = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups}
    return _job("ray.io/v1", "RayJob", name, {"rayClusterSpec": cluster, "entrypoint": "python x.py", **spec})


def _job(api_version: str, kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
        "spec": spec,
    }


class World:
    """A job and its pods, driven by hand: applies plans as an API server would, without one."""

    def __init__(self, operator: Operator, job: Object) -> None:
        self.operator = operator
        self.job = job
        self.pods: dict[str, PodSeen] = {}
        self.gone: list[PodSeen] = []
        self.bodies: dict[str, Object] = {}
        self.now = NOW
        self.deleted_job = False

    @property
    def status(self) -> Object:
        status: Object = self.job.get("status") or {}
        return status

    def conditions(self) -> dict[str, str]:
        return {condition["type"]: condition["status"] for condition in self.status.get("conditions", [])}

    def names(self) -> list[str]:
        return sorted(self.pods)

    def step(self) -> Plan:
        """One decision, carried out; deleted pods stay as terminating until `vanish`."""
        before = msgspec.json.encode(self.job)
        plan = self.operator.decide(self.job, Observed(list(self.pods.values()), self.gone), self.now)
        assert msgspec.json.encode(self.job) == before, "a decision must not change the job"
        if plan.status is not None:
            self.job = {**self.job, "status": msgspec.json.decode(msgspec.json.encode(plan.status))}
        for pod in plan.delete:
            self.pods[pod.name] = self.pods[pod.name]._replace(deleting=True, ours=True, ended_s=self.now)
        for body in plan.create:
            metadata = body["metadata"]
            name = metadata.get("name") or f"{metadata['generateName']}{next(_uids):05d}"
            assert name not in self.pods, f"{name} exists"
            uid = f"pod-{next(_uids)}"
            self.bodies[name] = body
            self.pods[name] = PodSeen(name, uid, "o", metadata["labels"], "Pending", False, False, 0, 1)
        self.deleted_job |= plan.delete_job
        return plan

    def settle(self) -> None:
        """Decide, letting deleted pods vanish, as long as there is a reason to: pods changed, or the plan asks.

        A status that changed is none: an operator that needs another look because of it must say so.
        """
        for _ in range(20):
            self.vanish()
            plan = self.step()
            if not plan.create and not plan.delete and plan.again_s != 0.0:
                return
        raise AssertionError("the operator does not come to rest")

    def vanish(self, *names: str) -> None:
        """Pods disappear: those named, else those being deleted."""
        for name in names or [name for name, pod in self.pods.items() if pod.deleting]:
            pod = self.pods.pop(name)
            self.gone.append(pod if pod.ended_s else pod._replace(ended_s=self.now))

    def phase(self, phase: str, names: Iterable[str] | None = None, *, exit_code: int = 0) -> None:
        """Put pods into a phase."""
        for name in list(self.pods if names is None else names):
            ended = self.now if phase in ("Succeeded", "Failed") else 0.0
            self.pods[name] = self.pods[name]._replace(
                phase=phase, ready=phase == "Running", exit_code=exit_code, ended_s=ended
            )

    def set(self, **spec: Any) -> None:
        """Edit the job's spec."""
        self.job = {**self.job, "spec": {**self.job["spec"], **spec}}

    def stamp(self) -> str:
        return now_rfc3339(self.now)
