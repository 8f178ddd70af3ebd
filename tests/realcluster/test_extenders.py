"""One extender for kube-scheduler and koord's scheduler: both ask it the same, and heed it alike."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord.cli.api import connect
from koord.localcluster.httpapi import HttpClusterApi
from tests.integration.exactly_once import until
from tests.realcluster.fixtures import MakeControlPlane
from tests.realcluster.koord import koord_up
from tests.scheduler.extenders.servers import ExtenderServer, extender, only, rating

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCHEDULERS = ("default-scheduler", "koord-scheduler")
NODES = ("ext-a", "ext-b", "ext-c", "ext-d")
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "64Gi", "pods": "110"}
    labels = {"koord.sh/fake-node": "true", "kubernetes.io/hostname": name}
    meta = {"name": name, "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(scheduler: str, name: str, **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x/y:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = {
        "schedulerName": scheduler,
        "containers": [container],
        "nodeSelector": {"koord.sh/fake-node": "true"},
        **more,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def whole(question: dict[str, Any]) -> dict[str, Any]:
    """Of an extender that is shown whole nodes: refuses one of them, and one for good."""
    shown = {item["metadata"]["name"]: item for item in question["Nodes"]["items"]}
    return {
        "Nodes": {"items": [item for name, item in shown.items() if name not in ("ext-a", "ext-d")]},
        "FailedNodes": {"ext-a": "no room for such"} if "ext-a" in shown else None,
        "FailedAndUnresolvableNodes": {"ext-d": "never here"} if "ext-d" in shown else None,
    }


def asked_about(server: ExtenderServer, verb: str, name: str) -> dict[str, Any]:
    """The last question about a pod."""
    return [question for question in server.of(verb) if question["Pod"]["metadata"]["name"] == name][-1]


def comparable(question: dict[str, Any]) -> dict[str, Any]:
    """What must be the same in questions of both, about pods that differ in name and scheduler alone."""
    found: dict[str, Any] = json.loads(json.dumps(question))
    subject, nodes = found["Pod"], found["Nodes"]
    for key in ("name", "uid", "resourceVersion", "creationTimestamp", "managedFields", "annotations"):
        subject["metadata"].pop(key, None)
    subject["spec"].pop("schedulerName")
    volumes = {volume["name"] for volume in subject["spec"].pop("volumes", [])}
    for container in subject["spec"]["containers"]:
        mounts = container.pop("volumeMounts", [])
        assert {mount["name"] for mount in mounts} <= volumes
    subject.pop("status")
    for each in (subject, *(nodes["items"] if nodes else ())):
        each.pop("kind", None)
        each.pop("apiVersion", None)
    if nodes is not None:
        assert all(item["status"]["allocatable"]["cpu"] == "4" for item in nodes["items"])
        found["Nodes"] = sorted(item["metadata"]["name"] for item in nodes["items"])
    if found["NodeNames"] is not None:
        found["NodeNames"] = sorted(found["NodeNames"])
    return found


async def test_both_schedulers_ask_one_extender_the_same(make_control_plane: MakeControlPlane, tmp_path: Path) -> None:
    plane = await make_control_plane()
    await plane.start_controller_manager()
    async with (
        extender(filter=only("ext-a", "ext-b", "ext-c", "ext-d"), rate=rating(**{"ext-b": 1, "ext-c": 9})) as named,
        extender(filter=whole) as shown,
    ):
        blocks = [
            {
                "urlPrefix": named.url(),
                "filterVerb": "filter",
                "prioritizeVerb": "rate",
                "weight": 100,
                "nodeCacheCapable": True,
            },
            {"urlPrefix": shown.url(), "filterVerb": "filter"},
        ]
        await plane.start_scheduler(config={"extenders": blocks})
        file, settings = tmp_path / "scheduler.yaml", tmp_path / "settings.yaml"
        profiles = [{"schedulerName": "koord-scheduler"}]
        file.write_text(yaml.safe_dump({**HEAD, "profiles": profiles, "extenders": blocks}))
        settings.write_text(yaml.safe_dump({"scheduler": {"config": str(file)}}))
        up = await asyncio.to_thread(
            koord_up, tmp_path, plane, "--nodes", "1", "--operators", "none", "--config", str(settings)
        )
        try:
            async with await connect(str(plane.kubeconfig)) as api:
                await api.patch("nodes", None, "node-00001", {"spec": {"unschedulable": True}})
                for name in NODES:
                    await api.create("nodes", None, node(name))
                await until(lambda: _all_ready(api), 60)
                for scheduler in SCHEDULERS:
                    await api.create("pods", "default", pod(scheduler, f"of-{scheduler}"))
                    affinity = {"kubernetes.io/hostname": "ext-a"}
                    selector = {"koord.sh/fake-node": "true", **affinity}
                    await api.create("pods", "default", pod(scheduler, f"no-{scheduler}", nodeSelector=selector))
                for scheduler in SCHEDULERS:
                    await until(lambda name=f"of-{scheduler}": _is_on(api, name, "ext-c"), 60)  # type: ignore[misc]
                texts = [await _refusal(api, f"no-{scheduler}") for scheduler in SCHEDULERS]
        finally:
            await asyncio.to_thread(up.stop)
    for server, verb in ((named, "filter"), (shown, "filter"), (named, "rate")):
        theirs, ours = (comparable(asked_about(server, verb, f"of-{scheduler}")) for scheduler in SCHEDULERS)
        assert ours == theirs
    assert "1 no room for such" in texts[0]
    assert [text.partition(". ")[0] for text in texts] == [texts[0].partition(". ")[0]] * 2


async def _all_ready(api: HttpClusterApi) -> bool:
    nodes, _ = await api.list("nodes")
    there = {item["metadata"]["name"] for item in nodes if not item["spec"].get("taints")}
    return there >= set(NODES)


async def _is_on(api: HttpClusterApi, name: str, node_name: str) -> bool:
    return bool((await api.get("pods", "default", name))["spec"].get("nodeName") == node_name)


async def _refusal(api: HttpClusterApi, name: str) -> str:
    """The message of a pod's PodScheduled condition."""
    found: list[str] = []

    async def told() -> bool:
        conditions = (await api.get("pods", "default", name))["status"].get("conditions", [])
        found[:] = [each["message"] for each in conditions if each["type"] == "PodScheduled" and each.get("message")]
        return bool(found)

    await until(told, 60)
    return found[0]


