"""Admission webhooks: when they are asked and what, what their answers do, and what happens when they give none."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.conformance.client import APPLY, JSON_PATCH, Client, until
from tests.conformance.rig import Kubectl, config_map, pod, unique
from tests.conformance.webhooks import (
    API,
    Review,
    WebhookServer,
    configuration,
    denied,
    installed,
    json_patch,
    rule,
    webhook_server,
)

ALLOWED: Review = {"allowed": True}
CONFIG_MAPS = {"group": "", "version": "v1", "resource": "configmaps"}
CONFIG_MAP = {"group": "", "version": "v1", "kind": "ConfigMap"}


@pytest.fixture
async def webhooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    async with webhook_server(tmp_path) as server:
        yield server


def everything(*operations: str) -> Review:
    return {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": list(operations or "*")}


def bare(obj: Any) -> Any:
    """An object without what differs between two servers that mean the same."""
    if obj is None:
        return None
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def labelled(name: str, labels: dict[str, str], **data: str) -> Review:
    body = config_map(name, **data)
    body["metadata"]["labels"] = labels
    return body


# --- what is asked


async def test_a_create_is_asked_about_before_and_after_the_server_completes_it(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    hooks = [webhooks.webhook(f"{kind}.koord.sh", f"/{kind}", rule("configmaps"), namespace=namespace) for kind in "mv"]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with (
        installed(client, webhooks, namespace, "mutating", hooks[0]),
        installed(client, webhooks, namespace, "validating", hooks[1]),
    ):
        body = {"metadata": {"generateName": "a-"}, "data": {"x": "1"}}
        made = await client.post(path, body, fieldManager="me", dryRun="All")
        assert made.status == 201
        (mutating,), (validating,) = webhooks.seen["/m"], webhooks.seen["/v"]
        for asked in (mutating, validating):
            assert asked["kind"] == asked["requestKind"] == CONFIG_MAP
            assert asked["resource"] == asked["requestResource"] == CONFIG_MAPS
            assert "subResource" not in asked and "requestSubResource" not in asked
            assert (asked["operation"], asked["namespace"], asked["dryRun"]) == ("CREATE", namespace, True)
            assert asked["oldObject"] is None
            assert asked["userInfo"]["username"] and "system:authenticated" in asked["userInfo"]["groups"]
            assert asked["options"] == {
                "kind": "CreateOptions",
                "apiVersion": "meta.k8s.io/v1",
                "dryRun": ["All"],
                "fieldManager": "me",
            }
        assert "name" not in mutating
        assert bare(mutating["object"]) == {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"generateName": "a-", "namespace": namespace},
            "data": {"x": "1"},
        }
        final = made.body["metadata"]
        assert validating["name"] == final["name"] and final["name"].startswith("a-")
        assert bare(validating["object"])["metadata"] == {
            "name": final["name"],
            "generateName": "a-",
            "namespace": namespace,
            "uid": final["uid"],
            "creationTimestamp": final["creationTimestamp"],
        }
        assert webhooks.sent["/m"] == ["/m?timeout=10s"]
        assert [review["apiVersion"] for review in webhooks.reviews] == ["admission.k8s.io/v1"] * 2
        assert mutating["uid"] != validating["uid"]


async def test_updates_and_deletions_show_the_old_object(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    hook = webhooks.webhook("v.koord.sh", "/v", rule("configmaps", "UPDATE", "DELETE"), namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with installed(client, webhooks, namespace, "validating", hook):
        old = (await client.post(path, config_map("a", x="1"))).body
        assert webhooks.seen["/v"] == []
        new = (await client.put(f"{path}/a", {**old, "data": {"x": "2"}})).body
        newer = (await client.patch(f"{path}/a", {"data": {"y": "3"}}, fieldValidation="Strict")).body
        again = await client.patch(f"{path}/a", {"data": {"y": "3"}})
        assert again.body["metadata"]["resourceVersion"] == newer["metadata"]["resourceVersion"]
        options = {"preconditions": {"uid": old["metadata"]["uid"]}, "gracePeriodSeconds": 0}
        assert (await client.delete(f"{path}/a", options)).status == 200

        put, patch, nothing, deletion = webhooks.seen["/v"]
        assert [asked["operation"] for asked in webhooks.seen["/v"]] == ["UPDATE"] * 3 + ["DELETE"]
        assert {asked["name"] for asked in webhooks.seen["/v"]} == {"a"}
        assert bare(put["oldObject"]) == bare({"kind": "ConfigMap", "apiVersion": "v1", **old})
        assert put["object"]["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
        assert put["object"]["data"] == {"x": "2"}
        assert put["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}
        assert (patch["oldObject"]["data"], patch["object"]["data"]) == (new["data"], {"x": "2", "y": "3"})
        assert patch["options"] == {
            "kind": "UpdateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldValidation": "Strict",
        }
        assert nothing["object"]["data"] == nothing["oldObject"]["data"]
        assert (deletion["object"], deletion["oldObject"]["data"]) == (None, {"x": "2", "y": "3"})
        assert deletion["options"] == {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **options}


async def test_deleting_a_collection_asks_about_each_object_without_a_name(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    hook = webhooks.webhook("v.koord.sh", "/v", rule("secrets", "DELETE"), namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/secrets"
    async with installed(client, webhooks, namespace, "validating", hook):
        for name in ("a", "b"):
            assert (await client.post(path, {"metadata": {"name": name, "labels": {"t": "1"}}})).status == 201
        assert (await client.delete(path, labelSelector="t=1")).status == 200
        asked = webhooks.seen["/v"]
        assert sorted(item["oldObject"]["metadata"]["name"] for item in asked) == ["a", "b"]
        assert all("name" not in item for item in asked)


async def test_subresources_are_asked_about_in_their_own_kinds(
    client: Client, namespace: str, node: str, webhooks: WebhookServer
) -> None:
    hook = webhooks.webhook("v.koord.sh", "/v", everything(), namespace=namespace)
    pods, apps = f"/api/v1/namespaces/{namespace}/pods", f"/apis/apps/v1/namespaces/{namespace}"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    replicas = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    async with installed(client, webhooks, namespace, "validating", hook):
        for name in ("p", "q"):
            assert (await client.post(pods, pod(name, schedulerName="nobody"))).status == 201
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}}
        assert (await client.post(f"{pods}/p/binding", binding)).status == 201
        legacy = {"metadata": {"name": "q"}, "target": {"kind": "Node", "name": node}}
        assert (await client.post(f"/api/v1/namespaces/{namespace}/bindings", legacy)).status == 201
        assert (await client.patch(f"{pods}/p/status", {"status": {"message": "hm"}})).status == 200
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        assert (await client.post(f"{pods}/p/eviction", eviction)).status == 201
        evicted = [asked["operation"] for asked in webhooks.seen["/v"] if asked.get("name") == "p"]
        assert (await client.post(f"{apps}/replicasets", {"metadata": {"name": "r"}, "spec": replicas})).status == 201
        assert (await client.patch(f"{apps}/replicasets/r/scale", {"spec": {"replicas": 0}})).status == 200

    def found(resource: str, subresource: str) -> Review:
        return next(
            asked
            for asked in webhooks.seen["/v"]
            if asked["resource"]["resource"] == resource
            and asked.get("subResource", "") == subresource
            and asked["userInfo"]["username"] not in ("system:kube-controller-manager",)
            and "serviceaccount" not in asked["userInfo"]["username"]
        )

    bound = found("pods", "binding")
    assert (bound["operation"], bound["name"], bound["oldObject"]) == ("CREATE", "p", None)
    assert bound["kind"] == bound["requestKind"] == {"group": "", "version": "v1", "kind": "Binding"}
    assert bound["requestSubResource"] == "binding"
    assert bound["object"]["target"] == {"kind": "Node", "name": node}
    assert found("bindings", "")["kind"]["kind"] == "Binding"
    status = found("pods", "status")
    assert (status["operation"], status["kind"]["kind"]) == ("UPDATE", "Pod")
    assert status["object"]["status"]["message"] == "hm" and "message" not in status["oldObject"]["status"]
    asked = found("pods", "eviction")
    assert (asked["operation"], asked["kind"]) == ("CREATE", {"group": "policy", "version": "v1", "kind": "Eviction"})
    # An eviction is asked about as what it is, not once more as a deletion.
    assert "DELETE" not in evicted
    scale = found("replicasets", "scale")
    assert scale["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert scale["resource"] == {"group": "apps", "version": "v1", "resource": "replicasets"}
    assert (scale["operation"], scale["oldObject"]["status"]["replicas"]) == ("UPDATE", 0)


async def test_the_old_version_of_reviews_is_spoken_too(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    hook = webhooks.webhook(
        "v.koord.sh", "/v", rule("secrets"), namespace=namespace, admissionReviewVersions=["v9", "v1beta1", "v1"]
    )
    webhooks.answer(
        "/v", lambda review: {**json_patch({"op": "add", "path": "/data", "value": {"a": "Yg=="}}), "uid": ""}
    )
    path = f"/api/v1/namespaces/{namespace}/secrets"
    async with installed(client, webhooks, namespace, "mutating", hook):
        made = await client.post(path, {"metadata": {"name": "a"}})
        assert (made.status, made.body["data"]) == (201, {"a": "Yg=="})
        assert webhooks.reviews[0]["apiVersion"] == "admission.k8s.io/v1beta1"


# --- which webhooks are asked


RULES: list[tuple[list[Review], list[str]]] = [
    ([rule("secrets")], ["CREATE secrets"]),
    ([rule("secrets", "*")], ["CREATE secrets", "UPDATE secrets", "DELETE secrets"]),
    ([rule("*", "CREATE")], ["CREATE secrets", "CREATE pods"]),
    ([rule("pods/*", "*")], ["CREATE pods", "UPDATE pods/status", "DELETE pods"]),
    ([rule("pods/status", "UPDATE")], ["UPDATE pods/status"]),
    ([rule("*/status", "*")], ["UPDATE pods/status"]),
    ([rule("secrets", version="v2")], []),
    ([rule("secrets", group="apps")], []),
    ([rule("secrets", group="*", version="*")], ["CREATE secrets"]),
    ([rule("secrets", scope="Cluster")], []),
    ([rule("secrets", "DELETE", scope="Namespaced"), rule("pods", "DELETE")], ["DELETE secrets", "DELETE pods"]),
    ([], []),
]


async def test_rules(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    base = f"/api/v1/namespaces/{namespace}"
    hooks = [
        webhooks.webhook(f"r{i}.koord.sh", f"/{i}", *rules, namespace=namespace) for i, (rules, _) in enumerate(RULES)
    ]
    async with installed(client, webhooks, namespace, "validating", *hooks):
        assert (await client.post(f"{base}/secrets", {"metadata": {"name": "a"}})).status == 201
        assert (await client.patch(f"{base}/secrets/a", {"data": {"x": "eQ=="}})).status == 200
        assert (await client.delete(f"{base}/secrets/a")).status == 200
        assert (await client.post(f"{base}/pods", pod("p", schedulerName="nobody"))).status == 201
        assert (await client.patch(f"{base}/pods/p/status", {"status": {"message": "hm"}})).status == 200
        assert (await client.delete(f"{base}/pods/p", gracePeriodSeconds=0)).status == 200
    for i, (rules, expected) in enumerate(RULES):
        seen = [
            f"{asked['operation']} {asked['resource']['resource']}"
            + (f"/{asked['subResource']}" if asked.get("subResource") else "")
            for asked in webhooks.seen[f"/{i}"]
            if asked["resource"]["resource"] in ("secrets", "pods")
        ]
        assert list(dict.fromkeys(seen)) == expected, rules


async def test_object_selectors_look_at_the_new_and_the_old_object(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    selector = {"matchExpressions": [{"key": "t", "operator": "In", "values": ["1", "2"]}]}
    hook = webhooks.webhook("v.koord.sh", "/v", rule("configmaps", "*"), namespace=namespace, objectSelector=selector)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with installed(client, webhooks, namespace, "validating", hook):
        assert (await client.post(path, labelled("a", {}))).status == 201
        assert (await client.post(path, labelled("b", {"t": "3"}))).status == 201
        assert webhooks.seen["/v"] == []
        assert (await client.patch(f"{path}/a", {"metadata": {"labels": {"t": "1"}}})).status == 200
        assert (await client.patch(f"{path}/a", {"metadata": {"labels": None}})).status == 200
        assert len(webhooks.seen["/v"]) == 2
        assert (await client.delete(f"{path}/a")).status == 200
        assert len(webhooks.seen["/v"]) == 2


async def test_a_selector_sees_what_earlier_webhooks_changed(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    webhooks.answer("/a", lambda review: json_patch({"op": "add", "path": "/metadata/labels", "value": {"t": "1"}}))
    selector = {"matchLabels": {"t": "1"}}
    hooks = [
        webhooks.webhook("a.koord.sh", "/a", rule("configmaps"), namespace=namespace),
        webhooks.webhook("b.koord.sh", "/b", rule("configmaps"), namespace=namespace, objectSelector=selector),
    ]
    async with installed(client, webhooks, namespace, "mutating", *hooks):
        made = await client.post(f"/api/v1/namespaces/{namespace}/configmaps", config_map("a"))
        assert made.body["metadata"]["labels"] == {"t": "1"}
        assert len(webhooks.seen["/b"]) == 1


async def test_namespace_selectors(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    """The labels of the object's namespace; of a Namespace, its own; what is in none is never exempt."""
    label = unique("l")
    hook = webhooks.webhook(
        "v.koord.sh",
        "/v",
        rule("configmaps", "CREATE"),
        rule("namespaces", "*"),
        rule("priorityclasses", "CREATE", group="scheduling.k8s.io"),
        namespaceSelector={"matchLabels": {"case": label}},
    )
    webhooks.answer("/v", lambda review: denied("no") if review["operation"] == "CREATE" else ALLOWED)
    space = f"/api/v1/namespaces/{namespace}"
    async with installed(client, webhooks, namespace, "validating", hook):
        assert (await client.post(f"{space}/configmaps", config_map("a"))).status == 201
        assert (await client.patch(space, {"metadata": {"labels": {"case": label}}})).status == 200
        assert [asked["kind"]["kind"] for asked in webhooks.seen["/v"]] == ["Namespace"]
        assert (webhooks.seen["/v"][0]["name"], webhooks.seen["/v"][0]["namespace"]) == (namespace, namespace)
        labels = {"case": label}
        other = await client.post("/api/v1/namespaces", {"metadata": {"name": unique(), "labels": labels}})
        assert (other.status, other.message) == (400, 'admission webhook "v.koord.sh" denied the request: no')
        cluster = {"metadata": {"name": unique("pc")}, "value": 1}
        made = await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", cluster)
        assert (made.status, "namespace" in webhooks.seen["/v"][-1]) == (400, False)
        # A real server learns of the label a moment later.
        refused = await client.post(f"{space}/configmaps", config_map("b"))
        async with asyncio.timeout(30):
            while refused.status == 201:
                await client.delete(f"{space}/configmaps/b")
                refused = await client.post(f"{space}/configmaps", config_map("b"))
        assert refused.status == 400


