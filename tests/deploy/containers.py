"""Compose's containers without a daemon: images by buildah, processes by runc, a network of the test's own.

What Compose says of a service it gets: command, user, environment, volumes, read-only root, tmpfs, capabilities.
Names are addresses by a hosts file, on a bridge in a network namespace that nothing outside can reach; the servers of
the stack (NATS, Redis, an API server) are processes in namespaces of the same bridge. Needs root.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from koord.localcluster.process import spawn
from tests.deploy.manifests import ROOT

TOOLS = ("buildah", "runc", "ip")
_SUBNET = "10.89.0"


def why_not() -> str | None:
    """What is missing to run containers here."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"no {' and no '.join(missing)} in PATH"
    return None if os.geteuid() == 0 else "containers are run as root here"


def run(*argv: str) -> str:
    """A command's standard output; an assertion with its errors if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def build(service: str) -> str:
    """Build the image of a service by the Dockerfile as it is; its name."""
    image = f"koord-{service}:test"
    command = ["buildah", "bud", "--isolation", "chroot", "--layers", "--file", str(ROOT / "Dockerfile")]
    run(*command, "--build-arg", f"SERVICE={service}", "--tag", image, str(ROOT))
    return image


class Network:
    """A bridge in a namespace of its own, and a namespace with one address for each name."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self._prefix = f"koord-{os.getpid()}"
        self.addresses = {name: f"{_SUBNET}.{number}" for number, name in enumerate(names, 10)}
        self.gateway = f"{_SUBNET}.1"
        self.hosts = directory / "hosts"
        self.hosts.write_text(
            "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in self.addresses.items())
        )
        self.hosts.chmod(0o644)
        self._made: list[str] = []

    def __enter__(self) -> "Network":
        try:
            self._namespace("bridge")
            self._within("bridge", "ip", "link", "add", "br0", "type", "bridge")
            self._within("bridge", "ip", "address", "add", f"{self.gateway}/24", "dev", "br0")
            self._within("bridge", "ip", "link", "set", "br0", "up")
            for number, (name, address) in enumerate(self.addresses.items()):
                self._namespace(name)
                end = ("peer", "name", "eth0", "netns", self.name(name))
                self._within("bridge", "ip", "link", "add", f"veth{number}", "type", "veth", *end)
                self._within("bridge", "ip", "link", "set", f"veth{number}", "master", "br0", "up")
                self._within(name, "ip", "address", "add", f"{address}/24", "dev", "eth0")
                self._within(name, "ip", "link", "set", "eth0", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the namespaces, and all links with them."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def name(self, of: str) -> str:
        """The kernel's name of a namespace."""
        return f"{self._prefix}-{of}"

    def path(self, of: str) -> str:
        """Where a namespace can be joined."""
        return f"/run/netns/{self.name(of)}"

    def command(self, of: str, *argv: str) -> list[str]:
        """`argv`, to be run in a namespace, with the names of all others."""
        inside = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
        enter = ["nsenter", f"--net={self.path(of)}", "unshare", "--mount"]
        return [*enter, "sh", "-c", inside, "sh", str(self.hosts), *argv]

    def _namespace(self, of: str) -> None:
        run("ip", "netns", "add", self.name(of))
        self._made.append(self.name(of))
        self._within(of, "ip", "link", "set", "lo", "up")

    def _within(self, of: str, *argv: str) -> None:
        run("ip", "netns", "exec", self.name(of), *argv)


class Container:
    """One service of docker-compose.yaml, from an image of buildah's."""

    def __init__(self, name: str, image: str, service: Mapping[str, Any], network: Network, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._bundle = directory / name
        self._bundle.mkdir()
        self._id = f"{name}-{os.getpid()}"
        self._working = run("buildah", "from", "--pull-never", image).strip()
        self._root = run("buildah", "mount", self._working).strip()
        config = json.loads(run("buildah", "inspect", "--type", "image", image))["OCIv1"]["config"]
        (self._bundle / "config.json").write_text(json.dumps(self._specification(config, service, network)))
        self._process: subprocess.Popen[bytes] | None = None

    def _specification(self, image: dict[str, Any], service: Mapping[str, Any], network: Network) -> dict[str, Any]:
        user, _, group = str(service.get("user") or image["User"]).partition(":")
        environment = [*image["Env"], *(f"{key}={value}" for key, value in service.get("environment", {}).items())]
        assert service["cap_drop"] == ["ALL"]
        return {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": int(user), "gid": int(group or 0)},
                "args": [*image["Entrypoint"], *service["command"]],
                "env": environment,
                "cwd": image["WorkingDir"],
                "capabilities": {},
                "noNewPrivileges": "no-new-privileges:true" in service["security_opt"],
            },
            "root": {"path": self._root, "readonly": service["read_only"]},
            "hostname": self.name,
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                _tmpfs("/dev", "mode=755"),
                *(_tmpfs(path, "mode=1777", "nodev") for path in service["tmpfs"]),
                _bound(network.hosts, "/etc/hosts"),
                *(_bound(*_volume(volume)) for volume in service["volumes"]),
            ],
            "linux": {
                "namespaces": [
                    {"type": "pid"},
                    {"type": "ipc"},
                    {"type": "uts"},
                    {"type": "mount"},
                    {"type": "network", "path": network.path(self.name)},
                ],
            },
        }

    def start(self) -> None:
        """Run it; what it prints goes to `log`."""
        command = ["runc", "run", "--bundle", str(self._bundle), self._id]
        with self.log.open("wb") as log:
            self._process = spawn(command, stdout=log, stderr=subprocess.STDOUT)

    def status(self) -> dict[str, str]:
        """/proc/PID/status of its first process, by field."""
        state = json.loads(run("runc", "state", self._id))
        lines = Path("/proc", str(state["pid"]), "status").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def execute(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        return subprocess.run(["runc", "exec", self._id, *argv], capture_output=True, text=True, check=False)

    def running(self) -> bool:
        """Whether it still runs."""
        return self._process is not None and self._process.poll() is None

    def end(self, seconds: float = 60) -> int | None:
        """SIGTERM, as an engine ends a container, and the exit code; killed when it does not end."""
        code = None
        if self._process is not None and self._process.poll() is None:
            subprocess.run(["runc", "kill", self._id, "TERM"], check=False, capture_output=True)
            try:
                code = self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                subprocess.run(["runc", "kill", self._id, "KILL"], check=False, capture_output=True)
                self._process.wait(20)
        subprocess.run(["runc", "delete", "--force", self._id], check=False, capture_output=True)
        return code

    def remove(self) -> None:
        """End it and give its file system back."""
        self.end()
        subprocess.run(["buildah", "rm", self._working], check=False, capture_output=True)


def _tmpfs(path: str, *options: str) -> dict[str, Any]:
    return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}


def _bound(source: Path, target: str) -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": str(source), "options": ["rbind", "ro"]}


def _volume(volume: str) -> tuple[Path, str]:
    source, target, mode = volume.split(":")
    assert mode == "ro"
    return (ROOT / source).resolve(), target
