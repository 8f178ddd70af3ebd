"""Sub-resources: status apart from spec, scale, binding and all its refusals."""

import re
from typing import Any

import pytest

from tests.conformance.client import STRATEGIC, Answer, Client
from tests.conformance.rig import pod


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    target = {"kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


def refused(answer: Answer, status: int, reason: str, message: str) -> None:
    assert (answer.status, answer.reason, answer.message) == (status, reason, message)


async def test_spec_and_status_are_written_apart(client: Client, pods: str) -> None:
    made = (await client.post(pods, pod("a", schedulerName="none"))).body
    assert made["status"]["phase"] == "Pending"
    change = {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}, "metadata": {"labels": {"via": "status"}}}
    status = await client.patch(f"{pods}/a/status", change)
    assert status.status == 200 and status.body["status"]["phase"] == "Running"
    # Labels go through the status of built-in kinds; the spec does not.
    assert "nodeName" not in status.body["spec"] and status.body["metadata"]["labels"] == {"via": "status"}
    plain = await client.patch(f"{pods}/a", {"status": {"phase": "Failed"}, "metadata": {"labels": {"more": "x"}}})
    assert plain.body["status"]["phase"] == "Running" and plain.body["metadata"]["labels"]["more"] == "x"
    # Pods have a generation since Kubernetes 1.34.
    assert plain.body["metadata"].get("generation") == made["metadata"].get("generation")
    assert (await client.get(f"{pods}/a/status")).body == plain.body
    current = plain.body
    current["status"]["phase"] = "Succeeded"
    replaced = await client.put(f"{pods}/a/status", current)
    assert replaced.status == 200 and replaced.body["status"]["phase"] == "Succeeded"
    assert (await client.put(f"{pods}/a/status", current)).status == 409
    for method in ("POST", "DELETE"):
        assert (await client.request(method, f"{pods}/a/status", {} if method == "POST" else None)).status == 405


async def test_status_given_at_creation_is_dropped(client: Client, namespace: str) -> None:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    made = await client.post(path, {"metadata": {"name": "b"}, "spec": spec, "status": {"disruptionsAllowed": 9}})
    assert made.status == 201 and made.body["status"]["disruptionsAllowed"] == 0


async def test_conditions_merge_by_type(client: Client, pods: str) -> None:
    await client.post(pods, pod("a", schedulerName="none"))
    for name, value in (("Ready", "False"), ("X", "True"), ("Ready", "True")):
        patch = {"status": {"conditions": [{"type": name, "status": value}]}}
        assert (await client.patch(f"{pods}/a/status", patch, STRATEGIC)).status == 200
    found = (await client.get(f"{pods}/a")).body["status"]["conditions"]
    assert {one["type"]: one["status"] for one in found} == {"Ready": "True", "X": "True"}


# --- scale


