"""The test bed itself: what a control plane of ours is, and that its parts can be killed and come back."""

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable

import aiohttp
import psutil
import pytest

from koord.localcluster.controlplane.kubeconfigs import write_kubeconfig
from koord.localcluster.controlplane.plane import ControlPlane
from koord.localcluster.servers import ServerError
from tests.realcluster.fixtures import Kubectl, MakeControlPlane, RealCluster, binaries_or_skip


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 60.0) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, f"not so after {timeout_s:g} s"
        await asyncio.sleep(0.1)


async def test_only_tls_and_only_known_users(own_control_plane: ControlPlane) -> None:
    """Plain HTTP is refused, so is who shows no certificate; RBAC denies a user without a role; a certificate works."""
    plane = own_control_plane
    plain = plane.url.replace("https", "http") + "/api"
    everybody, admin, alice = plane.authority.tls(), plane.tls(), plane.tls("alice", ())
    async with aiohttp.ClientSession() as session:
        async with session.get(plain) as answer:
            assert answer.status == 400
            assert "HTTP request to an HTTPS server" in await answer.text()
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(plane.url + "/api", ssl=ssl.create_default_context())
        for path in ("/api", "/readyz", "/version"):
            async with session.get(plane.url + path, ssl=everybody) as answer:
                assert answer.status == 401, path
        async with session.get(plane.url + "/api/v1/namespaces", ssl=alice) as answer:
            assert answer.status == 403
            assert 'User "alice" cannot list resource "namespaces"' in (await answer.json())["message"]
        async with session.get(plane.url + "/api/v1/namespaces", ssl=admin) as answer:
            assert answer.status == 200


async def test_a_role_gives_its_right_and_no_other(control_plane: RealCluster) -> None:
    admin = Kubectl(control_plane.kubeconfig)
    bob = Kubectl(control_plane.kubeconfig_for("bob", ["readers"]))
    name = f"bed-{time.monotonic_ns()}"
    await admin("create", "namespace", name)
    try:
        await admin("-n", name, "create", "role", "look", "--verb=get,list", "--resource=configmaps")
        await admin("-n", name, "create", "rolebinding", "look", "--role=look", "--group=readers")

        async def may() -> bool:
            # An apiserver follows the roles, a moment behind.
            return "orbidden" not in await bob("-n", name, "get", "configmaps", check=False)

        await until(may)
        await bob("-n", name, "get", "configmaps")
        refused = await bob("-n", name, "create", "configmap", "one", check=False)
        assert 'User "bob" cannot create resource "configmaps"' in refused
    finally:
        await admin("delete", "namespace", name, "--wait=false")


async def test_a_bounced_apiserver_and_a_bounced_etcd_keep_objects(own_control_plane: ControlPlane) -> None:
    plane = own_control_plane
    kubectl = Kubectl(plane.kubeconfig)
    await kubectl("create", "configmap", "one", "--from-literal=a=1")
    before = json.loads(await kubectl("get", "configmap", "one", "-o", "json"))["metadata"]
    for part in (plane.apiservers[0], plane.etcd.members[0]):
        port, pid = part.port, part.pid
        await part.bounce()
        assert part.port == port
        assert part.pid != pid
        await _answers(kubectl)
        assert json.loads(await kubectl("get", "configmap", "one", "-o", "json"))["metadata"] == before


async def test_two_apiservers_on_one_etcd(make_control_plane: MakeControlPlane) -> None:
    """They tell the same, a service account's token is good on both, and the front door leads to one that lives."""
    plane = await make_control_plane(apiservers=2)
    one, two = (Kubectl(plane.kubeconfig_for("koord-admin", ["system:masters"], url=a.url)) for a in plane.apiservers)
    door = Kubectl(plane.kubeconfig)
    await one("create", "configmap", "one", "--from-literal=a=1")
    assert await two("get", "configmap", "one", "-o", "name") == "configmap/one\n"
    await one("create", "serviceaccount", "worker")
    token = (await one("create", "token", "worker")).strip()
    file = write_kubeconfig(plane.directory / "worker", plane.apiservers[1].url, plane.authority.ca, {"token": token})
    refused = await Kubectl(file)("get", "secrets", check=False)
    assert 'User "system:serviceaccount:default:worker" cannot list resource "secrets"' in refused
    await plane.apiservers[0].kill()
    for _ in range(3):
        await door("get", "configmap", "one")
    await plane.apiservers[1].kill()
    await plane.apiservers[0].start()
    for _ in range(3):
        await door("get", "configmap", "one")


