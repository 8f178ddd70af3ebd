"""Deployments and their ReplicaSets, as `kubectl rollout` sees them. No kubelet runs: the tests make pods ready."""

import asyncio
import subprocess
from collections.abc import Callable
from typing import Any

from tests.conformance.client import Client, until
from tests.conformance.rig import Kubectl

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}


async def make_ready(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for pod in (await client.get(path)).body["items"]:
        if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") != "Running":
            status = {"status": {"phase": "Running", "conditions": [READY]}}
            await client.patch(f"{path}/{pod['metadata']['name']}/status", status)


async def while_ready(client: Client, namespace: str, run: Callable[[], Any]) -> subprocess.CompletedProcess[str]:
    """Run kubectl while all pods that appear become ready."""
    task = asyncio.create_task(asyncio.to_thread(run))
    while not task.done():
        await make_ready(client, namespace)
        await asyncio.wait({task}, timeout=0.05)
    done: subprocess.CompletedProcess[str] = task.result()
    return done


def revisions(kubectl: Kubectl) -> list[str]:
    lines = kubectl("rollout", "history", "deployment/web").stdout.splitlines()
    return [line.split()[0] for line in lines[2:] if line.strip()]


async def sets(client: Client, namespace: str) -> dict[str, int]:
    """Image -> replicas of all ReplicaSets."""
    found = (await client.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")).body["items"]
    return {one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"] for one in found}


async def test_a_rollout_from_revision_to_revision_and_back(client: Client, namespace: str, kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=3")
    status = "rollout", "status", "deployment/web", "--timeout=60s"
    first = await while_ready(client, namespace, lambda: kubectl(*status))
    assert 'deployment "web" successfully rolled out' in first.stdout
    assert kubectl("get", "deployment", "web", "--no-headers").stdout.split()[:4] == ["web", "3/3", "3", "3"]
    kubectl("annotate", "deployment/web", "kubernetes.io/change-cause=the second")
    assert "image updated" in kubectl("set", "image", "deployment/web", "web=web:2").stdout
    second = await while_ready(client, namespace, lambda: kubectl(*status))
    assert "successfully rolled out" in second.stdout
    assert await sets(client, namespace) == {"web:1": 0, "web:2": 3}
    assert revisions(kubectl) == ["1", "2"]
    assert "the second" in kubectl("rollout", "history", "deployment/web").stdout
    assert "web:1" in kubectl("rollout", "history", "deployment/web", "--revision=1").stdout
    assert "rolled back" in kubectl("rollout", "undo", "deployment/web").stdout
    await while_ready(client, namespace, lambda: kubectl(*status))
    assert await sets(client, namespace) == {"web:1": 3, "web:2": 0}
    assert revisions(kubectl) == ["2", "3"]


async def test_a_rollout_stops_where_pods_do_not_become_ready(client: Client, namespace: str, kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=4")
    await while_ready(client, namespace, lambda: kubectl("rollout", "status", "deployment/web", "--timeout=60s"))
    kubectl("set", "image", "deployment/web", "web=web:2")

    async def stuck() -> bool:
        # 25 % of 4: one more than wanted, one fewer available.
        return await sets(client, namespace) == {"web:1": 3, "web:2": 2}

    await until(stuck)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"

    counts = {"replicas": 5, "updatedReplicas": 2, "unavailableReplicas": 2, "availableReplicas": 3}

    async def told() -> bool:
        # Both sets are counted, each when its own pods are.
        status = (await client.get(path)).body["status"]
        return {name: status.get(name) for name in counts} == counts

    await until(told)
    now = (await client.get(path)).body["status"]
    conditions = {one["type"]: (one["status"], one["reason"]) for one in now["conditions"]}
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "ReplicaSetUpdated"),
    }
    for seconds in (3, 15, 45):  # the time is for all of it: a busy machine may need it for the first answer
        waiting = kubectl("rollout", "status", "deployment/web", f"--timeout={seconds}s", check=False)
        assert waiting.returncode == 1
        if waiting.stdout:
            break
    assert "Waiting for deployment" in waiting.stdout


async def test_pause_change_and_resume(client: Client, namespace: str, kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web:1")
    await while_ready(client, namespace, lambda: kubectl("rollout", "status", "deployment/web", "--timeout=60s"))
    assert "paused" in kubectl("rollout", "pause", "deployment/web").stdout
    kubectl("set", "image", "deployment/web", "web=web:2")
    kubectl("set", "env", "deployment/web", "COLOUR=blue")
    kubectl("scale", "deployment/web", "--replicas=2")

    async def followed() -> bool:
        return await sets(client, namespace) == {"web:1": 2}

    await until(followed)
    assert "resumed" in kubectl("rollout", "resume", "deployment/web").stdout
    await while_ready(client, namespace, lambda: kubectl("rollout", "status", "deployment/web", "--timeout=60s"))
    assert await sets(client, namespace) == {"web:1": 0, "web:2": 2}
    env = "jsonpath={.spec.template.spec.containers[0].env[0].value}"
    assert kubectl("get", "deployment", "web", "-o", env).stdout == "blue"


async def test_restart_and_recreate(client: Client, namespace: str, kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=2")
    strategy = '{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}'
    kubectl("patch", "deployment", "web", "-p", strategy)
    await while_ready(client, namespace, lambda: kubectl("rollout", "status", "deployment/web", "--timeout=60s"))
    assert "restarted" in kubectl("rollout", "restart", "deployment/web").stdout
    await while_ready(client, namespace, lambda: kubectl("rollout", "status", "deployment/web", "--timeout=60s"))
    found = (await client.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")).body["items"]
    assert sorted(one["spec"]["replicas"] for one in found) == [0, 2]


async def test_sets_and_pods_know_whose_they_are(client: Client, namespace: str, kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=2")
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async def two() -> Any:
        items = (await client.get(pods)).body["items"]
        return items if len(items) == 2 else None

    made = await until(two)
    assert made is not None
    deployment = (await client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/web")).body
    (one,) = (await client.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")).body["items"]
    name = one["metadata"]["labels"]["pod-template-hash"]
    assert one["metadata"]["name"] == f"web-{name}"
    assert one["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": name}
    owner = {"apiVersion": "apps/v1", "blockOwnerDeletion": True, "controller": True}
    assert one["metadata"]["ownerReferences"] == [
        {**owner, "kind": "Deployment", "name": "web", "uid": deployment["metadata"]["uid"]}
    ]
    assert one["metadata"]["annotations"] == {
        "deployment.kubernetes.io/desired-replicas": "2",
        "deployment.kubernetes.io/max-replicas": "3",
        "deployment.kubernetes.io/revision": "1",
    }
    for pod in made:
        assert pod["metadata"]["name"].startswith(f"web-{name}-")
        assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": name}
        assert pod["metadata"]["ownerReferences"] == [
            {**owner, "kind": "ReplicaSet", "name": f"web-{name}", "uid": one["metadata"]["uid"]}
        ]
    # What is deleted is replaced; what is scaled down goes; what belongs to nobody any more is collected.
    await client.delete(f"{pods}/{made[0]['metadata']['name']}")

    async def replaced() -> bool:
        items = (await client.get(pods)).body["items"]
        return len(items) == 2 and made[0]["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in items}

    await until(replaced)
    kubectl("scale", "deployment/web", "--replicas=1")

    async def fewer() -> bool:
        return len((await client.get(pods)).body["items"]) == 1

    await until(fewer)
    kubectl("delete", "deployment", "web")

    async def gone() -> bool:
        left = (await client.get(pods)).body["items"]
        return not left and not (await sets(client, namespace))

    await until(gone)


async def test_a_deployment_scaled_in_the_middle_of_a_rollout_keeps_its_proportions(
    client: Client, namespace: str, kubectl: Kubectl
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=10")
    rolling = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}}}
    assert (await client.patch(path, rolling)).status == 200
    await while_ready(client, namespace, lambda: kubectl("rollout", "status", "deployment/web", "--timeout=60s"))
    kubectl("set", "image", "deployment/web", "web=web:2")

    async def reach(**sizes: int) -> None:
        wanted = {f"web:{name[1:]}": size for name, size in sizes.items()}

        async def there() -> bool:
            return await sets(client, namespace) == wanted

        await until(there)

    await reach(v1=8, v2=5)  # the new pods are not ready
    kubectl("scale", "deployment/web", "--replicas=20")
    await reach(v1=14, v2=9)
    kubectl("rollout", "pause", "deployment/web")
    kubectl("scale", "deployment/web", "--replicas=7")
    await reach(v1=6, v2=4)
    kubectl("scale", "deployment/web", "--replicas=0")
    await reach(v1=0, v2=0)
    kubectl("scale", "deployment/web", "--replicas=2")
    await reach(v1=0, v2=2)
