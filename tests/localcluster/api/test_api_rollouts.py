"""The steps of rollouts by themselves, and the controllers on a plain cluster."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.deployments import template_hash
from koord.localcluster.api.controllers.rollouts import Limits, Size, limits_of, new_size, old_sizes
from koord.localcluster.api.controllers.running import Controllers


@pytest.mark.parametrize(
    ("rolling", "wanted", "expected"),
    [
        ({}, 4, Limits(1, 1)),
        ({}, 1, Limits(1, 0)),
        ({"maxSurge": "30%", "maxUnavailable": "30%"}, 10, Limits(3, 3)),
        ({"maxSurge": 0, "maxUnavailable": 0}, 3, Limits(0, 1)),
        ({"maxSurge": 0, "maxUnavailable": "10%"}, 3, Limits(0, 1)),
        ({"maxSurge": 2, "maxUnavailable": 9}, 3, Limits(2, 3)),
    ],
)
def test_limits(rolling: dict[str, Any], wanted: int, expected: Limits) -> None:
    assert limits_of({"rollingUpdate": rolling}, wanted) == expected


@given(st.integers(0, 12), st.integers(0, 4), st.integers(0, 4), st.integers(0, 12), st.integers(1, 4))
def test_a_rollout_keeps_its_limits_and_arrives(
    wanted: int, surge: int, unavailable: int, before: int, pause: int
) -> None:
    limits = Limits(surge, unavailable if surge or unavailable else 1)
    new, old = Size("new", 0, 0, 0), Size("old", before, before, before)
    for step in range(200):
        if new.desired == new.available == wanted and old.desired == 0:
            return
        had = new.available + old.available
        target = new_size(new, [old], wanted, limits)
        if target != new.desired:
            assert target + old.desired <= max(wanted + limits.surge, new.desired + old.desired)
            new = new._replace(desired=target, replicas=target, available=min(new.available, target))
        else:
            count = old_sizes(new, [old], wanted, limits).get("old", old.desired)
            assert 0 <= count <= old.desired
            old = old._replace(desired=count, replicas=count, available=min(old.available, count))
        assert new.available + old.available >= min(had, wanted - limits.unavailable)
        if step % pause == 0:
            new = new._replace(available=new.desired)
    pytest.fail(f"stuck at {new} and {old}")


def test_pods_that_are_not_ready_go_first() -> None:
    new, broken, old = Size("new", 1, 1, 0), Size("broken", 2, 2, 0), Size("old", 3, 3, 3)
    assert old_sizes(new, [broken, old], 4, Limits(2, 1)) == {"broken": 0}


def test_the_name_of_a_template_is_that_of_its_content() -> None:
    one = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x"}]}}
    same = json.loads(json.dumps(dict(reversed(one.items()))))
    assert template_hash(one) == template_hash(same) != template_hash({**one, "spec": {}})
    assert len(template_hash(one)) == 10


def _deployment(image: str = "web:1", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    selector = {"matchLabels": {"app": "d"}}
    return {"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": selector, "template": template, **spec}}


class World:
    """A plain cluster with its controllers, and kubelets that make pods ready when told."""

    def __init__(self) -> None:
        self.cluster = Cluster(first_version=1)
        self.controllers = Controllers(self.cluster)
        self.controllers.listen()

    def resource(self, key: str) -> Any:
        return self.cluster.resource(key)

    def objects(self, key: str) -> list[dict[str, Any]]:
        return [json.loads(entry.raw) for entry in self.cluster.collection(self.resource(key)).entries("default")]

    def change(self, key: str, name: str, change: Any) -> None:
        self.cluster.patch(self.resource(key), "default", name, change)

    async def settle(self, *, ready: bool = True) -> None:
        for _ in range(20):
            await self.controllers.settle()
            if not ready:
                return
            for pod in self.objects("pods"):
                if pod["status"]["phase"] == "Pending":
                    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                    status = {**pod["status"], "phase": "Running", "conditions": [condition]}
                    changed = {**pod, "status": status}
                    self.cluster.replace(
                        self.resource("pods"), "default", pod["metadata"]["name"], changed, subresource="status"
                    )


async def test_old_sets_are_kept_as_long_as_the_history_says() -> None:
    world = World()
    world.cluster.create(world.resource("deployments.apps"), "default", _deployment(revisionHistoryLimit=1))
    await world.settle()
    for number in range(2, 5):
        image = f"web:{number}"
        world.change("deployments.apps", "d", lambda obj, image=image: {**obj, **_spec(obj, image)})
        await world.settle()
    sets = world.objects("replicasets.apps")
    images = {one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"] for one in sets}
    assert images == {"web:3": 0, "web:4": 2}
    (deployment,) = world.objects("deployments.apps")
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "4"
    assert deployment["status"]["availableReplicas"] == 2 and "unavailableReplicas" not in deployment["status"]


def _spec(obj: dict[str, Any], image: str) -> dict[str, Any]:
    return {"spec": {**obj["spec"], "template": _deployment(image)["spec"]["template"]}}


async def test_a_rollout_that_does_not_move_says_so() -> None:
    world = World()
    body = _deployment(progressDeadlineSeconds=1, minReadySeconds=0)
    world.cluster.create(world.resource("deployments.apps"), "default", body)
    await world.settle(ready=False)
    (deployment,) = world.objects("deployments.apps")
    progressing = next(one for one in deployment["status"]["conditions"] if one["type"] == "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "ReplicaSetUpdated")

    def long_ago(obj: dict[str, Any]) -> dict[str, Any]:
        conditions = [{**one, "lastUpdateTime": "2026-01-01T00:00:00Z"} for one in obj["status"]["conditions"]]
        return {**obj, "status": {**obj["status"], "conditions": conditions}}

    world.cluster.patch(world.resource("deployments.apps"), "default", "d", long_ago, subresource="status")
    await world.settle(ready=False)
    (deployment,) = world.objects("deployments.apps")
    progressing = next(one for one in deployment["status"]["conditions"] if one["type"] == "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")


async def test_settled_deployments_write_nothing() -> None:
    world = World()
    world.cluster.create(world.resource("deployments.apps"), "default", _deployment())
    await world.settle()
    version = world.cluster.store.version
    for key in ("deployments.apps", "replicasets.apps"):
        for obj in world.objects(key):
            place = (obj["metadata"]["namespace"], obj["metadata"]["name"])
            entry = world.cluster.collection(world.resource(key)).get(*place)
            world.controllers.deployments.on_write(world.resource(key), entry, None)
            world.controllers.replica_sets.on_write(world.resource(key), entry, None)
    await world.settle()
    assert world.cluster.store.version == version
