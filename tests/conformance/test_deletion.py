"""Deleting: preconditions, policies, finalizers, the garbage collector's work, and how namespaces go.

Where the server leaves the rest to its controllers the test polls: a real controller manager takes seconds.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.client import MERGE, Answer, Client, until
from tests.conformance.rig import Kubectl, config_map, pod, unique

FINALIZER = "example.com/hold"
# A controller manager that may ask only 20 times a second needs long for the 60 kinds of a namespace.
PATIENT = 180.0


def maps(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


async def make(client: Client, namespace: str, name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A ConfigMap with owners; answers a reference to it."""
    body = config_map(name)
    body["metadata"].update(metadata)
    if owners:
        body["metadata"]["ownerReferences"] = list(owners)
    made = await client.post(maps(namespace), body)
    assert made.status == 201, made.body
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.body["metadata"]["uid"]}


def gone(client: Client, path: str) -> Callable[[], Any]:
    async def ask() -> bool:
        return (await client.get(path)).status == 404

    return ask


async def release(client: Client, path: str) -> Answer:
    """Take all finalizers out of an object."""
    return await client.patch(path, {"metadata": {"finalizers": None}}, kind=MERGE)


async def settled(client: Client, namespace: str) -> None:
    """Wait until the collector has surely come past what was made before: it has collected something newer."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": unique("u")}
    name = unique("canary")
    await make(client, namespace, name, owner)
    await until(gone(client, maps(namespace, name)))


# --- requests


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (
            {"propagationPolicy": "Sometimes"},
            422,
            'propagationPolicy: Unsupported value: "Sometimes": supported values: "Foreground", "Background", "Orphan",'
            ' "nil"',
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            422,
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
        ),
        ({"dryRun": ["Some"]}, 422, 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
    ],
)
@pytest.mark.since("1.34", "words: values as JSON", only=("options2",))
async def test_options_are_checked(
    client: Client, namespace: str, options: dict[str, Any], status: int, text: str
) -> None:
    await make(client, namespace, "a")
    refused = await client.delete(maps(namespace, "a"), options)
    assert (refused.status, refused.reason) == (status, "Invalid")
    assert refused.message == f'DeleteOptions.meta.k8s.io "" is invalid: {text}'
    assert refused.body["details"]["causes"][0]["field"] == text.partition(":")[0]


async def test_options_can_be_in_the_query_but_not_in_both(client: Client, namespace: str) -> None:
    await make(client, namespace, "a")
    path = maps(namespace, "a")
    refused = await client.request("DELETE", path, params={"propagationPolicy": "Sometimes"})
    assert refused.status == 422
    tried = await client.request("DELETE", path, params={"propagationPolicy": "Orphan", "dryRun": "All"})
    assert tried.body["metadata"]["finalizers"] == ["orphan"]
    assert (await client.request("DELETE", path, params={"gracePeriodSeconds": "x"})).status == 400
    body = {"kind": "DeleteOptions", "apiVersion": "v1"}
    deleted = await client.request("DELETE", path, body, params={"propagationPolicy": "Orphan"})
    assert deleted.body["status"] == "Success", "the query does not count beside a body"


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (
            "uid",
            "the UID in the precondition (wrong) does not match the UID in record ({record})."
            " The object might have been deleted and then recreated",
        ),
        (
            "resourceVersion",
            "the ResourceVersion in the precondition (wrong) does not match the ResourceVersion in record ({record})."
            " The object might have been modified",
        ),
    ],
)
async def test_preconditions(client: Client, namespace: str, field: str, text: str) -> None:
    await make(client, namespace, "a")
    path = maps(namespace, "a")
    metadata = (await client.get(path)).body["metadata"]
    refused = await client.delete(path, {"preconditions": {field: "wrong"}})
    assert (refused.status, refused.reason) == (409, "Conflict")
    why = text.format(record=metadata[field])
    assert refused.message == f'Operation cannot be fulfilled on ConfigMap "a": {why}'
    assert refused.body["details"] == {"name": "a", "kind": "ConfigMap"}
    assert (await client.delete(path, {"preconditions": {field: metadata[field]}})).status == 200


async def test_what_a_deletion_answers(client: Client, namespace: str) -> None:
    await make(client, namespace, "a")
    uid = (await client.get(maps(namespace, "a"))).body["metadata"]["uid"]
    dry = await client.delete(maps(namespace, "a"), {"dryRun": ["All"]})
    done = await client.delete(maps(namespace, "a"))
    for answer in (dry, done):
        assert answer.status == 200
        assert answer.body["status"] == "Success"
        assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    missing = await client.delete(maps(namespace, "a"))
    assert (missing.status, missing.message) == (404, 'configmaps "a" not found')
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await client.post(account, {"metadata": {"name": "a"}})
    assert (await client.delete(f"{account}/a")).body["kind"] == "ServiceAccount"
    await make(client, namespace, "held", finalizers=[FINALIZER])
    held = await client.delete(maps(namespace, "held"))
    assert (held.status, held.body["kind"]) == (200, "ConfigMap")
    accepted = await client.delete(maps(namespace, "held"), {"orphanDependents": False})
    assert accepted.status == 202
    await release(client, maps(namespace, "held"))


async def test_dry_runs_show_what_would_be(client: Client, namespace: str) -> None:
    await make(client, namespace, "a")
    before = (await client.get(maps(namespace, "a"))).body
    tried = await client.delete(maps(namespace, "a"), {"propagationPolicy": "Foreground", "dryRun": ["All"]})
    assert tried.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert tried.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await client.get(maps(namespace, "a"))).body == before


async def test_collections_answer_with_what_was_in_them(client: Client, namespace: str) -> None:
    for name in ("a", "b", "c"):
        await make(client, namespace, name, labels={"set": "one"})
    await make(client, namespace, "other")
    params = {"labelSelector": "set=one"}
    dry = await client.request("DELETE", maps(namespace), {"dryRun": ["All"]}, params=params)
    assert dry.body["kind"] == "ConfigMapList"
    assert [item["metadata"]["name"] for item in dry.body["items"]] == ["a", "b", "c"]
    first = await client.request("DELETE", maps(namespace), params={**params, "limit": "1"})
    assert [item["metadata"]["name"] for item in first.body["items"]] == ["a"]
    rest = await client.request("DELETE", maps(namespace), {"propagationPolicy": "Background"}, params=params)
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["b", "c"]
    left = (await client.get(maps(namespace))).body["items"]
    assert {item["metadata"]["name"] for item in left} - {"kube-root-ca.crt"} == {"other"}
    assert (await client.delete("/api/v1/configmaps")).status == 405
    assert (await client.delete("/api/v1/namespaces")).status == 405


# --- finalizers


async def test_finalizers_hold_an_object(client: Client, namespace: str) -> None:
    await make(client, namespace, "a", finalizers=[FINALIZER, "example.com/second"])
    path = maps(namespace, "a")
    marked = (await client.delete(path)).body["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 0
    again = (await client.delete(path)).body["metadata"]
    assert again["deletionTimestamp"] == marked["deletionTimestamp"]
    assert again["resourceVersion"] == marked["resourceVersion"]
    changed = await client.patch(path, {"metadata": {"labels": {"still": "writable"}, "deletionTimestamp": None}})
    assert changed.body["metadata"]["deletionTimestamp"] == marked["deletionTimestamp"]
    more = [FINALIZER, "example.com/second", "example.com/third", "example.com/a"]
    refused = await client.patch(path, {"metadata": {"finalizers": more}})
    assert refused.status == 422
    assert refused.message == (
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is'
        ' being deleted, found new finalizers []string{"example.com/a", "example.com/third"}'
    )
    fewer = await client.patch(path, {"metadata": {"finalizers": ["example.com/second"]}})
    assert fewer.status == 200
    last = await release(client, path)
    assert last.status == 200 and "finalizers" not in last.body["metadata"]
    assert (await client.get(path)).status == 404


@pytest.mark.parametrize(
    ("finalizers", "text"),
    [
        (
            ["hold"],
            'metadata.finalizers[0]: Invalid value: "hold": name is neither a standard finalizer name nor is it fully'
            " qualified",
        ),
        (
            ["orphan", "foregroundDeletion"],
            'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and'
            " foregroundDeletion cannot be both set",
        ),
    ],
)
@pytest.mark.since("1.34", "words: values as JSON", only=("finalizers1",))
async def test_names_of_finalizers(client: Client, namespace: str, finalizers: list[str], text: str) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = finalizers
    refused = await client.post(maps(namespace), body)
    assert (refused.status, refused.message) == (422, f'ConfigMap "a" is invalid: {text}')


async def test_a_policy_replaces_the_finalizer_of_another(client: Client, namespace: str) -> None:
    await make(client, namespace, "a", finalizers=[FINALIZER])
    path = maps(namespace, "a")
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        marked = await client.delete(path, {"propagationPolicy": policy})
        assert marked.body["metadata"]["finalizers"] == [FINALIZER, finalizer]
    assert (await client.delete(path, {"propagationPolicy": "Background"})).status == 200

    async def alone() -> bool:
        return bool((await client.get(path)).body["metadata"]["finalizers"] == [FINALIZER])

    await until(alone)
    await release(client, path)


async def test_generation_counts_the_begin_of_a_deletion(client: Client, namespace: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    body = {"metadata": {"name": "a", "finalizers": [FINALIZER]}, "spec": {"minAvailable": 1}}
    assert (await client.post(path, body)).body["metadata"]["generation"] == 1
    assert (await client.delete(f"{path}/a")).body["metadata"]["generation"] == 2
    assert (await client.delete(f"{path}/a")).body["metadata"]["generation"] == 2
    await release(client, f"{path}/a")


# --- the garbage collector


async def test_background(client: Client, namespace: str) -> None:
    a = await make(client, namespace, "a")
    b = await make(client, namespace, "b", a)
    await make(client, namespace, "c", b)
    assert (await client.delete(maps(namespace, "a"), {"propagationPolicy": "Background"})).status == 200
    assert (await client.get(maps(namespace, "a"))).status == 404
    await until(gone(client, maps(namespace, "b")))
    await until(gone(client, maps(namespace, "c")))


async def test_foreground(client: Client, namespace: str) -> None:
    a = await make(client, namespace, "a")
    await make(client, namespace, "blocks", {**a, "blockOwnerDeletion": True}, finalizers=[FINALIZER])
    await make(client, namespace, "free", a, finalizers=[FINALIZER])
    marked = await client.delete(maps(namespace, "a"), {"propagationPolicy": "Foreground"})
    assert marked.body["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def both_are_going() -> bool:
        answers = [await client.get(maps(namespace, name)) for name in ("blocks", "free")]
        return all("deletionTimestamp" in answer.body["metadata"] for answer in answers)

    await until(both_are_going)
    await settled(client, namespace)
    assert (await client.get(maps(namespace, "a"))).status == 200
    await release(client, maps(namespace, "blocks"))
    await until(gone(client, maps(namespace, "a")))
    assert (await client.get(maps(namespace, "free"))).status == 200
    await release(client, maps(namespace, "free"))


async def test_orphan(client: Client, namespace: str) -> None:
    a = await make(client, namespace, "a")
    await make(client, namespace, "b", a)
    marked = await client.delete(maps(namespace, "a"), {"propagationPolicy": "Orphan"})
    assert marked.body["metadata"]["finalizers"] == ["orphan"]
    await until(gone(client, maps(namespace, "a")))
    assert "ownerReferences" not in (await client.get(maps(namespace, "b"))).body["metadata"]


async def test_one_of_two_owners(client: Client, namespace: str) -> None:
    a, b = await make(client, namespace, "a"), await make(client, namespace, "b")
    await make(client, namespace, "c", a, b)
    await client.delete(maps(namespace, "a"))

    async def dropped() -> bool:
        return bool((await client.get(maps(namespace, "c"))).body["metadata"].get("ownerReferences") == [b])

    await until(dropped)


async def test_owners_that_are_not_there(client: Client, namespace: str) -> None:
    a = await make(client, namespace, "a")
    await make(client, namespace, "uid", {**a, "uid": "another"})
    await make(client, namespace, "kind", {**a, "kind": "Secret"})
    unserved = {"apiVersion": "example.com/v1", "kind": "Unserved", "name": "a", "uid": unique("u")}
    await make(client, namespace, "unserved", unserved)
    await until(gone(client, maps(namespace, "uid")))
    await until(gone(client, maps(namespace, "kind")))
    await settled(client, namespace)
    assert (await client.get(maps(namespace, "unserved"))).status == 200


async def test_owners_in_another_namespace_are_absent(client: Client, namespace: str) -> None:
    other = unique()
    await client.post("/api/v1/namespaces", {"metadata": {"name": other}})
    a = await make(client, namespace, "a")
    await settled(client, namespace)
    await make(client, other, "b", a)
    await until(gone(client, maps(other, "b")))

    async def event() -> Any:
        items = (await client.get(f"/api/v1/namespaces/{other}/events")).body["items"]
        return next((item for item in items if item["reason"] == "OwnerRefInvalidNamespace"), None)

    told = await until(event)
    assert told["type"] == "Warning"
    assert told["message"] == (
        f'ownerRef [v1/ConfigMap, namespace: {other}, name: a, uid: {a["uid"]}] does not exist in namespace "{other}"'
    )
    await client.delete(f"/api/v1/namespaces/{other}")


async def test_jobs_leave_their_pods_by_default(client: Client, namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    # Nobody runs it: it is another controller's.
    spec = {
        "managedBy": "example.com/nobody",
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}},
    }
    await client.post(jobs, {"metadata": {"name": "a"}, "spec": spec})
    deleted = await client.delete(f"{jobs}/a")
    assert deleted.body["metadata"]["finalizers"] == ["orphan"]
    assert deleted.warnings == [
        '299 - "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove'
        ' them or set propagationPolicy=Orphan to suppress this warning"'
    ]
    await until(gone(client, f"{jobs}/a"))
    await client.post(jobs, {"metadata": {"name": "b"}, "spec": spec})
    quiet = await client.delete(f"{jobs}/b", {"propagationPolicy": "Background"})
    assert quiet.warnings == [] and quiet.body["status"] == "Success"


async def test_kubectl_cascades(client: Client, namespace: str, kubectl: Kubectl) -> None:
    for name, cascade in (("a", "orphan"), ("b", "background"), ("c", "foreground")):
        owner = await make(client, namespace, name)
        await make(client, namespace, f"{name}-child", {**owner, "blockOwnerDeletion": True})
        await settled(client, namespace)
        assert "deleted" in kubectl("delete", "configmap", name, f"--cascade={cascade}", "--timeout=60s").stdout
        assert (await client.get(maps(namespace, name))).status == 404
    await until(gone(client, maps(namespace, "b-child")))
    assert (await client.get(maps(namespace, "c-child"))).status == 404
    assert (await client.get(maps(namespace, "a-child"))).status == 200


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
