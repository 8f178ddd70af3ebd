"""The queue's reading of a job and the operator's doing agree: the pods that come are the pod sets that were charged.

Both are written apart from each other, from the same facts (spec 70, sections 2.10 and 3.3).
"""

from collections import Counter
from typing import Any

import msgspec
import pytest

from koord.accounting.requests import pod_request
from koord.kube.jobs.kind import JobStatus
from koord.kube.jobs.registry import BY_KIND
from koord.kube.pods import PodSpec
from koord.localcluster.clusterapi import Object
from koord.localcluster.operators.batchjob import JobOperator
from koord.localcluster.operators.kubeflow import PYTORCHJOB, TFJOB, KubeflowOperator
from koord.localcluster.operators.plan import Operator
from koord.localcluster.operators.rayjob import RayJobOperator
from tests.localcluster.operators.manifests import World, batch_job, kubeflow_job, ray_job, template


def sized(cpu: str) -> Object:
    return {"template": template(cpu=cpu)}


def ray(**more: Any) -> Object:
    groups = [
        {"groupName": "Small", "replicas": 2, "maxReplicas": 1, "template": template(cpu="2")},
        {"groupName": "gpu_pool", "minReplicas": 2, "numOfHosts": 2, "template": template(cpu="3")},
        {"groupName": "idle", "replicas": 3, "suspend": True, "template": template()},
    ]
    job = ray_job(groups=groups, **more)
    job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = True
    return job


JOBS: list[tuple[Operator, Object]] = [
    (JobOperator(), batch_job(parallelism=5, completions=3)),
    (JobOperator(), batch_job(parallelism=2, completions=4, completionMode="Indexed")),
    (JobOperator(), batch_job(parallelism=3)),
    (KubeflowOperator(TFJOB), kubeflow_job("TFJob", {"PS": {"replicas": 2, **sized("2")}, "worker": sized("3")})),
    (KubeflowOperator(TFJOB), kubeflow_job("TFJob", {"Chief": sized("1"), "Evaluator": {"replicas": 0, **sized("1")}})),
    (
        KubeflowOperator(PYTORCHJOB),
        kubeflow_job("PyTorchJob", {"Master": sized("1"), "Worker": {"replicas": 4, **sized("2")}}),
    ),
    (RayJobOperator(), ray()),
    (RayJobOperator(), ray(submissionMode="SidecarMode")),
    (RayJobOperator(), ray(submissionMode="HTTPMode")),
    (RayJobOperator(), ray(submitterPodTemplate=template(cpu="250m"))),
]


@pytest.mark.parametrize(("operator", "job"), JOBS)
def test_pods_are_what_the_queue_charges(operator: Operator, job: Object) -> None:
    kind = BY_KIND[operator.api_version, operator.kind]
    world = World(operator, job)
    world.settle()
    world.phase("Running")
    world.settle()  # a RayJob's submitter comes when its cluster is ready
    bodies = [world.bodies[name] for name in world.names()]
    came = Counter(kind.pod_set_of(body["metadata"]["labels"]) for body in bodies)
    sets = {pod_set.name: pod_set for pod_set in kind.pod_sets(job)}
    assert came == Counter({name: pod_set.count for name, pod_set in sets.items() if pod_set.count})
    for body in bodies:
        charged = sets[kind.pod_set_of(body["metadata"]["labels"])].template["spec"]
        assert request_of(body["spec"]) == request_of(charged)
    selector = kind.pod_selector(world.job)
    assert selector is not None
    label, value = selector
    strangers = [body for body in bodies if body["metadata"]["labels"].get(label) != value]
    assert {kind.pod_set_of(body["metadata"]["labels"]) for body in strangers} <= {"submitter"}


def request_of(spec: Object) -> dict[str, int]:
    return {name: amount for name, amount in pod_request(msgspec.convert(spec, PodSpec)).items() if amount}


@pytest.mark.parametrize(("operator", "job"), JOBS)
def test_the_queue_sees_the_job_start_and_end(operator: Operator, job: Object) -> None:
    kind = BY_KIND[operator.api_version, operator.kind]
    suspend: Object = {"runPolicy": {"suspend": True}} if "kubeflow" in operator.api_version else {"suspend": True}
    resume: Object = {"runPolicy": {}} if "kubeflow" in operator.api_version else {"suspend": False}
    world = World(operator, job)
    world.set(**suspend)
    assert kind.managed(world.job)
    world.settle()
    assert kind.managed(world.job), "what the operator writes to a suspended job does not look like a start"
    assert kind.status(world.job) is JobStatus.QUEUING
    world.set(**resume)
    for _ in range(4):
        world.settle()
        assert not kind.status(world.job).finished
        world.phase("Running")
    world.settle()
    assert kind.status(world.job) is JobStatus.RUNNING
    for _ in range(4):
        world.phase("Succeeded", [name for name, pod in world.pods.items() if not is_ray(pod.labels)])
        world.now += 60
        world.settle()
    assert kind.status(world.job) is JobStatus.SUCCEEDED


def is_ray(labels: dict[str, str]) -> bool:
    return "ray.io/node-type" in labels
