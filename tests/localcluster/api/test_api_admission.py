"""Admission in the server's process: who waits for webhooks, what a hostile one can do, and where Services lead."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from koord.localcluster.api import pods
from koord.localcluster.api.admission import admission as module
from koord.localcluster.api.admission import transport
from koord.localcluster.api.admission.admission import Caller
from koord.localcluster.api.admission.attributes import GroupVersionResource
from koord.localcluster.api.admission.definitions import MUTATING, VALIDATING, Rule
from koord.localcluster.api.admission.hooks import rule_matches
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.running import Controllers
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.journal import Journal
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.components import Options, start
from tests.conformance.webhooks import (
    Review,
    WebhookServer,
    configuration,
    denied,
    json_patch,
    rule,
    webhook_server,
)
from tests.localcluster.api.rig import pod
from tests.localcluster.embedded import until

ALLOWED: Review = {"allowed": True}


@pytest.fixture
async def webhooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    async with webhook_server(tmp_path, "hooks.default.svc") as server:
        yield server


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster(graceful_pods=True)
    yield cluster
    await cluster.admission.aclose()


@pytest.fixture
def api(cluster: Cluster) -> InProcessApi:
    return InProcessApi(cluster, "job-controller")


async def install(api: InProcessApi, kind: str, *hooks: Review, name: str = "w") -> None:
    await api.create(MUTATING if kind == "mutating" else VALIDATING, None, configuration(kind, name, list(hooks)))


def mark(review: Review) -> Review:
    return json_patch({"op": "add", "path": "/metadata/labels", "value": {"marked": "yes"}})


def config_map(name: str, **labels: str) -> Review:
    return {"metadata": {"name": name, "labels": labels}} if labels else {"metadata": {"name": name}}


# --- who waits


async def test_writes_of_components_in_the_process_go_through_webhooks(
    api: InProcessApi, webhooks: WebhookServer
) -> None:
    await install(api, "mutating", webhooks.webhook("m.koord.sh", "/m", rule("pods")))
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("pods", "*"), rule("pods/status", "*")))
    webhooks.answer("/m", mark)
    sent = pod("a")
    await api.create("pods", "default", sent)
    assert (await api.get("pods", "default", "a"))["metadata"]["labels"] == {"marked": "yes"}
    assert sent == pod("a")
    await api.patch("pods", "default", "a", {"status": {"phase": "Running"}}, subresource="status")
    await api.replace("pods", "default", "a", await api.get("pods", "default", "a"))
    await api.delete("pods", "default", "a", grace_period_seconds=0)
    asked = [(review["operation"], review.get("subResource", "")) for review in webhooks.seen["/v"]]
    assert asked == [("CREATE", ""), ("UPDATE", "status"), ("UPDATE", ""), ("DELETE", "")]
    assert {review["userInfo"]["username"] for review in webhooks.seen["/v"]} == {"system:job-controller"}
    assert webhooks.seen["/v"][-1]["options"]["gracePeriodSeconds"] == 0

    webhooks.answer("/v", lambda review: denied("no"))
    with pytest.raises(ApiError, match=r'admission webhook "v\.koord\.sh" denied the request: no') as refused:
        await api.create("pods", "default", pod("b"))
    assert refused.value.code == 400


async def test_a_scale_in_the_process(api: InProcessApi, webhooks: WebhookServer) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.create("replicasets.apps", "default", {"metadata": {"name": "r"}, "spec": spec})
    hook = webhooks.webhook("m.koord.sh", "/m", rule("replicasets/scale", "UPDATE", group="apps"))
    await install(api, "mutating", hook)
    webhooks.answer("/m", lambda review: json_patch({"op": "replace", "path": "/spec/replicas", "value": 7}))
    await api.patch("replicasets.apps", "default", "r", {"spec": {"replicas": 3}}, subresource="scale")
    assert (await api.get("replicasets.apps", "default", "r"))["spec"]["replicas"] == 7
    (asked,) = webhooks.seen["/m"]
    assert (asked["kind"]["kind"], asked["object"]["spec"]["replicas"]) == ("Scale", 3)


async def test_pods_of_job_operators_get_what_a_pod_webhook_adds(api: InProcessApi, webhooks: WebhookServer) -> None:
    webhooks.answer(
        "/m",
        lambda review: json_patch(
            {"op": "add", "path": "/spec/schedulerName", "value": "koord-scheduler"},
            {"op": "add", "path": "/metadata/labels/koord.sh~1qos", "value": "BE"},
        ),
    )
    await install(api, "mutating", webhooks.webhook("pods.koord.sh", "/m", rule("pods")))
    components = await start(api, Options.parse('{"kubelets": null, "operators": {"kinds": ["Job"]}}'))
    try:
        job = {
            "metadata": {"name": "j"},
            "spec": {
                "parallelism": 3,
                "completions": 3,
                "template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}},
            },
        }
        await api.create("jobs.batch", "default", job)

        async def made() -> Any:
            found, _ = await api.list("pods", "default")
            return found if len(found) == 3 else None

        for created in await until(made):
            assert created["spec"]["schedulerName"] == "koord-scheduler"
            assert created["metadata"]["labels"]["koord.sh/qos"] == "BE"
            assert created["metadata"]["labels"]["job-name"] == "j"
    finally:
        await components.stop()


async def test_a_thousand_creates_at_once(api: InProcessApi, webhooks: WebhookServer) -> None:
    await install(api, "mutating", webhooks.webhook("m.koord.sh", "/m", rule("configmaps"), timeoutSeconds=30))
    webhooks.answer("/m", mark)
    await asyncio.gather(*(api.create("configmaps", "default", config_map(f"c-{i}")) for i in range(1_000)))
    found, _ = await api.list("configmaps", "default", label_selector="marked=yes")
    assert len(found) == len(webhooks.seen["/m"]) == 1_000


async def test_of_two_creates_of_one_name_one_wins(api: InProcessApi, webhooks: WebhookServer) -> None:
    """They wait for their webhooks at the same time; the second finds the name taken after it."""
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("configmaps")))
    outcomes = await asyncio.gather(
        *(api.create("configmaps", "default", config_map("same")) for _ in range(2)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    assert [error.reason for error in refused] == ["AlreadyExists"] and len(outcomes) == 2
    assert len(webhooks.seen["/v"]) == 2


async def test_what_is_created_is_what_validating_webhooks_saw(api: InProcessApi, webhooks: WebhookServer) -> None:
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("pods")))
    await api.create("pods", "default", {"metadata": {"generateName": "p-"}, "spec": pod("x")["spec"]})
    (asked,) = webhooks.seen["/v"]
    stored = await api.get("pods", "default", asked["name"])
    assert stored["metadata"]["uid"] == asked["object"]["metadata"]["uid"]
    assert stored["spec"] == asked["object"]["spec"]


async def test_the_namespace_goes_while_webhooks_are_asked(
    api: InProcessApi, cluster: Cluster, webhooks: WebhookServer
) -> None:
    await api.create("namespaces", None, {"metadata": {"name": "short"}})

    async def remove(review: Review) -> Review:
        await api.delete("namespaces", None, "short")
        return ALLOWED

    webhooks.answer("/v", remove)
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("configmaps")))
    with pytest.raises(ApiError) as refused:
        await api.create("configmaps", "short", config_map("a"))
    assert refused.value.code == 403
    assert (await api.list("configmaps", "short"))[0] == []


async def test_the_servers_own_writes_ask_nobody(cluster: Cluster, api: InProcessApi, webhooks: WebhookServer) -> None:
    everything = rule("*/*", "*", group="*", version="*")
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", everything))
    webhooks.answer("/v", lambda review: denied("never"))
    cluster.create(cluster.resource("pods"), "default", pod("a"))
    pods.bind(cluster, "default", "a", {"target": {"kind": "Node", "name": "n"}})
    assert webhooks.reviews == []


async def test_webhooks_come_and_go_with_their_configurations(api: InProcessApi, webhooks: WebhookServer) -> None:
    async def asked(name: str) -> int:
        before = len(webhooks.reviews)
        await api.create("configmaps", "default", config_map(name))
        return len(webhooks.reviews) - before

    assert await asked("a") == 0
    hook = webhooks.webhook("v.koord.sh", "/v", rule("configmaps"))
    await install(api, "validating", hook)
    assert await asked("b") == 1
    await api.patch(VALIDATING, None, "w", {"webhooks": [{**hook, "rules": [rule("secrets")]}]})
    assert await asked("c") == 0
    await install(api, "validating", hook, name="other")
    assert await asked("d") == 1
    await api.delete(VALIDATING, None, "other")
    assert await asked("e") == 0


async def test_configurations_survive_a_restart(tmp_path: Path, webhooks: WebhookServer) -> None:
    first = Cluster(journal=Journal(tmp_path / "store"))
    await install(InProcessApi(first), "mutating", webhooks.webhook("m.koord.sh", "/m", rule("configmaps")))
    assert first.store.journal is not None
    await first.store.journal.stop()
    second = Cluster(journal=Journal(tmp_path / "store"))
    webhooks.answer("/m", mark)
    try:
        await InProcessApi(second).create("configmaps", "default", config_map("a"))
        assert (await InProcessApi(second).get("configmaps", "default", "a"))["metadata"]["labels"] == {"marked": "yes"}
    finally:
        await second.admission.aclose()
        assert second.store.journal is not None
        await second.store.journal.stop()


async def test_a_namespace_waits_for_what_webhooks_keep(
    api: InProcessApi, cluster: Cluster, webhooks: WebhookServer
) -> None:
    controllers = Controllers(cluster)
    controllers.start()
    try:
        await api.create("namespaces", None, {"metadata": {"name": "kept"}})
        await api.create("configmaps", "kept", config_map("a"))
        await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("configmaps", "DELETE")))
        webhooks.answer("/v", lambda review: denied("keep it"))
        await api.delete("namespaces", None, "kept")

        async def failing() -> bool:
            conditions = (await api.get("namespaces", None, "kept"))["status"].get("conditions") or []
            return {"True"} == {
                item["status"] for item in conditions if item["type"] == "NamespaceDeletionContentFailure"
            }

        await until(failing)
        assert (await api.get("configmaps", "kept", "a"))["metadata"]["name"] == "a"
        webhooks.answer("/v", lambda review: ALLOWED)

        async def gone() -> bool:
            return not (await api.list("namespaces", field_selector="metadata.name=kept"))[0]

        await until(gone, 60)
        assert webhooks.seen["/v"][-1]["userInfo"]["username"] == "system:kube-controller-manager"
    finally:
        await controllers.stop()


# --- hostile webhooks


async def test_an_answer_without_end(
    api: InProcessApi, webhooks: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    class Endless(web.StreamResponse):
        async def prepare(self, request: Any) -> Any:
            await super().prepare(request)
            try:
                while True:
                    await self.write(b"x" * (1 << 20))
                    await asyncio.sleep(0)
            finally:
                ended.set()  # nobody reads any more

    webhooks.answer("/v", lambda review: Endless())
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("configmaps")))
    monkeypatch.setattr(transport, "MAX_ANSWER", 4 << 20)
    with pytest.raises(ApiError, match="the answer is larger than 4194304 bytes"):
        await api.create("configmaps", "default", config_map("a"))
    await asyncio.wait_for(ended.wait(), 60)


async def test_a_webhook_that_hangs_takes_nobody_elses_connections(
    api: InProcessApi, webhooks: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_CONNECTIONS", 4)
    go = asyncio.Event()

    async def hang(review: Review) -> Review:
        await go.wait()
        return ALLOWED

    webhooks.answer("/hang", hang)
    await install(
        api,
        "validating",
        webhooks.webhook("h.koord.sh", "/hang", rule("secrets"), timeoutSeconds=30),
        webhooks.webhook("v.koord.sh", "/v", rule("configmaps")),
    )
    stuck = [asyncio.create_task(api.create("secrets", "default", {"metadata": {"name": f"s-{i}"}})) for i in range(20)]
    await until(lambda: _true(len(webhooks.seen["/hang"]) == 4))
    for i in range(20):
        await api.create("configmaps", "default", config_map(f"c-{i}"))
    assert not any(task.done() for task in stuck)
    go.set()
    await asyncio.gather(*stuck)


async def _true(value: bool) -> bool:
    return value


async def test_webhooks_of_one_request_have_an_end_together(
    api: InProcessApi, webhooks: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However patient each is, and also where failures are ignored."""
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.5)
    never = asyncio.Event()

    async def hang(review: Review) -> Review:
        await never.wait()
        return ALLOWED

    webhooks.answer("/m", hang)
    hook = webhooks.webhook("m.koord.sh", "/m", rule("configmaps"), timeoutSeconds=30, failurePolicy="Ignore")
    await install(api, "mutating", hook)
    with pytest.raises(ApiError) as late:
        await api.create("configmaps", "default", config_map("a"))
    assert (late.value.code, late.value.reason) == (504, "Timeout")


