"""Jobs bent at a random place: an operator decides or names the field, whatever stands there."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.localcluster.clusterapi import Object
from koord.localcluster.operators.batchjob import JobOperator
from koord.localcluster.operators.kubeflow import PYTORCHJOB, TFJOB, KubeflowOperator
from koord.localcluster.operators.observed import Observed
from koord.localcluster.operators.plan import JobInvalid, Operator
from koord.localcluster.operators.rayjob import RayJobOperator
from tests.localcluster.operators.manifests import NOW, World, batch_job, kubeflow_job, ray_job, template

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)

BATCH = batch_job(
    parallelism=2,
    completions=2,
    completionMode="Indexed",
    backoffLimit=1,
    activeDeadlineSeconds=9,
    ttlSecondsAfterFinished=3,
    suspend=False,
    managedBy="kubernetes.io/job-controller",
)
ROLES = {"Worker": {"replicas": 2, "restartPolicy": "Never", "template": template()}}
POLICY: dict[str, Any] = {"cleanPodPolicy": "All", "suspend": False, "backoffLimit": 2, "activeDeadlineSeconds": 5}
TF = kubeflow_job("TFJob", {"PS": {"replicas": 1, "template": template()}, **ROLES}, **POLICY)
TORCH = kubeflow_job("PyTorchJob", {"Master": {"template": template()}, **ROLES}, **POLICY)
RAY = ray_job(
    groups=[
        {"groupName": "g", "replicas": 1, "minReplicas": 0, "maxReplicas": 2, "numOfHosts": 1, "template": template()}
    ],
    submissionMode="K8sJobMode",
    submitterPodTemplate=template(),
    shutdownAfterJobFinishes=True,
    backoffLimit=1,
)


def with_status(operator: Operator, job: Object, phases: list[str]) -> Object:
    """The job after its pods went through some phases."""
    world = World(operator, copy.deepcopy(job))
    world.settle()
    for phase in phases:
        world.phase(phase)
        world.settle()
    return world.job


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, item in items:
        found += paths(item, (*path, key))
    return found


OPERATORS: tuple[tuple[Operator, Object], ...] = (
    (JobOperator(), BATCH),
    (KubeflowOperator(TFJOB), TF),
    (KubeflowOperator(PYTORCHJOB), TORCH),
    (RayJobOperator(), RAY),
)
CASES = [
    (operator, with_status(operator, job, phases))
    for operator, job in OPERATORS
    for phases in ([], ["Running"], ["Running", "Succeeded"])
]


@pytest.mark.parametrize("case", range(len(CASES)))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_bent_job_is_decided_or_named(case: int, data: st.DataObject) -> None:
    operator, job = CASES[case]
    # Metadata and the words that say what the object is are the API server's to keep in order.
    places = [path for path in paths(job) if path[0] in ("spec", "status")]
    place = data.draw(st.sampled_from(places))
    bent = copy.deepcopy(job)
    target: Any = bent
    for part in place[:-1]:
        target = target[part]
    target[place[-1]] = data.draw(JSON)
    try:
        operator.decide(bent, Observed([], []), NOW)
    except JobInvalid as error:
        assert error.field and error.rule
