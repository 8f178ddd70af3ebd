"""What ``deploy/kustomize`` builds, by kind and name, as kubectl's own kustomize renders it."""

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
KUBECTL = str(Path(sys.executable).with_name("kubectl"))
KUSTOMIZE = ROOT / "deploy" / "kustomize"

Manifest = dict[str, Any]


@functools.cache
def _rendered(folder: Path) -> str:
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


class Manifests:
    """The objects of one folder; every test that asks gets its own."""

    def __init__(self, folder: Path) -> None:
        self.objects: list[Manifest] = list(yaml.safe_load_all(_rendered(folder)))

    def of(self, kind: str) -> dict[str, Manifest]:
        """Every object of a kind, by name."""
        return {one["metadata"]["name"]: one for one in self.objects if one["kind"] == kind}

    def one(self, kind: str, name: str) -> Manifest:
        """The object with this name; a ConfigMap's hash may be left out."""
        found = self.of(kind)
        if kind == "ConfigMap":
            found = {key.rpartition("-")[0]: value for key, value in found.items()} | found
        return found[name]

    @property
    def workloads(self) -> dict[str, Manifest]:
        """Whatever makes pods."""
        return self.of("Deployment") | self.of("StatefulSet")


def base() -> Manifests:
    """What an overlay begins with."""
    return Manifests(KUSTOMIZE / "base")


def dev() -> Manifests:
    """The overlay for one machine."""
    return Manifests(KUSTOMIZE / "overlays" / "dev")


def container(workload: Manifest) -> Manifest:
    """Its only container."""
    [found] = workload["spec"]["template"]["spec"]["containers"]
    made: Manifest = found
    return made


def variables(manifests: Manifests, workload: Manifest) -> dict[str, str]:
    """The environment of its container, as far as the manifests say."""
    one = container(workload)
    made: dict[str, str] = {}
    for source in one.get("envFrom", []):
        made |= manifests.one("ConfigMap", source["configMapRef"]["name"])["data"]
    return made | {variable["name"]: variable["value"] for variable in one.get("env", []) if "value" in variable}


def settings_file(manifests: Manifests, workload: Manifest) -> Manifest:
    """What the file says that its ``--config`` names, found through the volumes."""
    one = container(workload)
    path = Path(one["args"][one["args"].index("--config") + 1])
    [mount] = [mount for mount in one["volumeMounts"] if mount["mountPath"] == str(path.parent)]
    volumes = workload["spec"]["template"]["spec"]["volumes"]
    [volume] = [volume for volume in volumes if volume["name"] == mount["name"]]
    content: Manifest = yaml.safe_load(manifests.one("ConfigMap", volume["configMap"]["name"])["data"][path.name])
    return content