async def test_an_object_that_never_rests(api: InProcessApi, webhooks: WebhookServer) -> None:
    """Each time a webhook is asked the object changes again; the write goes on once that ends."""
    await api.create("configmaps", "default", config_map("a", t="1"))
    times = 0

    async def meddle(review: Review) -> Review:
        nonlocal times
        if review["object"]["metadata"].get("annotations") and times < 5:
            times += 1
            await api.patch("configmaps", "default", "a", {"data": {"times": str(times)}})
        return ALLOWED

    webhooks.answer("/v", meddle)
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("configmaps", "UPDATE")))
    await api.patch("configmaps", "default", "a", {"metadata": {"annotations": {"x": "y"}}})
    stored = await api.get("configmaps", "default", "a")
    assert (stored["data"], stored["metadata"]["annotations"]) == ({"times": "5"}, {"x": "y"})


async def test_a_patch_of_too_many_operations(api: InProcessApi, webhooks: WebhookServer) -> None:
    operations = [{"op": "test", "path": "/metadata/name", "value": "a"}] * 10_001
    webhooks.answer("/m", lambda review: json_patch(*operations))
    await install(api, "mutating", webhooks.webhook("m.koord.sh", "/m", rule("configmaps")))
    with pytest.raises(ApiError, match="allowed maximum operations") as refused:
        await api.create("configmaps", "default", config_map("a"))
    assert refused.value.code == 500