async def test_webhooks_of_another_version_of_the_resource(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    """Equivalent: asked in the version of the rule, Exact: not asked."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    async with defined(client, namespace, {"v1": schema, "v2": schema}) as (group, path):
        thing = {"apiVersion": f"{group}/v2", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 1}}
        webhooks.answer("/q", lambda review: json_patch({"op": "replace", "path": "/spec/x", "value": 2}))
        hooks = [
            webhooks.webhook("e.koord.sh", "/e", rule("things", group=group), namespace=namespace, matchPolicy="Exact"),
            webhooks.webhook("q.koord.sh", "/q", rule("things", group=group), namespace=namespace),
        ]
        async with installed(client, webhooks, namespace, "mutating", *hooks):
            made = await client.post(path.replace("/v1/", "/v2/"), thing)
            assert (made.status, made.body["apiVersion"], made.body["spec"]) == (201, f"{group}/v2", {"x": 2})
            assert webhooks.seen["/e"] == []
            (asked,) = webhooks.seen["/q"]
            assert (asked["resource"]["version"], asked["requestResource"]["version"]) == ("v1", "v2")
            assert (asked["kind"]["version"], asked["requestKind"]["version"]) == ("v1", "v2")
            assert asked["object"]["apiVersion"] == f"{group}/v1"


@asynccontextmanager
async def defined(client: Client, namespace: str, schemas: dict[str, Review]) -> AsyncIterator[tuple[str, str]]:
    """A kind Thing with these versions, the first one stored: its group, and the path of its things in version v1."""
    group = f"{unique('g')}.koord.sh"
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}
        for name, schema in schemas.items()
    ]
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = await client.post(crds, {"metadata": {"name": f"things.{group}"}, "spec": spec})
    assert made.status == 201, made.body
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"

    async def served() -> bool:
        return (await client.get(path)).status == 200

    try:
        await until(served)
        yield group, path
    finally:
        await client.delete(f"{crds}/things.{group}")


async def test_configurations_of_webhooks_are_beyond_webhooks(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    """Else a bad one could never be taken away."""
    rules = {**everything(), "apiGroups": ["admissionregistration.k8s.io"]}
    hook = webhooks.webhook("v.koord.sh", "/v", rules)
    webhooks.answer("/v", lambda review: denied("never"))
    async with installed(client, webhooks, namespace, "validating", hook) as name:
        path = f"{API}/validatingwebhookconfigurations/{name}"
        assert (await client.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 200
        assert webhooks.seen["/v"] == []


async def test_what_has_no_namespace_to_be_in_is_not_asked_about(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    missing = unique()
    hook = webhooks.webhook("v.koord.sh", "/v", rule("configmaps"), objectSelector={"matchLabels": {"t": missing}})
    async with installed(client, webhooks, namespace, "mutating", hook):
        answer = await client.post(f"/api/v1/namespaces/{missing}/configmaps", labelled("a", {"t": missing}))
        assert (answer.status, answer.message) == (404, f'namespaces "{missing}" not found')
        assert webhooks.seen["/v"] == []


HOLDS = [
    "true",
    "request.operation == 'CREATE' && request.resource.resource == 'configmaps'",
    "request.userInfo.username != 'somebody else'",
    "'system:authenticated' in request.userInfo.groups",
    "request.userInfo.groups.exists(g, g.startsWith('system:'))",
    "!request.userInfo.groups.all(g, g.endsWith('x'))",
    "has(object.data) && !has(object.immutable)",
    "object.data.a == '1' && object.data['b'] == '2' && size(object.data) == 2",
    "object.data.exists_one(k, k == 'a')",
    "oldObject == null",
    "object.nope == 1 || true",
    "object.metadata.name in ['m', 'n']",
    "['x', 'y'].filter(v, v > 'x') == ['y']",
    "[1, 2, 3].map(v, v * 2) == [2, 4, 6]",
    "-7 / 2 == -3 && -7 % 3 == -1 && 7 - 2 * 3 == 1 && 1.5 + 1.5 == 3.0",
    "object.data.a.contains('1') ? 'a' + 'b' == 'ab' : false",
    "r'\\d' == '\\\\d' && \"\\u0041\" == 'A' && {'k': 1}['k'] == 1 && !(1 > 2) && 'é'.size() == 1",
]
HOLDS_NOT = [
    "false",
    "request.operation == 'DELETE'",
    "has(request.subResource)",
    "object.nope == 1 && false",
    "object.metadata.name.startsWith('x')",
    "1 == 2 || 'a' == 'b'",
]
FAILS = ["object.nope == 1", "object.data['zz'] == ''", "object.data.a > 1", "[1][5] == 1", "1 / 0 == 1"]


async def test_match_conditions(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    """Asked if all hold. One that cannot be evaluated is a failure, unless another one does not hold."""

    def hook(number: int, *expressions: str, **more: Any) -> Review:
        conditions = [{"name": f"c{i}", "expression": text} for i, text in enumerate(expressions)]
        return webhooks.webhook(
            f"c{number}.koord.sh",
            f"/{number}",
            rule("configmaps"),
            namespace=namespace,
            matchConditions=conditions,
            **more,
        )

    cases = [
        *((True, (text_,)) for text_ in HOLDS),
        *((False, (text_,)) for text_ in HOLDS_NOT),
        (False, ("true", "false")),
        *((False, (text_, "false")) for text_ in FAILS),
        (True, ("true", "1 < 2")),
    ]
    hooks = [hook(i, *expressions) for i, (_, expressions) in enumerate(cases)]
    ignored = [hook(100 + i, text_, failurePolicy="Ignore") for i, text_ in enumerate(FAILS)]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with installed(client, webhooks, namespace, "validating", *hooks, *ignored):
        assert (await client.post(path, config_map("m", a="1", b="2"))).status == 201
        for i, (holds, expressions) in enumerate(cases):
            assert len(webhooks.seen[f"/{i}"]) == holds, expressions
        assert not any(webhooks.seen[f"/{100 + i}"] for i in range(len(FAILS)))
    async with installed(client, webhooks, namespace, "mutating", hook(0, "object.nope == 1", "true")):
        refused = await client.post(path, config_map("n", a="1"))
        assert (refused.status, refused.reason) == (403, "Forbidden")
        error = "expression 'object.nope == 1' resulted in error: no such key: nope"
        assert refused.message == f'configmaps "n" is forbidden: {error}'


@pytest.mark.parametrize(
    "expression",
    ["1 +", "nope == 1", "object.metadata.name", "'a' + 'b'", "size(object) ==", "has(object)", "[1].all(x)"],
)
async def test_match_conditions_that_do_not_compile(client: Client, expression: str) -> None:
    hook = config(matchConditions=[{"name": "c", "expression": expression}])
    refused = await client.post(f"{API}/mutatingwebhookconfigurations", configuration("mutating", unique("w"), [hook]))
    assert refused.status == 422
    (cause,) = refused.body["details"]["causes"]
    assert cause["field"] == "webhooks[0].matchConditions[0].expression"
    assert f'Invalid value: "{expression}": ' in cause["message"]


# --- the order of things


async def test_mutating_webhooks_are_asked_in_order_each_about_what_the_one_before_left(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    order: list[tuple[str, Any]] = []

    def record(path: str) -> None:
        def handler(review: Review) -> Review:
            order.append((path, review["object"].get("data", {}).get("trail", "")))
            trail = review["object"].get("data", {}).get("trail", "") + path[1:]
            return json_patch({"op": "add", "path": "/data/trail", "value": trail})

        webhooks.answer(path, handler)

    for path in ("/b", "/a", "/c"):
        record(path)

    def look(review: Review) -> Review:
        order.append(("/v", review["object"]["data"]["trail"]))
        return ALLOWED

    webhooks.answer("/v", look)

    def hook(name: str) -> Review:
        return webhooks.webhook(f"{name}.koord.sh", f"/{name}", rule("configmaps"), namespace=namespace)

    first, second = sorted((unique("o"), unique("o")))
    async with (
        installed(client, webhooks, namespace, "validating", hook("v")),
        installed(client, webhooks, namespace, "mutating", hook("c"), name=second),
        installed(client, webhooks, namespace, "mutating", hook("b"), hook("a"), name=first),
    ):
        order.clear()
        made = await client.post(f"/api/v1/namespaces/{namespace}/configmaps", config_map("m", x="1"))
        assert made.body["data"] == {"x": "1", "trail": "bac"}
        assert order == [("/b", ""), ("/a", "b"), ("/c", "ba"), ("/v", "bac")]


@pytest.mark.parametrize("policy", ["IfNeeded", "Never"])
@pytest.mark.parametrize("changes", [True, False], ids=["changes", "no change"])
async def test_reinvocation(
    client: Client, namespace: str, webhooks: WebhookServer, policy: str, changes: bool
) -> None:
    """Asked once more only if it wants to be and a later one changed the object."""
    value = "2" if changes else "1"
    if changes:
        webhooks.answer("/b", lambda review: json_patch({"op": "add", "path": "/data/x", "value": "2"}))
    hooks = [
        webhooks.webhook("a.koord.sh", "/a", rule("configmaps"), namespace=namespace, reinvocationPolicy=policy),
        webhooks.webhook("b.koord.sh", "/b", rule("configmaps"), namespace=namespace, reinvocationPolicy=policy),
    ]
    async with installed(client, webhooks, namespace, "mutating", *hooks):
        made = await client.post(f"/api/v1/namespaces/{namespace}/configmaps", config_map("m", x="1"))
        assert made.body["data"] == {"x": value}
        again = policy == "IfNeeded" and changes
        assert [asked["object"]["data"]["x"] for asked in webhooks.seen["/a"]] == (["1", "2"] if again else ["1"])
        assert len(webhooks.seen["/b"]) == 1


async def test_a_changed_object_gets_defaults_and_is_checked(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    sidecar = {"name": "side", "image": "i"}
    webhooks.answer("/a", lambda review: json_patch({"op": "add", "path": "/spec/containers/-", "value": sidecar}))
    webhooks.answer("/b", lambda review: json_patch({"op": "add", "path": "/metadata/labels", "value": {"x": "y z"}}))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    hooks = [
        webhooks.webhook("a.koord.sh", "/a", rule("pods"), namespace=namespace),
        webhooks.webhook(
            "b.koord.sh", "/b", rule("pods"), namespace=namespace, objectSelector={"matchLabels": {"b": "1"}}
        ),
    ]
    validating = webhooks.webhook("v.koord.sh", "/v", rule("pods"), namespace=namespace)
    async with (
        installed(client, webhooks, namespace, "mutating", *hooks),
        installed(client, webhooks, namespace, "validating", validating),
    ):
        made = (await client.post(pods, pod("p", schedulerName="nobody"))).body
        added = made["spec"]["containers"][1]
        assert (added["imagePullPolicy"], added["terminationMessagePolicy"]) == ("Always", "File")
        assert webhooks.seen["/a"][0]["object"]["spec"]["containers"][0]["imagePullPolicy"] == "Always"
        assert webhooks.seen["/a"][0]["object"]["spec"]["priority"] == 0
        (seen,) = webhooks.seen["/v"]
        assert seen["object"]["spec"]["containers"][1] == added
        assert (seen["object"]["metadata"]["uid"], seen["object"]["status"]["phase"]) == (
            made["metadata"]["uid"],
            "Pending",
        )
        bad = await client.post(pods, pod("q", labels={"b": "1"}, schedulerName="nobody"))
        assert (bad.status, bad.body["details"]["causes"][0]["field"]) == (422, "metadata.labels")
        assert len(webhooks.seen["/v"]) == 1


async def test_an_object_that_only_a_webhook_makes_valid(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    image = {"op": "add", "path": "/spec/containers/0/image", "value": "mended"}
    webhooks.answer("/a", lambda review: json_patch(image))
    hook = webhooks.webhook("a.koord.sh", "/a", rule("pods"), namespace=namespace)
    body = pod("p", schedulerName="nobody")
    del body["spec"]["containers"][0]["image"]
    async with installed(client, webhooks, namespace, "mutating", hook):
        made = await client.post(f"/api/v1/namespaces/{namespace}/pods", body)
        assert (made.status, made.body["spec"]["containers"][0]["image"]) == (201, "mended")


async def test_custom_objects_are_shown_with_defaults_and_checked_when_webhooks_are_done(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    properties = {"size": {"type": "integer"}, "color": {"type": "string", "default": "red"}}
    spec = {"type": "object", "required": ["size"], "properties": properties}
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec}}
    async with defined(client, namespace, {"v1": schema}) as (group, path):
        hook = webhooks.webhook("m.koord.sh", "/m", rule("things", "*", group=group), namespace=namespace)
        async with installed(client, webhooks, namespace, "mutating", hook):
            thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"nope": 1}}
            refused = await client.post(path, thing)
            assert (refused.status, refused.reason) == (422, "Invalid")
            assert "spec.size: Required value" in refused.message
            assert webhooks.seen["/m"][0]["object"]["spec"] == {"color": "red"}
            webhooks.answer("/m", lambda review: json_patch({"op": "add", "path": "/spec/size", "value": 3}))
            made = await client.post(path, thing)
            assert (made.status, made.body["spec"]) == (201, {"size": 3, "color": "red"})
            webhooks.answer("/m", lambda review: json_patch({"op": "add", "path": "/spec/size", "value": "big"}))
            assert (await client.patch(f"{path}/a", {"spec": {"color": "blue"}})).status == 422
            patch = json_patch({"op": "add", "path": "/spec/more", "value": 1}, {"op": "remove", "path": "/spec/color"})
            webhooks.answer("/m", lambda review: patch)
            changed = await client.patch(f"{path}/a", {"spec": {"size": 4}})
            assert changed.body["spec"] == {"size": 4, "color": "red"}


async def test_what_is_applied_is_created_or_updated(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    hook = webhooks.webhook("m.koord.sh", "/m", rule("configmaps", "*"), namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/configmaps/a"
    async with installed(client, webhooks, namespace, "mutating", hook):
        webhooks.answer("/m", lambda review: json_patch({"op": "add", "path": "/data/m", "value": "1"}))
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
        made = await client.patch(path, body, APPLY, fieldManager="me")
        assert (made.status, made.body["data"]) == (201, {"x": "1", "m": "1"})
        body["data"] = {"x": "2"}
        changed = await client.patch(path, body, APPLY, fieldManager="me")
        assert (changed.status, changed.body["data"]) == (200, {"x": "2", "m": "1"})
        create, update = webhooks.seen["/m"]
        assert (create["operation"], update["operation"]) == ("CREATE", "UPDATE")
        for asked, kind in ((create, "CreateOptions"), (update, "UpdateOptions")):
            assert asked["options"] == {"kind": kind, "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}
            assert asked["name"] == "a"
        assert (update["oldObject"]["data"], update["object"]["data"]) == ({"x": "1", "m": "1"}, {"x": "2", "m": "1"})
        webhooks.answer("/m", lambda review: denied("no"))
        body["data"] = {"x": "3"}
        assert (await client.patch(path, body, APPLY, fieldManager="me")).status == 400
        assert (await client.get(path)).body["data"] == {"x": "2", "m": "1"}


async def test_kubectl_shows_refusals_and_warnings(
    client: Client, namespace: str, webhooks: WebhookServer, kubectl: Kubectl
) -> None:
    webhooks.answer("/v", lambda review: {**denied("not so"), "warnings": ["mind this"]})
    hook = webhooks.webhook("v.koord.sh", "/v", rule("configmaps"), namespace=namespace)
    async with installed(client, webhooks, namespace, "validating", hook):
        done = await asyncio.to_thread(kubectl, "create", "configmap", "a", check=False)
        assert done.returncode == 1
        assert "Warning: mind this" in done.stderr
        assert 'admission webhook "v.koord.sh" denied the request: not so' in done.stderr
        tried = await asyncio.to_thread(kubectl, "create", "configmap", "b", "--dry-run=client")
        assert tried.returncode == 0 and len(webhooks.seen["/v"]) == 1


async def test_an_object_that_changes_while_webhooks_are_asked(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    """A patch is made again on the newer object, webhooks included; a replacement of the older one is refused."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/a"
    hook = webhooks.webhook(
        "v.koord.sh",
        "/v",
        rule("configmaps", "UPDATE"),
        namespace=namespace,
        objectSelector={"matchLabels": {"t": "1"}},
    )

    def meddle_once(key: str) -> None:
        meddled = False

        async def handler(review: Review) -> Review:
            nonlocal meddled
            if not meddled:
                meddled = True
                metadata = {"labels": {"t": None}}
                assert (await client.patch(path, {"metadata": metadata, "data": {key: "1"}})).status == 200
            return ALLOWED

        webhooks.answer("/v", handler)

    assert (await client.post(path.rpartition("/")[0], labelled("a", {}, x="1"))).status == 201
    async with installed(client, webhooks, namespace, "validating", hook):
        meddle_once("first")
        patched = await client.patch(path, {"metadata": {"labels": {"t": "1"}}, "data": {"x": "2"}})
        assert (patched.status, patched.body["data"]) == (200, {"x": "2", "first": "1"})
        assert webhooks.seen["/v"][-1]["oldObject"]["data"] == {"x": "1", "first": "1"}
        meddle_once("second")
        old = (await client.get(path)).body
        replaced = await client.put(path, {**old, "data": {"x": "3"}})
        assert (replaced.status, replaced.reason) == (409, "Conflict")
        assert (await client.get(path)).body["data"] == {"x": "2", "first": "1", "second": "1"}


async def test_a_slow_webhook_holds_up_nobody_else(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    go = asyncio.Event()

    async def wait(review: Review) -> Review:
        await go.wait()
        return ALLOWED

    webhooks.answer("/slow", wait)
    selector = {"matchLabels": {"slow": "1"}}
    hooks = [
        webhooks.webhook("a.koord.sh", "/slow", rule("configmaps"), namespace=namespace, objectSelector=selector),
        webhooks.webhook("b.koord.sh", "/b", rule("configmaps"), namespace=namespace),
    ]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with installed(client, webhooks, namespace, "validating", *hooks) as name:
        slow = asyncio.create_task(client.post(path, labelled("slow", {"slow": "1"})))
        async with asyncio.timeout(30):
            while not webhooks.seen["/slow"]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.01)
        for i in range(5):
            assert (await client.post(path, config_map(f"quick-{i}"))).status == 201
        assert not slow.done()
        assert (await client.get(f"{path}/slow")).status == 404
        # Its configuration going away does not change what was begun.
        assert (await client.delete(f"{API}/validatingwebhookconfigurations/{name}")).status == 200
        assert not slow.done()
        go.set()
        assert (await slow).status == 201


# --- what answers do


@pytest.mark.parametrize("kind", ["mutating", "validating"])
@pytest.mark.parametrize(
    ("answer", "status", "reason", "words"),
    [
        ({"allowed": False}, 400, "", " without explanation"),
        (denied("not so"), 400, "", ": not so"),
        (denied("not so", code=403, reason="Forbidden"), 403, "Forbidden", ": not so"),
        ({"allowed": False, "status": {"reason": "NotFound"}}, 400, "NotFound", ": NotFound"),
        (denied("not so", code=200, status="Success"), 400, "", ": not so"),
        (denied("no", code=429, details={"name": "a", "kind": "b"}), 429, "", ": no"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
async def test_refusals(
    client: Client,
    namespace: str,
    webhooks: WebhookServer,
    kind: str,
    answer: Review,
    status: int,
    reason: str,
    words: str,
) -> None:
    webhooks.answer("/v", lambda review: {**answer, "warnings": ["mind this"]})
    hook = webhooks.webhook("v.koord.sh", "/v", rule("secrets"), namespace=namespace, failurePolicy="Ignore")
    path = f"/api/v1/namespaces/{namespace}/secrets"
    async with installed(client, webhooks, namespace, kind, hook):
        refused = await client.post(path, {"metadata": {"name": "a"}})
        assert (refused.status, refused.body["code"], refused.reason) == (status, status, reason)
        assert refused.message == f'admission webhook "v.koord.sh" denied the request{words}'
        assert (refused.body["kind"], refused.body["status"]) == ("Status", "Failure")
        assert refused.body.get("details") == (answer.get("status") or {}).get("details")
        assert refused.warnings == ['299 - "mind this"']
        assert (await client.get(f"{path}/a")).status == 404


async def test_a_refused_deletion_and_update_leave_the_object(
    client: Client, namespace: str, webhooks: WebhookServer
) -> None:
    webhooks.answer("/v", lambda review: denied("keep it"))
    hook = webhooks.webhook("v.koord.sh", "/v", rule("secrets", "DELETE", "UPDATE"), namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = (await client.post(path, {"metadata": {"name": "a"}})).body
    async with installed(client, webhooks, namespace, "validating", hook):
        for answer in (
            await client.delete(f"{path}/a"),
            await client.delete(path),
            await client.patch(f"{path}/a", {"data": {"x": "eQ=="}}),
        ):
            assert (answer.status, answer.message) == (
                400,
                'admission webhook "v.koord.sh" denied the request: keep it',
            )
        assert (await client.get(f"{path}/a")).body == made


async def test_a_deletion_has_nothing_to_patch(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    webhooks.answer("/m", lambda review: json_patch({"op": "add", "path": "/data", "value": {}}))
    hook = webhooks.webhook("m.koord.sh", "/m", rule("secrets", "DELETE"), namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/secrets"
    assert (await client.post(path, {"metadata": {"name": "a"}})).status == 201
    async with installed(client, webhooks, namespace, "mutating", hook):
        answer = await client.delete(f"{path}/a")
        assert (answer.status, answer.reason) == (500, "InternalError")
        assert answer.message == (
            'Internal error occurred: admission webhook "m.koord.sh" attempted to modify the object,'
            " which is not supported for this operation"
        )


async def test_warnings_arrive_as_headers(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    webhooks.answer("/v", lambda review: {"allowed": True, "warnings": ["one", 'a "b"', "bad\nline", "one"]})
    hook = webhooks.webhook("v.koord.sh", "/v", rule("secrets"), namespace=namespace)
    async with installed(client, webhooks, namespace, "validating", hook):
        made = await client.post(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "a"}})
        assert (made.status, made.warnings) == (201, ['299 - "one"', '299 - "a \\"b\\""'])


async def test_bindings_and_scales_can_be_changed_and_refused(
    client: Client, namespace: str, node: str, webhooks: WebhookServer
) -> None:
    webhooks.answer(
        "/bind",
        lambda review: (
            denied("not there")
            if review["name"] == "q"
            else json_patch({"op": "add", "path": "/metadata/annotations", "value": {"koord.sh/by": "webhook"}})
        ),
    )
    hook = webhooks.webhook("b.koord.sh", "/bind", rule("pods/binding"), namespace=namespace)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    async with installed(client, webhooks, namespace, "mutating", hook):
        for name in ("p", "q"):
            assert (await client.post(pods, pod(name, schedulerName="nobody"))).status == 201
        target = {"target": {"kind": "Node", "name": node}}
        assert (await client.post(f"{pods}/p/binding", {"metadata": {"name": "p"}, **target})).status == 201
        bound = (await client.get(f"{pods}/p")).body
        assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == (node, {"koord.sh/by": "webhook"})
        refused = await client.post(f"{pods}/q/binding", {"metadata": {"name": "q"}, **target})
        assert (refused.status, refused.message) == (
            400,
            'admission webhook "b.koord.sh" denied the request: not there',
        )
        assert "nodeName" not in (await client.get(f"{pods}/q")).body["spec"]
        await client.delete(f"{pods}/p", gracePeriodSeconds=0)


# --- webhooks that cannot be asked


def whole(body: Any, **more: Any) -> Any:
    return lambda review: web.json_response(body, **more)


def text(body: str, status: int = 200) -> Any:
    return lambda review: web.Response(text=body, status=status)


REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
INVALID = "received invalid webhook response: "
CALL = "failed to call webhook: "
PATCH = base64.b64encode(b'[{"op":"remove","path":"/data"}]').decode()
BAD_ANSWERS: dict[str, tuple[Any, str]] = {
    "no response": (whole(REVIEW), INVALID + "webhook response was absent"),
    "wrong uid": (lambda review: {"allowed": True, "uid": "x"}, INVALID + 'expected response.uid="{uid}", got "x"'),
    "no kind": (
        lambda review: web.json_response({"response": {"uid": review["uid"], "allowed": True}}),
        INVALID + "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
    ),
    "wrong version": (
        whole({**REVIEW, "apiVersion": "admission.k8s.io/v1beta1", "response": {"allowed": True}}),
        CALL + "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    ),
    "empty": (
        text(""),
        CALL + "0-length response with status code: 200 and content type: text/plain; charset=utf-8",
    ),
    "500": (
        text("boom\n1", 500),
        CALL + 'an error on the server ("boom\\n1") has prevented the request from succeeding',
    ),
    "500 json": (
        whole({"error": "x"}, status=500),
        CALL + 'an error on the server ("unknown") has prevented the request from succeeding',
    ),
    "404": (text("nope", 404), CALL + "the server could not find the requested resource"),
    "403": (text("nope", 403), CALL + "nope"),
    "Status": (
        whole({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "hm", "code": 400}, status=400),
        CALL + "hm",
    ),
    "patch without type": (
        lambda review: {"allowed": True, "patch": PATCH},
        INVALID + "webhook returned response.patch but not response.patchType",
    ),
    "type without patch": (
        lambda review: {"allowed": True, "patchType": "JSONPatch"},
        INVALID + "webhook returned response.patchType but not response.patch",
    ),
    "empty type": (
        lambda review: {"allowed": True, "patchType": "", "patch": PATCH},
        INVALID + 'webhook returned invalid response.patchType of ""',
    ),
    "other type": (
        lambda review: {"allowed": True, "patchType": "MergePatch", "patch": PATCH},
        'unsupported patch type "MergePatch"',
    ),
    "patch is no base64": (
        lambda review: {"allowed": True, "patchType": "JSONPatch", "patch": "%%%"},
        CALL + "illegal base64 data at input byte 0",
    ),
    "patch is no list": (
        lambda review: {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(b"{}").decode()},
        "received undecodable patch in webhook response:"
        " json: cannot unmarshal object into Go value of type jsonpatch.Patch",
    ),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
async def test_answers_that_break_the_protocol(
    client: Client, namespace: str, webhooks: WebhookServer, case: str
) -> None:
    """500 in the words of the one who asked, or passed over where the policy is to ignore."""
    handler, words = BAD_ANSWERS[case]
    webhooks.answer("/x", handler)
    open_ = {"matchLabels": {"open": "1"}}
    closed = {"matchExpressions": [{"key": "open", "operator": "DoesNotExist"}]}
    hooks = [
        webhooks.webhook("x.koord.sh", "/x", rule("secrets"), namespace=namespace, objectSelector=closed),
        webhooks.webhook(
            "y.koord.sh", "/x", rule("secrets"), namespace=namespace, objectSelector=open_, failurePolicy="Ignore"
        ),
    ]
    path = f"/api/v1/namespaces/{namespace}/secrets"
    async with installed(client, webhooks, namespace, "mutating", *hooks):
        refused = await client.post(path, {"metadata": {"name": "a"}})
        said = f'failed calling webhook "x.koord.sh": {words.replace("{uid}", webhooks.seen["/x"][0]["uid"])}'
        assert (refused.status, refused.reason) == (500, "InternalError")
        assert refused.message == f"Internal error occurred: {said}"
        assert refused.body["details"] == {"causes": [{"message": said}]}
        made = await client.post(path, {"metadata": {"name": "b", "labels": {"open": "1"}}})
        assert made.status == 201
        assert len(webhooks.seen["/x"]) == 2


@pytest.mark.parametrize("case", ["patch", "patchType"])
async def test_a_validating_webhook_cannot_patch(
    client: Client, namespace: str, webhooks: WebhookServer, case: str
) -> None:
    answer = {"allowed": True, "patchType": "JSONPatch", **({"patch": PATCH} if case == "patch" else {})}
    webhooks.answer("/v", lambda review: answer)
    hook = webhooks.webhook("v.koord.sh", "/v", rule("secrets"), namespace=namespace)
    async with installed(client, webhooks, namespace, "validating", hook):
        refused = await client.post(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "a"}})
        assert refused.status == 500
        assert refused.message.endswith(f"{INVALID}validating webhook may not return response.{case}")


@pytest.mark.parametrize("case", ["refused", "timeout", "authority", "no authority", "no service", "loop"])
async def test_webhooks_out_of_reach(client: Client, namespace: str, webhooks: WebhookServer, case: str) -> None:
    hook = webhooks.webhook("x.koord.sh", "/x", rule("secrets"), namespace=namespace)
    config = hook["clientConfig"]
    if case == "refused":
        config["url"] = "https://127.0.0.1:1/x"
        words = 'Post "https://127.0.0.1:1/x?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
    elif case == "timeout":
        hook["timeoutSeconds"] = 1
        never = asyncio.Event()

        async def hang(review: Review) -> Review:
            await never.wait()
            return ALLOWED

        webhooks.answer("/x", hang)
        words = f'Post "{webhooks.url}/x?timeout=1s": context deadline exceeded'
    elif case in ("authority", "no authority"):
        del config["caBundle"]
        if case == "authority":
            config["caBundle"] = base64.b64encode(client_authority()).decode()
        words = (
            f'Post "{webhooks.url}/x?timeout=10s": tls: failed to verify certificate: x509: certificate signed by'
            " unknown authority"
        )
    elif case == "no service":
        hook["clientConfig"] = {"service": {"name": "nope", "namespace": namespace, "path": "/x", "port": 8443}}
        words = f'Post "https://nope.{namespace}.svc:8443/x?timeout=10s": service "nope" not found'
    else:
        webhooks.answer("/x", lambda review: web.Response(status=307, headers={"Location": "/x"}))
        words = "stopped after 10 redirects"
    path = f"/api/v1/namespaces/{namespace}/secrets"
    async with installed(client, webhooks, namespace, "validating", hook):
        refused = await client.post(path, {"metadata": {"name": "a"}})
        assert (refused.status, refused.reason) == (500, "InternalError")
        start = 'Internal error occurred: failed calling webhook "x.koord.sh": failed to call webhook: '
        assert refused.message.startswith(start) and words in refused.message
    hook["failurePolicy"] = "Ignore"
    async with installed(client, webhooks, namespace, "validating", hook):
        assert (await client.post(path, {"metadata": {"name": "a"}})).status == 201


def client_authority() -> bytes:
    """Some authority that did not sign the webhooks' certificate."""
    import ssl

    return ssl.DER_cert_to_PEM_cert(ssl.create_default_context().get_ca_certs(binary_form=True)[0]).encode()


async def test_a_redirect_is_followed(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    webhooks.answer("/x", lambda review: web.Response(status=307, headers={"Location": "/there"}))
    webhooks.answer("/there", lambda review: denied("from there"))
    hook = webhooks.webhook("x.koord.sh", "/x", rule("secrets"), namespace=namespace)
    async with installed(client, webhooks, namespace, "validating", hook):
        refused = await client.post(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "a"}})
        assert (refused.status, refused.message[-10:]) == (400, "from there")


BAD_PATCHES: dict[str, tuple[Review, int]] = {
    "missing path": ({"op": "remove", "path": "/nope/x"}, 500),
    "missing parent": ({"op": "add", "path": "/nope/x", "value": "1"}, 500),
    "failed test": ({"op": "test", "path": "/data/a", "value": "9"}, 500),
    "unknown operation": ({"op": "frob", "path": "/data/a", "value": "1"}, 500),
    "another kind": ({"op": "replace", "path": "/kind", "value": "Secret"}, 500),
    "another version": ({"op": "replace", "path": "/apiVersion", "value": "v2"}, 500),
    "no object": ({"op": "replace", "path": "", "value": [1]}, 500),
    "wrong type": ({"op": "replace", "path": "/data", "value": "x"}, 500),
    "another namespace": ({"op": "replace", "path": "/metadata/namespace", "value": "default"}, 400),
    "no name": ({"op": "remove", "path": "/metadata/name"}, 422),
    "no metadata": ({"op": "remove", "path": "/metadata"}, 422),
    "bad label": ({"op": "add", "path": "/metadata/labels", "value": {"b": "x y"}}, 422),
}


@pytest.mark.parametrize("case", BAD_PATCHES)
async def test_patches_that_make_no_object(client: Client, namespace: str, webhooks: WebhookServer, case: str) -> None:
    operation, status = BAD_PATCHES[case]
    webhooks.answer("/m", lambda review: json_patch(operation))
    hook = webhooks.webhook("m.koord.sh", "/m", rule("configmaps"), namespace=namespace, failurePolicy="Ignore")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with installed(client, webhooks, namespace, "mutating", hook):
        refused = await client.post(path, config_map("m", a="b"))
        assert refused.status == status, refused.body
        assert (await client.get(f"{path}/m")).status == 404


async def test_an_update_cannot_be_given_another_name(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    operations = [
        {"op": "remove", "path": "/metadata/name"},
        {"op": "replace", "path": "/metadata/name", "value": "other"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "5"},
        {"op": "replace", "path": "/metadata/namespace", "value": "default"},
    ]
    hook = webhooks.webhook("m.koord.sh", "/m", rule("configmaps", "UPDATE"), namespace=namespace)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = (await client.post(path, config_map("m", a="b"))).body
    async with installed(client, webhooks, namespace, "mutating", hook):
        statuses = []
        for operation in operations:
            webhooks.answer("/m", lambda review, operation=operation: json_patch(operation))  # type: ignore[misc]
            statuses.append((await client.patch(f"{path}/m", {"data": {"a": "c"}})).status)
        assert statuses == [422, 422, 409, 400]
        assert (await client.get(f"{path}/m")).body == made


# --- configurations


async def test_a_configuration_gets_its_defaults(client: Client, namespace: str, webhooks: WebhookServer) -> None:
    service = {"service": {"name": "s", "namespace": "n"}}
    hook = {
        "name": "a.koord.sh",
        "clientConfig": service,
        "rules": [rule("never", group="never.koord.sh")],
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
    }
    for kind in ("mutating", "validating"):
        path, name = f"{API}/{kind}webhookconfigurations", unique("w")
        made = await client.post(path, configuration(kind, name, [hook]))
        try:
            expected = {
                **hook,
                "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}},
                "rules": [{**rule("never", group="never.koord.sh"), "scope": "*"}],
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "timeoutSeconds": 10,
            }
            if kind == "mutating":
                expected["reinvocationPolicy"] = "Never"
            assert (made.status, made.body["webhooks"]) == (201, [expected])
            assert made.body["metadata"]["generation"] == 1
            labelled_ = await client.patch(f"{path}/{name}", {"metadata": {"labels": {"a": "b"}}})
            assert labelled_.body["metadata"]["generation"] == 1
            operation = {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 5}
            changed = await client.patch(f"{path}/{name}", [operation], JSON_PATCH)
            assert changed.body["metadata"]["generation"] == 2
            table = await client.request(
                "GET", f"{path}/{name}", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
            )
            assert [column["name"] for column in table.body["columnDefinitions"]] == ["Name", "Webhooks", "Age"]
            assert table.body["rows"][0]["cells"][:2] == [name, 1]
        finally:
            await client.delete(f"{path}/{name}")


def config(**changes: Any) -> Review:
    hook: Review = {
        "name": "a.koord.sh",
        "clientConfig": {"url": "https://x/y"},
        "rules": [rule("never")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **changes,
    }
    return {name: value for name, value in hook.items() if value is not None}


NAMES = "should be a domain with at least three segments separated by dots"
BAD_CONFIGURATIONS: dict[str, tuple[list[Review], list[str]]] = {
    "names": (
        [config(name=""), config(name="a.b"), config(), config()],
        [
            "webhooks[0].name: Required value",
            f'webhooks[1].name: Invalid value: "a.b": {NAMES}',
            'webhooks[3].name: Duplicate value: "a.koord.sh"',
        ],
    ),
    "side effects": (
        [config(sideEffects=None), config(name="b.koord.sh", sideEffects="Some")],
        [
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            'webhooks[1].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
        ],
    ),
    "review versions": (
        [config(admissionReviewVersions=None), config(name="b.koord.sh", admissionReviewVersions=["v2"])],
        [
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
            'webhooks[1].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1',
        ],
    ),
    "timeouts": (
        [config(timeoutSeconds=0), config(name="b.koord.sh", timeoutSeconds=31)],
        [
            f"webhooks[{i}].timeoutSeconds: Invalid value: {value}: the timeout value must be between 1 and 30 seconds"
            for i, value in enumerate((0, 31))
        ],
    ),
    "policies": (
        [config(failurePolicy="x", matchPolicy="y", reinvocationPolicy="z")],
        [
            'webhooks[0].failurePolicy: Unsupported value: "x": supported values: "Fail", "Ignore"',
            'webhooks[0].matchPolicy: Unsupported value: "y": supported values: "Equivalent", "Exact"',
            'webhooks[0].reinvocationPolicy: Unsupported value: "z": supported values: "IfNeeded", "Never"',
        ],
    ),
    "empty rule": (
        [config(rules=[{}])],
        [f"webhooks[0].rules[0].{field}: Required value" for field in ("operations", "apiGroups", "apiVersions")]
        + ["webhooks[0].rules[0].resources: Required value"],
    ),
    "wildcards": (
        [config(rules=[{**rule("*"), "operations": ["*", "x"], "resources": ["*", "pods"], "scope": "q"}])],
        [
            'webhooks[0].rules[0].operations: Invalid value: ["*","x"]:'
            " if '*' is present, must not specify other operations",
            'webhooks[0].rules[0].operations[1]: Unsupported value: "x":'
            ' supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"',
            'webhooks[0].rules[0].resources: Invalid value: ["*","pods"]:'
            " if '*' is present, must not specify other resources without subresources",
            'webhooks[0].rules[0].scope: Unsupported value: "q": supported values: "*", "Cluster", "Namespaced"',
        ],
    ),
    "sub-resources": (
        [config(rules=[{**rule("x"), "resources": ["pods/*", "pods/status"]}])],
        [
            'webhooks[0].rules[0].resources[1]: Invalid value: "pods/status":'
            " if 'pods/*' is present, must not specify pods/status"
        ],
    ),
    "nowhere": (
        [config(clientConfig={})],
        ["webhooks[0].clientConfig: Required value: exactly one of url or service is required"],
    ),
    "not safe": (
        [config(clientConfig={"url": "http://a/b"})],
        [
            'webhooks[0].clientConfig.url: Invalid value: "http":'
            " 'https' is the only allowed URL scheme; desired format: https://host[/path]"
        ],
    ),
    "too much of a url": (
        [config(clientConfig={"url": "https://u:p@a/b?c=d#f"})],
        [
            'webhooks[0].clientConfig.url: Invalid value: "u:p": user information is not permitted in the URL',
            'webhooks[0].clientConfig.url: Invalid value: "f": fragments are not permitted in the URL',
            'webhooks[0].clientConfig.url: Invalid value: "c=d": query parameters are not permitted in the URL',
        ],
    ),
    "service": (
        [config(clientConfig={"service": {"port": 70000, "path": "x//y"}})],
        [
            "webhooks[0].clientConfig.service.name: Required value",
            "webhooks[0].clientConfig.service.namespace: Required value",
            "webhooks[0].clientConfig.service.port: Invalid value: 70000:"
            " port is not valid: must be between 1 and 65535, inclusive",
            "webhooks[0].clientConfig.service.path: Invalid value: \"x//y\": must start with a '/'",
            'webhooks[0].clientConfig.service.path: Invalid value: "x//y": segment[0] may not be empty',
            'webhooks[0].clientConfig.service.path: Invalid value: "x//y": segment[1] may not be empty',
        ],
    ),
    "selector": (
        [config(objectSelector={"matchExpressions": [{"key": "x", "operator": "In"}, {"key": "y", "operator": "Gt"}]})],
        [
            "webhooks[0].objectSelector.matchExpressions[0].values:"
            " Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "webhooks[0].objectSelector.matchExpressions[1].operator:"
            ' Invalid value: "Gt": not a valid selector operator',
        ],
    ),
}


@pytest.mark.parametrize("case", BAD_CONFIGURATIONS)
async def test_bad_configurations_are_refused_with_every_broken_rule(client: Client, case: str) -> None:
    hooks, broken = BAD_CONFIGURATIONS[case]
    name = unique("w")
    refused = await client.post(f"{API}/mutatingwebhookconfigurations", configuration("mutating", name, hooks))
    text_ = broken[0] if len(broken) == 1 else f"[{', '.join(broken)}]"
    kind = "MutatingWebhookConfiguration.admissionregistration.k8s.io"
    assert (refused.status, refused.message) == (422, f'{kind} "{name}" is invalid: {text_}')
    assert [f"{cause['field']}: {cause['message']}" for cause in refused.body["details"]["causes"]] == broken


async def test_a_configuration_of_the_wrong_types_cannot_be_read(client: Client) -> None:
    body = configuration("mutating", unique("w"), [config(timeoutSeconds="5")])
    refused = await client.post(f"{API}/mutatingwebhookconfigurations", body)
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert "timeoutSeconds" in refused.message
