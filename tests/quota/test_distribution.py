"""From quotas in force, pods, units and nodes to runtimes."""

import json
from typing import Any

import msgspec
import pytest

from koord.accounting.quotas import QuotaTree
from koord.kube.quantity import QuantityError
from koord.kube.quotas import ElasticQuota
from koord.quota.distribution import Distribution, NodeTotal
from koord.quota.usage import Usage
from koord.quota.waiting import Lines

PREFIX = "quota.scheduling.koordinator.sh/"
NODES = {"cpu": 100_000}


def quota(
    name: str, parent: str = "", *, low: str = "0", most: str = "100", labels: Any = None, annotations: Any = None
) -> ElasticQuota:
    metadata = {
        "name": name,
        "namespace": "q",
        "labels": {PREFIX + "parent": parent} | {PREFIX + key: value for key, value in (labels or {}).items()},
        "annotations": {PREFIX + key: value for key, value in (annotations or {}).items()},
    }
    spec = {"min": {"cpu": low}, "max": {"cpu": most} if most else {}}
    return msgspec.convert({"metadata": metadata, "spec": spec if most else {}}, ElasticQuota)


def built(*quotas: ElasticQuota) -> Distribution:
    tree = QuotaTree()
    for each in quotas:
        tree.set(each)
    made = Distribution()
    made.rebuild(tree)
    return made


class Told:
    """What quotas ask for and use, as the tests say; nobody waits in a line."""

    def __init__(self, asked: Any, used: Any) -> None:
        self.lines = Lines()
        self.asked, self.used = asked, used
        self.occupied: dict[str, dict[str, int]] = {}


def cpus(**amounts: int) -> dict[str, dict[str, int]]:
    return {name.replace("_", "-"): {"cpu": amount} for name, amount in amounts.items()}


def test_a_quota_without_min_borrows_up_to_its_max() -> None:
    made = built(quota("a", most="60"), quota("b", low="30", most="100"))
    assert made.update(Told(cpus(a=80_000), {}), NODES)[0] == {"a", "b"}  # all are new
    assert (made.runtime("a"), made.runtime("b")) == ({"cpu": 60_000}, {"cpu": 0})
    made.update(Told(cpus(a=80_000, b=90_000), {}), NODES)
    assert (made.runtime("a"), made.runtime("b")) == ({"cpu": 26_250}, {"cpu": 73_750})
    assert made.update(Told(cpus(a=80_000, b=90_000), {}), NODES) == (set(), set())


def test_a_suspended_job_asks_and_so_can_borrow() -> None:
    made, usage = built(quota("a")), Usage()
    usage.put_unit("ns/job", "a", (("cpu", 8_000),), ("a", "ns"))
    made.update(usage, NODES)
    assert made.runtime("a") == {"cpu": 8_000}
    usage.put_pod("ns/p", "a", (("cpu", 2_000),), assigned=True, unit="ns/job", origin=("a", "ns"))
    assert made.update(usage, NODES) == (set(), set())


def test_special_quotas_are_outside_and_what_they_use_is_gone() -> None:
    special = [quota(f"koordinator-{name}-quota", most="500") for name in ("system", "default")]
    made = built(*special, quota("koordinator-root-quota", most=""), quota("a"))
    used = cpus(koordinator_system_quota=10_000, koordinator_default_quota=15_000, a=1_000)
    made.update(Told(cpus(a=100_000, koordinator_default_quota=100_000), used), NODES)
    assert made.runtime("a") == {"cpu": 75_000}
    assert made.runtime("koordinator-default-quota") == {"cpu": 500_000}
    assert made.runtime("koordinator-root-quota") == {}


@pytest.mark.parametrize(("apart", "left"), [("false", 60_000), ("true", 100_000)])
def test_a_tree_of_its_own_has_its_own_total(apart: str, left: int) -> None:
    labels = {"tree-id": "t", "is-root": "true", "is-parent": "true", "ignore-default-tree": apart}
    root = quota("pool", labels=labels, annotations={"total-resource": '{"cpu":"40"}'})
    made = built(root, quota("leaf", "pool", labels={"tree-id": "t"}), quota("a"))
    made.update(Told(cpus(leaf=70_000, a=100_000), {}), NODES)
    assert (made.runtime("pool"), made.runtime("leaf")) == ({"cpu": 40_000}, {"cpu": 40_000})
    assert made.runtime("a") == {"cpu": left}


def test_shares_by_the_annotated_weight_else_by_max() -> None:
    heavy = {"shared-weight": '{"cpu":"3"}'}
    made = built(quota("a", annotations=heavy), quota("b", annotations={"shared-weight": '{"cpu":"1"}'}))
    made.update(Told(cpus(a=100_000, b=100_000), {}), NODES)
    assert made.runtime("a") == {"cpu": 75_000}
    thousands = json.dumps({"cpu": "1"} | {f"r{number}": "1" for number in range(1000)})
    for bad in ('{"cpu":"0"}', '{"cpu":"-1"}', "[", '{"cpu":"x"}', thousands):
        made = built(quota("a", annotations={"shared-weight": bad}), quota("b", most="300"))
        made.update(Told(cpus(a=100_000, b=300_000), {}), NODES)
        assert made.runtime("a") == {"cpu": 25_000}
        assert ("shared-weight" in made.problems.get("a", "")) == (bad != '{"cpu":"0"}')


def test_a_total_that_does_not_parse_is_named_wherever_it_stands() -> None:
    bad = {"total-resource": '{"cpu":"x"}', "shared-weight": "["}
    made = built(quota("pool", labels={"tree-id": "t"}, annotations=bad), quota("a", annotations=bad))
    for name in ("pool", "a"):
        text = made.problems[name]
        assert 'total-resource[cpu]: quantity "x": must match' in text and "shared-weight: must be a JSON" in text, text


def test_a_parent_without_a_max_limits_nothing() -> None:
    made = built(quota("open", most=""), quota("x", "open"), quota("y", "open"), quota("z"))
    made.update(Told(cpus(x=100_000, y=100_000, z=100_000), {}), {"cpu": 90_000})
    assert [made.runtime(name) for name in ("x", "y", "z")] == [{"cpu": 30_000}] * 3
    assert made.runtime("open") == {}


def test_nodes_come_change_and_go() -> None:
    nodes = NodeTotal()
    assert nodes.put("n1", {"cpu": "10", "memory": "1Gi"})
    assert nodes.put("n2", {"cpu": "6"})
    assert not nodes.put("n2", {"cpu": "6000m"})
    assert nodes.amounts == {"cpu": 16_000, "memory": 2**30}
    with pytest.raises(QuantityError, match=r"Node n2: status\.allocatable"):
        nodes.put("n2", {"cpu": "many"})
    assert nodes.put("n2", {"cpu": "4"})
    assert nodes.drop("n1") and not nodes.drop("n1")
    assert nodes.amounts == {"cpu": 4_000, "memory": 0}
