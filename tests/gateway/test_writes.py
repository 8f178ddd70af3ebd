"""Patches of every kind, deletes and evictions against the real API server, redelivered and in conflict."""

import asyncio
import json
from typing import Any

import pytest

from koord.contracts.decisions import Create, Delete, Evict, ObjectRef, Patch
from koord.gateway.allow import Rejected
from koord.gateway.api import Api
from koord.gateway.writes import Writer
from koord.kube.resources import PODS, QUEUE_UNITS
from tests.gateway.conftest import Kube


@pytest.fixture
def writer(api: Api) -> Writer:
    return Writer(api)


def ref(pod: dict[str, Any], **changes: str) -> ObjectRef:
    meta = pod["metadata"]
    fields = {"uid": meta["uid"], **changes}
    return ObjectRef(PODS.token, meta["namespace"], meta["name"], **fields)


def patch(pod: dict[str, Any], body: Any, **more: Any) -> Patch:
    target = more.pop("target", ref(pod))
    return Patch("d", target, json.dumps(body).encode(), **more)


SCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


async def test_a_strategic_patch_merges_conditions_by_type(writer: Writer, kube: Kube) -> None:
    pod = await kube.pod("a")
    for condition in (SCHEDULED, {"type": "Ready", "status": "False"}, {**SCHEDULED, "status": "True"}):
        body = {"status": {"conditions": [condition]}}
        decision = patch(pod, body, patch="strategic", subresource="status")
        assert (await writer.patch(decision, "scheduler")).outcome == "done"
    stored = await kube.get_pod("a")
    assert stored is not None
    assert {c["type"]: c["status"] for c in stored["status"]["conditions"]} == {
        "PodScheduled": "True",
        "Ready": "False",
    }


async def test_a_json_patch_tests_its_preconditions(writer: Writer, kube: Kube) -> None:
    pod = await kube.pod("a", labels={"x": "1"})
    version = pod["metadata"]["resourceVersion"]
    steps = [{"op": "replace", "path": "/metadata/labels/x", "value": "2"}]
    decision = patch(pod, steps, patch="json", target=ref(pod, resource_version=version))
    result = await writer.patch(decision, "scheduler")
    assert result.outcome == "done"
    again = await writer.patch(decision, "scheduler")
    assert (again.outcome, again.resource_version) == ("conflict", result.resource_version)
    other = await writer.patch(patch(pod, steps, patch="json", target=ref(pod, uid="another")), "scheduler")
    assert (other.outcome, "another was replaced by" in other.reason) == ("gone", True)
    bad = [{"op": "replace", "path": "/metadata/nowhere/x", "value": "2"}]
    refused = await writer.patch(patch(pod, bad, patch="json"), "scheduler")
    assert (refused.outcome, bool(refused.reason)) == ("rejected", True)


async def test_a_merge_patch_that_was_executed_before_is_done_again(writer: Writer, kube: Kube) -> None:
    pod = await kube.pod("a")
    target = ref(pod, resource_version=pod["metadata"]["resourceVersion"])
    decision = patch(pod, {"metadata": {"labels": {"x": "1"}}}, target=target)
    first = await writer.patch(decision, "scheduler")
    second = await writer.patch(decision, "scheduler")
    assert (first.outcome, second.outcome) == ("done", "done")
    assert first.resource_version == second.resource_version


