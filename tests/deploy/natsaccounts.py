"""The NATS server of the component ``nats-accounts``: its files as they are, but for port and folder."""

import json
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from typing import Any

import pytest

from koord.localcluster.ports import HOST
from koord.localcluster.servers import NatsServer
from tests.deploy.manifests import ROOT, Manifests, container

ACCOUNTS = "koord-nats-accounts"


def with_accounts() -> Manifests:
    """The dev overlay with the component."""
    return Manifests(ROOT / "tests" / "deploy" / "with_accounts")


def passwords() -> dict[str, str]:
    """Of each service, by the key that the Secret has for it."""
    pods = [workload["spec"]["template"]["spec"] for workload in with_accounts().workloads.values()]
    keys = {
        variable["valueFrom"]["secretKeyRef"]["key"]
        for pod in pods
        for variable in pod["containers"][0].get("env", [])
        if "secretKeyRef" in variable.get("valueFrom", {})
    }
    return {key: f"secret-of-{key}" for key in sorted(keys)}


class NatsWithAccounts(NatsServer):
    """Started with the arguments and the files of the StatefulSet. Its environment must have been set."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        super().__init__()
        self._manifests = with_accounts()
        self._secrets = secrets

    @classmethod
    def prepared(cls, monkeypatch: pytest.MonkeyPatch) -> "NatsWithAccounts":
        """With the environment that the StatefulSet gives it."""
        secrets = passwords()
        for variable in container(with_accounts().one("StatefulSet", "koord-nats"))["env"]:
            source = variable["valueFrom"]
            value = secrets[source["secretKeyRef"]["key"]] if "secretKeyRef" in source else "koord-nats-0"
            monkeypatch.setenv(variable["name"], value)
        return cls(secrets)

    def url_of(self, service: str) -> str:
        """With user and password, from the Deployment's own variables."""
        variables = container(self._manifests.one("Deployment", f"koord-{service}"))["env"]
        [url] = [variable["value"] for variable in variables if variable["name"] == "KOORD_NATS__URL"]
        address: str = url.replace("$(NATS_PASSWORD)", self._secrets[service])
        return address.replace("koord-nats:4222", f"{HOST}:{self.port}")

    def _arguments(self) -> list[str]:
        for name, text in self._manifests.one("ConfigMap", "koord-nats")["data"].items():
            text = text.replace("0.0.0.0:4222", f"{HOST}:{self.port}").replace("http: 0.0.0.0:8222\n", "")
            (self.directory / name).write_text(text.replace("/data", str(self.directory / "jetstream")))
        arguments: list[str] = container(self._manifests.one("StatefulSet", "koord-nats"))["args"]
        return [each.replace("/etc/nats", str(self.directory)) for each in arguments]

    def recognises(self, greeting: dict[str, Any]) -> bool:
        """By its name and its port: it listens where nobody else does."""
        return bool(greeting.get("server_name") == "koord-nats-0" and greeting.get("port") == self.port)

    async def _is_ours(self, reader: StreamReader, writer: StreamWriter) -> bool | None:
        greeting = json.loads((await reader.readline())[5:])
        if not self.recognises(greeting):
            return False
        login = {"verbose": False, "user": "koord-gateway", "pass": self._secrets["gateway"]}
        writer.write(b"CONNECT " + json.dumps(login).encode() + b"\r\nPING\r\n")
        return True if (await reader.readline()).startswith(b"PONG") else None
