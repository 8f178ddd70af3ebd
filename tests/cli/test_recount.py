"""The recount finds every way in which the ledger can differ from the objects, and nothing where it is right."""

import json
from typing import Any, NamedTuple

import pytest

from koord.cli.demo.recount import Drift, Objects, Recount

LABEL = "quota.scheduling.koordinator.sh"


class Item(NamedTuple):
    """An item as the ledger's client gives it."""

    limits: dict[str, int]
    used: dict[str, int]
    held: dict[str, int]


def node(name: str) -> bytes:
    return json.dumps({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "4", "memory": "1Ki"}}}).encode()


def quota(name: str, parent: str = "", namespace: str = "q", **annotations: str) -> bytes:
    meta = {"name": name, "namespace": namespace, "labels": {f"{LABEL}/parent": parent}, "annotations": annotations}
    return json.dumps({"metadata": meta, "spec": {}}).encode()


def pod(name: str, node: str = "n", **more: Any) -> bytes:
    meta = {"name": name, "namespace": more.get("namespace", "ns"), "labels": {}, "annotations": {}}
    if "quota" in more:
        meta["labels"] = {f"{LABEL}/name": more["quota"]}
    if "labels" in more:
        meta["labels"] |= more["labels"]
    if "unit" in more:
        meta["annotations"] = {"koord-queue/related-queueunit": more["unit"]}
    spec = {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": more.get("cpu", "1500m")}}}]}
    status = {"phase": more.get("phase", "Running")}
    return json.dumps({"metadata": meta, "spec": spec, "status": status}).encode()


def unit(quota: str, phase: str = "Dequeued", admitted: bool = True) -> bytes:
    meta = {"name": "u", "namespace": "ns", "labels": {f"{LABEL}/name": quota}}
    status = {"phase": phase, "admissions": [{"name": "main", "replicas": 1}] if admitted else []}
    return json.dumps({"metadata": meta, "spec": {"resource": {"cpu": "2", "memory": "3"}}, "status": status}).encode()


def used(*, pods: list[bytes] = [], quotas: list[bytes] = [], units: list[bytes] = []) -> dict[str, dict[str, int]]:  # noqa: B006 - not changed
    recount = Recount(Objects([node("n")], pods, quotas, units))
    return {name: dict(sums) for name, sums in recount.used.items()}


def test_live_assigned_pods_are_charged_to_their_node() -> None:
    pods = [pod("a"), pod("b", cpu="1u"), pod("c", node=""), pod("d", phase="Succeeded"), pod("e", phase="Failed")]
    assert used(pods=pods) == {"node/n": {"cpu": 1501, "pods": 2}}


def test_a_pod_is_charged_to_its_quota_and_all_above_it() -> None:
    quotas = [quota("top", "koordinator-root-quota"), quota("leaf", "top")]
    assert used(pods=[pod("a", quota="leaf")], quotas=quotas) == {
        "node/n": {"cpu": 1500, "pods": 1},
        "quota/leaf": {"cpu": 1500},
        "admitted/leaf": {"cpu": 1500},
        "quota/top": {"cpu": 1500},
        "admitted/top": {"cpu": 1500},
    }


@pytest.mark.parametrize(
    ("labels", "charged"),
    [
        ({f"{LABEL}/preemptible": "false"}, True),
        ({"quota.scheduling.alibabacloud.com/preemptible": "false"}, True),
        ({f"{LABEL}/preemptible": "true", "quota.scheduling.alibabacloud.com/preemptible": "false"}, False),
        ({f"{LABEL}/preemptible": "no"}, False),
    ],
)
def test_a_pod_that_must_not_be_preempted_uses_what_its_own_quota_guarantees(
    labels: dict[str, str], charged: bool
) -> None:
    quotas = [quota("top"), quota("leaf", "top")]
    found = used(pods=[pod("a", quota="leaf", labels=labels), pod("b", quota="leaf")], quotas=quotas)
    guaranteed = {name: sums for name, sums in found.items() if name.startswith("guaranteed/")}
    assert guaranteed == ({"guaranteed/leaf": {"cpu": 1500}} if charged else {})
    assert "guaranteed/none" not in used(pods=[pod("a", quota="none", labels=labels)], quotas=quotas)


def test_a_unit_stands_for_its_pods_where_admissions_are_counted() -> None:
    found = used(pods=[pod("a", quota="leaf", unit="ns/u")], quotas=[quota("leaf")], units=[unit("leaf")])
    assert found["admitted/leaf"] == {"cpu": 2000, "memory": 3}
    assert found["quota/leaf"] == {"cpu": 1500}


@pytest.mark.parametrize("ended", [unit("leaf", admitted=False), unit("leaf", "Succeed"), unit("leaf", "Failed")])
def test_a_unit_that_holds_nothing(ended: bytes) -> None:
    assert used(quotas=[quota("leaf")], units=[ended]) == {}


@pytest.mark.parametrize(
    ("quotas", "charged"),
    [
        ([quota("ns", namespace="ns")], "ns"),
        ([quota("ns", namespace="other")], ""),
        ([quota("far", **{f"{LABEL}/namespaces": '["ns"]'})], "far"),
        ([quota("far", **{f"{LABEL}/namespaces": '["ns"]'}), quota("ns", namespace="ns")], "ns"),
        ([quota("koordinator-default-quota")], "koordinator-default-quota"),
        ([quota("leaf", "missing"), quota("ns", "missing", namespace="ns")], ""),
    ],
)
def test_the_quota_of_a_pod_that_names_none(quotas: list[bytes], charged: str) -> None:
    found = used(pods=[pod("a")], quotas=quotas)
    assert {name for name in found if name.startswith("quota/")} == ({f"quota/{charged}"} if charged else set())


RIGHT = {"node/n": Item({"cpu": 4000, "memory": 1024, "pods": 0}, {"cpu": 1500, "pods": 1}, {"cpu": 0})}


@pytest.mark.parametrize(
    ("ledger", "drift"),
    [
        (RIGHT, []),
        (RIGHT | {"quota/x": Item({"cpu": 5}, {"cpu": 0}, {})}, []),
        ({}, ["node/n used", "node/n limits"]),
        ({"node/n": RIGHT["node/n"]._replace(used={"cpu": 1500, "pods": 2})}, ["node/n used"]),
        ({"node/n": RIGHT["node/n"]._replace(held={"cpu": 1})}, ["node/n held"]),
        ({"node/n": RIGHT["node/n"]._replace(limits={"cpu": 4000})}, ["node/n limits"]),
        (RIGHT | {"quota/x": Item({}, {"cpu": 1}, {})}, ["quota/x used"]),
        (RIGHT | {"node/gone": Item({"cpu": 4}, {}, {})}, ["node/gone limits"]),
    ],
)
def test_differences(ledger: dict[str, Item], drift: list[str]) -> None:
    found = Recount(Objects([node("n")], [pod("a")], [], [])).compare(ledger)
    assert [f"{one.item} {one.field}" for one in found] == drift


def test_a_difference_shows_both_sides() -> None:
    wrong = {"node/n": RIGHT["node/n"]._replace(used={"cpu": 3000, "pods": 2})}
    [found] = Recount(Objects([node("n")], [pod("a")], [], [])).compare(wrong)
    assert found == Drift("node/n", "used", {"cpu": 3000, "pods": 2}, {"cpu": 1500, "pods": 1})
