"""Patches: JSON, merge and strategic, over HTTP and as pure functions under random input."""

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.localcluster.api.patches import PatchError, json_patch, merge_patch
from koord.localcluster.api.strategic import FieldRule, rules_of, strategic_merge
from koord.localcluster.clusterapi import ApiError
from tests.localcluster.api.rig import Client, pod

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("ab/~", max_size=2), VALUES, max_size=4)


def test_json_patch_over_http(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    client.post(path, {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}})
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/metadata/annotations", "value": {"x/y": "z"}},
        {"op": "replace", "path": "/metadata/annotations/x~1y", "value": "w"},
        {"op": "copy", "from": "/data/a", "path": "/data/c"},
        {"op": "move", "from": "/data/a", "path": "/data/d"},
    ]
    changed = client.patch(f"{path}/c", operations, "json-patch").body
    assert changed["data"] == {"c": "1", "d": "1"} and changed["metadata"]["annotations"] == {"x/y": "w"}
    failed = client.patch(f"{path}/c", [{"op": "test", "path": "/data/c", "value": "9"}], "json-patch")
    assert (failed.code, failed.body["reason"]) == (422, "Invalid")
    assert client.patch(f"{path}/c", {"op": "test"}, "json-patch").code == 400
    assert client.patch(f"{path}/c", [], "merge-patch").code == 400
    assert client.patch(f"{path}/c", {}, "apply-patch").code == 415
    assert client.get(f"{path}/c").body == changed


def test_a_patch_cannot_move_an_object(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = client.post(path, {"metadata": {"name": "c"}}).body
    for change in ({"name": "d"}, {"namespace": "default"}):
        assert client.patch(f"{path}/c", {"metadata": change}).code == 400
    assert client.patch(f"{path}/c", {"metadata": {"uid": "x"}}).code == 422
    assert client.patch(f"{path}/c", {"metadata": {"creationTimestamp": None, "uid": None}}).body == made
    assert client.patch(f"{path}/c", {"metadata": {"labels": {"a": 1}}}).code == 422
    assert client.patch(f"{path}/c", {"metadata": {"labels": {"a": "b c"}}}).code == 422


def test_strategic_patch_merges_lists_by_key(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = pod("a")
    body["spec"]["containers"].append({"name": "side", "image": "sidecar:1"})
    client.post(path, body)
    patch = {"spec": {"containers": [{"name": "side", "image": "sidecar:2"}]}}
    changed = client.patch(f"{path}/a", patch, "strategic-merge-patch").body
    assert [(c["name"], c["image"]) for c in changed["spec"]["containers"]] == [
        ("main", "busybox"),
        ("side", "sidecar:2"),
    ]
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    scheduled = {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}
    client.patch(f"{path}/a/status", ready, "strategic-merge-patch")
    both = client.patch(f"{path}/a/status", scheduled, "strategic-merge-patch").body
    assert [condition["type"] for condition in both["status"]["conditions"]] == ["PodScheduled", "Ready"]
    no_key = {"status": {"conditions": [{"status": "True"}]}}
    assert client.patch(f"{path}/a/status", no_key, "strategic-merge-patch").code == 500  # sic, as Kubernetes


def _containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": f"{name}:1"} for name in names]}}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}, ["b", "c"]),
        ({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}, ["z"]),
        ({"spec": {"containers": [{"name": "d"}]}}, ["d", "a", "b", "c"]),
        ({"spec": {"containers": [{"name": "c"}, {"name": "b"}]}}, ["a", "c", "b"]),
        ({"spec": {"$setElementOrder/containers": [{"name": n} for n in "cba"]}}, ["c", "b", "a"]),
        (
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "d"}, {"name": "a"}],
                    "containers": [{"name": "d"}, {"name": "b", "$patch": "delete"}],
                }
            },
            ["d", "a", "c"],
        ),
        ({"spec": {"$patch": "replace", "containers": [{"name": "q"}]}}, ["q"]),
    ],
)
def test_directives(patch: dict[str, Any], expected: list[str]) -> None:
    target = _containers("a", "b", "c")
    before = copy.deepcopy(target)
    merged = strategic_merge(target, patch, "core.v1.Pod")
    assert [container["name"] for container in merged["spec"]["containers"]] == expected
    assert target == before