async def test_the_scale_of_a_deployment(client: Client, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {
        "metadata": {"labels": {"app": "d"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "none"},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    made = (await client.post(path, {"metadata": {"name": "d"}, "spec": spec})).body
    scale = await client.get(f"{path}/d/scale")
    assert (scale.body["kind"], scale.body["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale.body["spec"] == {"replicas": 1} and scale.body["status"]["selector"] == "app=d"
    assert scale.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert scale.body["metadata"].keys() == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
    put: dict[str, Any] = {"metadata": {"name": "d", "namespace": namespace}, "spec": {"replicas": 3}}
    assert (await client.put(f"{path}/d/scale", put)).body["spec"] == {"replicas": 3}
    assert (await client.patch(f"{path}/d/scale", {"spec": {"replicas": 2}})).body["spec"] == {"replicas": 2}
    tried = await client.patch(f"{path}/d/scale", {"spec": {"replicas": 9}}, dryRun="All")
    assert tried.body["spec"] == {"replicas": 9}
    now = (await client.get(f"{path}/d")).body
    assert now["spec"]["replicas"] == 2 and now["metadata"]["generation"] == 3
    negative = await client.patch(f"{path}/d/scale", {"spec": {"replicas": -1}})
    message = "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    refused(negative, 422, "Invalid", f'Scale.autoscaling "d" is invalid: {message}')
    stale = await client.put(f"{path}/d/scale", {**put, "metadata": {**put["metadata"], "resourceVersion": "1"}})
    assert (stale.status, stale.reason) == (409, "Conflict")
    other = await client.put(f"{path}/d/scale", {**put, "metadata": {"name": "e", "namespace": namespace}})
    refused(other, 400, "BadRequest", "the name of the object (e) does not match the name on the URL (d)")
    assert (await client.get(f"{path}/none/scale")).status == 404
    assert (await client.request("DELETE", f"{path}/d/scale")).status == 405


async def test_status_and_scale_of_a_custom_resource(client: Client, crews: str) -> None:
    group = crews.split("/")[2]
    kind = {"apiVersion": f"{group}/v1", "kind": "Crew"}
    made = (
        await client.post(crews, {**kind, "metadata": {"name": "c"}, "spec": {"size": 2}, "status": {"size": 9}})
    ).body
    assert made["metadata"]["generation"] == 1 and "status" not in made
    assert (await client.get(f"{crews}/c/scale")).body["spec"] == {"replicas": 2}
    change = {"status": {"size": 1, "selector": "a=b"}, "spec": {"size": 7}, "metadata": {"labels": {"x": "y"}}}
    status = (await client.patch(f"{crews}/c/status", change)).body
    assert status["spec"] == {"size": 2} and status["status"] == {"size": 1, "selector": "a=b"}
    # Unlike built-in kinds: metadata does not pass through the status of a custom resource.
    assert status["metadata"]["generation"] == 1 and "labels" not in status["metadata"]
    scale = (await client.get(f"{crews}/c/scale")).body
    assert scale["status"] == {"replicas": 1, "selector": "a=b"}
    assert (await client.patch(f"{crews}/c/scale", {"spec": {"replicas": 5}})).body["spec"] == {"replicas": 5}
    plain = (await client.patch(f"{crews}/c", {"status": {"size": 8}, "spec": {"note": "n"}})).body
    assert plain["spec"] == {"size": 5, "note": "n"} and plain["status"]["size"] == 1
    assert plain["metadata"]["generation"] == 3
    unversioned = await client.put(f"{crews}/c", {**kind, "metadata": {"name": "c"}, "spec": {"size": 1}})
    assert (unversioned.status, unversioned.reason) == (422, "Invalid")
    # In some releases (1.24) in the other notation: 0x0.
    assert re.search(r"metadata\.resourceVersion: Invalid value: 0(x0)?: must be specified", unversioned.message)
    strategic = await client.patch(f"{crews}/c", {}, STRATEGIC)
    assert (strategic.status, strategic.reason) == (415, "UnsupportedMediaType")
    assert (await client.get(f"{crews}/c/binding")).status == 404


# --- binding


async def test_a_binding_assigns_a_pod(client: Client, pods: str, node: str) -> None:
    made = (await client.post(pods, pod("a", schedulerName="none"))).body["metadata"]
    version, uid = made["resourceVersion"], made["uid"]
    tried = await client.post(f"{pods}/a/binding", binding("a", node), dryRun="All")
    assert tried.status == 201 and "nodeName" not in (await client.get(f"{pods}/a")).body["spec"]
    body = binding("a", node, uid=uid, resourceVersion=version, annotations={"a": "b"})
    bound = await client.post(f"{pods}/a/binding", body)
    assert bound.status == 201, bound.body
    assert (bound.body["kind"], bound.body["status"], bound.body["code"]) == ("Status", "Success", 201)
    now = (await client.get(f"{pods}/a")).body
    assert now["spec"]["nodeName"] == node
    assert now["metadata"]["annotations"] == {"a": "b"}
    (scheduled,) = now["status"]["conditions"]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "True")
    assert now["metadata"]["resourceVersion"] != version
    assert (await client.get(f"{pods}/a/binding")).status == 405


@pytest.mark.since("1.35", "labels of a Binding go onto the pod")
async def test_labels_of_a_binding_go_onto_the_pod(client: Client, pods: str, node: str) -> None:
    await client.post(pods, pod("a", labels={"k": "l"}, schedulerName="none"))
    assert (await client.post(f"{pods}/a/binding", binding("a", node, labels={"l": "m"}))).status == 201
    assert (await client.get(f"{pods}/a")).body["metadata"]["labels"] == {"k": "l", "l": "m"}


async def test_bindings_with_preconditions(client: Client, pods: str, node: str) -> None:
    made = (await client.post(pods, pod("a", schedulerName="none"))).body["metadata"]
    start = 'Operation cannot be fulfilled on pods "a": '
    wrong = await client.post(f"{pods}/a/binding", binding("a", node, uid="1234"))
    assert (wrong.status, wrong.reason) == (409, "Conflict") and wrong.message.startswith(start)
    assert wrong.message.endswith(f"Precondition failed: UID in precondition: 1234, UID in object meta: {made['uid']}")
    stale = await client.post(f"{pods}/a/binding", binding("a", node, resourceVersion="1"))
    assert (stale.status, stale.reason) == (409, "Conflict") and stale.message.startswith(start)
    version = made["resourceVersion"]
    what = f"Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: {version}"
    assert stale.message.endswith(what)
    assert (await client.get(f"{pods}/a")).body["metadata"] == made


async def test_bindings_that_are_refused(client: Client, pods: str, node: str) -> None:
    await client.post(pods, pod("a", schedulerName="none"))
    path = f"{pods}/a/binding"
    # Kubernetes answers 500 without a reason.
    refused(await client.post(path, {**binding("a", node), "target": {}}), 500, "", "target.name: Required value")
    strange = await client.post(path, {**binding("a", node), "target": {"kind": "Pod", "name": node}})
    refused(strange, 500, "", 'target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"')
    other = await client.post(path, binding("b", node))
    refused(other, 400, "BadRequest", "name in URL does not match name in Binding object")
    refused(await client.post(f"{pods}/none/binding", binding("none", node)), 404, "NotFound", 'pods "none" not found')
    assert (await client.post(path, binding("a", node))).status == 201
    for target in (node, "another"):
        again = await client.post(path, binding("a", target))
        message = f'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "{node}"'
        refused(again, 409, "Conflict", message)
        assert again.body["details"] == {"name": "a", "kind": "pods/binding"}


@pytest.mark.since("1.27", "scheduling gates")
async def test_pods_with_gates_cannot_be_bound(client: Client, pods: str, node: str) -> None:
    await client.post(pods, pod("gated", schedulingGates=[{"name": "x/y"}]))
    gated = await client.post(f"{pods}/gated/binding", binding("gated", node))
    why = "pod gated has non-empty .spec.schedulingGates"
    refused(gated, 409, "Conflict", f'Operation cannot be fulfilled on pods/binding "gated": {why}')
    ungated = await client.patch(f"{pods}/gated", {"spec": {"schedulingGates": None}})
    assert ungated.status == 200, ungated.body
    assert (await client.post(f"{pods}/gated/binding", binding("gated", node))).status == 201


async def test_pods_that_are_being_deleted_cannot_be_bound(client: Client, pods: str, node: str) -> None:
    held = pod("held", schedulerName="none")
    held["metadata"]["finalizers"] = ["x/y"]
    await client.post(pods, held)
    await client.delete(f"{pods}/held")
    dying = await client.post(f"{pods}/held/binding", binding("held", node))
    why = "pod held is being deleted, cannot be assigned to a host"
    refused(dying, 409, "Conflict", f'Operation cannot be fulfilled on pods/binding "held": {why}')
    await client.patch(f"{pods}/held", {"metadata": {"finalizers": None}})


async def test_bindings_can_be_made_in_their_collection(client: Client, pods: str, node: str) -> None:
    await client.post(pods, pod("a", schedulerName="none"))
    collection = pods.removesuffix("pods") + "bindings"
    assert (await client.post(collection, binding("a", node))).status == 201
    assert (await client.get(f"{pods}/a")).body["spec"]["nodeName"] == node


async def test_a_node_is_assigned_by_binding_alone(client: Client, pods: str, node: str) -> None:
    await client.post(pods, pod("a", schedulerName="none"))
    wrong = await client.patch(f"{pods}/a", {"spec": {"nodeName": node}})
    assert (wrong.status, wrong.reason) == (422, "Invalid") and "pod updates may not change fields" in wrong.message
    # Created with a node the pod is bound from the beginning.
    made = await client.post(pods, pod("b", nodeName=node))
    assert made.status == 201 and made.body["spec"]["nodeName"] == node
