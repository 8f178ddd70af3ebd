"""The deployment on a real API server: it applies without a warning, and the gateway needs exactly the rights it gets.

Only a real server has RBAC and pod security; that what applies there applies on the embedded one, too, is stated in
tests/conformance.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from koord.gateway.api import Api, ApiUnavailable
from koord.gateway.foreign import ForeignBindings
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient
from koord.gateway.webhookserver import NAME as WEBHOOK
from koord.gateway.webhookserver import WebhookServer
from koord.kube import crds
from koord.ledger.client import Ledger
from koord.localcluster.controlplane.kubeconfigs import write_kubeconfig
from koord.localcluster.controlplane.plane import ControlPlane
from koord.localcluster.ports import free_port
from koord.localcluster.process import end, spawn
from koord.localcluster.servers import RedisServer
from tests.deploy.manifests import KUBECTL, KUSTOMIZE, base, container, variables
from tests.deploy.natsaccounts import NatsWithAccounts, with_accounts
from tests.deploy.test_foreign_bindings import both
from tests.deploy.test_rights import WEBHOOKS, granted
from tests.realcluster.fixtures import MakeControlPlane

NAMESPACE = "koord-system"
OPERATORS = [one for one in crds.load() if one["spec"]["group"] in ("kubeflow.org", "ray.io")]
WORK = Path(__file__).parent / "manifests" / "one_of_each.yaml"


class Kubectl:
    """The pinned kubectl with one kubeconfig, in a thread; output and warnings apart."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._start = [KUBECTL, "--kubeconfig", str(kubeconfig), "--cache-dir", str(home)]

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *self._start,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 120)
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it prints; it must succeed, and say nothing else."""
        code, out, err = await self.run(*arguments, stdin=stdin)
        assert (code, err) == (0, ""), f"kubectl {arguments}: exit {code}\n{out}{err}"
        return out

    async def objects(self, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(await self("get", *arguments, "-o", "json"))["items"]
        return items

    async def may(self, verb: str, what: str, *options: str) -> bool:
        """Whether the server's authoriser says yes."""
        _, out, _ = await self.run("auth", "can-i", verb, what, *options)
        return out.strip() == "yes"