def test_primitive_lists_merge_and_delete() -> None:
    target = {"metadata": {"finalizers": ["a", "b"]}}
    added = strategic_merge(target, {"metadata": {"finalizers": ["b", "c"]}}, "core.v1.Pod")
    assert added["metadata"]["finalizers"] == ["a", "b", "c"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge(target, gone, "core.v1.Pod")["metadata"]["finalizers"] == ["b"]
    kept = strategic_merge(
        {"spec": {"strategy": {"type": "R", "x": 1}}},
        {"spec": {"strategy": {"$retainKeys": ["type"]}}},
        "apps.v1.Deployment",
    )
    assert kept == {"spec": {"strategy": {"type": "R"}}}


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "destroy"},
        {"spec": {"containers": [{"image": "x"}]}},
        {"spec": {"containers": ["x"]}},
        {"spec": {"$retainKeys": "x"}},
        {"spec": {"$setElementOrder/containers": 3}},
    ],
)
def test_bad_strategic_patches_are_refused(patch: dict[str, Any]) -> None:
    with pytest.raises((PatchError, ApiError)):
        strategic_merge(_containers("a"), patch, "core.v1.Pod")


def test_merge_keys_are_the_schemas() -> None:
    assert rules_of("core.v1.Container")["ports"] == FieldRule("core.v1.ContainerPort", True, "containerPort")
    assert rules_of("core.v1.PodSpec")["volumes"] == FieldRule("core.v1.Volume", True, "name", True)
    assert rules_of("apps.v1.DeploymentSpec")["strategy"].retain
    assert rules_of("apis.meta.v1.ObjectMeta")["finalizers"] == FieldRule("", True, "")
    assert "command" not in rules_of("core.v1.Container")  # replaced whole
    assert rules_of("no.such.Type") == {}


@given(OBJECTS, VALUES)
def test_merge_patch_is_rfc_7386(target: dict[str, Any], patch: Any) -> None:
    def reference(value: Any, change: Any) -> Any:
        if not isinstance(change, dict):
            return change
        result = copy.deepcopy(value) if isinstance(value, dict) else {}
        for key, item in change.items():
            if item is None:
                result.pop(key, None)
            else:
                result[key] = reference(result.get(key), item)
        return result

    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == reference(target, patch)
    assert target == before


POINTERS = st.lists(st.sampled_from(["", "a", "b", "0", "1", "-", "~0", "~1", "a~1b"]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "spin"]), "path": POINTERS},
        optional={"value": VALUES, "from": POINTERS},
    )
    | VALUES,
    max_size=4,
)


@settings(max_examples=400)
@given(OBJECTS, OPERATIONS)
def test_json_patch_applies_whole_or_not_at_all(target: dict[str, Any], operations: list[Any]) -> None:
    before = copy.deepcopy(target)
    try:
        result = json_patch(target, operations)
    except PatchError:
        pass
    else:
        assert isinstance(result, dict)
        json.dumps(result)
    assert target == before


@given(OBJECTS, st.text("ab", min_size=1, max_size=2), VALUES)
def test_json_patch_add_then_remove(target: dict[str, Any], key: str, value: Any) -> None:
    added = json_patch(target, [{"op": "add", "path": f"/{key}", "value": value}])
    assert added == {**target, key: value}
    removed = json_patch(added, [{"op": "remove", "path": f"/{key}"}])
    assert removed == {name: item for name, item in target.items() if name != key}


@settings(max_examples=300)
@given(OBJECTS, OBJECTS)
def test_strategic_merge_never_fails_otherwise(target: dict[str, Any], patch: dict[str, Any]) -> None:
    wrapped_target = {"metadata": {"labels": target}, "spec": {"containers": [target], "tolerations": [target]}}
    wrapped = {"metadata": patch, "spec": {"containers": list(patch.values()), "volumes": patch}}
    before = copy.deepcopy(wrapped_target)
    with contextlib.suppress(PatchError):
        strategic_merge(wrapped_target, wrapped, "core.v1.Pod")
    assert wrapped_target == before
