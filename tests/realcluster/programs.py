"""What is built of which Go module: the programs of the bed, and those of another release of Kubernetes."""

import re
from dataclasses import dataclass
from pathlib import Path

GO = Path(__file__).parent / "go"
RELEASE = re.compile(r"1\.\d+\.\d+")
"""How a release of Kubernetes is named, and the folder of links to its programs."""


@dataclass(frozen=True, slots=True)
class Program:
    """A main package of a module; `name` is the binary's, `module` the required module if it is another one's."""

    name: str
    package: str
    module: str = ""
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Extra:
    """Files of a required module's source that go beside the binaries: in a folder, or joined into one YAML file."""

    name: str
    module: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """A folder with a go.mod, by default the one below `go/`: what is built of it, the required module it is about.

    Programs made of Kubernetes' parts tell Kubernetes' version (`tells_kubernetes`); `tags` are go build's. They
    are linked into the folder `place`, beside what else `bin` has, of which it must have `needs`.
    """

    name: str
    about: str
    programs: tuple[Program, ...]
    tells_kubernetes: bool = True
    extras: tuple[Extra, ...] = ()
    place: str = "bin"
    needs: tuple[str, ...] = ()
    written: Path | None = None
    tags: str = ""

    @property
    def source(self) -> Path:
        """The folder of its go.mod."""
        return self.written or GO / self.name


MODULES = (
    Module(
        "kubernetes",
        "k8s.io/kubernetes",
        (
            Program("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", needed=True),
            Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", needed=True),
            Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        ),
    ),
    Module(
        "kwok",
        "sigs.k8s.io/kwok",
        (Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),),
        tells_kubernetes=False,
        extras=(
            Extra(
                "kwok-stages.yaml",
                "sigs.k8s.io/kwok",
                (
                    "kustomize/stage/node/fast/node-initialize.yaml",
                    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
                    "kustomize/stage/pod/fast/pod-ready.yaml",
                    "kustomize/stage/pod/fast/pod-complete.yaml",
                    "kustomize/stage/pod/fast/pod-delete.yaml",
                ),
            ),
        ),
    ),
    Module(
        "koordinator",
        "github.com/koordinator-sh/koordinator",
        (Program("koord-scheduler", "github.com/koordinator-sh/koordinator/cmd/koord-scheduler"),),
        extras=(
            Extra("koordinator-crds", "github.com/koordinator-sh/koordinator", ("config/crd/bases/*.yaml",)),
            Extra(
                "koordinator-scheduler-config.yaml",
                "github.com/koordinator-sh/koordinator",
                ("config/manager/scheduler-config.yaml",),
            ),
        ),
    ),
    # What the local stack of deploy/ reports to. The collector is a small program of ours with the components named
    # there; Prometheus is built without its two dozen ways to find targets, which are most of its packages.
    Module(
        "stack",
        "github.com/prometheus/prometheus",
        (
            Program("prometheus", "github.com/prometheus/prometheus/cmd/prometheus"),
            Program("collector", "koord.sh/tests/stack", "go.opentelemetry.io/collector/otelcol"),
        ),
        tells_kubernetes=False,
        tags="remove_all_sd",
    ),
)


def release(name: str, source: Path) -> Module:
    """The programs of a release such as 1.30.14, of the module that was written in `source`.

    What is not Kubernetes' own is borrowed of the newest: one etcd serves all of them.
    """
    newest = MODULES[0]
    return Module(
        name,
        newest.about,
        tuple(program for program in newest.programs if not program.module),
        place=name,
        needs=("etcd",),
        written=source,
    )
