"""What works on the API beside the apiserver: kube-controller-manager, kube-scheduler, koord-scheduler, kwok.

Each has its own user, with the rights that Kubernetes' bootstrap roles give it. Their request rates are far above the
defaults, as in Kubernetes' own performance tests: the defaults (20 to 50 requests a second) would hide all the rest.
Leader election is off: each is alone, and a restarted one would wait for its predecessor's lease.
"""

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from koord.localcluster.controlplane.authority import KeyPair
from koord.localcluster.controlplane.part import NO_FLAGS, Flags, Part, binary
from koord.localcluster.ports import HOST

NO_FIELDS: Mapping[str, Any] = MappingProxyType({})

_QPS = 5000


def scheduler_config_version(release: tuple[int, int]) -> str:
    """The apiVersion of a KubeSchedulerConfiguration that a release knows: v1 since 1.25, v1beta3 until 1.28."""
    return "kubescheduler.config.k8s.io/" + ("v1" if release >= (1, 25) else "v1beta3")


class ControllerManager(Part):
    """kube-controller-manager, with every controller that it has by default."""

    name = "kube-controller-manager"
    ready_path = "/healthz"

    def __init__(
        self,
        binaries: Path,
        *,
        kubeconfig: Path,
        ca: Path,
        service_account_key: Path,
        keys: KeyPair,
        directory: Path,
        tls: ssl.SSLContext,
        flags: Flags = NO_FLAGS,
    ) -> None:
        super().__init__(binary(binaries, self.name), directory=directory, tls=tls, flags=flags)
        self._kubeconfig = str(kubeconfig)
        self._ca = str(ca)
        self._service_account_key = str(service_account_key)
        self._keys = keys

    def defaults(self) -> Flags:
        """The flags of the next start."""
        return {
            "kubeconfig": self._kubeconfig,
            "authentication-kubeconfig": self._kubeconfig,
            "authorization-kubeconfig": self._kubeconfig,
            "bind-address": HOST,
            "secure-port": str(self.port),
            "tls-cert-file": str(self._keys.certificate),
            "tls-private-key-file": str(self._keys.key),
            "root-ca-file": self._ca,
            "service-account-private-key-file": self._service_account_key,
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            "kube-api-qps": str(_QPS),
            "kube-api-burst": str(_QPS),
        }


class Scheduler(Part):
    """kube-scheduler, or a scheduler built on it such as koord-scheduler: `program` is its name in the folder.

    `config` are fields of a KubeSchedulerConfiguration, merged over the address of the apiserver and the request rate.
    """

    ready_path = "/healthz"

    def __init__(
        self,
        binaries: Path,
        program: str,
        *,
        kubeconfig: Path,
        keys: KeyPair,
        directory: Path,
        tls: ssl.SSLContext,
        config: Mapping[str, Any] = NO_FIELDS,
        flags: Flags = NO_FLAGS,
    ) -> None:
        super().__init__(binary(binaries, program), directory=directory, tls=tls, flags=flags)
        self.name = program
        self.config = dict(config)
        self._kubeconfig = str(kubeconfig)
        self._keys = keys

    def defaults(self) -> Flags:
        """The flags of the next start; writes the configuration file that they name."""
        content = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self._kubeconfig, "qps": _QPS, "burst": _QPS},
            "leaderElection": {"leaderElect": False},
            **self.config,
        }
        file = self.directory / "config.json"
        file.write_text(json.dumps(content, indent=1))
        return {
            "config": str(file),
            "authentication-kubeconfig": self._kubeconfig,
            "authorization-kubeconfig": self._kubeconfig,
            "bind-address": HOST,
            "secure-port": str(self.port),
            "tls-cert-file": str(self._keys.certificate),
            "tls-private-key-file": str(self._keys.key),
        }


class Kwok(Part):
    """kwok: plays the kubelets of all nodes that carry its annotation (`kwok.x-k8s.io/node: fake`), or of all nodes.

    What a node and a pod go through are kwok's own stages (`kwok-stages.yaml` beside the binary: nodes become ready,
    pods run at once, those of a Job succeed at once) or those of the file `stages`.
    """

    name = "kwok"

    def __init__(
        self,
        binaries: Path,
        *,
        kubeconfig: Path,
        keys: KeyPair,
        directory: Path,
        tls: ssl.SSLContext,
        all_nodes: bool = False,
        stages: Path | None = None,
        flags: Flags = NO_FLAGS,
    ) -> None:
        super().__init__(binary(binaries, self.name), directory=directory, tls=tls, flags=flags)
        self._stages = str(stages or binary(binaries, "kwok-stages.yaml"))
        self._kubeconfig = str(kubeconfig)
        self._keys = keys
        self._all_nodes = all_nodes

    def defaults(self) -> Flags:
        """The flags of the next start."""
        selector = {"manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake"}
        return {
            "kubeconfig": self._kubeconfig,
            "config": self._stages,
            "node-ip": HOST,
            "node-port": str(self.port),
            "server-address": f"{HOST}:{self.port}",
            "tls-cert-file": str(self._keys.certificate),
            "tls-private-key-file": str(self._keys.key),
            "node-lease-duration-seconds": "40",
            **({"manage-all-nodes": "true"} if self._all_nodes else selector),
        }
