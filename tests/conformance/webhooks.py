"""An HTTPS server of admission webhooks, for tests: what it was asked, and answers that each test programs.

A path is a webhook. `answer` says what it answers: a function of the request part of the AdmissionReview that gives the
response part (the uid is filled in), or a whole aiohttp response, good or bad.
"""

import base64
import json
import ssl
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from koord.localcluster.api.certificates import make_certificates
from tests.conformance.client import Client, until
from tests.conformance.rig import config_map, unique

Review = dict[str, Any]
Reply = dict[str, Any] | web.StreamResponse
Handler = Callable[[Review], Reply | Awaitable[Reply]]

ALLOWED: Review = {"allowed": True}
CONFIG_MAPS = {"group": "", "version": "v1", "resource": "configmaps"}
CONFIG_MAP = {"group": "", "version": "v1", "kind": "ConfigMap"}


def json_patch(*operations: dict[str, Any], **more: Any) -> Review:
    """A response that allows with these operations."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch, **more}


def denied(message: str = "", **status: Any) -> Review:
    """A response that refuses."""
    return {"allowed": False, "status": {"message": message, **status}}


def rule(resource: str, *operations: str, group: str = "", version: str = "v1", **more: Any) -> Review:
    """One rule about one resource."""
    operations = operations or ("CREATE",)
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
        "operations": list(operations),
        **more,
    }


class WebhookServer:
    """The running server; `seen[path]` are the requests that a webhook got, `sent[path]` the URLs they were sent to."""

    def __init__(self, url: str, ca: bytes) -> None:
        self.url = url
        self.ca = base64.b64encode(ca).decode()
        self.seen: dict[str, list[Review]] = defaultdict(list)
        self.sent: dict[str, list[str]] = defaultdict(list)
        self.reviews: list[Review] = []
        self._handlers: dict[str, Handler] = {}

    def answer(self, path: str, handler: Handler) -> None:
        """What the webhook at `path` answers from now on; without one it allows."""
        self._handlers[path] = handler

    def webhook(self, name: str, path: str, *rules: Review, namespace: str | None = None, **more: Any) -> Review:
        """A webhook of a configuration, limited to a namespace if one is given."""
        hook: Review = {
            "name": name,
            "clientConfig": {"url": self.url + path, "caBundle": self.ca},
            "rules": list(rules),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }
        if namespace is not None:
            hook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        return hook

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one review."""
        review = await request.json()
        path = request.path
        asked = review["request"]
        self.reviews.append(review)
        self.seen[path].append(asked)
        self.sent[path].append(str(request.rel_url))
        reply: Any = self._handlers.get(path, _allow)(asked)
        if isinstance(reply, Awaitable) and not isinstance(reply, web.StreamResponse):
            reply = await reply
        if isinstance(reply, web.StreamResponse):
            return reply
        response = {"uid": asked["uid"], **reply}
        return web.json_response({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})


def _allow(review: Review) -> Reply:
    return {"allowed": True}


@asynccontextmanager
async def webhook_server(folder: Path, *names: str) -> AsyncIterator[WebhookServer]:
    """A server on a free loopback port with a certificate of its own authority, until the end of the block.

    The certificate is for 127.0.0.1 and `names`.
    """
    files = make_certificates(folder, ("127.0.0.1", *names))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    server = WebhookServer("", files.ca.read_bytes())
    app = web.Application(client_max_size=16 << 20)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context, backlog=1024)
    await site.start()
    try:
        port = runner.addresses[0][1]
        server.url = f"https://127.0.0.1:{port}"
        yield server
    finally:
        await runner.cleanup()


KINDS = {"mutating": "MutatingWebhookConfiguration", "validating": "ValidatingWebhookConfiguration"}
API = "/apis/admissionregistration.k8s.io/v1"


def configuration(kind: str, name: str, hooks: list[Review]) -> Review:
    """A configuration of a kind, `mutating` or `validating`."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": KINDS[kind],
        "metadata": {"name": name},
        "webhooks": hooks,
    }


@asynccontextmanager
async def installed(
    client: Client, server: WebhookServer, namespace: str, kind: str, *hooks: Review, name: str | None = None
) -> AsyncIterator[str]:
    """A configuration that is in force until the end of the block; its name.

    A real server takes note of a configuration some time after it was stored: a webhook is added at the end that only
    a probe of this configuration meets, a ServiceAccount.
    """
    mark = f"probe-{uuid.uuid4().hex[:8]}"
    probe = server.webhook(
        "probe.koord.sh",
        f"/{mark}",
        rule("serviceaccounts"),
        namespace=namespace,
        objectSelector={"matchLabels": {"probe": mark}},
    )
    body = configuration(kind, name or mark, [*hooks, probe])
    path = f"{API}/{kind}webhookconfigurations"
    made = await client.post(path, body)
    assert made.status == 201, made.body

    async def called() -> bool:
        before = len(server.seen[f"/{mark}"])
        wanted = {"metadata": {"name": mark, "labels": {"probe": mark}}}
        await client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", wanted, dryRun="All")
        return len(server.seen[f"/{mark}"]) > before

    try:
        await until(called)
        server.seen.clear()
        server.sent.clear()
        server.reviews.clear()
        yield made.body["metadata"]["name"]
    finally:
        await client.delete(f"{path}/{made.body['metadata']['name']}")


def everything(*operations: str) -> Review:
    """A rule about all that there is."""
    return {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": list(operations or "*")}


def bare(obj: Any) -> Any:
    """An object without what differs between two servers that mean the same."""
    if obj is None:
        return None
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def labelled(name: str, labels: dict[str, str], **data: str) -> Review:
    """A ConfigMap with labels."""
    body = config_map(name, **data)
    body["metadata"]["labels"] = labels
    return body


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


def config(**changes: Any) -> Review:
    """A webhook's entry that is right but for the changes."""
    hook: Review = {
        "name": "a.koord.sh",
        "clientConfig": {"url": "https://x/y"},
        "rules": [rule("never")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **changes,
    }
    return {name: value for name, value in hook.items() if value is not None}
