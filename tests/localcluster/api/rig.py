"""A real server process and a plain HTTPS client for it."""

import http.client
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Kubectl = Callable[..., subprocess.CompletedProcess[str]]

DEADLINE = 60.0


class Answer(NamedTuple):
    code: int
    body: Any
    content_type: str


class Client:
    """One HTTPS connection, used from one thread."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.ready = ready
        host, port = ready["url"].removeprefix("https://").rsplit(":", 1)
        self._connection = http.client.HTTPSConnection(
            host, int(port), context=ssl.create_default_context(cafile=ready["ca"]), timeout=DEADLINE
        )

    def send(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **headers: str
    ) -> http.client.HTTPResponse:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.ready['token']}", **headers}
        if data is not None:
            sent["Content-Type"] = content_type
        self._connection.request(method, path, data, sent)
        return self._connection.getresponse()

    def call(self, method: str, path: str, body: Any = None, **options: str) -> Answer:
        response = self.send(method, path, body, **options)
        data = response.read()
        kind = response.headers.get("content-type", "")
        return Answer(response.status, json.loads(data) if "json" in kind else data, kind)

    def get(self, path: str, **options: str) -> Answer:
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any, **options: str) -> Answer:
        return self.call("POST", path, body, **options)

    def put(self, path: str, body: Any) -> Answer:
        return self.call("PUT", path, body)

    def patch(self, path: str, body: Any, kind: str = "merge-patch") -> Answer:
        return self.call("PATCH", path, body, content_type=f"application/{kind}+json")

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.call("DELETE", path, body)

    def watch(self, path: str, **options: str) -> Iterator[dict[str, Any]]:
        """The events of a watch; needs a client of its own."""
        response = self.send("GET", path, **options)
        assert response.status == 200, response.read()
        for line in response:
            yield json.loads(line)

    def close(self) -> None:
        self._connection.close()


class Server:
    def __init__(self, folder: Path, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        ready_file = folder / "ready.json"
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "koord.localcluster.api",
                "--dir",
                str(folder / "api"),
                "--ready-file",
                str(ready_file),
                *arguments,
            ],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + DEADLINE
        while not ready_file.exists():
            assert self.process.poll() is None, "the server ended while starting"
            assert time.monotonic() < deadline, "the server did not become ready"
            time.sleep(0.02)
        self.ready_file = ready_file
        self.ready: dict[str, Any] = json.loads(ready_file.read_text())

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def until(condition: Callable[[], Any]) -> None:
    """Poll until something is so."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "not so in time"
        time.sleep(0.01)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """The smallest pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }
