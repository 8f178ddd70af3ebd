"""How pods, namespaces and definitions go, and what goes with them; plain objects are in `test_deletion`.

Where the server leaves the rest to its controllers the test polls: a real controller manager takes seconds.
"""

from typing import Any

import pytest

from tests.conformance.client import Client, until
from tests.conformance.rig import Kubectl, config_map, pod, unique
from tests.conformance.test_deletion import FINALIZER, PATIENT, gone, make, maps, release

# --- pods


async def bound(client: Client, namespace: str, node: str, name: str, **metadata: Any) -> str:
    """A pod on a node; answers its path."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = pod(name)
    body["metadata"].update(metadata)
    made = await client.post(path, body)
    assert made.status == 201, made.body
    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": node}}
    assert (await client.post(f"{path}/{name}/binding", target)).status == 201
    return f"{path}/{name}"


async def test_a_bound_pod_keeps_its_grace_and_it_only_gets_shorter(client: Client, namespace: str, node: str) -> None:
    path = await bound(client, namespace, node, "a")
    # Pods have a generation since Kubernetes 1.34.
    marked = 2 if "generation" in (await client.get(path)).body["metadata"] else None

    async def grace(options: dict[str, Any] | None = None) -> tuple[int, int | None]:
        metadata = (await client.delete(path, options)).body["metadata"]
        return metadata["deletionGracePeriodSeconds"], metadata.get("generation")

    assert await grace({"dryRun": ["All"]}) == (30, marked)
    assert await grace({"gracePeriodSeconds": 20}) == (20, marked)
    assert await grace({"gracePeriodSeconds": 40}) == (20, marked)
    assert await grace() == (20, marked)
    assert await grace({"propagationPolicy": "Foreground"}) == (20, marked)
    assert await grace({"gracePeriodSeconds": 10}) == (10, marked)
    assert await grace({"gracePeriodSeconds": -3}) == (1, marked)
    assert await grace({"gracePeriodSeconds": 0}) == (0, marked)
    assert (await client.get(path)).status == 404


async def test_a_pod_that_nobody_runs_goes_at_once(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    await client.post(path, pod("a"))
    last = (await client.delete(f"{path}/a")).body
    assert last["kind"] == "Pod" and last["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await client.get(f"{path}/a")).status == 404


@pytest.mark.since("1.34", "pods have a generation")
async def test_a_pod_has_a_generation(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    assert (await client.post(path, pod("a"))).body["metadata"]["generation"] == 1
    assert (await client.delete(f"{path}/a")).body["metadata"]["generation"] == 2


async def test_grace_and_finalizers_are_both_waited_for(client: Client, namespace: str, node: str) -> None:
    path = await bound(client, namespace, node, "a", finalizers=[FINALIZER])
    await client.delete(path)
    assert (await release(client, path)).status == 200
    assert (await client.get(path)).body["metadata"]["deletionGracePeriodSeconds"] == 30
    await client.delete(path, {"gracePeriodSeconds": 0})
    assert (await client.get(path)).status == 404
    other = await bound(client, namespace, node, "b", finalizers=[FINALIZER])
    await client.delete(other, {"gracePeriodSeconds": 0})
    assert (await client.get(other)).body["metadata"]["deletionGracePeriodSeconds"] == 0
    await release(client, other)
    assert (await client.get(other)).status == 404


# --- namespaces and definitions


async def test_a_namespace_goes_with_what_is_in_it(client: Client, kubectl: Kubectl) -> None:
    name = unique()
    path = f"/api/v1/namespaces/{name}"
    made = (await client.post("/api/v1/namespaces", {"metadata": {"name": name}})).body
    assert made["spec"] == {"finalizers": ["kubernetes"]} and made["status"] == {"phase": "Active"}
    kept = await client.patch(path, {"spec": {"finalizers": ["example.com/x"]}})
    assert kept.body["spec"] == made["spec"]
    await make(client, name, "free")
    await make(client, name, "held", finalizers=[FINALIZER])
    tried = await client.delete(path, {"dryRun": ["All"]})
    assert tried.body["status"]["phase"] == "Terminating"
    assert (await client.get(path)).body["status"]["phase"] == "Active"
    refused = await client.delete(path, {"preconditions": {"uid": "wrong"}})
    assert (refused.status, refused.message) == (
        409,
        f'Operation cannot be fulfilled on namespaces "{name}": Precondition failed: UID in precondition: wrong, UID in'
        f" object meta: {made['metadata']['uid']}",
    )
    marked = (await client.delete(path)).body
    assert marked["status"]["phase"] == "Terminating" and "deletionTimestamp" in marked["metadata"]
    assert "deletionGracePeriodSeconds" not in marked["metadata"]
    late = await client.post(maps(name), config_map("late"))
    assert (late.status, late.reason) == (403, "Forbidden")
    why = f"unable to create new content in namespace {name} because it is being terminated"
    assert late.message == f'configmaps "late" is forbidden: {why}'
    cause = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
    cause["message"] = f"namespace {name} is being terminated"
    assert late.body["details"]["causes"] == [cause]
    again = await client.delete(path)
    assert again.body["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]

    async def told() -> Any:
        conditions = (await client.get(path)).body["status"].get("conditions") or []
        by_type = {item["type"]: item for item in conditions}
        remaining = by_type.get("NamespaceFinalizersRemaining", {})
        return by_type if remaining.get("status") == "True" else None

    conditions = await until(told, PATIENT)
    assert list(conditions) == [
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
    ]
    remaining = conditions["NamespaceContentRemaining"]
    assert (remaining["reason"], remaining["message"]) == (
        "SomeResourcesRemain",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert conditions["NamespaceFinalizersRemaining"]["message"] == (
        f"Some content in the namespace has finalizers remaining: {FINALIZER} in 1 resource instances"
    )
    assert conditions["NamespaceDeletionContentFailure"]["status"] == "False"
    assert (await client.get(maps(name, "free"))).status == 404
    await release(client, maps(name, "held"))
    await until(gone(client, path), PATIENT)
    await client.post("/api/v1/namespaces", {"metadata": {"name": name}})
    kubectl("delete", "namespace", name, "--timeout=100s")
    assert (await client.get(path)).status == 404


async def test_some_namespaces_stay(client: Client) -> None:
    refused = await client.delete("/api/v1/namespaces/default")
    assert (refused.status, refused.message) == (
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    )


async def test_a_namespace_finalizer_is_set_and_taken_by_its_sub_resource(client: Client) -> None:
    name = unique()
    path = f"/api/v1/namespaces/{name}"
    made = (await client.post("/api/v1/namespaces", {"metadata": {"name": name}})).body
    made["spec"]["finalizers"] = ["kubernetes", "example.com/hold"]
    put = await client.put(f"{path}/finalize", made)
    assert put.status == 200 and put.body["spec"]["finalizers"] == ["kubernetes", "example.com/hold"]
    await client.delete(path)

    async def left() -> Any:
        answer = await client.get(path)
        return answer.body if answer.body["spec"].get("finalizers") == ["example.com/hold"] else None

    namespace = await until(left, PATIENT)
    assert (await client.delete(path)).status == 200
    namespace = (await client.get(path)).body
    namespace["spec"] = {}
    assert (await client.put(f"{path}/finalize", namespace)).status == 200
    await until(gone(client, path), PATIENT)


@pytest.mark.since("1.34", "403 while a definition goes, not 405")
async def test_a_definition_goes_with_its_objects(client: Client, namespace: str) -> None:
    group = f"{unique('g')}.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    path = f"{definitions}/widgets.{group}"
    assert (await client.post(definitions, definition)).status == 201
    widgets = f"/apis/{group}/v1/namespaces/{namespace}/widgets"

    async def served() -> bool:
        return (await client.get(widgets)).status == 200

    await until(served)
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "a", "finalizers": [FINALIZER]}}

    async def created() -> bool:
        return (await client.post(widgets, widget)).status == 201

    await until(created)
    marked = (await client.delete(path)).body
    assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    conditions = {item["type"]: item for item in marked["status"]["conditions"]}
    assert conditions["Terminating"]["reason"] == "InstanceDeletionPending"

    async def going() -> bool:
        answer = await client.get(f"{widgets}/a")
        return answer.status == 200 and "deletionTimestamp" in answer.body["metadata"]

    await until(going)
    late = {**widget, "metadata": {"name": "late"}}

    refused = await client.post(widgets, late)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    why = "create not allowed while custom resource definition is terminating"
    assert refused.message == f'widgets.{group} "late" is forbidden: {why}'

    async def told() -> bool:
        conditions = (await client.get(path)).body["status"]["conditions"]
        return any(condition["reason"] == "InstanceDeletionInProgress" for condition in conditions)

    await until(told)
    await release(client, f"{widgets}/a")
    await until(gone(client, path))
