"""Deleting: preconditions, policies, finalizers, the garbage collector's work, and how namespaces go.

Where the server leaves the rest to its controllers the test polls: a real controller manager takes seconds.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.client import MERGE, Answer, Client, until
from tests.conformance.rig import Kubectl, config_map, unique

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
