"""A real embedded API server per test process, and a namespace of its own for each test."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient

_numbers = itertools.count(1)


class ApiProcess:
    """One `python -m koord.localcluster.api`, which can be killed and started again on the same port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.kubeconfig = ""

    def start(self) -> None:
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "koord.localcluster.api", "--dir", str(self.directory)]
        command += ["--ready-file", str(ready), "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert self._process.poll() is None, "the API server ended"
            assert time.monotonic() < deadline, "the API server did not start"
            time.sleep(0.02)
        content = json.loads(ready.read_text())
        self.kubeconfig = content["kubeconfig"]
        self.port = int(content["url"].rsplit(":", 1)[1])

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(60)
            self._process = None


@pytest.fixture(scope="session")
def api_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    process = ApiProcess(tmp_path_factory.mktemp("api"))
    process.start()
    yield process
    process.kill()


@pytest.fixture
async def access(api_process: ApiProcess) -> ApiAccess:
    return await load_access(api_process.kubeconfig)


@pytest.fixture
async def api(access: ApiAccess) -> AsyncIterator[Api]:
    client = LeanClient(access, connections=8, timeout_s=10)
    yield Api(client, access, patience_s=10)
    await client.close()


class Kube:
    """Short words for what a test does to the cluster, as a user or a kubelet would."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    async def call(self, verb: Any, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        raw = b"" if body is None else json.dumps(body).encode()
        answer = await self.api.call(verb, path, raw, content_type)
        assert answer.status < 300, (verb, path, answer)
        return json.loads(answer.body)

    async def pod(self, name: str, **metadata: Any) -> dict[str, Any]:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **metadata},
            "spec": {
                "schedulerName": "koord-scheduler",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            },
        }
        made: dict[str, Any] = await self.call("create", f"/api/v1/namespaces/{self.namespace}/pods", body)
        return made

    async def node(self, name: str, cpu: str = "8") -> dict[str, Any]:
        allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}
        made: dict[str, Any] = await self.call("create", "/api/v1/nodes", body)
        return made

    async def get(self, path: str) -> dict[str, Any] | None:
        answer = await self.api.call("get", path)
        if answer.status == 404:
            return None
        assert answer.status == 200, answer
        found: dict[str, Any] = json.loads(answer.body)
        return found

    async def get_pod(self, name: str) -> dict[str, Any] | None:
        return await self.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")


@pytest.fixture
async def kube(api: Api) -> Kube:
    namespace = f"ns-{os.getpid()}-{next(_numbers)}"
    kube = Kube(api, namespace)
    await kube.call(
        "create", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    )
    return kube


async def until(condition: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str, timeout: float = 60.0) -> Any:
    """Poll until `condition` is true; fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.01)
