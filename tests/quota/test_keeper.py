"""What the quota service decides: quotas in force, limits, sums, patches."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from koord.contracts.codec import decode
from koord.contracts.quota import QuotaRuntime
from koord.kube.meta import ObjectMeta
from koord.kube.quotas import ElasticQuota
from koord.ledger.model import LimitSet
from koord.quota.keeper import Keeper, Rules
from koord.quota.limits import LimitRules
from koord.quota.views import NodeBrief, PodBrief, RequestCache, UnitBrief

PREFIX = "quota.scheduling.koordinator.sh/"


def quota(name: str, parent: str = "", namespace: str = "q", **spec: Any) -> ElasticQuota:
    labels = {PREFIX + "parent": parent} if parent else {}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "labels": labels}
    return msgspec.convert({"metadata": metadata, "spec": spec}, ElasticQuota)


def pod(name: str, quota_name: str, cpu: str, node: str = "", phase: str = "Pending", unit: str = "") -> PodBrief:
    body = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {PREFIX + "name": quota_name},
            "annotations": {"koord-queue/related-queueunit": unit} if unit else {},
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=PodBrief)


def node(cpu: str) -> NodeBrief:
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu}}}, NodeBrief)


def messages(keeper: Keeper, *, every: bool = False) -> list[QuotaRuntime]:
    return [decode(QuotaRuntime, part.body) for part in keeper.showing.runtimes(every=every) if part is not None]


def problems(keeper: Keeper) -> list[str]:
    found, keeper.quotas.problems = keeper.quotas.problems, []
    return [each.text for each in found]


def test_an_invalid_quota_leaves_the_last_good_version_in_force() -> None:
    keeper = Keeper()
    keeper.put_quota(quota("a", max={"cpu": "4"}))
    edits: list[tuple[dict[str, Any], str]] = [
        ({"max": {"cpu": "four"}}, "spec.max"),
        ({"max": {"cpu": "-4"}}, "spec.max"),
        ({"min": {"cpu": "5"}, "max": {"cpu": "4"}}, "min 5 > max 4"),
        ({"max": {f"r{number}": "1" for number in range(101)}}, "spec.max: names 101 resources, at most 100 can be"),
        ({"min": {f"r{number}": "1" for number in range(101)}}, "spec.min: names 101 resources, at most 100 can be"),
    ]
    for spec, field in edits:
        keeper.put_quota(quota("a", **spec))
        (text,) = problems(keeper)
        assert field in text and "a" in text
        assert keeper.tree.limits("a") == {"cpu": 4000}
    keeper.put_quota(quota("a", max={"cpu": "6"}))
    assert problems(keeper) == []
    assert keeper.tree.limits("a") == {"cpu": 6000}


def labelled(name: str, parent: str, key: str, value: str) -> ElasticQuota:
    body = msgspec.to_builtins(quota(name, parent, max={"cpu": "4"}))
    body["metadata"].setdefault("labels", {})[PREFIX + key] = value
    return msgspec.convert(body, ElasticQuota)


PARENT_OF = "metadata.labels[quota.scheduling.koordinator.sh/parent]"
TREE_OF = "metadata.labels[quota.scheduling.koordinator.sh/tree-id]"
BLOCKED = "nothing is admitted or placed under this quota until"


@pytest.mark.parametrize(
    ("quotas", "reason", "text"),
    [
        (
            [quota("a", min={"cpu": "5"}, max={"cpu": "4"})],
            "InvalidQuota",
            "ElasticQuota q/a: spec.min[cpu]: resourceKey cpu of quota a min 5 > max 4: "
            "spec.min must not be above spec.max",
        ),
        (
            [quota("a", max={"cpu": "-4"})],
            "InvalidQuota",
            'ElasticQuota q/a: spec.max[cpu]: quantity "-4": must not be negative',
        ),
        ([quota("a", "a")], "InvalidQuota", f"ElasticQuota q/a: {PARENT_OF}: the parents form a cycle: a -> a"),
        (
            [quota("a", "b"), quota("b", "c"), quota("c", "b")],
            "InvalidQuota",
            f"ElasticQuota q/c: {PARENT_OF}: the parents form a cycle: c -> b -> c",
        ),
        (
            [quota("a", "gone")],
            "ParentNotFound",
            f"ElasticQuota q/a: {PARENT_OF}: there is no quota 'gone': {BLOCKED} there is",
        ),
        (
            [quota("a", "bad"), quota("bad", max={"cpu": "-1"})],
            "ParentNotInForce",
            f"ElasticQuota q/a: {PARENT_OF}: quota 'bad' (q/bad) is not in force, see its events: {BLOCKED} it is",
        ),
        (
            [labelled("top", "", "tree-id", "x"), quota("mid", "top"), labelled("a", "mid", "tree-id", "y")],
            "TreeIdDiffers",
            f"ElasticQuota q/a: {TREE_OF}: a tree id is different from parent mid, [y] vs [x]: "
            "it has its share in the tree of its parent",
        ),
        (
            [quota("top"), labelled("a", "top", "tree-id", "y")],
            "TreeIdDiffers",
            f"ElasticQuota q/a: {TREE_OF}: a tree id is different from parent top, [y] vs []: "
            "it has its share in the tree of its parent",
        ),
        (
            [quota("a"), quota("a", namespace="r")],
            "DuplicateQuotaName",
            "ElasticQuota r/a: metadata.name: quota a of namespace q is older and in force; this one is not",
        ),
        (
            [quota("a"), msgspec.structs.replace(
                quota("b"), metadata=ObjectMeta(name="b", namespace="q", annotations={PREFIX + "namespaces": "x"}))],
            "InvalidQuota",
            "ElasticQuota q/b: annotation quota.scheduling.koordinator.sh/namespaces: must be a JSON list of "
            "namespaces: JSON is malformed: invalid character (byte 0)",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_names_object_field_and_rule(quotas: list[ElasticQuota], reason: str, text: str) -> None:
    keeper = Keeper()
    for each in quotas:
        keeper.put_quota(each)
    keeper.fill(0.0)
    for _ in range(2):  # told once
        keeper.quotas.look()
    told = [(each.reason, each.text) for each in keeper.quotas.problems if each.reason == reason]
    assert told == [(reason, text)]


def test_a_tree_id_that_agrees_or_is_left_out_is_not_told() -> None:
    keeper = Keeper()
    for each in (
        labelled("top", "", "tree-id", "x"),
        labelled("a", "top", "tree-id", "x"),
        quota("b", "a"),
        labelled("c", "b", "tree-id", "x"),
        labelled("own", "koordinator-root-quota", "tree-id", "z"),
    ):
        keeper.put_quota(each)
    keeper.quotas.look()
    assert problems(keeper) == []
    keeper.put_quota(labelled("top", "", "tree-id", "w"))  # now they do not
    keeper.quotas.look()
    told = problems(keeper)
    assert [text.split(":")[0] for text in told] == ["ElasticQuota q/a", "ElasticQuota q/c"]
    assert all("[x] vs [w]" in text for text in told)
    assert keeper.quotas.tree_of("c") == "w"


def test_a_parent_that_does_not_even_decode_is_there() -> None:
    keeper = Keeper()
    keeper.put_quota(quota("a", "odd"))
    keeper.quotas.undecodable("q", "odd", "Expected `object`")
    keeper.quotas.look()
    assert "quota 'odd' (q/odd) is not in force" in problems(keeper)[-1]
    keeper.put_quota(quota("odd"))
    keeper.quotas.look()
    assert problems(keeper) == []


def test_a_cycle_is_refused_and_the_rest_goes_on() -> None:
    keeper = Keeper()
    keeper.put_quota(quota("a", "b", max={"cpu": "4"}))
    keeper.put_quota(quota("b", "c", max={"cpu": "4"}))
    keeper.put_quota(quota("c", max={"cpu": "4"}))
    assert problems(keeper) == []
    keeper.put_quota(quota("c", "a", max={"cpu": "4"}))
    (text,) = problems(keeper)
    assert "cycle" in text and "q/c" in text
    assert keeper.tree.chain("a") == ("a", "b", "c")
    keeper.put_quota(quota("own", "own", max={"cpu": "1"}))
    assert len(problems(keeper)) == 1
    assert "own" not in keeper.tree


def test_a_quota_refused_because_of_a_cycle_comes_into_force_once_there_is_none() -> None:
    """As it does for whoever starts then: what is in force must not depend on what was there before."""
    keeper = Keeper()
    for each in (quota("a", "b", max={"cpu": "4"}), quota("b", max={"cpu": "4"})):
        keeper.put_quota(each)
    keeper.fill(0.0)
    keeper.put_quota(quota("b", "a", max={"cpu": "3"}))
    keeper.put_quota(quota("never", "never", max={"cpu": "3"}))
    assert len(problems(keeper)) == 2
    keeper.fill(1.0)
    assert (keeper.tree.chain("a"), keeper.tree.limits("b")) == (("a", "b"), {"cpu": 4000})
    keeper.put_quota(quota("a", max={"cpu": "4"}))
    keeper.fill(2.0)
    assert (keeper.tree.chain("b"), keeper.tree.limits("b")) == (("b", "a"), {"cpu": 3000})
    assert "never" not in keeper.tree and problems(keeper) == []
    # Two that wait for each other's place, and one that goes before its turn comes.
    keeper.put_quota(quota("c", "b", max={"cpu": "2"}))
    keeper.put_quota(quota("a", "c", max={"cpu": "2"}))
    keeper.drop_quota(quota("a", "c", max={"cpu": "2"}))
    keeper.fill(3.0)
    assert "a" not in keeper.tree


def test_an_heir_that_would_close_a_cycle_is_refused_and_told() -> None:
    keeper = Keeper()
    for namespace, parent, created in (("old", "", "2026-01-01T00:00:00Z"), ("young", "b", "2026-02-01T00:00:00Z")):
        made = quota("a", parent, namespace, max={"cpu": "4"})
        keeper.put_quota(
            msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, creation_timestamp=created))
        )
    keeper.put_quota(quota("b", "a", max={"cpu": "4"}))
    assert len(problems(keeper)) == 1  # that there are two
    keeper.drop_quota(quota("a", namespace="old"))
    assert "a" not in keeper.tree
    [text] = problems(keeper)
    assert text == f"ElasticQuota young/a: {PARENT_OF}: the parents form a cycle: a -> b -> a"
    keeper.put_quota(quota("b", max={"cpu": "4"}))
    keeper.fill(0.0)
    assert keeper.tree.chain("a") == ("a", "b")


def test_the_oldest_of_one_name_is_in_force() -> None:
    keeper = Keeper()
    old = msgspec.structs.replace(
        quota("a", max={"cpu": "4"}),
        metadata=msgspec.structs.replace(quota("a").metadata, creation_timestamp="2026-01-01T00:00:00Z"),
    )
    young = msgspec.structs.replace(
        quota("a", namespace="other", max={"cpu": "9"}),
        metadata=msgspec.structs.replace(
            quota("a", namespace="other").metadata, creation_timestamp="2026-02-01T00:00:00Z"
        ),
    )
    keeper.put_quota(old)
    keeper.put_quota(young)
    assert keeper.tree.limits("a") == {"cpu": 4000}
    assert "older" in problems(keeper)[0]
    keeper.drop_quota(old)
    assert keeper.tree.limits("a") == {"cpu": 9000}


def test_limits_leave_out_what_cannot_be_counted() -> None:
    keeper = Keeper(Rules(LimitRules(Fraction("1.5"), by_runtime=False), runtime=False))
    keeper.put_quota(quota("a", min={"cpu": "1"}, max={"cpu": "4", "memory": str(2**63 - 1)}))
    keeper.fill(0.0)
    assert keeper.limits("a") == (
        LimitSet("quota/a", {"cpu": 4000}),
        LimitSet("admitted/a", {"cpu": 6000}),
        LimitSet("guaranteed/a", {"cpu": 1000, "memory": 0}),
    )


def test_sums_are_written_back_once_and_only_on_change() -> None:
    keeper = Keeper()
    keeper.put_quota(quota("top", max={"cpu": "10"}))
    keeper.put_quota(quota("a", "top", max={"cpu": "4"}))
    keeper.put_pod("ns/p1", pod("p1", "a", "1", node="n1"))
    keeper.put_pod("ns/p2", pod("p2", "a", "2"))
    keeper.put_node("n", node("8"))
    assert keeper.fill(0.0)
    assert not keeper.fill(0.0)
    assert keeper.showing.compute()
    patches = {one.metadata.name: patch for one, patch in keeper.showing.patches()}
    assert patches["a"]["status"] == {"used": {"cpu": "1"}}
    assert patches["a"]["metadata"] == {
        "annotations": {PREFIX + key: '{"cpu":"3"}' for key in ("request", "child-request", "runtime")}
    }
    assert patches["top"]["status"] == {"used": {"cpu": "1"}}
    for one, patch in list(keeper.showing.patches()):
        body = msgspec.to_builtins(one)
        body["status"] = patch["status"]
        body["metadata"]["annotations"] = patch["metadata"]["annotations"]  # type: ignore[index]
        keeper.put_quota(msgspec.convert(body, ElasticQuota))
    assert list(keeper.showing.patches()) == []
    assert not keeper.showing.compute()
    keeper.put_pod("ns/p1", pod("p1", "a", "1", node="n1", phase="Succeeded"))
    assert keeper.showing.compute()
    assert {one.metadata.name: patch["status"] for one, patch in keeper.showing.patches()} == {
        "a": {"used": {"cpu": "0"}},
        "top": {"used": {"cpu": "0"}},
    }


def test_runtimes_tell_trees_apart_and_repeat_nothing() -> None:
    keeper = Keeper()
    keeper.put_quota(quota("a", max={"cpu": "4"}))
    other = quota("b", max={"cpu": "4"})
    body = msgspec.to_builtins(other)
    body["metadata"]["labels"] = {PREFIX + "tree-id": "gpu"}
    keeper.put_quota(msgspec.convert(body, ElasticQuota))
    keeper.showing.compute()
    assert sorted(message.tree for message in messages(keeper)) == ["_", "gpu"]
    keeper.put_pod("ns/p1", pod("p1", "b", "1", node="n1"))
    keeper.showing.compute()
    (message,) = messages(keeper)
    assert (message.tree, message.version) == ("gpu", 3)
    assert message.quotas[0].used == {"cpu": 1000}
    assert messages(keeper) == []


def test_whoever_leads_again_publishes_all_that_another_may_have_told_otherwise() -> None:
    keeper = Keeper()
    for name, tree in (("a", "x"), ("b", "y")):
        keeper.put_quota(labelled(name, "", "tree-id", tree))
    keeper.begin(0.0)
    keeper.showing.compute()
    assert [message.tree for message in messages(keeper)] == ["x", "y"]
    keeper.rest()
    keeper.drop_quota(labelled("b", "", "tree-id", "y"))
    keeper.begin(0.0)
    keeper.showing.compute()
    assert [(message.tree, len(message.quotas)) for message in messages(keeper)] == [("x", 1), ("y", 0)]
    assert list(keeper.showing.trees) == ["x"]
    assert messages(keeper) == []


def test_pods_move_to_their_quota_when_it_appears() -> None:
    keeper = Keeper()
    keeper.put_quota(quota("koordinator-default-quota", max={"cpu": "100"}))
    keeper.put_pod("ns/p1", pod("p1", "late", "1", node="n1"))
    keeper.showing.compute()
    assert messages(keeper)[0].quotas[0].used == {"cpu": 1000}
    keeper.put_quota(quota("late", max={"cpu": "4"}))
    assert keeper.fill(0.0)
    assert keeper.showing.compute()
    used = {state.name: state.used for state in messages(keeper)[0].quotas}
    assert used == {"koordinator-default-quota": {"cpu": 0}, "late": {"cpu": 1000}}


def test_a_pod_or_unit_with_impossible_amounts_counts_nothing() -> None:
    keeper = Keeper()
    keeper.put_quota(quota("a", max={"cpu": "4"}))
    keeper.put_pod("ns/p1", pod("p1", "a", "lots", node="n1"))
    unit = {"metadata": {"name": "u", "namespace": "ns", "labels": {PREFIX + "name": "a"}}}
    keeper.put_unit("ns/u", msgspec.convert({**unit, "spec": {"resource": {"cpu": "?"}}}, UnitBrief))
    assert keeper.skipped_pods == 1
    keeper.showing.compute()
    assert messages(keeper)[0].quotas[0].request == {"cpu": 0}
    keeper.put_unit("ns/u", msgspec.convert({**unit, "spec": {"resource": {"cpu": "3"}}}, UnitBrief))
    keeper.showing.compute()
    assert messages(keeper)[0].quotas[0].request == {"cpu": 3000}


def test_equal_containers_are_summed_once() -> None:
    cache = RequestCache(size=2)
    first = cache.request(pod("p1", "a", "1").spec)
    assert cache.request(pod("p2", "b", "1").spec) is first
    for cpu in ("2", "3", "4"):
        assert cache.request(pod("p", "a", cpu).spec) == (("cpu", int(cpu) * 1000),)


def test_an_annotation_that_does_not_parse_is_told_once_and_counts_as_absent() -> None:
    keeper = Keeper()
    body = msgspec.to_builtins(quota("a", max={"cpu": "4"}))
    body["metadata"]["annotations"] = {PREFIX + "shared-weight": "{"}
    keeper.put_quota(msgspec.convert(body, ElasticQuota))
    keeper.put_node("n", node("8"))
    keeper.fill(0.0)
    (text,) = problems(keeper)
    assert text.startswith(f"ElasticQuota q/a: annotation {PREFIX}shared-weight: must be a JSON object")
    keeper.put_quota(quota("b", max={"cpu": "4"}))
    keeper.fill(0.0)
    assert problems(keeper) == []


def test_a_parent_that_does_not_exist_is_told_once() -> None:
    keeper = Keeper()
    keeper.put_quota(quota("a", "gone", max={"cpu": "4"}))
    keeper.quotas.look()
    keeper.quotas.look()
    (text,) = problems(keeper)
    assert "metadata.labels[quota.scheduling.koordinator.sh/parent]: there is no quota 'gone'" in text
    keeper.put_quota(quota("gone", max={"cpu": "4"}))
    keeper.quotas.look()
    assert problems(keeper) == []


def test_what_was_admitted_may_be_completed_and_a_min_needs_no_asking() -> None:
    keeper = Keeper()
    for name in "ab":
        keeper.put_quota(quota(name, min={"cpu": "4"}, max={"cpu": "8"}))
    keeper.put_node("n", node("8"))
    unit = {"metadata": {"name": "u", "namespace": "ns", "labels": {PREFIX + "name": "a"}}}
    spec = {"spec": {"resource": {"cpu": "8"}}, "status": {"phase": "Dequeued", "admissions": [{}]}}
    keeper.put_unit("ns/u", msgspec.json.decode(msgspec.json.encode({**unit, **spec}), type=UnitBrief))
    keeper.fill(0.0)
    assert [limits.limits for limits in keeper.limits("b")[:2]] == [{"cpu": 4000}, {"cpu": 4000}]
    keeper.put_pod("ns/p", pod("p", "b", "4"))
    keeper.fill(0.0)
    assert [limits.limits for limits in keeper.limits("a")[:2]] == [{"cpu": 8000}, {"cpu": 4000}]
    keeper.showing.compute()
    states = {state.name: state for state in messages(keeper)[0].quotas}
    assert (states["a"].runtime, states["a"].limit) == ({"cpu": 4000}, {"cpu": 8000})
    assert (states["b"].runtime, states["b"].limit) == ({"cpu": 4000}, {})
