"""The order in which admission webhooks are asked, and what their answers do."""

import asyncio
import json
from typing import Any

import pytest

from tests.conformance.client import APPLY, Client
from tests.conformance.rig import Kubectl, config_map, pod, unique
from tests.conformance.webhooks import (
    ALLOWED,
    API,
    Review,
    WebhookServer,
    defined,
    denied,
    installed,
    json_patch,
    labelled,
    rule,
)

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
        # A controller may ask for the namespace's own map, again and again.
        assert tried.returncode == 0 and [
            asked["name"] for asked in webhooks.seen["/v"] if len(asked["name"]) == 1
        ] == ["a"]


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
        async with asyncio.timeout(60):
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