async def test_copies_of_copies(api: InProcessApi, webhooks: WebhookServer) -> None:
    """Sixty of them would be more than any memory holds, in a patch of a client too."""
    copies: list[dict[str, Any]] = [{"op": "copy", "from": "/data", "path": f"/data/x{i}"} for i in range(60)]
    await api.create("configmaps", "default", {"metadata": {"name": "a"}, "data": {"k": "v" * 100}})
    with pytest.raises(ApiError) as refused:
        await api.patch("configmaps", "default", "a", copies, kind="json")
    assert refused.value.code == 422
    webhooks.answer("/m", lambda review: json_patch(*copies))
    await install(api, "mutating", webhooks.webhook("m.koord.sh", "/m", rule("configmaps", "UPDATE")))
    with pytest.raises(ApiError, match="Unable to complete the copy, the accumulated size increase") as broken:
        await api.patch("configmaps", "default", "a", {"data": {"x": "y"}})
    assert broken.value.code == 500


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"response": {"patch": 5}}', b'{"response": []}', b"\xff\xfe", b"null", b'"' + b"a" * 1000],
    ids=["deep", "types", "list", "bytes", "null", "cut"],
)
async def test_answers_that_are_none(api: InProcessApi, webhooks: WebhookServer, body: bytes) -> None:
    webhooks.answer("/v", lambda review: web.Response(body=body, content_type="application/json"))
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("configmaps")))
    with pytest.raises(ApiError, match=r'failed calling webhook "v\.koord\.sh": ') as refused:
        await api.create("configmaps", "default", config_map("a"))
    assert refused.value.code == 500


