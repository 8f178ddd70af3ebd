"""The garbage collector and the namespace controller on the store alone: what is woken, in which order, how much."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from koord.localcluster.api.builtin import NAMESPACES, PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.running import Controllers
from koord.localcluster.api.deleteoptions import DeleteOptions
from koord.localcluster.api.deletion import delete
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.journal import Journal
from koord.localcluster.clusterapi import ApiError, Object


class Rig:
    """A cluster whose controllers work when they are told to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api = InProcessApi(cluster)
        self.controllers = Controllers(cluster)
        self.controllers.listen()

    def make(self, name: str, *owners: Object, key: str = "configmaps", **metadata: Any) -> Object:
        """A ConfigMap (or another object without a spec) with owners; answers a reference to it."""
        resource = self.cluster.resource(key)
        body: Object = {"metadata": {"name": name, **metadata}}
        if owners:
            body["metadata"]["ownerReferences"] = list(owners)
        raw = self.cluster.create(resource, "default" if resource.namespaced else None, body)
        made = json.loads(raw)
        return reference(resource.api_version, resource.kind, name, made["metadata"]["uid"])

    def delete(self, name: str, policy: str | None = None, key: str = "configmaps") -> None:
        delete(self.cluster, self.cluster.resource(key), "default", name, DeleteOptions(propagation_policy=policy))

    def names(self, key: str = "configmaps") -> list[str]:
        return [entry.name for entry in self.cluster.collection(self.cluster.resource(key)).entries()]

    def metadata(self, name: str, key: str = "configmaps") -> Object:
        entry = self.cluster.find(self.cluster.resource(key), "default", name)
        metadata: Object = json.loads(entry.raw)["metadata"]
        return metadata

    async def settle(self) -> None:
        await self.controllers.settle()


@pytest.fixture
def rig(plain: Cluster) -> Rig:
    return Rig(plain)


def reference(api_version: str, kind: str, name: str, uid: str, **more: bool) -> Object:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, **more}


async def test_dependents_of_dependents_go_in_the_background(rig: Rig) -> None:
    a = rig.make("a")
    b = rig.make("b", a)
    rig.make("c", b)
    rig.make("other")
    rig.delete("a")
    assert rig.names() == ["b", "c", "other"]
    await rig.settle()
    assert rig.names() == ["other"]


async def test_an_object_stays_while_one_of_its_owners_is_there(rig: Rig) -> None:
    a, b = rig.make("a"), rig.make("b")
    rig.make("c", a, b)
    rig.delete("a")
    await rig.settle()
    assert rig.metadata("c")["ownerReferences"] == [b]
    rig.delete("b")
    await rig.settle()
    assert rig.names() == []


async def test_orphans_lose_the_reference_and_stay(rig: Rig) -> None:
    a = rig.make("a")
    rig.make("b", a)
    rig.delete("a", "Orphan")
    assert rig.metadata("a")["finalizers"] == ["orphan"]
    await rig.settle()
    assert rig.names() == ["b"]
    assert "ownerReferences" not in rig.metadata("b")


