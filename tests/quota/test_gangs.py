"""A gang of pods without a QueueUnit has room for its minimum as a whole, or none."""

from typing import Any

import msgspec
import pytest

from koord.kube.groups import PodGroup
from koord.kube.protocol import gang as keys
from koord.quota.keeper import Keeper
from koord.quota.views import NodeBrief, PodBrief, UnitBrief
from koord.quota.waiting import Waiting
from tests.quota.test_keeper import PREFIX, quota

Line = dict[str, dict[str, int]]


def member(
    name: str, gang: str, quota_name: str = "a", cpu: int = 1, node: str = "", *, least: int | None = None, **more: Any
) -> PodBrief:
    annotations = {keys.NAME: gang, **{keys.PREFIX + key.replace("_", "-"): value for key, value in more.items()}}
    labels = {PREFIX + "name": quota_name}
    if least is None:
        labels[keys.POD_GROUP] = gang
    else:
        annotations[keys.MIN_AVAILABLE] = str(least)
    body = {
        "metadata": {"name": name, "namespace": "ns", "labels": labels, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=PodBrief)


def line(keeper: Keeper, name: str = "a") -> list[tuple[str, dict[str, int]]]:
    keeper.fill(0.0)
    standing: list[Waiting] = list(keeper.usage.lines.of(name))
    return [(one.key, {key: amount // 1000 for key, amount in one.amounts}) for one in standing]


def put(keeper: Keeper, *pods: PodBrief) -> None:
    for pod in pods:
        keeper.put_pod(f"ns/{pod.metadata.name}", pod)


@pytest.fixture
def keeper() -> Keeper:
    made = Keeper()
    for name in "ab":
        made.put_quota(quota(name, max={"cpu": "100"}))
    return made


def test_nobody_stands_in_line_before_all_are_there_then_one_for_all(keeper: Keeper) -> None:
    put(keeper, member("p0", "g", least=3), member("p1", "g", least=3, cpu=2))
    assert line(keeper) == []
    put(keeper, member("p2", "g", least=3), member("p3", "g", least=3))
    assert line(keeper) == [("gang ns/g a", {"cpu": 4})]  # the first three; p3 waits behind them
    put(keeper, *(member(f"p{n}", "g", least=3, node="n") for n in range(3)))
    assert line(keeper) == [("pod ns/p3", {"cpu": 1})]  # complete: everybody else comes alone
    keeper.drop_pod("ns/p1")
    put(keeper, member("p1", "g", least=3))
    assert [key for key, _ in line(keeper)] == ["pod ns/p1", "pod ns/p3"]


def test_the_match_policy_says_whether_those_that_run_count(keeper: Keeper) -> None:
    for policy, missing in ((keys.WAITING_AND_RUNNING, 2), (keys.ONLY_WAITING, 4)):
        pods = [member(f"p{n}", policy, least=4, match_policy=policy) for n in range(4)]
        put(keeper, *pods, *(member(f"r{n}", policy, least=4, match_policy=policy, node="n") for n in range(2)))
        assert line(keeper) == [(f"gang ns/{policy} a", {"cpu": missing})]
        for pod in (*pods, *(member(f"r{n}", "") for n in range(2))):
            keeper.drop_pod(f"ns/{pod.metadata.name}")
    assert line(keeper) == []


def test_a_pod_group_says_the_minimum_and_wins(keeper: Keeper) -> None:
    put(keeper, *(member(f"p{n}", "g") for n in range(3)))
    assert line(keeper) == []  # its PodGroup does not exist
    group = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"minMember": 2}}
    keeper.put_group("ns/g", msgspec.convert(group, PodGroup))
    assert line(keeper) == [("gang ns/g a", {"cpu": 2})]
    group["spec"] = {"minMember": 3}
    keeper.put_group("ns/g", msgspec.convert(group, PodGroup))
    assert line(keeper) == [("gang ns/g a", {"cpu": 3})]
    keeper.put_group("ns/g", None)
    assert line(keeper) == []


def test_gangs_of_one_group_are_one_entry(keeper: Keeper) -> None:
    groups = '["ns/g", "ns/h"]'
    put(keeper, *(member(f"g{n}", "g", least=2, groups=groups) for n in range(2)))
    assert line(keeper) == []  # h is not there
    put(keeper, *(member(f"h{n}", "h", least=2, groups=groups, cpu=3) for n in range(2)))
    assert line(keeper) == [("gang ns/g a", {"cpu": 8})]
    put(keeper, *(member(f"h{n}", "h", "b", least=2, groups=groups, cpu=3) for n in range(2)))
    assert line(keeper) == [("gang ns/g a", {"cpu": 2})]
    assert line(keeper, "b") == [("gang ns/g b", {"cpu": 6})]


def test_pods_of_a_unit_stand_for_nothing_in_line(keeper: Keeper) -> None:
    unit = {"metadata": {"name": "u", "namespace": "ns", "labels": {PREFIX + "name": "a"}}}
    keeper.put_unit("ns/u", msgspec.convert({**unit, "spec": {"resource": {"cpu": "5"}}}, UnitBrief))
    pod = member("p", "g", least=1)
    annotations = {**pod.metadata.annotations, "koord-queue/related-queueunit": "ns/u"}
    put(keeper, msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations)))
    assert line(keeper) == [("unit ns/u", {"cpu": 5})]


def test_nothing_is_kept_of_gangs_that_are_gone(keeper: Keeper) -> None:
    line(keeper)
    before = len(keeper.usage.gangs)
    for n in range(50):
        groups = f'["ns/g{n}", "ns/other{n}"]'
        put(keeper, *(member(f"p{i}", f"g{n}", least=2, groups=groups) for i in range(2)))
        line(keeper)
        for i in range(2):
            keeper.drop_pod(f"ns/p{i}")
        assert line(keeper) == []
    assert len(keeper.usage.gangs) == before


def test_idle_room_goes_to_the_whole_gang_or_to_somebody_else(keeper: Keeper) -> None:
    """Shares of 10 each: a gang of 12 gets them, one of 24 does not, and holds nothing beyond its share either."""
    keeper.put_node("n", msgspec.convert({"status": {"allocatable": {"cpu": "20"}}}, NodeBrief))
    put(keeper, *(member(f"a{n}", "g", "a", cpu=3, least=4) for n in range(4)))
    put(keeper, *(member(f"b{n}", "h", "b", cpu=3, least=8) for n in range(8)))
    keeper.fill(0.0)
    limits = {name: keeper.limits(name)[0].limits["cpu"] // 1000 for name in "ab"}
    assert limits == {"a": 12, "b": 8}


def test_whoever_leaves_a_gang_under_the_same_name_stands_for_itself(keeper: Keeper) -> None:
    """Deleted and made again between two looks, as a Job's pods are: in another gang, or in none."""
    for gang in "gh":
        put(keeper, member(f"{gang}0", gang, least=1, node="n"), member(f"{gang}1", gang, least=1))
    put(keeper, member("x", "g", least=1))
    for gang in "hghg":
        assert ("pod ns/x", {"cpu": 1}) in line(keeper)
        put(keeper, member("x", gang, least=1))
    alone = member("x", "", least=1)
    alone.metadata.annotations.clear()
    put(keeper, alone)
    assert line(keeper) == [("pod ns/g1", {"cpu": 1}), ("pod ns/h1", {"cpu": 1}), ("pod ns/x", {"cpu": 1})]
    keeper.drop_pod("ns/x")
    assert ("pod ns/x", {"cpu": 1}) not in line(keeper)
    assert len(keeper.usage.gangs) == 6