# --- configurations of another time, and what is not there


async def test_dry_runs_and_webhooks_with_side_effects(
    cluster: Cluster, api: InProcessApi, webhooks: WebhookServer
) -> None:
    """No such configuration can be made any more, but an old one may be stored."""
    body = configuration("validating", "old", [webhooks.webhook("v.koord.sh", "/v", rule("configmaps"))])
    body["webhooks"][0]["sideEffects"] = "Some"
    body["metadata"]["uid"] = "u"
    cluster.collection(cluster.resource(VALIDATING)).put(body, cluster.store.next_version())
    served = cluster.resource("configmaps")

    def create() -> bytes:
        return cluster.create(served, "default", config_map("a"), dry_run=True)

    with pytest.raises(ApiError) as refused:
        await cluster.admission.run(Caller(), create)
    assert refused.value.message == 'admission webhook "v.koord.sh" does not support dry run'
    assert (refused.value.code, webhooks.reviews) == (400, [])
    await api.create("configmaps", "default", config_map("a"))
    assert len(webhooks.reviews) == 1


async def test_an_unreadable_configuration_stops_nobody(
    cluster: Cluster, api: InProcessApi, webhooks: WebhookServer, caplog: pytest.LogCaptureFixture
) -> None:
    body = configuration("validating", "bad", [])
    body["webhooks"] = [{"name": 5}]
    body["metadata"]["uid"] = "u"
    cluster.collection(cluster.resource(VALIDATING)).put(body, cluster.store.next_version())
    await install(api, "validating", webhooks.webhook("v.koord.sh", "/v", rule("configmaps")))
    await api.create("configmaps", "default", config_map("a"))
    assert len(webhooks.reviews) == 1
    assert "the webhooks of configuration bad are not called" in caplog.text


