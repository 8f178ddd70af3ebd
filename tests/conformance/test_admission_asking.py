"""What admission webhooks are asked, and which of them."""

import asyncio

import pytest

from tests.conformance.client import Client
from tests.conformance.rig import config_map, pod, unique
from tests.conformance.webhooks import (
    ALLOWED,
    API,
    CONFIG_MAP,
    CONFIG_MAPS,
    Review,
    WebhookServer,
    bare,
    defined,
    denied,
    everything,
    installed,
    json_patch,
    labelled,
    rule,
)

# --- what is asked


@pytest.mark.since("1.34", "objects have no empty creationTimestamp")
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
        async with asyncio.timeout(60):
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