async def until(condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"not after {seconds:g} s: {what}"
        await asyncio.sleep(0.2)


@pytest.fixture
async def plane(make_control_plane: MakeControlPlane) -> ControlPlane:
    """A cluster of this test alone, where nothing was installed before."""
    made = await make_control_plane()
    await made.start_controller_manager()
    return made


@pytest.fixture
async def admin(plane: ControlPlane, tmp_path: Path) -> Kubectl:
    return Kubectl(plane.kubeconfig, tmp_path / "cache")


async def account(name: str, plane: ControlPlane, admin: Kubectl, tmp_path: Path) -> Path:
    """A kubeconfig with a token of this service account, as a pod gets one."""
    token = (await admin("-n", NAMESPACE, "create", "token", name, "--duration=1h")).strip()
    return write_kubeconfig(tmp_path / f"{name}.kubeconfig", plane.url, plane.authority.ca, {"token": token})


async def test_it_applies_without_a_warning_and_its_pods_are_admitted(plane: ControlPlane, admin: Kubectl) -> None:
    folder = str(KUSTOMIZE / "base")
    said = await admin("apply", "-k", folder, "--validate=strict")
    assert {line.rpartition(" ")[2] for line in said.splitlines()} == {"created"}
    assert len(said.splitlines()) == len(base().objects)

    # Pod security is enforced when pods are made, by the controllers.
    wanted = {name: workload["spec"]["replicas"] for name, workload in base().workloads.items()}

    async def all_there() -> bool:
        pods = await admin.objects("pods", "-n", NAMESPACE)
        names = [pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods]
        return {name: names.count(name) for name in wanted} == wanted

    await until(all_there, "every pod is made")
    failures = [event for event in await admin.objects("events", "-n", NAMESPACE) if event["type"] != "Normal"]
    assert [event["message"] for event in failures if event["reason"].startswith("Failed")] == []

    # Nothing is left to change, by the server's own word; a second apply writes nothing.
    before = await _written(admin)
    assert await admin("diff", "-k", folder) == ""
    again = await admin("apply", "-k", folder, "--validate=strict")
    changed = [line for line in again.splitlines() if not line.endswith("unchanged")]
    # kubectl sends the selector of a budget in any case, as it is merged as a whole, and, to servers that complete
    # them (as 1.30), the claim templates of a StatefulSet.
    kinds = {line.partition("/")[0] for line in changed}
    assert kinds <= {"poddisruptionbudget.policy", "statefulset.apps"}
    assert await _written(admin) == before

    # The same fields by server-side apply. What a server completes is another value than the same manager sends.
    options = ("--server-side", *(["--force-conflicts"] if "statefulset.apps" in kinds else []))
    for _ in range(2):
        said = await admin("apply", "-k", folder, *options, "--validate=strict")
        assert {line.rpartition(" ")[2] for line in said.splitlines()} == {"serverside-applied"}
    assert await _written(admin) == before
    assert await admin("diff", "-k", folder, *options) == ""


async def _written(admin: Kubectl) -> dict[str, Any]:
    """What is asked for, by object, with all that the server and other appliers have put in."""
    kinds = "deployments,statefulsets,poddisruptionbudgets,networkpolicies,services"
    objects = await admin.objects(kinds, "-n", NAMESPACE)
    return {f"{one['kind']}/{one['metadata']['name']}": one["spec"] for one in objects}


@pytest.fixture
async def nats(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NatsWithAccounts]:
    made = NatsWithAccounts.prepared(monkeypatch)
    await made.start()
    yield made
    await made.stop()


@asynccontextmanager
async def fake_nodes(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[None]:
    """Nodes and the stand-in for the TFJob operator, with the administrator's rights."""
    options = {"kubelets": {"nodes": 3, "lease_s": 10, "gc_delay_s": 0}, "operators": {"kinds": ["TFJob"]}}
    ready, log = tmp_path / "outside.json", tmp_path / "outside.log"
    argv = [sys.executable, "-m", "koord.cli.outside", "--kubeconfig", str(plane.kubeconfig)]
    with log.open("wb") as file:
        process = spawn([*argv, "--components", json.dumps(options), "--ready-file", str(ready)], stdout=file)
    try:

        async def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            return ready.exists()

        await until(is_ready, "the fake nodes are there")
        yield
    finally:
        await end(process, 20.0)


class Deployed:
    """Services that run: where they serve, what they print."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.ports: dict[str, int] = {}

    async def is_ready(self, name: str) -> bool:
        """What its readiness probe says."""
        try:
            return (await self._get(name, "readyz"))[0] == 200
        except (OSError, aiohttp.ClientError):
            return False

    async def answers(self) -> set[tuple[str, str]]:
        """Verb and code of every request that the gateway has made for decisions and for its Lease."""
        _, text = await self._get("koord-gateway", "metrics")
        lines = [line for line in text.splitlines() if line.startswith("koord_gateway_requests_total{")]
        labels = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in lines]
        return {(each["verb"], each["code"]) for each in labels}

    async def _get(self, name: str, what: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.ports[name]}/{what}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def deployed(
    kubeconfig: Path, nats: NatsWithAccounts, redis: RedisServer, tmp_path: Path
) -> AsyncIterator[Deployed]:
    """Every service with command, settings and NATS user of its Deployment; only the gateway has the kubeconfig."""
    manifests = with_accounts()
    made = Deployed(tmp_path / "services.log")
    (tmp_path / "koord.yaml").write_text(manifests.one("ConfigMap", "koord-settings")["data"]["koord.yaml"])
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("KOORD_")}
    processes = []
    try:
        for name, workload in manifests.of("Deployment").items():
            port = free_port()
            made.ports[name] = port
            elsewhere = {
                "KOORD_NATS__URL": nats.url_of(name.removeprefix("koord-")),
                "KOORD_REDIS__URL": redis.url,
                "KOORD_HTTP__HOST": "127.0.0.1",
                "KOORD_HTTP__PORT": str(port),
            }
            if name == "koord-gateway":
                elsewhere["KOORD_KUBECONFIG"] = str(kubeconfig)
            arguments = [each.replace("/etc/koord", str(tmp_path)) for each in container(workload)["args"]]
            with made.log.open("ab") as file:
                argv = [sys.executable, "-m", "koord.cli.main", *arguments]
                env = inherited | variables(manifests, workload) | elsewhere
                processes.append(spawn(argv, env=env, stdout=file))

        async def ready() -> bool:
            assert [process.poll() for process in processes] == [None] * len(processes), made.log.read_text()[-3000:]
            return all([await made.is_ready(name) for name in made.ports])

        await until(ready, "every service is ready")
        yield made
    finally:
        for process in processes:
            await end(process, 20.0)


async def test_the_gateway_needs_no_other_rights(
    plane: ControlPlane, admin: Kubectl, nats: NatsWithAccounts, own_redis: RedisServer, tmp_path: Path
) -> None:
    """A batch Job, a TFJob and a gang from beginning to end; nobody has more rights than the deployment gives.

    Neither the gateway on the API server, nor any service on NATS.
    """
    await admin("apply", "-k", str(KUSTOMIZE / "overlays" / "dev"), "--validate=strict")
    await admin("apply", "-f", "-", stdin=yaml.safe_dump_all(OPERATORS))
    kubeconfig = await account("koord-gateway", plane, admin, tmp_path)
    async with fake_nodes(plane, tmp_path), deployed(kubeconfig, nats, own_redis, tmp_path) as services:
        await _whole_life(admin)
        answers = await services.answers()
    log = services.log.read_text()
    refused = [line for line in log.splitlines() if "orbidden" in line or "violation" in line.lower()]
    assert refused == []
    assert {each for each in answers if each[1] in ("401", "403")} == set()
    assert {verb for verb, _ in answers} >= {"bind", "create", "patch", "delete", "get", "update"}


async def _whole_life(admin: Kubectl) -> None:
    await admin("apply", "-f", str(WORK), "--validate=strict")

    async def job_is_done() -> bool:
        [job] = await admin.objects("jobs", "-n", "team")
        return bool(job.get("status", {}).get("succeeded") == 3)

    async def training_is_done() -> bool:
        [job] = await admin.objects("tfjobs", "-n", "team")
        return "Succeeded" in [condition["type"] for condition in job.get("status", {}).get("conditions", [])]

    async def gang_is_done() -> bool:
        [group] = await admin.objects("podgroups", "-n", "team")
        pods = await admin.objects("pods", "-n", "team", "-l", "pod-group.scheduling.sigs.k8s.io/name=pair")
        bound = [pod for pod in pods if pod["spec"].get("nodeName")]
        return len(bound) == 2 and bool(group.get("status", {}).get("phase"))

    async def is_told_why_it_waits() -> bool:
        [pod] = await admin.objects("pods", "-n", "team", "--field-selector", "metadata.name=huge")
        conditions = {one["type"]: one for one in pod["status"].get("conditions", [])}
        events = await admin.objects("events", "-n", "team", "--field-selector", "involvedObject.name=huge")
        told = [event for event in events if event["reason"] == "FailedScheduling"]
        return bool(told) and conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"

    async def units_are_gone() -> bool:
        return not await admin.objects("queueunits", "-A")

    await until(job_is_done, "the Job succeeded")
    await until(training_is_done, "the TFJob succeeded")
    await until(gang_is_done, "the gang is bound and its PodGroup says so")
    await until(is_told_why_it_waits, "the pod without room is told why")
    await admin("delete", "job/sums", "tfjob/train", "-n", "team")
    await until(units_are_gone, "the QueueUnits are deleted")


async def test_nobody_has_a_right_too_many(plane: ControlPlane, admin: Kubectl, tmp_path: Path) -> None:
    """What the server's own authoriser says to each account of the deployment."""
    await admin("apply", "-k", str(KUSTOMIZE / "overlays" / "dev"), "--validate=strict")
    await admin("apply", "-f", "-", stdin=yaml.safe_dump_all(OPERATORS))
    gateway = Kubectl(await account("koord-gateway", plane, admin, tmp_path), tmp_path / "cache-gateway")
    await until(lambda: gateway.may("list", "nodes"), "the apiserver knows the roles")
    rights = granted(base().one("ClusterRole", "koord-gateway"))
    # This one is for one object alone.
    assert rights.pop(WEBHOOKS) == {"delete"}
    webhooks = f"{WEBHOOKS[1]}.{WEBHOOKS[0]}"
    assert await gateway.may("delete", f"{webhooks}/{WEBHOOK}")
    assert not await gateway.may("delete", f"{webhooks}/other")
    for (group, plural), verbs in rights.items():
        what, _, subresource = plural.partition("/")
        for verb in sorted(verbs):
            options = ["-A", *([f"--subresource={subresource}"] if subresource else [])]
            assert await gateway.may(verb, f"{what}.{group}" if group else what, *options), (verb, plural)
    lease = ("-n", NAMESPACE)
    assert await gateway.may("update", "leases.coordination.k8s.io/koord-ledger", *lease)
    assert not await gateway.may("update", "leases.coordination.k8s.io/other", *lease)
    assert not await gateway.may("update", "leases.coordination.k8s.io/kube-scheduler", "-n", "kube-system")
    assert await gateway.may("delete", "pods/koord-binding-probe", *lease)
    assert not await gateway.may("create", "pods", "-n", "default")
    refused = {
        "get": ("secrets", "configmaps", "serviceaccounts"),
        "list": ("secrets", "configmaps", "leases.coordination.k8s.io", "clusterroles.rbac.authorization.k8s.io"),
        "create": ("pods", "secrets", "jobs.batch", "clusterrolebindings.rbac.authorization.k8s.io"),
        "delete": ("nodes", "namespaces", "jobs.batch", "elasticquotas.scheduling.sigs.k8s.io"),
        "patch": ("nodes", "namespaces", webhooks, "customresourcedefinitions.apiextensions.k8s.io"),
        "impersonate": ("users", "serviceaccounts"),
    }
    for verb, whats in refused.items():
        for what in whats:
            assert not await gateway.may(verb, what, "-A"), (verb, what)
    code, _, err = await gateway.run("get", "secrets", "-n", NAMESPACE)
    assert code != 0 and "cannot list resource" in err
    queue = Kubectl(await account("koord-queue", plane, admin, tmp_path), tmp_path / "cache-queue")
    for what in ("pods", "secrets", "queueunits.scheduling.x-k8s.io"):
        assert not await queue.may("list", what, "-A")


@pytest.mark.since("1.28", "the gateway asks who it is, and webhooks have match conditions")
async def test_the_component_for_foreign_bindings_gives_what_the_webhook_needs(
    plane: ControlPlane, admin: Kubectl, own_redis: RedisServer, tmp_path: Path
) -> None:
    """Registered, kept and withdrawn under the gateway's account; the real server asks as the rules say."""
    await admin("apply", "-k", str(KUSTOMIZE / "overlays" / "dev"), "--validate=strict")
    parts = {"ClusterRole", "ClusterRoleBinding", "NetworkPolicy"}
    await admin("apply", "-f", "-", stdin=yaml.safe_dump_all([one for one in both().objects if one["kind"] in parts]))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
    await admin("apply", "-f", "-", stdin=yaml.safe_dump(node))
    access = await load_access(str(await account("koord-gateway", plane, admin, tmp_path)))
    client = LeanClient(access, connections=2)
    ledger = await Ledger.connect(own_redis.url, "webhook", "g")
    api = Api(client, access)
    foreign = ForeignBindings(api, ledger)
    server = WebhookServer(api, foreign, "127.0.0.1", 0, required=True, spared=("kube-system", NAMESPACE))
    await server.start()
    try:

        async def is_registered() -> bool:
            # An apiserver follows the roles, a moment behind.
            with contextlib.suppress(ApiUnavailable):
                await server.register()
                return True
            return False

        await until(is_registered, "the webhook is registered")
        await server.register()

        async def refused() -> bool:
            code, _, err = await _bind(admin, "default")
            return code != 0 and "cannot say what is taken" in err

        for namespace in ("default", "kube-system"):
            pod = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
            meta = {"name": "theirs", "namespace": namespace}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod}

            async def made(body: dict[str, Any] = body) -> bool:
                code, _, err = await admin.run("apply", "-f", "-", stdin=yaml.safe_dump(body))
                assert not code or "serviceaccount" in err, err
                return not code

            await until(made, "the namespace's account is there")
        await until(refused, "the server knows the webhook")
        assert (await _bind(admin, "kube-system"))[0] == 0, "spared: nobody leads, and it goes on"
        await server.withdraw()

        async def allowed() -> bool:
            return (await _bind(admin, "default"))[0] == 0

        await until(allowed, "the server asks no more")
    finally:
        await server.stop()
        await client.close()
        await ledger.close()


async def _bind(admin: Kubectl, namespace: str) -> tuple[int, str, str]:
    meta, target = {"name": "theirs", "namespace": namespace}, {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
    path = f"/api/v1/namespaces/{namespace}/pods/theirs/binding"
    return await admin.run("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
