"""Claims on devices in the embedded API: what kubectl is told, their rules and columns, and the controller's work."""

import json
from typing import Any

import pytest

from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.running import Controllers
from koord.localcluster.api.inprocess import InProcessApi
from tests.localcluster.api.rig import Client, Kubectl

CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
GROUP = "/apis/resource.k8s.io/v1"
DEVICES = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}
FINALIZER = "resource.kubernetes.io/delete-protection"


def claim(name: str, **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "spec": {"devices": DEVICES}}


def template(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"metadata": {"labels": {"made": "here"}}, "spec": {"devices": DEVICES}},
    }


def pod(name: str, *entries: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "x"}], "resourceClaims": list(entries)},
    }


def test_defaults_rules_and_columns(client: Client, namespace: str, kubectl: Kubectl) -> None:
    path = f"{GROUP}/namespaces/{namespace}/resourceclaims"
    listed = {"name": "l", "firstAvailable": [{"name": "x", "deviceClassName": "gpu", "allocationMode": "All"}]}
    body = claim("c")
    body["spec"]["devices"] = {"requests": [*DEVICES["requests"], listed]}
    made = client.post(path, body)
    assert made.code == 201, made.body
    [first, second] = made.body["spec"]["devices"]["requests"]
    assert first["exactly"] == {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert second == listed
    assert made.body["status"] == {}
    changed = client.patch(f"{path}/c", {"spec": {"devices": DEVICES}})
    assert changed.code == 422
    assert "spec: Invalid value" in changed.body["message"] and "field is immutable" in changed.body["message"]
    for wrong, text in (
        ({"name": "r"}, "exactly one of `exactly` or `firstAvailable` is required"),
        ({"name": "r", "exactly": {}}, "requests[0].exactly.deviceClassName: Required value"),
        (
            {"name": "r", "exactly": {"deviceClassName": "g", "allocationMode": "No"}},
            'supported values: "All", "ExactC',
        ),
        ({"name": "r", "exactly": {"deviceClassName": "g", "selectors": [{}]}}, "selectors[0].cel: Required value"),
    ):
        refused = client.post(path, {"metadata": {"name": "w"}, "spec": {"devices": {"requests": [wrong]}}})
        assert refused.code == 422, refused.body
        assert text in refused.body["message"]
    status = {
        "allocation": {"devices": {"results": [{"request": "gpu", "driver": "x.io", "pool": "p", "device": "d"}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    shown = kubectl("get", "resourceclaims", "-n", namespace).stdout.splitlines()
    assert [line.split()[:2] for line in shown] == [["NAME", "STATE"], ["c", "pending"]]
    assert client.patch(f"{path}/c/status", {"status": {"allocation": status["allocation"]}}).code == 200
    assert kubectl("get", "resourceclaims", "-n", namespace).stdout.split()[4] == "allocated"


def test_classes_and_slices(client: Client, kubectl: Kubectl) -> None:
    slice_ = {
        "metadata": {"name": "devices-of-n1"},
        "spec": {
            "driver": "x.io",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d0", "taints": [{"key": "k", "effect": "NoSchedule"}]}],
        },
    }
    made = client.post(f"{GROUP}/resourceslices", slice_)
    assert made.code == 201, made.body
    assert made.body["spec"]["devices"][0]["taints"][0]["timeAdded"].endswith("Z")
    found = client.get(f"{GROUP}/resourceslices?fieldSelector=spec.nodeName%3Dn1").body["items"]
    assert [one["metadata"]["name"] for one in found] == ["devices-of-n1"]
    assert client.get(f"{GROUP}/resourceslices?fieldSelector=spec.driver%3Dy.io").body["items"] == []
    wide = kubectl("get", "resourceslices").stdout.splitlines()
    assert wide[0].split() == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert wide[1].split()[:4] == ["devices-of-n1", "n1", "x.io", "n1"]
    nowhere = {**slice_, "metadata": {"name": "w"}, "spec": {**slice_["spec"], "allNodes": True}}  # type: ignore[dict-item]
    assert "`perDeviceNodeSelection`" in client.post(f"{GROUP}/resourceslices", nowhere).body["message"]
    moved = client.patch(f"{GROUP}/resourceslices/devices-of-n1", {"spec": {"nodeName": "n2"}})
    assert moved.code == 422
    class_ = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}}
    assert client.post(f"{GROUP}/deviceclasses", class_).code == 201
    assert client.delete(f"{GROUP}/deviceclasses/gpu").body["kind"] == "DeviceClass"
    assert client.delete(f"{GROUP}/resourceslices/devices-of-n1").code == 200


class World:
    """A plain cluster with its controllers."""

    def __init__(self) -> None:
        self.cluster = Cluster(first_version=1)
        self.api = InProcessApi(self.cluster, "test")
        self.controllers = Controllers(self.cluster)
        self.controllers.listen()

    async def create(self, key: str, body: dict[str, Any]) -> None:
        await self.api.create(key, "default", body)

    def get(self, key: str, name: str) -> dict[str, Any] | None:
        entry = self.cluster.collection(self.cluster.resource(key)).get("default", name)
        return None if entry is None else json.loads(entry.raw)

    def claims(self) -> list[dict[str, Any]]:
        entries = self.cluster.collection(self.cluster.resource(CLAIMS)).entries("default")
        return [json.loads(entry.raw) for entry in entries]

    async def change(self, key: str, name: str, change: dict[str, Any], subresource: str | None = None) -> None:
        await self.api.patch(key, "default", name, change, subresource=subresource)

    async def allocate(self, name: str, *users: str) -> None:
        result = {"request": "gpu", "driver": "x.io", "pool": "p", "device": "d"}
        pods = [(user, self.get("pods", user)) for user in users]
        reserved = [
            {"resource": "pods", "name": user, "uid": body["metadata"]["uid"]}
            for user, body in pods
            if body is not None
        ]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
        await self.change(CLAIMS, name, {"metadata": {"finalizers": [FINALIZER]}})
        await self.change(CLAIMS, name, {"status": status}, "status")

    async def settle(self) -> None:
        await self.controllers.settle()


@pytest.fixture
def world() -> World:
    return World()


async def test_claims_are_made_of_templates(world: World) -> None:
    entry = {"name": "dev", "resourceClaimTemplateName": "t"}
    await world.create("pods", pod("p", entry, {"name": "own", "resourceClaimName": "c"}))
    await world.settle()
    assert world.claims() == []
    [event] = world.cluster.collection(world.cluster.resource("events")).entries("default")
    told = json.loads(event.raw)
    assert told["reason"] == "FailedResourceClaimCreation"
    assert 'PodResourceClaim dev: resource claim template "t"' in told["message"]
    await world.create(TEMPLATES, template("t"))
    await world.settle()
    [made] = world.claims()
    meta, shown = made["metadata"], world.get("pods", "p")
    assert shown is not None
    assert meta["name"].startswith("p-dev-")
    assert meta["labels"] == {"made": "here"}
    assert meta["annotations"] == {"resource.kubernetes.io/pod-claim-name": "dev"}
    [owner] = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", shown["metadata"]["uid"], True)
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert shown["status"]["resourceClaimStatuses"] == [{"name": "dev", "resourceClaimName": meta["name"]}]
    # Had it ended before the pod was told, the next one would tell it the same claim.
    await world.change("pods", "p", {"status": {"resourceClaimStatuses": None}}, "status")
    await world.settle()
    assert len(world.claims()) == 1
    again = world.get("pods", "p")
    assert again is not None and again["status"] == shown["status"]
    # It goes with its pod.
    await world.allocate(meta["name"], "p")
    await world.settle()
    await world.api.delete("pods", "default", "p")
    await world.settle()
    assert world.claims() == []


async def test_devices_are_free_when_nobody_uses_the_claim(world: World) -> None:
    await world.create(CLAIMS, claim("c"))
    for name in ("p", "q"):
        await world.create("pods", pod(name, {"name": "e", "resourceClaimName": "c"}))
    await world.allocate("c", "p", "q")
    await world.settle()
    await world.change("pods", "p", {"status": {"phase": "Succeeded"}}, "status")
    await world.settle()
    [found] = world.claims()
    assert [user["name"] for user in found["status"]["reservedFor"]] == ["q"]
    # Deleted while it is used it stays, and goes after the last user.
    await world.api.delete(CLAIMS, "default", "c")
    await world.settle()
    [found] = world.claims()
    assert found["metadata"]["deletionTimestamp"] and found["status"]["allocation"]
    await world.api.delete("pods", "default", "q")
    await world.settle()
    assert world.claims() == []