async def test_an_apply_owns_what_it_says_in_the_services_name(writer: Writer, kube: Kube) -> None:
    pod = await kube.pod("a", labels={"x": "1"})

    def applied(**metadata: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", **metadata}}

    # What others own is taken over, as a decision is the last word.
    first = applied(labels={"x": "2", "y": "2"})
    assert (await writer.patch(patch(pod, first, patch="apply"), "scheduler")).outcome == "done"
    stored = await kube.get_pod("a")
    assert stored is not None
    assert stored["metadata"]["labels"] == {"x": "2", "y": "2"}
    entries = {(one["manager"], one["operation"]): one["fieldsV1"] for one in stored["metadata"]["managedFields"]}
    assert entries["koord-scheduler", "Apply"] == {"f:metadata": {"f:labels": {"f:x": {}, "f:y": {}}}}
    again = await writer.patch(patch(pod, first, patch="apply"), "scheduler")
    assert (again.outcome, again.resource_version) == ("done", stored["metadata"]["resourceVersion"])
    # What is left out goes; a status is applied apart.
    assert (await writer.patch(patch(pod, applied(labels={"x": "2"}), patch="apply"), "scheduler")).outcome == "done"
    body = {**applied(), "status": {"conditions": [SCHEDULED]}}
    assert (await writer.patch(patch(pod, body, patch="apply", subresource="status"), "queue")).outcome == "done"
    stored = await kube.get_pod("a")
    assert stored is not None
    assert stored["metadata"]["labels"] == {"x": "2"}
    assert stored["status"]["conditions"] == [SCHEDULED]
    other = await writer.patch(patch(pod, first, patch="apply", target=ref(pod, uid="another")), "scheduler")
    assert (other.outcome, "another was replaced by" in other.reason) == ("gone", True)


async def test_a_patch_that_the_server_refuses_is_rejected_in_its_words(writer: Writer, kube: Kube) -> None:
    pod = await kube.pod("a")
    result = await writer.patch(patch(pod, {"metadata": {"labels": {"not a key!": "1"}}}), "scheduler")
    assert (result.outcome, result.code) == ("rejected", 422)
    assert "not a key!" in result.reason


async def test_an_eviction_of_another_uid_evicts_nobody(writer: Writer, kube: Kube) -> None:
    pod = await kube.pod("a")
    assert (await writer.evict(Evict("e", ref(pod, uid="another")))).outcome == "gone"
    assert await kube.get_pod("a") is not None
    assert (await writer.evict(Evict("e", ref(pod)))).outcome == "done"
    assert await kube.get_pod("a") is None
    assert (await writer.evict(Evict("e", ref(pod)))).outcome == "gone"


async def test_a_budget_that_refuses_an_eviction_is_a_conflict_in_its_words(writer: Writer, kube: Kube) -> None:
    pod = await kube.pod("a", labels={"app": "web"})
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pods = f"/api/v1/namespaces/{kube.namespace}/pods"
    await kube.call("patch", f"{pods}/a/status", {"status": ready}, "application/merge-patch+json")
    budgets = f"/apis/policy/v1/namespaces/{kube.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await kube.call("create", budgets, {"metadata": {"name": "web"}, "spec": spec})
    deadline = asyncio.get_running_loop().time() + 30
    while True:
        budget = await kube.get(f"{budgets}/web")
        if budget is not None and (budget.get("status") or {}).get("currentHealthy") == 1:
            break
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)
    result = await writer.evict(Evict("e", ref(pod)))
    assert (result.outcome, result.code) == ("conflict", 429)
    assert result.reason == (
        "Cannot evict pod as it would violate the pod's disruption budget."
        " The disruption budget web needs 1 healthy pods and has 1 currently"
    )
    assert await kube.get_pod("a") is not None
    await kube.call("delete", f"{budgets}/web")
    assert (await writer.evict(Evict("e", ref(pod)))).outcome == "done"


async def test_a_delete_with_a_version_that_moved_on_is_a_conflict(writer: Writer, kube: Kube) -> None:
    pod = await kube.pod("a")
    path = PODS.path(kube.namespace, "a")
    await kube.call("patch", path, {"metadata": {"labels": {"x": "1"}}}, "application/merge-patch+json")
    stale = ref(pod, resource_version=pod["metadata"]["resourceVersion"])
    assert (await writer.delete(Delete("d", stale))).outcome == "conflict"
    assert await kube.get_pod("a") is not None


@pytest.mark.parametrize("name", ["", "has space", "../up"])
async def test_a_create_without_a_usable_name_is_refused(writer: Writer, kube: Kube, name: str) -> None:
    body = json.dumps({"metadata": {"name": name}}).encode()
    with pytest.raises(Rejected, match=r"metadata\.name"):
        await writer.create(Create("c", QUEUE_UNITS.token, kube.namespace, "", body))


async def test_a_create_in_a_namespace_that_is_not_there_is_gone(writer: Writer) -> None:
    result = await writer.create(Create("c", QUEUE_UNITS.token, "nowhere", "u", b"{}"))
    assert (result.outcome, result.code) == ("gone", 404)
