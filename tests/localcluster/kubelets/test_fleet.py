"""Fake kubelets on the embedded API server's store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.clusterapi import ApiError, Object
from koord.localcluster.kubelets.fleet import Fleet
from koord.localcluster.kubelets.options import KubeletOptions
from tests.localcluster.embedded import bind, embedded, until


@asynccontextmanager
async def running(api: InProcessApi, **options: Any) -> AsyncIterator[Fleet]:
    fleet = Fleet(api, KubeletOptions(**{"nodes": 2, "start_s": 0.0, "stop_s": 0.0, **options}))
    await fleet.start()
    try:
        yield fleet
        assert not any(task.done() for task in fleet.tasks), "a task of the fleet died"
    finally:
        await fleet.stop()


def pod(name: str, *, node: str = "", policy: str = "Always", cpu: str = "1", **annotations: str) -> Object:
    spec: Object = {
        "restartPolicy": policy,
        "containers": [{"name": "main", "image": "img", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
    }
    if node:
        spec["nodeName"] = node
    marks = {f"koord.sh/fake-{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": marks},
        "spec": spec,
    }


async def phase(api: InProcessApi, name: str) -> str:
    try:
        found: str = (await api.get("pods", "default", name)).get("status", {}).get("phase", "")
        return found
    except ApiError as error:
        assert error.code == 404
        return "gone"


async def in_phase(api: InProcessApi, name: str, wanted: str) -> Object:
    async def look() -> bool:
        return await phase(api, name) == wanted

    await until(look)
    return await api.get("pods", "default", name) if wanted != "gone" else {}


async def test_nodes_are_registered_ready_and_beat() -> None:
    api = embedded()
    async with running(api, nodes=3, gpu_nodes=1, heartbeat_s=0.2):
        nodes, _ = await api.list("nodes")
        assert [node["metadata"]["name"] for node in nodes] == ["node-00001", "node-00002", "node-00003"]
        assert nodes[0]["status"]["allocatable"]["cpu"] == "32"
        assert nodes[2]["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        before = {node["metadata"]["name"]: int(node["metadata"]["resourceVersion"]) for node in nodes}

        async def all_beat_twice() -> bool:
            now, _ = await api.list("nodes")
            return all(int(node["metadata"]["resourceVersion"]) > before[node["metadata"]["name"]] for node in now)

        await until(all_beat_twice)
        nodes, _ = await api.list("nodes")
        assert all({c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True" for node in nodes)
        assert nodes[0]["status"]["allocatable"]["cpu"] == "32", "a heartbeat touches conditions only"


async def test_a_pod_runs_and_succeeds_or_fails() -> None:
    api = embedded()
    async with running(api):
        await api.create("pods", "default", pod("ok", node="node-00001", policy="Never", run_seconds="0.05"))
        await api.create(
            "pods", "default", pod("bad", node="node-00002", policy="Never", run_seconds="0.05", exit="Failed")
        )
        done = await in_phase(api, "ok", "Succeeded")
        terminated = done["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
        assert done["status"]["podIP"].startswith("10.")
        failed = await in_phase(api, "bad", "Failed")
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
        assert failed["status"]["podIP"] != done["status"]["podIP"]


async def test_a_running_pod_is_ready_and_keeps_the_conditions_of_others() -> None:
    api = embedded()
    async with running(api):
        await api.create("pods", "default", pod("p"))
        await api.patch(
            "pods",
            "default",
            "p",
            {"status": {"conditions": [{"type": "example.com/Mine", "status": "True"}]}},
            kind="strategic",
            subresource="status",
        )
        assert await phase(api, "p") == "Pending"
        await bind(api, "p", "node-00001")
        status = (await in_phase(api, "p", "Running"))["status"]
        assert {c["type"]: c["status"] for c in status["conditions"]}.items() >= {
            ("Ready", "True"),
            ("ContainersReady", "True"),
            ("Initialized", "True"),
            ("PodScheduled", "True"),
            ("example.com/Mine", "True"),
        }
        assert status["containerStatuses"][0]["state"]["running"]["startedAt"]


async def test_always_pods_run_until_deleted_and_leave_gracefully() -> None:
    api = embedded()
    async with running(api, run_s=0.0, stop_s=0.2) as fleet:
        await api.create("pods", "default", pod("p", node="node-00001"))
        await in_phase(api, "p", "Running")
        await api.delete("pods", "default", "p")
        marked = await api.get("pods", "default", "p")
        assert marked["metadata"]["deletionTimestamp"]
        await in_phase(api, "p", "gone")

        async def forgotten() -> bool:
            return fleet.counts()["pods"] == 0

        await until(forgotten)


async def test_a_deleted_pod_leaves_in_every_stage() -> None:
    api = embedded()
    async with running(api):
        await api.create("pods", "default", pod("starting", node="node-00001", start_seconds="600"))
        await api.create("pods", "default", pod("ended", node="node-00001", policy="Never", run_seconds="0"))
        await in_phase(api, "ended", "Succeeded")
        for name in ("starting", "ended"):
            await api.delete("pods", "default", name)
            await in_phase(api, name, "gone")


async def test_a_name_used_again_is_another_pod() -> None:
    api = embedded()
    async with running(api) as fleet:
        for _ in range(3):
            await api.create("pods", "default", pod("p", node="node-00001", run_seconds="600"))
            await in_phase(api, "p", "Running")
            await api.delete("pods", "default", "p", grace_period_seconds=0)
            assert await phase(api, "p") == "gone"

        async def forgotten() -> bool:
            return fleet.counts()["pods"] == 0

        await until(forgotten)


async def test_a_full_node_rejects_and_gets_its_room_back() -> None:
    api = embedded()
    async with running(api, nodes=1, cpu="2", pods="3"):
        await api.create("pods", "default", pod("a", node="node-00001", cpu="1500m"))
        await in_phase(api, "a", "Running")
        await api.create("pods", "default", pod("b", node="node-00001", cpu="1"))
        rejected = await in_phase(api, "b", "Failed")
        assert rejected["status"]["reason"] == "OutOfcpu"
        assert "requested: 1000, used: 1500, capacity: 2000" in rejected["status"]["message"]
        await api.delete("pods", "default", "a")
        await in_phase(api, "a", "gone")
        await api.create("pods", "default", pod("c", node="node-00001", cpu="2"))
        await in_phase(api, "c", "Running")
        for name in ("d", "e", "f"):
            await api.create("pods", "default", pod(name, node="node-00001", cpu="0"))
        assert (await in_phase(api, "f", "Failed"))["status"]["reason"] == "OutOfpods"


async def test_an_ended_pod_holds_no_room() -> None:
    api = embedded()
    async with running(api, nodes=1, cpu="1"):
        for name in ("a", "b", "c"):
            await api.create("pods", "default", pod(name, node="node-00001", policy="Never", run_seconds="0"))
            await in_phase(api, name, "Succeeded")


async def test_a_new_fleet_takes_over_where_the_old_one_was() -> None:
    api = embedded()
    async with running(api, nodes=1, cpu="3"):
        await api.create("pods", "default", pod("forever", node="node-00001"))
        await api.create("pods", "default", pod("long", node="node-00001", policy="Never", run_seconds="1.5"))
        await api.create("pods", "default", pod("waiting", node="node-00001", start_seconds="600"))
        await in_phase(api, "forever", "Running")
        await in_phase(api, "long", "Running")
    await api.create("pods", "default", pod("late", node="node-00001"))
    await api.delete("pods", "default", "waiting")
    assert await phase(api, "late") == "Pending"
    async with running(api, nodes=1, cpu="3") as fleet:
        await in_phase(api, "waiting", "gone")
        await in_phase(api, "long", "Succeeded")
        assert await phase(api, "forever") == "Running"
        assert await phase(api, "late") in ("Running", "Failed")
        assert fleet.counts()["nodes"] == 1


async def test_bad_annotations_become_an_event_and_the_pod_runs() -> None:
    api = embedded()
    async with running(api):
        await api.create("pods", "default", pod("p", node="node-00001", run_seconds="soon"))
        await in_phase(api, "p", "Running")

        async def told() -> list[Object]:
            return (await api.list("events", "default"))[0]

        (event,) = await until(told)
        assert (event["reason"], event["type"]) == ("InvalidFakeAnnotation", "Warning")
        assert event["message"] == (
            "metadata.annotations[koord.sh/fake-run-seconds]: 'soon' must be a number of seconds, at least 0"
        )
        assert event["involvedObject"]["name"] == "p"


async def test_nodes_come_and_go_with_their_pods_waiting() -> None:
    api = embedded()
    async with running(api, nodes=1) as fleet:
        await api.create("pods", "default", pod("p", node="mine"))
        await api.create(
            "nodes",
            None,
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "mine", "labels": {"koord.sh/fake-node": "true"}},
                "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "1"}},
            },
        )
        await in_phase(api, "p", "Running")
        await api.delete("nodes", None, "mine")

        async def one_left() -> bool:
            return fleet.counts()["nodes"] == 1

        await until(one_left)


async def test_a_node_that_a_user_creates_is_ready_at_once() -> None:
    def node(name: str, **status: Any) -> Object:
        meta = {"name": name, "labels": {"koord.sh/fake-node": "true"}}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}

    api = embedded()
    async with running(api, cpu="7"):
        await api.create("nodes", None, node("bare"))
        await api.create("nodes", None, node("sized", allocatable={"cpu": "3"}, capacity={"cpu": "4"}))

        async def ready() -> bool:
            nodes, _ = await api.list("nodes")
            return all(any(c["type"] == "Ready" for c in n["status"].get("conditions", [])) for n in nodes)

        await until(ready)
        rooms = {name: (await api.get("nodes", None, name))["status"]["allocatable"] for name in ("bare", "sized")}
        assert rooms["bare"]["cpu"] == "7" and "memory" in rooms["bare"]
        assert rooms["sized"] == {"cpu": "3"}
        await api.create("pods", "default", pod("p", node="bare"))
        await in_phase(api, "p", "Running")

        await api.delete("nodes", None, "bare")
        await api.create("nodes", None, node("bare"))
        await until(ready)


async def test_a_status_written_again_because_its_answer_was_lost_has_the_same_address() -> None:
    """Addresses are merged by strategic merge patches: another one would be a second, which a real API refuses."""
    api = embedded()
    written = api.patch
    losses = 1

    async def lose_the_first(resource: str, *arguments: Any, **options: Any) -> bytes:
        nonlocal losses
        answer = await written(resource, *arguments, **options)
        if resource == "pods" and losses:
            losses -= 1
            raise ApiError(503, "ServiceUnavailable", "the connection broke")
        return answer

    api.patch = lose_the_first  # type: ignore[method-assign]
    async with running(api) as fleet:
        await api.create("pods", "default", pod("a", node="node-00001"))

        async def again() -> bool:
            return not losses and fleet.counts()["running"] == 1

        await until(again)
        status = (await api.get("pods", "default", "a"))["status"]
        assert status["podIPs"] == [{"ip": status["podIP"]}]


async def test_leases_are_renewed_and_belong_to_their_nodes() -> None:
    api = embedded()

    async def lease(name: str) -> Object:
        try:
            return await api.get("leases.coordination.k8s.io", "kube-node-lease", name)
        except ApiError as error:
            assert error.code == 404
            return {}

    namespaces, _ = await api.list("namespaces")
    assert "kube-node-lease" in {item["metadata"]["name"] for item in namespaces}
    async with running(api, nodes=2, lease_s=0.2):

        async def all_there() -> bool:
            return all([await lease(f"node-{number:05d}") for number in (1, 2)])

        await until(all_there)
        first = await lease("node-00001")
        node = await api.get("nodes", None, "node-00001")
        assert first["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        assert first["spec"]["holderIdentity"] == "node-00001"

        async def renewed() -> bool:
            return bool((await lease("node-00001"))["spec"]["renewTime"] > first["spec"]["renewTime"])

        await until(renewed)