@pytest.mark.since("1.28", "the gateway asks who it is, and webhooks have match conditions")
async def test_an_extender_binds_though_every_binding_is_asked_about(
    make_control_plane: MakeControlPlane, tmp_path: Path
) -> None:
    """With ``foreign_bindings: require`` the extender is somebody else; what koord has claimed for the pod lets it."""
    plane = await make_control_plane()
    await plane.start_controller_manager()
    # Not the administrator of `koord up`: who the gateway is, is not asked about.
    other = plane.kubeconfig_for("extender", ["system:masters"])
    async with await connect(str(other)) as somebody, extender() as server:

        async def bind(question: dict[str, Any]) -> dict[str, Any]:
            name, target = question["PodName"], {"apiVersion": "v1", "kind": "Node", "name": question["Node"]}
            meta = {"name": name, "namespace": question["PodNamespace"], "uid": question["PodUID"]}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
            await somebody.create_at(f"/api/v1/namespaces/default/pods/{name}/binding", body)
            return {"Error": ""}

        server.answers["bind"] = bind
        file, settings = tmp_path / "scheduler.yaml", tmp_path / "settings.yaml"
        block = {"urlPrefix": server.url(), "bindVerb": "bind"}
        profiles = [{"schedulerName": "koord-scheduler"}]
        file.write_text(yaml.safe_dump({**HEAD, "profiles": profiles, "extenders": [block]}))
        config = {"scheduler": {"config": str(file)}, "gateway": {"foreign_bindings": "require"}}
        settings.write_text(yaml.safe_dump(config))
        up = await asyncio.to_thread(
            koord_up, tmp_path, plane, "--nodes", "1", "--operators", "none", "--config", str(settings)
        )
        try:
            async with await connect(str(plane.kubeconfig)) as api:
                await until(lambda: _asks(api), 60)
                for number in range(3):
                    spec = {"nodeSelector": None, "tolerations": [{"operator": "Exists"}]}
                    await api.create("pods", "default", pod("koord-scheduler", f"by-extender-{number}", **spec))
                for number in range(3):
                    await until(lambda name=f"by-extender-{number}": _is_on(api, name, "node-00001"), 60)  # type: ignore[misc]
                events, _ = await api.list("events", "default")
                assert not [event for event in events if event["reason"] in ("BindingRefused", "FailedScheduling")]
        finally:
            await asyncio.to_thread(up.stop)
    assert len(server.of("bind")) == 3


async def _asks(api: HttpClusterApi) -> bool:
    hooks, _ = await api.list("validatingwebhookconfigurations.admissionregistration.k8s.io")
    return [hook["metadata"]["name"] for hook in hooks] == ["koord-foreign-bindings"]
