"""The pod request: laws, roundings, errors."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.accounting.jobs import job_total, pod_set_request
from koord.accounting.requests import (
    RequestError,
    amounts,
    format_amounts,
    nonzero_request,
    pod_limits,
    pod_request,
    resource_list,
)
from koord.kube.jobs.kind import JobError, PodSetSpec
from koord.kube.pods import Container, PodSpec, ResourceRequirements
from koord.kube.quantity import QuantityError

MIB = 1 << 20
GIB = 1 << 30


def container(requests: Any = None, limits: Any = None, sidecar: bool = False, name: str = "c") -> Container:
    resources = ResourceRequirements(requests=requests or {}, limits=limits or {})
    return Container(name=name, resources=resources, restart_policy="Always" if sidecar else None)


def test_sums_over_containers_and_overhead() -> None:
    spec = PodSpec(
        containers=[container({"cpu": "500m", "memory": "1Gi"}), container({"cpu": 1, "nvidia.com/gpu": "2"})],
        overhead={"cpu": "250m", "memory": "64Mi"},
    )
    assert pod_request(spec) == {"cpu": 1750, "memory": GIB + 64 * MIB, "nvidia.com/gpu": 2}
    assert pod_request(PodSpec()) == {}


def test_a_limit_counts_only_where_the_request_is_missing() -> None:
    spec = PodSpec(containers=[container({"cpu": "1"}, {"cpu": "4", "memory": "1Gi"})])
    assert pod_request(spec) == {"cpu": 1000, "memory": GIB}


def test_fractions_are_summed_before_they_are_rounded_up() -> None:
    spec = PodSpec(containers=[container({"cpu": "500u", "memory": "100m"})] * 2)
    assert pod_request(spec) == {"cpu": 1, "memory": 1}
    assert pod_request(PodSpec(containers=[container({"cpu": "1n"})])) == {"cpu": 1}


def test_pod_level_resources_replace_cpu_memory_and_huge_pages_only() -> None:
    spec = PodSpec(
        containers=[container({"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": "1"})],
        resources=ResourceRequirements(
            requests={"cpu": "2", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "8"}, limits={"memory": "1Gi"}
        ),
        overhead={"cpu": "100m"},
    )
    assert pod_request(spec) == {"cpu": 2100, "memory": 4 * GIB, "hugepages-2Mi": 4 * MIB, "nvidia.com/gpu": 1}
    bare = PodSpec(containers=[container()], resources=ResourceRequirements(limits={"cpu": "2"}))
    assert pod_request(bare) == {"cpu": 2000}


def test_init_containers_take_turns_and_sidecars_stay() -> None:
    spec = PodSpec(
        containers=[container({"cpu": "1"})],
        init_containers=[
            container({"cpu": "3", "memory": "2Gi"}),
            container({"cpu": "1"}, sidecar=True),
            container({"cpu": "2500m"}),
            container({"cpu": "100m"}, sidecar=True),
        ],
    )
    # 3; 1 + 2.5; and at work 1 + 1 + 0.1
    assert pod_request(spec) == {"cpu": 3500, "memory": 2 * GIB}


def test_limits_add_up_like_requests() -> None:
    spec = PodSpec(
        containers=[container({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}), container({"cpu": "1", "gpu": "1"})],
        init_containers=[
            container(limits={"cpu": "500m"}, sidecar=True),
            container(limits={"cpu": "3", "memory": "100Mi"}),
        ],
        overhead={"cpu": "100m", "gpu": "1"},
    )
    # Init phase: 3 + 0.5 beside the sidecar; then 2 + 0.5. Nothing limits gpus, so overhead does not, either.
    assert pod_limits(spec) == {"cpu": 3600, "memory": 1 << 30}
    own = ResourceRequirements(requests={"cpu": "9"}, limits={"memory": "2Gi", "gpu": "5"})
    assert pod_limits(msgspec.structs.replace(spec, resources=own)) == {"cpu": 3600, "memory": 2 << 30}
    assert pod_limits(PodSpec(containers=[container({"cpu": "1"})])) == {}
    with pytest.raises(QuantityError, match=r"spec.containers\[c\].resources.limits\[cpu\]"):
        pod_limits(PodSpec(containers=[container(limits={"cpu": "much"})]))


def test_scores_assume_something_of_containers_that_say_nothing() -> None:
    assert nonzero_request(PodSpec(containers=[container()])) == (100, 200 * MIB)
    assert nonzero_request(PodSpec(containers=[container({"cpu": "0", "memory": "0"})])) == (0, 0)
    assert nonzero_request(PodSpec(containers=[container({"cpu": "1"}), container()])) == (1100, 400 * MIB)
    assert nonzero_request(PodSpec(containers=[container({"cpu": "1"}, {"memory": "1Gi"})])) == (1000, GIB)
    assert pod_request(PodSpec(containers=[container()])) == {}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            PodSpec(containers=[container({"cpu": "lots"}, name="main")]),
            'spec.containers[main].resources.requests[cpu]: quantity "lots": must match',
        ),
        (
            PodSpec(containers=[container(limits={"memory": "1Gb"}, name="main")]),
            'spec.containers[main].resources.limits[memory]: quantity "1Gb": must match',
        ),
        (
            PodSpec(init_containers=[container({"cpu": "-1"}, name="init")]),
            'spec.initContainers[init].resources.requests[cpu]: quantity "-1": must not be negative',
        ),
        (PodSpec(overhead={"memory": ""}), 'spec.overhead[memory]: quantity "": must match'),
        (
            PodSpec(resources=ResourceRequirements(requests={"cpu": "1K"})),
            'spec.resources.requests[cpu]: quantity "1K": unknown suffix "K"',
        ),
    ],
)
def test_impossible_amounts_are_named(spec: PodSpec, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        pod_request(spec)
    assert str(caught.value).startswith(message)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.rule}"


def test_resource_lists() -> None:
    assert amounts({"cpu": "1500m", "memory": "1.5Gi", "pods": 110, "kubernetes.io/batch-cpu": "2k"}) == {
        "cpu": 1500,
        "memory": 1536 * MIB,
        "pods": 110,
        "kubernetes.io/batch-cpu": 2000,
    }
    assert resource_list({"memory": 4 * GIB, "cpu": 2500, "nvidia.com/gpu": 8}) == {
        "cpu": "2500m",
        "memory": "4Gi",
        "nvidia.com/gpu": "8",
    }
    assert format_amounts({"memory": 4 * GIB, "cpu": 2000}) == "cpu=2, memory=4Gi"
    assert format_amounts({}) == "nothing"
    with pytest.raises(QuantityError, match=r"status\.allocatable\[cpu\]"):
        amounts({"cpu": "x"}, "status.allocatable")


names = st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi"])
integers = st.dictionaries(names, st.integers(0, 10**13), max_size=4)


@given(integers)
def test_integers_survive_a_resource_list(values: dict[str, int]) -> None:
    assert amounts(resource_list(values)) == values


quantities = st.sampled_from(["0", "1", "2", "250m", "1500m", "1Gi", "3", "100u"])
containers = st.lists(
    st.builds(
        container, st.dictionaries(names, quantities, max_size=3), st.dictionaries(names, quantities, max_size=2)
    ),
    max_size=4,
)


@given(containers, st.lists(st.tuples(containers.map(lambda items: items[:1]), st.booleans()), max_size=4))
def test_the_request_covers_every_phase_and_nothing_more(
    apps: list[Container], inits: list[tuple[list[Container], bool]]
) -> None:
    def asks(items: list[Container]) -> dict[str, int]:
        return pod_request(PodSpec(containers=items))

    def covers(total: dict[str, int], part: dict[str, int]) -> bool:
        return all(total.get(name, 0) >= amount for name, amount in part.items())

    init_containers, sidecars, phases = [], [], []
    for items, sidecar in inits:
        for item in items:
            if sidecar:
                item = container(item.resources.requests, item.resources.limits, sidecar=True)
                sidecars.append(item)
                phases.append(asks(sidecars))
            else:
                phases.append(asks([*sidecars, item]))
            init_containers.append(item)
    phases.append(asks([*apps, *sidecars]))
    total = pod_request(PodSpec(containers=apps, init_containers=init_containers))
    assert all(covers(total, phase) for phase in phases)
    for name, amount in total.items():
        assert amount == max(phase.get(name, 0) for phase in phases)


def test_job_totals_name_the_template_that_is_wrong() -> None:
    good = {"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "2", "memory": "0"}}}]}}
    bad = {"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "two"}}}]}}
    path = ("spec", "tfReplicaSpecs", "Worker", "template")
    assert job_total([PodSetSpec("a", 3, good, path), PodSetSpec("b", 0, good, path)]) == {"cpu": 6000}
    with pytest.raises(JobError) as caught:
        job_total([PodSetSpec("worker", 3, bad, path)])
    assert caught.value.field == "spec.tfReplicaSpecs.Worker.template.spec.containers[m].resources.requests[cpu]"
    assert 'quantity "two"' in caught.value.rule
    with pytest.raises(JobError, match=r"spec\.template\.spec: Expected `array`"):
        pod_set_request(PodSetSpec("j", 1, {"spec": {"containers": "none"}}, ("spec", "template")))
    nulls = {"spec": {"containers": [{"name": "m", "resources": None, "ports": None}], "overhead": None}}
    assert pod_set_request(PodSetSpec("j", 1, nulls, ("spec", "template"))) == {}
    assert pod_set_request(PodSetSpec("j", 1, {}, ())) == {}
