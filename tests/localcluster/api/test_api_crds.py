"""Custom resources: defined at run time, served at once, with their sub-resources, columns and versions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.localcluster.api.jsonpath import JsonPath, JsonPathError
from tests.localcluster.api.rig import Client

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(plural: str, **spec: Any) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        ],
    }
    return {
        "metadata": {"name": f"{plural}.test.koord.sh"},
        "spec": {
            "group": "test.koord.sh",
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "kind": plural.capitalize(),
                "shortNames": [plural[:3]],
                "categories": ["koord"],
            },
            "versions": [version],
            **spec,
        },
    }


def test_a_definition_serves_its_resource(client: Client, namespace: str) -> None:
    created = client.post(CRDS, definition("widgets")).body
    conditions = {c["type"]: c["status"] for c in created["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert created["status"]["storedVersions"] == ["v1"]
    path = f"/apis/test.koord.sh/v1/namespaces/{namespace}/widgets"
    widget = {"apiVersion": "test.koord.sh/v1", "kind": "Widgets", "metadata": {"name": "w"}}
    made = client.post(path, {**widget, "spec": {"size": 3}, "status": {"replicas": 9}}).body
    assert made["apiVersion"] == "test.koord.sh/v1" and made["kind"] == "Widgets" and "status" not in made
    assert made["metadata"]["generation"] == 1

    bigger = client.patch(f"{path}/w", {"spec": {"size": 4}, "status": {"x": 1}}).body
    assert bigger["metadata"]["generation"] == 2 and "status" not in bigger
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"size": 99}}
    status = client.patch(f"{path}/w/status", ready).body
    assert status["metadata"]["generation"] == 2 and status["spec"] == {"size": 4}
    assert client.patch(f"{path}/w", {}, "strategic-merge-patch").code == 415
    no_version = client.put(f"{path}/w", {**widget, "spec": {}})
    assert no_version.code == 422 and "must be specified for an update" in no_version.body["message"]

    scaled = client.patch(f"{path}/w/scale", {"spec": {"replicas": 5}}).body
    assert (scaled["kind"], scaled["spec"]["replicas"]) == ("Scale", 5)
    assert client.get(f"{path}/w").body["spec"] == {"size": 4, "replicas": 5}
    assert client.patch(f"{path}/w/scale", {"spec": {"replicas": -1}}).code == 422

    table = client.get(path, Accept="application/json;as=Table;v=v1;g=meta.k8s.io").body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Ready"]
    assert table["rows"][0]["cells"] == ["w", 4, "True"]

    listed = client.get("/apis/test.koord.sh/v1").body["resources"]
    assert {r["name"] for r in listed} >= {"widgets", "widgets/status", "widgets/scale"}
    assert listed[0]["shortNames"] == ["wid"] and listed[0]["categories"] == ["koord"]
    assert client.delete(f"{CRDS}/widgets.test.koord.sh").code == 200
    assert client.get(path).code == 404


def test_deleting_a_definition_ends_its_watches(client: Client, server: Any, namespace: str) -> None:
    client.post(CRDS, definition("gears"))
    path = f"/apis/test.koord.sh/v1/namespaces/{namespace}/gears"
    client.post(path, {"apiVersion": "test.koord.sh/v1", "kind": "Gears", "metadata": {"name": "g"}})
    watcher = Client(server.ready)
    events = watcher.watch(f"{path}?watch=1")
    assert next(events)["type"] == "ADDED"
    client.delete(f"{CRDS}/gears.test.koord.sh")
    assert [event["type"] for event in events] == ["DELETED"]
    watcher.close()


def test_two_versions_share_their_objects(client: Client, namespace: str) -> None:
    body = definition("cogs")
    open_schema = body["spec"]["versions"][0]["schema"]
    body["spec"]["versions"].append({"name": "v2", "served": True, "storage": False, "schema": open_schema})
    client.post(CRDS, body)
    base = "/apis/test.koord.sh/{}/namespaces/" + namespace + "/cogs"
    cog = {"apiVersion": "test.koord.sh/v2", "kind": "Cogs", "metadata": {"name": "c"}}
    made = client.post(base.format("v2"), {**cog, "spec": {"a": 1}})
    assert (made.code, made.body["apiVersion"]) == (201, "test.koord.sh/v2")
    assert client.get(base.format("v1") + "/c").body["apiVersion"] == "test.koord.sh/v1"
    assert client.get(base.format("v2")).body["items"][0]["apiVersion"] == "test.koord.sh/v2"
    wrong = client.post(base.format("v2"), {**cog, "apiVersion": "test.koord.sh/v1", "metadata": {"name": "d"}})
    assert wrong.code == 400
    client.delete(f"{CRDS}/cogs.test.koord.sh")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"group": ""}, "spec.group"),
        ({"scope": "Galaxy"}, "spec.scope"),
        ({"versions": []}, "spec.versions"),
        ({"names": {"plural": "other", "kind": "Other"}}, "metadata.name"),
    ],
)
def test_bad_definitions_are_refused(client: Client, change: dict[str, Any], field: str) -> None:
    answer = client.post(CRDS, definition("bolts", **change))
    assert answer.code == 422, answer.body
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]
    assert client.get("/apis/test.koord.sh/v1/bolts").code == 404


def test_koords_own_definitions_are_served(client: Client, namespace: str) -> None:
    for path in (
        "/apis/kubeflow.org/v1/tfjobs",
        "/apis/kubeflow.org/v1/pytorchjobs",
        "/apis/ray.io/v1/rayjobs",
        "/apis/scheduling.x-k8s.io/v1alpha1/queues",
        "/apis/scheduling.x-k8s.io/v1alpha1/queueunits",
        "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas",
        "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
        "/apis/quota.koordinator.sh/v1alpha1/elasticquotaprofiles",
    ):
        assert client.get(path).code == 200, path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        ("a.b", [1]),
        (".l[0]", [{"t": "x", "v": 1, "o": True}]),
        (".l[-1].v", [2]),
        (".l[*].t", ["x", "y"]),
        (".l[-1:].t", ["y"]),
        ('.l[?(@.t=="y")].v', [2]),
        (".l[?(@.o==true)].t", ["x"]),
        (".l[?(@.v>1)].t", ["y"]),
        (".l[?(@.v!=2)].t", ["x"]),
        (".l[?(@.o)].t", ["x", "y"]),
        (".l[0,1].t", ["x", "y"]),
        (".l[0]['t','v']", ["x", 1]),
        ("..t", ["x", "y"]),
        (".m['dotted\\.key']", ["z"]),
        (".m['dotted.key']", []),
        (".m.dotted\\.key", ["z"]),
        (".none.at.all", []),
    ],
)
def test_json_paths(path: str, expected: list[Any]) -> None:
    obj = {
        "a": {"b": 1},
        "l": [{"t": "x", "v": 1, "o": True}, {"t": "y", "v": 2, "o": False}],
        "m": {"dotted.key": "z"},
    }
    assert JsonPath(path).find(obj) == expected


@pytest.mark.parametrize("path", [".a[0]", ".l[7]", ".l[-3:]", '.l[?(@.v=="y")].t', ".l[?(@.t>1)].v", ".l[0:1:0]"])
def test_json_paths_that_cannot_be_followed(path: str) -> None:
    obj = {"a": {"b": 1}, "l": [{"t": "x", "v": 1}, {"t": "y", "v": 2}]}
    with pytest.raises(JsonPathError):
        JsonPath(path).find(obj)
    assert JsonPath(path).first(obj) is None


def test_a_path_leads_to_a_bounded_number_of_values() -> None:
    obj: dict[str, Any] = {"x": 1}
    for _ in range(400):
        obj = {"a": obj}
    with pytest.raises(JsonPathError, match="more than 100000 values"):
        JsonPath("..a..a..a").find(obj)


@given(st.text(".[]@?()='\"ab*0:-{} ", max_size=12))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = JsonPath(text)
    except JsonPathError:
        return
    path.first({"a": [{"b": 1}], "b": {"a": "x"}})