@pytest.mark.parametrize(
    "expression",
    [
        "authorizer.path('/').allowed()",
        "object.metadata.name.matches('(')",
        "(" * 100 + "true" + ")" * 100,
        "9" * 5_000 + " == 1",
        "'a",
        "[1, 2",
        "'\\q' == 'q'",
    ],
    ids=["variable", "pattern", "deep", "number", "text", "list", "escape"],
)
async def test_conditions_that_this_server_cannot_evaluate_are_refused(
    api: InProcessApi, webhooks: WebhookServer, expression: str
) -> None:
    conditions = [{"name": "x", "expression": expression}]
    hook = webhooks.webhook("v.koord.sh", "/v", rule("configmaps"), matchConditions=conditions)
    with pytest.raises(ApiError, match=r"webhooks\[0\].matchConditions\[0\].expression: Invalid value") as refused:
        await install(api, "validating", hook)
    assert refused.value.code == 422


# --- Services


def service(**spec: Any) -> Review:
    return {"metadata": {"name": "hooks"}, "spec": spec}


async def by_service(api: InProcessApi, webhooks: WebhookServer, port: int) -> None:
    hook = webhooks.webhook("s.koord.sh", "/m", rule("configmaps"))
    del hook["clientConfig"]["url"]
    hook["clientConfig"]["service"] = {"name": "hooks", "namespace": "default", "path": "/m", "port": port}
    webhooks.answer("/m", mark)
    await install(api, "mutating", hook)


async def marked(api: InProcessApi) -> bool:
    await api.create("configmaps", "default", config_map("a"))
    return "labels" in (await api.get("configmaps", "default", "a"))["metadata"]


