"""The servers that the suite runs against, and what a test needs to speak to one.

`CONFORMANCE` says which: `embedded`, `real`, or both with a comma. Without it the embedded server is taken, and
the real one too if `REAL_KUBECONFIG` names a cluster. `make test-real` sets it to `real`.
"""

import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DEADLINE = 60.0
KUBECTL = Path(sys.executable).parent / "kubectl"


def chosen() -> list[str]:
    """The servers to test, in the order in which they are."""
    text = os.environ.get("CONFORMANCE", "")
    if not text:
        return ["embedded", "real"] if os.environ.get("REAL_KUBECONFIG") else ["embedded"]
    names = [name.strip() for name in text.split(",")]
    if unknown := set(names) - {"embedded", "real"}:
        raise ValueError(f"CONFORMANCE: {sorted(unknown)} is neither 'embedded' nor 'real'")
    return names


@dataclass(frozen=True, slots=True)
class Server:
    """One server: `kind` is `embedded` or `real`; `headers` carry the token if there is one."""

    kind: str
    url: str
    kubeconfig: Path
    headers: dict[str, str]
    tls: ssl.SSLContext

    @property
    def embedded(self) -> bool:
        """For the few answers in which the two differ on purpose; each such place says why."""
        return self.kind == "embedded"


def _file(folder: Path, name: str, entry: dict[str, Any], key: str) -> str | None:
    """The path of what a kubeconfig gives as a file or, in base64, as data."""
    if data := entry.get(f"{key}-data"):
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(data))
        return str(path)
    given = entry.get(key)
    return str(given) if given else None


def from_kubeconfig(kind: str, kubeconfig: Path, folder: Path) -> Server:
    """The server of a kubeconfig's current context; `folder` takes the certificates that are inside of it."""
    config = yaml.safe_load(kubeconfig.read_text())
    contexts = {item["name"]: item["context"] for item in config["contexts"]}
    context = contexts[config["current-context"]]
    cluster = next(item["cluster"] for item in config["clusters"] if item["name"] == context["cluster"])
    user = next(item["user"] for item in config["users"] if item["name"] == context["user"])
    tls = ssl.create_default_context(cafile=_file(folder, "ca.crt", cluster, "certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate = _file(folder, "client.crt", user, "client-certificate")
    if certificate:
        tls.load_cert_chain(certificate, _file(folder, "client.key", user, "client-key"))
    headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
    return Server(kind, cluster["server"].rstrip("/"), kubeconfig, headers, tls)


@contextmanager
def embedded(folder: Path, *arguments: str) -> Iterator[Server]:
    """An embedded server as a process of its own, with its controllers, until the end of the block."""
    ready_file = folder / "ready.json"
    command = [sys.executable, "-m", "koord.localcluster.api", "--dir", str(folder / "api")]
    command += ["--ready-file", str(ready_file), "--graceful-deletion", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + DEADLINE
        while not ready_file.exists():
            assert process.poll() is None, "the embedded server ended while starting"
            assert time.monotonic() < deadline, "the embedded server did not become ready"
            time.sleep(0.02)
        ready = json.loads(ready_file.read_text())
        yield from_kubeconfig("embedded", Path(ready["kubeconfig"]), folder)
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def forget(url: str, tls: ssl.SSLContext) -> None:
    """Make an etcd forget all but the present, as it does every five minutes, so that there are versions too old."""

    def ask(path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=DEADLINE, context=tls) as response:
            return json.load(response)

    revision = ask("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
    ask("/v3/kv/compaction", {"revision": revision})
