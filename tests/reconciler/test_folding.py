"""From objects to observations: what is charged, what ends, what costs no call."""

import json
from typing import Any

import msgspec
import pytest

from koord.accounting.takes import Take
from koord.kube.quotas import ElasticQuota
from koord.ledger.model import (
    ItemClosed,
    NodeSeen,
    PodGone,
    PodNominated,
    PodSeen,
    PodTerminating,
    UnitGone,
    UnitSeen,
    UnitUnbound,
)
from koord.reconciler.folding import PATIENCE_S, Folder
from koord.reconciler.sights import NodeSight, PodSight, SightError, UnitSight, request_of

QUOTA = "quota.scheduling.koordinator.sh/"


def pod(
    *,
    node: str = "",
    phase: str = "Pending",
    uid: str = "u",
    version: str = "1",
    quota: str = "",
    unit: str = "",
    cpu: Any = "1",
) -> PodSight:
    metadata: dict[str, Any] = {"name": "p", "namespace": "ns", "uid": uid, "resourceVersion": version}
    if quota:
        metadata["labels"] = {QUOTA + "name": quota}
    if unit:
        metadata["annotations"] = {"koord-queue/related-queueunit": unit}
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    body = {"metadata": metadata, "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": phase}}
    return msgspec.json.decode(json.dumps(body), type=PodSight)


def quota(
    name: str, parent: str = "", max_: dict[str, str] | None = None, *, namespace: str = "koord", bound: str = ""
) -> ElasticQuota:
    labels = {QUOTA + "parent": parent} if parent else {}
    annotations = {QUOTA + "namespaces": json.dumps([bound])} if bound else {}
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels, "annotations": annotations},
        "spec": {"max": max_ or {"cpu": "4"}},
    }
    return msgspec.json.decode(json.dumps(body), type=ElasticQuota)


def unit(*, admitted: bool, phase: str = "Dequeued", uid: str = "u", version: str = "1") -> UnitSight:
    body = {
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": version,
            "labels": {QUOTA + "name": "leaf"},
        },
        "spec": {"resource": {"cpu": "2", "memory": "1Gi"}},
        "status": {"phase": phase, "admissions": [{"name": "main", "replicas": 2}] if admitted else []},
    }
    return msgspec.json.decode(json.dumps(body), type=UnitSight)


