"""The conformance suite: what koord relies on of a Kubernetes API, stated once and held against two servers.

Every test that takes `client`, `namespace` or `kubectl` runs once per server (`[embedded]`, `[real]`); what is stated
holds on both. Which servers are tested says `tests/conformance/servers.py`; `docs/conformance.md` says how to run the
suite on a cluster of your own. Tests keep to a namespace of their own and give cluster-scoped objects a `unique` name.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.conformance.client import Client, until
from tests.conformance.rig import Kubectl, unique
from tests.conformance.servers import KUBECTL, Server, chosen, embedded, forget, from_kubeconfig
from tests.conformance.webhooks import WebhookServer, webhook_server


@pytest.fixture(scope="session", params=chosen())
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server under test."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        with embedded(folder) as running:
            yield running
    elif given := os.environ.get("REAL_KUBECONFIG"):
        yield from_kubeconfig("real", Path(given), folder)
    else:
        plane = request.getfixturevalue("control_plane")
        forget(plane.etcd.urls[0], plane.etcd.tls)
        yield from_kubeconfig("real", Path(plane.kubeconfig), folder)


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """Requests to the server, with its administrator's rights."""
    connector = aiohttp.TCPConnector(ssl=server.tls, limit=100)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    # Lines of a watch are as long as objects are.
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=8 << 20) as session:
        yield Client(server, session)


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of this test alone, in which pods can be created; deleted in the end, nobody waits for that."""
    name = unique()
    made = await client.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.status == 201, made.body
    if not client.server.embedded:
        # Admission refuses pods until the controller manager has made the namespace's account.
        async def account() -> bool:
            return (await client.get(f"/api/v1/namespaces/{name}/serviceaccounts/default")).status == 200

        await until(account)
    yield name
    await client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
async def node(client: Client) -> AsyncIterator[str]:
    """A ready node of this test alone with 8 CPUs, on which nothing runs."""
    name = unique("n")
    made = await client.post("/api/v1/nodes", {"metadata": {"name": name}})
    assert made.status == 201, made.body
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"status": {"conditions": [condition], "allocatable": amounts, "capacity": amounts}}
    assert (await client.patch(f"/api/v1/nodes/{name}/status", status)).status == 200
    yield name
    await client.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
async def crews(client: Client, namespace: str) -> AsyncIterator[str]:
    """The path of a custom resource with status and scale, in the test's namespace."""
    group = f"{unique('g')}.koord.test"
    count = {"type": "integer", "minimum": 0}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": count, "note": {"type": "string"}}},
            "status": {"type": "object", "properties": {"size": count, "selector": {"type": "string"}}},
        },
    }
    scale = {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"plural": "crews", "kind": "Crew", "singular": "crew", "listKind": "CrewList"}
    body = {
        "metadata": {"name": f"crews.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await client.post(definitions, body)).status == 201
    path = f"/apis/{group}/v1/namespaces/{namespace}/crews"

    async def served() -> bool:
        return (await client.get(path)).status == 200

    await until(served)
    yield path
    await client.delete(f"{definitions}/crews.{group}")


@pytest.fixture(scope="session")
def kubectl_home(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kubectl keeps what it has discovered."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(server: Server, namespace: str, kubectl_home: Path) -> Kubectl:
    """Run kubectl in the test's namespace; fails the test when kubectl fails, unless `check=False`."""
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(kubectl_home)}

    def run(
        *arguments: str, stdin: str | None = None, check: bool = True, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(KUBECTL), "-n", namespace, *arguments],
            input=stdin,
            env={**environment, **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check:
            assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done

    return run


@pytest.fixture
async def webhooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    """An HTTPS server of admission webhooks."""
    async with webhook_server(tmp_path) as server:
        yield server
