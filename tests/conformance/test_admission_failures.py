"""Admission webhooks that give no answer, or none that can be used."""

import asyncio
import base64
from typing import Any

import pytest
from aiohttp import web

from tests.conformance.client import Client
from tests.conformance.rig import config_map
from tests.conformance.webhooks import (
    ALLOWED,
    Review,
    WebhookServer,
    denied,
    installed,
    json_patch,
    rule,
)


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
@pytest.mark.since("1.34", "words", only=("patch is no list",))
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