async def test_three_etcds_outlive_the_loss_of_one(make_control_plane: MakeControlPlane) -> None:
    plane = await make_control_plane(etcd_members=3)
    kubectl = Kubectl(plane.kubeconfig)
    for number, member in enumerate(plane.etcd.members):
        await member.kill()
        await _answers(kubectl, "create", "configmap", f"map-{number}")
        await member.start()
    names = await kubectl("get", "configmaps", "-o", "name")
    assert all(f"configmap/map-{number}\n" in names for number in range(3))
    await plane.etcd.kill()
    await plane.etcd.restart()
    await _answers(kubectl, "get", "configmap", "map-2")


async def test_controllers_scheduler_and_kwok_run_a_job(own_control_plane: ControlPlane) -> None:
    """The Job controller makes pods, kube-scheduler binds them, kwok makes a node ready and runs them to the end."""
    plane = own_control_plane
    await plane.start_scheduler()
    await plane.start_kwok()
    kubectl = Kubectl(plane.kubeconfig)
    await kubectl("apply", "-f", "-", stdin=json.dumps(_fake_node("node-1")))
    await kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=60s")
    await _default_account(kubectl)
    job = await kubectl("create", "job", "five", "--image=none", "--dry-run=client", "-o", "json")
    manifest = json.loads(job)
    manifest["spec"] |= {"completions": 5, "parallelism": 5}
    await kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    await kubectl("wait", "--for=condition=Complete", "job/five", "--timeout=90s")
    pods = json.loads(await kubectl("get", "pods", "-l", "job-name=five", "-o", "json"))["items"]
    assert [pod["spec"]["nodeName"] for pod in pods] == ["node-1"] * 5


@pytest.mark.since("1.34", "resource.k8s.io/v1, which the koord-scheduler of the bed waits for")
async def test_koordinators_scheduler_binds_a_pod(own_control_plane: ControlPlane) -> None:
    """With its own CRDs and the plugins that its release deploys."""
    plane = own_control_plane
    if not (plane.binaries / "koord-scheduler").exists():
        pytest.skip("koord-scheduler could not be built")
    kubectl = Kubectl(plane.kubeconfig)
    await kubectl("create", "-f", str(plane.binaries / "koordinator-crds"))
    await kubectl("create", "namespace", "koordinator-system")
    await plane.start_kwok(all_nodes=True)
    await plane.start_koord_scheduler()
    await kubectl("apply", "-f", "-", stdin=json.dumps(_fake_node("node-1")))
    await kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=60s")
    await _default_account(kubectl)
    overrides = {"spec": {"schedulerName": "koord-scheduler"}}
    await kubectl("run", "one", "--image=none", f"--overrides={json.dumps(overrides)}")
    await kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s")
    assert await kubectl("get", "pod", "one", "-o", "jsonpath={.spec.nodeName}") == "node-1"


async def test_everything_is_ended() -> None:
    """No process and no file stays of a control plane that is stopped; a failed start shows the end of the log."""
    place = binaries_or_skip()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    plane = ControlPlane(place)
    await plane.start()
    await plane.start_controller_manager()
    folder = plane.directory
    mine = {child.pid for child in psutil.Process().children(recursive=True) if _is_of(child, str(folder))}
    assert len(mine) == 3
    await plane.stop()
    await plane.stop()
    assert not folder.exists()
    assert not [pid for pid in mine if psutil.pid_exists(pid)]
    broken = ControlPlane(place, apiserver_flags={"authorization-mode": "Nobody"})
    with pytest.raises(ServerError, match=r"kube-apiserver: ended with code 1(.|\n)*Nobody.* is not a valid mode"):
        await broken.start()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def _is_of(process: psutil.Process, folder: str) -> bool:
    try:
        return folder in " ".join(process.cmdline())
    except psutil.Error:
        return False


async def _answers(kubectl: Kubectl, *arguments: str) -> None:
    """Ask until it is answered: a server that has lost its store, or a store its leader, needs a moment."""
    what = arguments or ("get", "configmaps")

    async def holds() -> bool:
        text = await kubectl(*what, check=False)
        return "AlreadyExists" in text or not ("rror" in text or "refused" in text or "nable to connect" in text)

    await until(holds)


async def _default_account(kubectl: Kubectl) -> None:
    async def there() -> bool:
        return "NotFound" not in await kubectl("get", "serviceaccount", "default", check=False)

    await until(there)


def _fake_node(name: str) -> dict[str, object]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