async def test_a_service_with_endpoint_slices(api: InProcessApi, webhooks: WebhookServer) -> None:
    port = int(webhooks.url.rsplit(":", 1)[1])
    await api.create("services", "default", service(ports=[{"name": "https", "port": 443}, {"name": "x", "port": 1}]))
    gone = {"addresses": ["127.0.0.9"], "conditions": {"ready": False}}
    slice_ = {
        "metadata": {"name": "hooks-1", "labels": {"kubernetes.io/service-name": "hooks"}},
        "addressType": "IPv4",
        "endpoints": [gone, {"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "x", "port": 1}, {"name": "https", "port": port}],
    }
    await api.create("endpointslices.discovery.k8s.io", "default", slice_)
    await by_service(api, webhooks, 443)
    assert await marked(api)


async def test_a_service_with_endpoints(api: InProcessApi, webhooks: WebhookServer) -> None:
    port = int(webhooks.url.rsplit(":", 1)[1])
    await api.create("services", "default", service(ports=[{"port": 8443}]))
    endpoints = {
        "metadata": {"name": "hooks"},
        "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": port}]}],
    }
    await api.create("endpoints", "default", endpoints)
    await by_service(api, webhooks, 8443)
    assert await marked(api)


async def test_a_service_that_is_a_name(api: InProcessApi, webhooks: WebhookServer) -> None:
    port = int(webhooks.url.rsplit(":", 1)[1])
    await api.create("services", "default", service(type="ExternalName", externalName="127.0.0.1"))
    await by_service(api, webhooks, port)
    assert await marked(api)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, 'service "hooks" not found'),
        ({"ports": [{"port": 80}]}, 'no service port 443 found for service "hooks"'),
        ({"ports": [{"port": 443}]}, 'no endpoints available for service "hooks"'),
    ],
    ids=["service", "port", "endpoints"],
)
async def test_services_that_lead_nowhere(api: InProcessApi, webhooks: WebhookServer, spec: Any, words: str) -> None:
    if spec is not None:
        await api.create("services", "default", service(**spec))
    await by_service(api, webhooks, 443)
    with pytest.raises(ApiError, match=f'Post "https://hooks.default.svc:443/m\\?timeout=10s": {words}'):
        await marked(api)


# --- rules


PODS = GroupVersionResource("", "v1", "pods")


@pytest.mark.parametrize(
    ("resources", "subresource", "matches"),
    [
        (["pods"], "", True),
        (["pods"], "status", False),
        (["*"], "", True),
        (["*"], "status", False),
        (["*/*"], "", True),
        (["*/*"], "status", True),
        (["pods/*"], "", True),
        (["pods/*"], "status", True),
        (["*/status"], "status", True),
        (["*/status"], "", False),
        (["nodes", "pods/binding"], "binding", True),
        (["nodes/*"], "status", False),
    ],
)
def test_resources_of_rules(resources: list[str], subresource: str, matches: bool) -> None:
    wanted = Rule(operations=["*"], api_groups=[""], api_versions=["v1"], resources=resources)
    assert rule_matches(wanted, "CREATE", PODS, subresource, in_space=True) is matches


@pytest.mark.parametrize(
    ("scope", "in_space", "matches"),
    [
        ("*", True, True),
        ("*", False, True),
        (None, True, True),
        ("Namespaced", True, True),
        ("Namespaced", False, False),
        ("Cluster", True, False),
        ("Cluster", False, True),
    ],
)
def test_scopes_of_rules(scope: str | None, in_space: bool, matches: bool) -> None:
    wanted = Rule(["DELETE"], ["", "apps"], ["*"], ["pods"], scope)
    assert rule_matches(wanted, "DELETE", PODS, "", in_space=in_space) is matches
    assert not rule_matches(wanted, "UPDATE", PODS, "", in_space=in_space)
    assert not rule_matches(wanted, "DELETE", PODS._replace(group="batch"), "", in_space=in_space)