def node(cpu: str = "8", version: str = "1", **labels: str) -> NodeSight:
    metadata = {"name": "n1", "uid": "n", "resourceVersion": version, "labels": labels}
    body = {"metadata": metadata, "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "110"}}}
    return msgspec.json.decode(json.dumps(body), type=NodeSight)


@pytest.fixture
def folder() -> Folder:
    folder = Folder()
    folder.quota(None, quota("top"), 0.0)
    folder.quota(None, quota("leaf", parent="top"), 0.0)
    return folder


def test_a_node_is_told_when_its_room_changes_and_closed_when_it_goes(folder: Folder) -> None:
    first, room = node(), {"cpu": 8000, "memory": 1 << 30, "pods": 110}
    assert folder.node(None, first, "1") == [NodeSeen("node/n1", room, "1", first.generation)]
    assert folder.node(first, node(version="2"), "2") == []  # a heartbeat
    labelled = node(version="2", zone="a")
    assert folder.node(first, labelled, "2") == [NodeSeen("node/n1", room, "2", labelled.generation)]
    assert labelled.generation != first.generation
    assert folder.node(first, node(cpu="4", version="3"), "3")[0].limits["cpu"] == 4000  # type: ignore[union-attr]
    assert folder.node(first, None, "4") == [ItemClosed("node/n1", "4")]
    assert len(folder.node(None, node(version="5"), "5")) == 1


def test_a_node_with_an_impossible_quantity_keeps_its_last_good_room(folder: Folder) -> None:
    folder.node(None, node(), "1")
    assert folder.node(node(), node(cpu="8 cores", version="2"), "2") == []
    kind, meta, text = folder.problems.pop()
    assert (kind, meta.name) == ("Node", "n1")
    assert text.startswith("status.allocatable[cpu]:")


def test_a_waiting_pod_takes_nothing_and_a_bound_one_is_charged_once(folder: Folder) -> None:
    waiting = pod(quota="leaf")
    assert folder.pod(None, waiting, "1", 0.0) == []
    bound = pod(node="n1", quota="leaf", version="2")
    (seen,) = folder.pod(waiting, bound, "2", 0.0)
    amounts = {"cpu": 1000, "memory": 1 << 30}
    assert isinstance(seen, PodSeen)
    assert seen.takes == (
        Take("node/n1", {**amounts, "pods": 1}),
        Take("quota/leaf", amounts),
        Take("quota/top", amounts),
        Take("admitted/leaf", amounts, checked=False),
        Take("admitted/top", amounts, checked=False),
    )
    running = pod(node="n1", quota="leaf", version="3", phase="Running")
    assert folder.pod(bound, running, "3", 0.0) == []
    resized = pod(node="n1", quota="leaf", version="4", phase="Running", cpu="2")
    assert len(folder.pod(running, resized, "4", 0.0)) == 1


def test_a_pod_of_a_unit_never_touches_admitted(folder: Folder) -> None:
    (seen,) = folder.pod(None, pod(node="n1", quota="leaf", unit="ns/j-py"), "1", 0.0)
    assert isinstance(seen, PodSeen)
    assert [take.item for take in seen.takes] == ["node/n1", "quota/leaf", "quota/top"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_terminal_pod_is_gone_once(folder: Folder, phase: str) -> None:
    bound = pod(node="n1", version="2")
    folder.pod(None, bound, "2", 0.0)
    done = pod(node="n1", version="3", phase=phase)
    assert folder.pod(bound, done, "3", 0.0) == [PodGone("u", "ns", "p", "3")]
    assert folder.pod(done, pod(node="n1", version="4", phase=phase), "4", 0.0) == []
    assert folder.pod(done, None, "5", 0.0) == [PodGone("u", "ns", "p", "5")]
    assert folder.charged == 0


def test_another_uid_under_the_same_name_ends_the_first(folder: Folder) -> None:
    first, second = pod(node="n1"), pod(node="n1", uid="v", version="9")
    folder.pod(None, first, "1", 0.0)
    gone, seen = folder.pod(first, second, "9", 0.0)
    assert gone == PodGone("u", "ns", "p", "")
    assert isinstance(seen, PodSeen) and seen.uid == "v"


def test_a_pod_waits_a_moment_for_a_quota_that_is_not_there_yet(folder: Folder) -> None:
    bound = pod(node="n1", quota="late")
    assert folder.pod(None, bound, "1", 0.0) == []
    assert folder.late(PATIENCE_S / 2) == []
    (seen,) = folder.quota(None, quota("late", parent="top"), 0.5)
    assert isinstance(seen, PodSeen) and "quota/late" in [take.item for take in seen.takes]
    # Nobody waits for ever: it is charged to the node, and to the default quota once that exists.
    other = pod(node="n1", quota="never", uid="w")
    assert folder.pod(None, other, "1", 10.0) == []
    (seen,) = folder.late(10.0 + PATIENCE_S)
    assert isinstance(seen, PodSeen) and [take.item for take in seen.takes] == ["node/n1"]


def test_a_waiting_pod_that_goes_is_not_charged_later(folder: Folder) -> None:
    bound = pod(node="n1", quota="late")
    folder.pod(None, bound, "1", 0.0)
    folder.pod(bound, None, "2", 0.1)
    assert folder.quota(None, quota("late"), 0.2) == []


def test_a_pod_with_an_impossible_request_is_named_and_takes_its_slot(folder: Folder) -> None:
    bad = pod(node="n1", cpu="a lot")
    with pytest.raises(SightError, match=r"containers\[c\].resources.requests\[cpu\]"):
        request_of(bad)
    (seen,) = folder.pod(None, bad, "1", 0.0)
    assert isinstance(seen, PodSeen) and seen.takes[0] == Take("node/n1", {"pods": 1})
    assert "containers[c]" in folder.problems.pop()[2]


def test_a_unit_is_charged_while_it_has_admissions(folder: Folder) -> None:
    waiting = unit(admitted=False, phase="Enqueued")
    assert folder.unit(None, waiting, "1", 0.0) == []
    admitted = unit(admitted=True, version="2")
    (seen,) = folder.unit(waiting, admitted, "2", 0.0)
    assert isinstance(seen, UnitSeen)
    assert [take.item for take in seen.takes] == ["admitted/leaf", "admitted/top"]
    assert seen.takes[0].amounts == {"cpu": 2000, "memory": 1 << 30}
    running = unit(admitted=True, phase="Running", version="3")
    assert folder.unit(admitted, running, "3", 0.0) == []
    backoff = unit(admitted=False, phase="TimeoutBackoff", version="4")
    assert folder.unit(running, backoff, "4", 0.0) == [UnitUnbound("u", "ns", "j", "4")]
    assert folder.unit(backoff, unit(admitted=True, version="5"), "5", 0.0) != []
    ended = unit(admitted=True, phase="Succeed", version="6")
    assert folder.unit(running, ended, "6", 0.0) == [UnitGone("u", "ns", "j", "6")]
    assert folder.unit(ended, None, "7", 0.0) == [UnitGone("u", "ns", "j", "7")]


def test_everything_is_told_anew_after_the_ledger_was_emptied(folder: Folder) -> None:
    bound, admitted = pod(node="n1"), unit(admitted=True, uid="x")
    folder.node(None, node(), "1")
    folder.pod(None, bound, "1", 0.0)
    told = folder.everything([node()], [bound, pod(uid="w")], [admitted], 5.0)
    assert [type(one) for one in told] == [NodeSeen, PodSeen, UnitSeen]
    assert sorted(folder.charged_uids()) == ["u", "x"]


def test_a_cycle_of_quotas_charges_the_node_alone(folder: Folder) -> None:
    folder.quota(None, quota("a", parent="b"), 0.0)
    folder.quota(None, quota("b", parent="a"), 0.0)
    (seen,) = folder.pod(None, pod(node="n1", quota="a"), "1", 0.0)
    assert isinstance(seen, PodSeen) and [take.item for take in seen.takes] == ["node/n1"]


def test_a_quota_that_does_not_parse_is_named_and_the_last_good_one_stays(folder: Folder) -> None:
    folder.quota(None, quota("leaf", parent="top", max_={"cpu": "much"}), 0.0)
    kind, meta, text = folder.problems.pop()
    assert (kind, meta.name) == ("ElasticQuota", "leaf") and "spec.max[cpu]" in text
    (seen,) = folder.pod(None, pod(node="n1", quota="leaf"), "1", 0.0)
    assert isinstance(seen, PodSeen) and "quota/top" in [take.item for take in seen.takes]


def default() -> ElasticQuota:
    return quota("koordinator-default-quota")


def items(observation: Any) -> list[str]:
    return [take.item for take in observation.takes if not take.item.startswith("node/")]


def test_a_pod_that_was_charged_elsewhere_moves_when_its_quota_appears(folder: Folder) -> None:
    folder.quota(None, default(), 0.0)
    late = pod(node="n1", quota="team")
    assert folder.pod(None, late, "1", 0.0) == []
    (first,) = folder.late(PATIENCE_S)
    assert items(first)[0] == "quota/koordinator-default-quota"
    assert folder.strays() == []
    folder.quota(None, quota("team", parent="top"), 2.0)
    (moved,) = folder.strays()
    assert isinstance(moved, PodSeen)
    assert (moved.recharge, moved.resource_version) == (True, "1")
    assert items(moved) == ["quota/team", "quota/top", "admitted/team", "admitted/top"]
    # Its quota changes and goes: that is not for those who look for strays.
    folder.quota(quota("team", parent="top"), quota("team", parent="leaf"), 3.0)
    folder.quota(quota("team", parent="leaf"), None, 4.0)
    assert folder.strays() == []
    # Who comes now is charged to the default quota, and moves when the quota is back.
    (other,) = (*folder.pod(None, pod(node="n1", quota="team", uid="v"), "5", 5.0), *folder.late(7.0))
    assert items(other)[0] == "quota/koordinator-default-quota"
    folder.quota(None, quota("team"), 8.0)
    assert [(moved.uid, items(moved)[0]) for moved in folder.strays() if isinstance(moved, PodSeen)] == [
        ("v", "quota/team")
    ]


def test_a_chain_that_becomes_whole_is_charged(folder: Folder) -> None:
    """A quota whose parent is missing charges nothing; so does a unit's."""
    folder.quota(None, quota("child", parent="missing"), 0.0)
    (pod_,) = folder.pod(None, pod(node="n1", quota="child"), "1", 0.0)
    admitted = unit(admitted=True, uid="j")
    admitted.metadata.labels = {QUOTA + "name": "child"}
    (unit_,) = folder.unit(None, admitted, "1", 0.0)
    assert (items(pod_), items(unit_)) == ([], [])
    folder.quota(None, quota("missing"), 1.0)
    moved = folder.strays()
    assert [items(one)[:2] for one in moved] == [
        ["quota/child", "quota/missing"],
        ["admitted/child", "admitted/missing"],
    ]
    assert folder.strays() == []


def test_those_who_ended_do_not_move(folder: Folder) -> None:
    gone = pod(node="n1", quota="team")
    folder.pod(None, gone, "1", 0.0)
    folder.late(PATIENCE_S)
    folder.pod(gone, None, "2", 1.0)
    folder.quota(None, quota("team"), 2.0)
    assert folder.strays() == []


def test_who_is_charged_along_a_way_that_is_another_now_is_charged_anew(folder: Folder) -> None:
    pods = [pod(node="n1", quota="leaf", uid=f"p{n}") for n in range(2)]
    admitted = unit(admitted=True, uid="j")
    admitted.metadata.labels = {QUOTA + "name": "leaf"}

    def moved() -> dict[str, list[str]]:
        found: list[Any] = folder.moved(pods, [admitted])
        assert all(one.recharge for one in found)
        return {one.uid: items(one) for one in found}

    folder.quota(None, quota("other"), 0.0)
    for one in pods:
        folder.pod(None, one, "1", 0.0)
    folder.unit(None, admitted, "1", 0.0)
    moved()
    assert moved() == {}
    folder.quota(quota("leaf", parent="top"), quota("leaf", parent="other"), 1.0)
    way = ["quota/leaf", "quota/other", "admitted/leaf", "admitted/other"]
    assert moved() == {"p0": way, "p1": way, "j": ["admitted/leaf", "admitted/other"]}
    assert moved() == {}
    # Above it something moves, too.
    folder.quota(quota("other"), quota("other", parent="top"), 2.0)
    assert moved()["j"] == ["admitted/leaf", "admitted/other", "admitted/top"]
    # A way that is broken moves nobody: a cycle, a parent that is gone, no default quota.
    folder.quota(quota("other", parent="top"), quota("other", parent="leaf"), 3.0)
    assert moved() == {}
    folder.quota(quota("other", parent="leaf"), None, 4.0)
    assert moved() == {}
    folder.quota(quota("leaf", parent="other"), None, 5.0)
    assert moved() == {}
    # The pods of a quota that is gone are the default quota's; the unit that names it is nobody's, and stands.
    folder.quota(None, default(), 6.0)
    folder.quota(quota("top"), None, 6.5)
    home = "koordinator-default-quota"
    assert moved() == {name: [f"quota/{home}", f"admitted/{home}"] for name in ("p0", "p1")}


def test_a_quota_bound_to_a_namespace_takes_the_pods_that_name_none(folder: Folder) -> None:
    folder.quota(None, default(), 0.0)
    (one,) = pods = [pod(node="n1")]
    folder.pod(None, one, "1", 0.0)
    folder.quota(None, quota("bound", bound="ns"), 1.0)
    (seen,) = folder.moved(pods, [])
    assert items(seen)[0] == "quota/bound"
    folder.quota(None, quota("ns", namespace="ns"), 2.0)
    (seen,) = folder.moved(pods, [])
    assert items(seen)[0] == "quota/ns"
    folder.quota(None, quota("none of it"), 3.0)
    assert folder.moved(pods, []) == []


def test_who_ended_since_its_record_was_read_is_not_charged_anew(folder: Folder) -> None:
    """Told once more with the version that ended it, that one would be no news to the ledger."""
    assigned, ended = pod(node="n1", uid="p"), pod(node="n1", uid="p", phase="Succeeded", version="2")
    folder.pod(None, assigned, "", 0.0)
    admitted, taken_back = unit(admitted=True), unit(admitted=False, version="2")
    folder.unit(None, admitted, "", 0.0)
    for one in (assigned, admitted):
        [seen] = folder.recharged(one)
        assert isinstance(seen, PodSeen | UnitSeen) and seen.recharge
    assert folder.pod(assigned, ended, "2", 0.0) and folder.unit(admitted, taken_back, "2", 0.0)
    assert folder.recharged(ended) == folder.recharged(taken_back) == []
    assert folder.charged == 0


def test_a_record_that_charges_the_default_quota_is_astray_if_it_belongs_elsewhere(folder: Folder) -> None:
    (seen,) = folder.pod(None, pod(node="n1", quota="leaf"), "1", 0.0)
    assert isinstance(seen, PodSeen)
    node_only = seen.takes[:1]
    for takes, expected in (
        (node_only, True),
        ((*node_only, Take("quota/koordinator-default-quota", {"cpu": 1000})), True),
        ((*node_only, Take("quota/deleted", {"cpu": 1000})), True),  # while nobody reconciled
        (seen.takes, False),
    ):
        assert folder.astray(seen.uid, takes) is expected
    assert not folder.astray("nobody", node_only)


def nominee(node: str, *, scheduler: str = "koord-scheduler", version: str = "1") -> PodSight:
    waits = pod(version=version)
    waits.status.nominated_node_name = node or None
    waits.spec.scheduler_name, waits.spec.priority = scheduler, 7
    return waits


def test_a_pod_that_waits_for_a_node_is_told_once_and_when_it_changes(folder: Folder) -> None:
    takes = (Take("node/n1", {"cpu": 1000, "memory": 1 << 30, "pods": 1}),)
    first = nominee("n1")
    assert folder.pod(None, first, "1", 0.0) == [PodNominated("u", "ns", "p", "n1", takes, 7, "1")]
    assert folder.pod(first, nominee("n1", version="2"), "2", 0.0) == []
    (moved,) = folder.pod(first, nominee("n2", version="3"), "3", 0.0)
    assert isinstance(moved, PodNominated) and (moved.node, moved.takes[0].item) == ("n2", "node/n2")
    cleared = nominee("", version="4")
    assert folder.pod(first, cleared, "4", 0.0) == [PodNominated("u", "ns", "p", "", (), 7, "4")]
    assert folder.pod(cleared, cleared, "5", 0.0) == []
    (foreign,) = folder.pod(cleared, nominee("n1", scheduler="default-scheduler"), "6", 0.0)
    assert isinstance(foreign, PodNominated) and foreign.foreign


def test_a_nominated_pod_that_is_bound_or_goes_needs_no_word_of_its_own(folder: Folder) -> None:
    waits, bound = nominee("n1"), pod(node="n1", version="2")
    for next_, kind in ((bound, PodSeen), (None, PodGone)):
        folder.pod(None, waits, "1", 0.0)
        (told,) = folder.pod(waits, next_, "2", 0.0)
        assert isinstance(told, kind)
        again = folder.pod(None, waits, "3", 0.0)
        assert [type(one) for one in again] == [PodNominated]
        folder.forget()


def test_a_pod_that_begins_to_terminate_is_told_once(folder: Folder) -> None:
    """It is no preemptor's victim any more."""
    running = pod(node="n1", version="1")
    folder.pod(None, running, "1", 0.0)
    ending = pod(node="n1", version="2")
    ending.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    assert folder.pod(running, ending, "2", 0.0) == [PodTerminating("u", "ns", "p")]
    assert folder.pod(ending, ending, "3", 0.0) == []
    assert folder.pod(ending, None, "4", 0.0) == [PodGone("u", "ns", "p", "4")]
