"""What all job kinds share: registry, names, priorities, and that no malformed job breaks anything but itself."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.kube.jobs.hints import start_hints
from koord.kube.jobs.kind import JobError, JobKind, PrioritySource, dotted
from koord.kube.jobs.naming import pod_set_name, unit_name
from koord.kube.jobs.priority import resolve
from koord.kube.jobs.registry import BY_KIND, JOB_KINDS


def test_registry() -> None:
    assert {kind.resource.kind: kind.suffix for kind in JOB_KINDS.values()} == {
        "Job": "",
        "TFJob": "-tf-qu",
        "PyTorchJob": "-py-qu",
        "RayJob": "-ray-qu",
    }
    assert JOB_KINDS["tfjobs_kubeflow_org"] is BY_KIND["kubeflow.org/v1", "TFJob"]


def test_unit_names() -> None:
    assert unit_name("train", "-tf-qu") == "train-tf-qu"
    long = unit_name("a" * 250, "-tf-qu")
    assert len(long) == 253
    assert long != unit_name("a" * 251, "-tf-qu")
    salted = unit_name("a-tf-qu", "", "uid-1")
    assert salted.startswith("a-tf-qu-")
    assert salted != unit_name("a-tf-qu", "", "uid-2")
    assert len(unit_name("a" * 253, "", "uid")) == 253


@given(st.text(max_size=80), st.sets(st.sampled_from(["a", "head", "gpu"])))
def test_pod_set_names_are_labels_that_are_not_taken(raw: str, taken: set[str]) -> None:
    name = pod_set_name(raw, taken)
    assert 0 < len(name) <= 63
    assert name not in taken
    assert name == name.lower()
    assert name.strip("-") == name
    assert all(char in "abcdefghijklmnopqrstuvwxyz0123456789-" for char in name)
    assert name == pod_set_name(raw, taken), "the same for ever"


def test_pod_set_name_forms() -> None:
    assert pod_set_name("Worker") == "worker"
    hashed = pod_set_name("My_Group")
    assert hashed[:9] == "my-group-"
    assert len(hashed) == 17
    assert len(pod_set_name("x" * 64)) == 63


def test_priorities() -> None:
    classes = {"high": 1000, "low": 10}
    sources = [PrioritySource("policy", "high"), PrioritySource("head", "low", 3)]
    assert resolve({}, sources, classes).value == 1000
    assert resolve({}, sources, classes).class_name == "high"
    assert resolve({"scheduling.x-k8s.io/priority": "7"}, sources, classes).value == 7
    bad = resolve({"scheduling.x-k8s.io/priority": "abc"}, sources, classes)
    assert bad.value == 1000
    assert "abc" in bad.problem
    unknown = resolve({}, [PrioritySource("policy", "gone"), PrioritySource("worker", "", 5)], classes)
    assert (unknown.value, unknown.unknown) == (5, (("policy", "gone"),))
    assert resolve({}, [PrioritySource("head", "gone", 3)], classes).value == 3
    assert resolve({}, [PrioritySource("head")], classes).value is None
    assert resolve({}, [], {}).value is None


def test_paths() -> None:
    assert dotted(("spec", "groups", 0, "template")) == "spec.groups[0].template"
    assert dotted(()) == ""


WORDS = """
    spec status metadata name labels annotations ownerReferences controller kind suspend template parallelism
    completions completionMode failedIndexes succeeded conditions type runPolicy schedulingPolicy minAvailable
    tfReplicaSpecs pytorchReplicaSpecs Worker Master replicas elasticPolicy minReplicas rayClusterSpec headGroupSpec
    workerGroupSpecs groupName containers submissionMode submitterPodTemplate managedBy jobDeploymentStatus
    scheduling.x-k8s.io/suspend
"""
FIELD_NAMES = st.sampled_from(WORDS.split())
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**33) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELD_NAMES, inner, max_size=4),
    max_leaves=12,
)
shaped = st.fixed_dictionaries(
    {},
    optional={
        "metadata": json_values,
        "status": json_values,
        "spec": json_values
        | st.fixed_dictionaries(
            {},
            optional={
                "suspend": st.booleans() | json_values,
                "template": json_values,
                "parallelism": json_values,
                "runPolicy": json_values,
                "tfReplicaSpecs": st.fixed_dictionaries({"Worker": json_values}) | json_values,
                "pytorchReplicaSpecs": st.fixed_dictionaries({"master": json_values}) | json_values,
                "rayClusterSpec": st.fixed_dictionaries(
                    {}, optional={"headGroupSpec": json_values, "workerGroupSpecs": st.lists(json_values, max_size=3)}
                )
                | json_values,
            },
        ),
    },
)


@pytest.mark.parametrize("kind", JOB_KINDS.values(), ids=lambda kind: kind.resource.kind)
@given(job=shaped)
@settings(max_examples=150)
def test_any_job_is_read_or_refused_with_a_job_error(kind: JobKind, job: dict[str, Any]) -> None:
    for question in (
        kind.managed,
        kind.suspended,
        kind.status,
        kind.pod_sets,
        kind.priority_sources,
        kind.gang_minimum,
        kind.pod_selector,
        lambda job: kind.status_patch(job, queuing=True, now=0.0),
        lambda job: kind.start_patch(job, start_hints(kind, job, unit="ns/u", quota_name="q")).encode(),
    ):
        try:
            question(job)
        except JobError as error:
            assert error.field
            assert error.rule
