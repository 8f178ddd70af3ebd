"""Pods of deleted nodes: ended and deleted after a while, as kube-controller-manager's collector does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.clusterapi import Object
from tests.localcluster.embedded import bind, embedded, until
from tests.localcluster.kubelets.test_fleet import in_phase, pod, running

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "foreign"}}


async def test_pods_of_a_deleted_node_go_and_those_of_others_stay() -> None:
    api = embedded()
    async with running(api, nodes=2, gc_delay_s=0.3):
        for name, node in (("lost", "node-00001"), ("over", "node-00001"), ("kept", "node-00002")):
            made = pod(name, policy="Never", run_seconds="0") if name == "over" else pod(name)
            await api.create("pods", "default", made)
            await bind(api, name, node)
            await in_phase(api, name, "Succeeded" if name == "over" else "Running")
        async with deleted(api) as last:
            await api.delete("nodes", None, "node-00001")
            for name in ("lost", "over"):
                await in_phase(api, name, "gone")

            async def both() -> bool:
                return len(last) == 2

            await until(both)
        assert (await api.get("pods", "default", "kept"))["status"]["phase"] == "Running"
        assert last["lost"]["status"]["phase"] == "Failed"
        (condition,) = [entry for entry in last["lost"]["status"]["conditions"] if entry["type"] == "DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "DeletionByPodGC")
        assert last["over"]["status"]["phase"] == "Succeeded", "what has ended keeps its phase"


async def test_a_node_that_comes_back_keeps_its_pods() -> None:
    api = embedded()
    async with running(api, nodes=1, gc_delay_s=3600):
        await api.create("pods", "default", pod("stays"))
        await bind(api, "stays", "node-00001")
        await in_phase(api, "stays", "Running")
        node = await api.get("nodes", None, "node-00001")
        await api.delete("nodes", None, "node-00001")
        labels = node["metadata"]["labels"]
        await api.create("nodes", None, {"metadata": {"name": "node-00001", "labels": labels}})
        assert (await in_phase(api, "stays", "Running"))["spec"]["nodeName"] == "node-00001"


async def test_nodes_of_others_are_left_alone_while_they_exist() -> None:
    """A pod on a node that has a real kubelet, and one on a node that never was."""
    api = embedded()
    await api.create("nodes", None, NODE)
    async with running(api, nodes=1, gc_delay_s=0.2):
        await api.create("pods", "default", pod("guest"))
        await bind(api, "guest", "foreign")
        await api.create("pods", "default", pod("nowhere", node="never-was"))
        await in_phase(api, "nowhere", "gone")
        assert (await api.get("pods", "default", "guest"))["spec"]["nodeName"] == "foreign"
        await api.delete("nodes", None, "foreign")
        await in_phase(api, "guest", "gone")


@asynccontextmanager
async def deleted(api: InProcessApi) -> AsyncIterator[dict[str, Object]]:
    """The last states of pods that are deleted meanwhile, by name."""
    last: dict[str, Object] = {}

    async def follow() -> None:
        async for batch in api.watch("pods"):
            last.update({event.name: json.loads(event.raw) for event in batch if event.type == "DELETED"})

    task = asyncio.create_task(follow())
    yield last
    task.cancel()
    await asyncio.wait({task})