async def test_an_owner_in_the_foreground_waits_for_those_that_block_it(rig: Rig) -> None:
    a = rig.make("a")
    rig.make("blocks", {**a, "blockOwnerDeletion": True}, finalizers=["example.com/hold"])
    rig.make("free", a, finalizers=["example.com/hold"])
    rig.delete("a", "Foreground")
    await rig.settle()
    assert rig.metadata("a")["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in rig.metadata("blocks") and "deletionTimestamp" in rig.metadata("free")
    await rig.api.patch("configmaps", "default", "blocks", {"metadata": {"finalizers": None}})
    await rig.settle()
    assert rig.names() == ["free"]


async def test_a_dependent_that_no_longer_blocks_lets_its_owner_go(rig: Rig) -> None:
    a = rig.make("a")
    rig.make("b", {**a, "blockOwnerDeletion": True}, finalizers=["example.com/hold"])
    rig.delete("a", "Foreground")
    await rig.settle()
    assert "a" in rig.names()
    await rig.api.patch("configmaps", "default", "b", {"metadata": {"ownerReferences": [a]}})
    await rig.settle()
    assert rig.names() == ["b"]


async def test_a_circle_is_deleted_in_the_foreground(rig: Rig) -> None:
    a = rig.make("a")
    b = rig.make("b", {**a, "blockOwnerDeletion": True})
    await rig.api.patch(
        "configmaps", "default", "a", {"metadata": {"ownerReferences": [{**b, "blockOwnerDeletion": True}]}}
    )
    rig.delete("a", "Foreground")
    await rig.settle()
    assert rig.names() == []


@pytest.mark.parametrize("wrong", [{"uid": "another"}, {"name": "nobody"}, {"kind": "Secret"}])
async def test_an_owner_must_be_what_the_reference_says(rig: Rig, wrong: Object) -> None:
    rig.make("b", {**rig.make("a"), **wrong})
    await rig.settle()
    assert rig.names() == ["a"]


async def test_an_owner_of_a_kind_that_nobody_serves_decides_nothing(rig: Rig) -> None:
    owner = reference("example.com/v1", "Widget", "w", "u")
    rig.make("b", owner)
    await rig.settle()
    assert rig.names() == ["b"]
    definition: Object = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    await rig.api.create("customresourcedefinitions.apiextensions.k8s.io", None, definition)
    await rig.settle()
    assert rig.names() == []
    widget = json.loads(await rig.api.create("widgets.example.com", "default", {"metadata": {"name": "w"}}))
    rig.make("c", {**owner, "uid": widget["metadata"]["uid"]})
    await rig.settle()
    assert rig.names() == ["c"]
    crds = "customresourcedefinitions.apiextensions.k8s.io"
    await rig.api.delete(crds, None, "widgets.example.com")
    with pytest.raises(ApiError, match="create not allowed while custom resource definition is terminating"):
        await rig.api.create("widgets.example.com", "default", {"metadata": {"name": "late"}})
    await rig.settle()
    assert rig.names() == [] and "widgets.example.com" not in rig.cluster.registry.resources


async def test_an_owner_in_another_namespace_is_absent_and_an_event_says_so(rig: Rig) -> None:
    a = rig.make("a")
    await rig.api.create("namespaces", None, {"metadata": {"name": "team"}})
    body: Object = {"metadata": {"name": "b", "ownerReferences": [a]}}
    await rig.api.create("configmaps", "team", body)
    await rig.settle()
    assert rig.names() == ["a"]
    events, _ = await rig.api.list("events", "team")
    assert [event["reason"] for event in events] == ["OwnerRefInvalidNamespace"]
    assert events[0]["message"] == (
        f'ownerRef [v1/ConfigMap, namespace: team, name: a, uid: {a["uid"]}] does not exist in namespace "team"'
    )


async def test_a_new_dependent_of_an_owner_that_is_gone_goes(rig: Rig) -> None:
    a = rig.make("a")
    rig.delete("a")
    rig.make("late", a)
    await rig.settle()
    assert rig.names() == []


async def test_jobs_leave_their_pods_unless_told_otherwise(rig: Rig) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    jobs = rig.cluster.resource("jobs.batch")
    for name, policy in (("left", None), ("taken", "Background")):
        job = json.loads(
            rig.cluster.create(jobs, "default", {"metadata": {"name": name}, "spec": {"template": template}})
        )
        owner = reference("batch/v1", "Job", name, job["metadata"]["uid"], controller=True, blockOwnerDeletion=True)
        pod = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": template["spec"]}
        rig.cluster.create(PODS, "default", json.loads(json.dumps(pod)))
        rig.delete(name, policy, "jobs.batch")
    await rig.settle()
    assert rig.names("jobs.batch") == [] and rig.names("pods") == ["left"]


async def test_work_grows_with_what_a_write_concerns_not_with_what_there_is(rig: Rig) -> None:
    for i in range(2_000):
        rig.make(f"bystander-{i}")
    owner = rig.make("owner")
    for i in range(500):
        rig.make(f"dependent-{i}", {**owner, "blockOwnerDeletion": True})
    looked = 0
    handle = rig.controllers.collector._handle

    async def counting(place: Any) -> None:
        nonlocal looked
        looked += 1
        await handle(place)

    rig.controllers.collector.queue._handle = counting
    rig.delete("owner", "Foreground")
    await rig.settle()
    assert len(rig.names()) == 2_000
    # The owner, its dependents, and the owner again after them.
    assert looked <= 2 * 500 + 10


async def test_deletions_go_on_after_a_restart(tmp_path: Path) -> None:
    first = Rig(Cluster(journal=Journal(tmp_path)))
    a = first.make("a")
    first.make("b", {**a, "blockOwnerDeletion": True})
    c = first.make("c")
    first.make("d", c)
    first.delete("a", "Foreground")
    first.delete("c")
    await first.api.create("namespaces", None, {"metadata": {"name": "team"}})
    await first.api.create("configmaps", "team", {"metadata": {"name": "x"}})
    await first.api.delete("namespaces", None, "team")
    assert first.names() == ["a", "b", "d", "x"]
    again = Rig(Cluster(journal=Journal(tmp_path)))
    await again.settle()
    assert again.names() == []
    assert again.cluster.collection(NAMESPACES).get("", "team") is None


async def test_a_refused_deletion_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    a = rig.make("a")
    rig.make("b", a)
    rig.delete("a")
    refuse = True
    real = rig.controllers.collector._api.delete

    async def delete_unless_full(*arguments: Any, **options: Any) -> None:
        if refuse:
            raise ApiError(507, "InsufficientStorage", "the disk is full")
        await real(*arguments, **options)

    monkeypatch.setattr(rig.controllers.collector._api, "delete", delete_unless_full)
    await rig.settle()
    assert rig.names() == ["b"]
    refuse = False
    deadline = time.monotonic() + 60
    while rig.names():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
        await rig.settle()


async def test_a_namespace_says_what_holds_it(rig: Rig) -> None:
    await rig.api.create("namespaces", None, {"metadata": {"name": "team"}})
    held: Object = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    await rig.api.create("configmaps", "team", held)
    await rig.api.create("configmaps", "team", {"metadata": {"name": "free"}})
    await rig.api.delete("namespaces", None, "team")
    await rig.settle()
    assert rig.names() == ["held"]
    namespace = await rig.api.get("namespaces", None, "team")
    assert namespace["status"]["phase"] == "Terminating" and namespace["spec"] == {"finalizers": ["kubernetes"]}
    told = {item["type"]: (item["status"], item["message"]) for item in namespace["status"]["conditions"]}
    assert told["NamespaceContentRemaining"] == (
        "True",
        "Some resources are remaining: configmaps. has 1 resource instances",
    )
    assert told["NamespaceFinalizersRemaining"] == (
        "True",
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
    )
    assert told["NamespaceDeletionContentFailure"][0] == "False" and len(told) == 5
    await rig.api.patch("configmaps", "team", "held", {"metadata": {"finalizers": None}})
    await rig.settle()
    assert rig.cluster.collection(NAMESPACES).get("", "team") is None and not rig.cluster.terminating


async def test_a_policy_that_changes_its_mind_spares_the_dependents(rig: Rig) -> None:
    a = rig.make("a", finalizers=["example.com/hold"], annotations={"note": '"foregroundDeletion"'})
    rig.delete("a", "Foreground")
    rig.delete("a", "Orphan")
    rig.make("b", a)
    await rig.settle()
    assert rig.metadata("a")["finalizers"] == ["example.com/hold"]
    assert "ownerReferences" not in rig.metadata("b")
