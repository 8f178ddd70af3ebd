"""Disruption budgets on the store alone: whose pods count, what is looked at, what passes with time."""

import json
from pathlib import Path
from typing import Any

import pytest

from koord.localcluster.api.budgets import KEY
from koord.localcluster.api.builtin import PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers import disruption
from koord.localcluster.api.controllers.disruption import DisruptionController
from koord.localcluster.api.eviction import evict
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.journal import Journal
from koord.localcluster.clusterapi import ApiError, Object

LABELS = {"app": "web"}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "x"}]}}


class Rig:
    """A cluster whose disruption controller works when it is told to, and nobody else does."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api = InProcessApi(cluster)
        self.controller = DisruptionController(cluster, self.api)
        self.controller.start()

    async def pod(self, name: str, owner: Object | None = None, labels: dict[str, str] | None = None) -> None:
        metadata: Object = {"name": name, "labels": LABELS if labels is None else labels}
        if owner is not None:
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        await self.api.create("pods", "default", {"metadata": metadata, "spec": dict(TEMPLATE["spec"])})
        await self.api.patch("pods", "default", name, {"status": READY}, subresource="status")

    async def budget(self, **spec: Any) -> Object:
        body = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": LABELS}, **spec}}
        await self.api.create(KEY, "default", body)
        return await self.status()

    async def status(self) -> Object:
        await self.controller.queue.settle()
        status: Object = (await self.api.get(KEY, "default", "web"))["status"]
        return status

    async def owner(self, key: str, name: str, spec: Object, *above: Object) -> Object:
        body: Object = {"metadata": {"name": name}, "spec": spec}
        if above:
            body["metadata"]["ownerReferences"] = [{**owner, "controller": True} for owner in above]
        made = json.loads(await self.api.create(key, "default", body))
        return {
            "apiVersion": made["apiVersion"],
            "kind": made["kind"],
            "name": name,
            "uid": made["metadata"]["uid"],
        }

    def evict(self, name: str) -> None:
        evict(self.cluster, "default", name, {"metadata": {"name": name}})


@pytest.fixture
def rig(plain: Cluster) -> Rig:
    return Rig(plain)


def workload(replicas: int) -> Object:
    template = json.loads(json.dumps(TEMPLATE))
    return {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template}


async def test_scales_of_deployments_sets_and_controllers_are_added_up(rig: Rig) -> None:
    deployment = await rig.owner("deployments.apps", "d", workload(4))
    below = await rig.owner("replicasets.apps", "d-1", workload(9), deployment)
    alone = await rig.owner("replicasets.apps", "r", workload(3))
    ordered = await rig.owner("statefulsets.apps", "s", {**workload(2), "serviceName": "s"})
    classic = await rig.owner("replicationcontrollers", "c", {**workload(1), "selector": LABELS})
    for name, owner in (("a", below), ("b", below), ("c", alone), ("d", ordered), ("e", classic)):
        await rig.pod(name, owner)
    status = await rig.budget(maxUnavailable="25%")
    assert status["expectedPods"] == 4 + 3 + 2 + 1
    assert (status["currentHealthy"], status["desiredHealthy"]) == (5, 7)
    assert status["disruptionsAllowed"] == 0


async def test_a_controller_that_is_gone_lets_nothing_be_evicted(rig: Rig) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u"}
    await rig.pod("a", owner)
    status = await rig.budget(minAvailable="10%")
    condition = status["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("SyncFailed", 'found no controllers for pod "a"')
    # Its generation was never taken in, so an eviction is told to come again.
    with pytest.raises(ApiError, match="violate the pod's disruption budget") as refused:
        rig.evict("a")
    assert refused.value.details is not None
    assert refused.value.details["retryAfterSeconds"] == 10
    assert refused.value.details["causes"][0]["message"] == (
        "The disruption budget web is still being processed by the server."
    )


async def test_an_eviction_takes_its_disruption_before_the_controller_counts_again(rig: Rig) -> None:
    rig.cluster.graceful_pods = True
    for name in ("a", "b", "c"):
        await rig.pod(name)
        await rig.api.patch("pods", "default", name, {"metadata": {"finalizers": ["example.com/hold"]}})
    assert (await rig.budget(minAvailable=2))["disruptionsAllowed"] == 1
    rig.evict("a")
    entry = rig.cluster.find(rig.cluster.resource(KEY), "default", "web")
    taken = json.loads(entry.raw)["status"]
    assert taken["disruptionsAllowed"] == 0 and list(taken["disruptedPods"]) == ["a"]
    assert taken["conditions"][0]["reason"] == "InsufficientPods"
    with pytest.raises(ApiError, match="violate"):
        rig.evict("b")
    status = await rig.status()
    assert "disruptedPods" not in status and (status["currentHealthy"], status["disruptionsAllowed"]) == (2, 0)


async def test_a_pod_that_stays_after_its_eviction_counts_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.pod("a")
    await rig.budget(minAvailable=0)
    stamp = rig.cluster.clock.now()
    body = {"status": {"disruptedPods": {"a": stamp, "nobody": stamp}}}
    await rig.api.patch(KEY, "default", "web", body, subresource="status")
    status = await rig.status()
    assert status["disruptedPods"] == {"a": stamp}, "who is not there is not waited for"
    assert (status["currentHealthy"], status["expectedPods"]) == (0, 1)
    monkeypatch.setattr(disruption, "DELETION_TIMEOUT_S", -5.0)
    await rig.api.patch("pods", "default", "a", {"metadata": {"annotations": {"x": "y"}}})
    status = await rig.status()
    assert "disruptedPods" not in status and status["currentHealthy"] == 1


async def test_only_the_pods_and_budgets_concerned_are_looked_at(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(300):
        await rig.pod(f"other-{i}", labels={"app": "db"})
    for i in range(50):
        await rig.pod(f"web-{i}")
    await rig.budget(minAvailable=40)
    reads = 0
    real = disruption._read

    def counting(entry: Any) -> Any:
        nonlocal reads
        reads += 1
        return real(entry)

    monkeypatch.setattr(disruption, "_read", counting)
    await rig.api.patch("pods", "default", "other-1", {"metadata": {"labels": {"x": "y"}}})
    assert rig.controller.queue.idle and (await rig.status())["currentHealthy"] == 50
    await rig.api.patch("pods", "default", "web-1", {"status": {"conditions": None}}, subresource="status")
    assert (await rig.status())["currentHealthy"] == 49 and reads == 1
    await rig.api.patch("pods", "default", "web-2", {"metadata": {"labels": {"app": "db"}}})
    status = await rig.status()
    assert (status["currentHealthy"], status["expectedPods"], reads) == (48, 49, 1)
    await rig.api.patch("pods", "default", "other-1", {"metadata": {"labels": {"app": "web"}}})
    assert (await rig.status())["expectedPods"] == 50 and reads == 2
    await rig.api.delete("pods", "default", "web-3")
    assert (await rig.status())["expectedPods"] == 49
    selector = {"spec": {"selector": {"matchLabels": {"app": "db"}}}}
    await rig.api.patch(KEY, "default", "web", selector)
    assert (await rig.status())["expectedPods"] == 300
    await rig.api.delete(KEY, "default", "web")
    await rig.api.patch("pods", "default", "web-4", {"metadata": {"labels": {"x": "y"}}})
    assert rig.controller.queue.idle


async def test_numbers_that_do_not_change_make_no_version(rig: Rig) -> None:
    await rig.pod("a")
    await rig.budget(minAvailable=1)
    before = rig.cluster.find(rig.cluster.resource(KEY), "default", "web").version
    await rig.api.patch("pods", "default", "a", {"metadata": {"annotations": {"x": "y"}}})
    await rig.status()
    assert rig.cluster.find(rig.cluster.resource(KEY), "default", "web").version == before


async def test_budgets_are_counted_again_after_a_restart(tmp_path: Path) -> None:
    first = Rig(Cluster(journal=Journal(tmp_path)))
    for name in ("a", "b"):
        await first.pod(name)
    await first.budget(minAvailable=1)
    await first.api.delete("pods", "default", "a")  # nobody has counted this
    again = Rig(Cluster(journal=Journal(tmp_path)))
    status = await again.status()
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (1, 0)


async def test_a_bent_pod_or_budget_stops_nobody(rig: Rig) -> None:
    await rig.pod("a")
    collection = rig.cluster.collection(PODS)
    bent = json.loads(rig.cluster.find(PODS, "default", "a").raw)
    bent["metadata"]["name"], bent["metadata"]["uid"] = "bent", "bent"
    bent["status"]["conditions"] = "none"
    collection.put(bent, rig.cluster.store.next_version())
    status = await rig.budget(minAvailable=1)
    assert (status["currentHealthy"], status["expectedPods"]) == (1, 2)
