"""Schedulers on one real API server, each on its own for a while: koord, kube-scheduler, Koordinator's koord-scheduler.

All get the same pods and nodes. The others' rate of requests, 50 a second by default, is lifted to what the server
takes; koord has no such limit.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

from koord.cli.local import LocalCluster, LocalOptions
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.controlplane.clients import Scheduler
from koord.localcluster.controlplane.plane import ControlPlane
from koord.localcluster.httpapi import HttpClusterApi

_CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class Contender(Protocol):
    """One scheduler: started before its load, ended after it; ``pids`` by name while it runs."""

    name: str
    scheduler: str

    async def start(self) -> None:
        """Until it is ready to bind."""

    async def stop(self) -> None:
        """Until it is gone."""

    def pids(self) -> Mapping[str, int]:
        """Its processes."""


class Koord:
    """All of koord with its own NATS and Redis, by the same code as ``koord up --kubeconfig``."""

    name = "koord"
    scheduler = "koord-scheduler"

    def __init__(self, kubeconfig: Path | str, log: list[str]) -> None:
        self._options = LocalOptions(cluster="bench", kubeconfig=str(kubeconfig), nodes=0, crds=True)
        self._log = log
        self._cluster: LocalCluster | None = None

    async def start(self) -> None:
        """All services ready."""
        self._cluster = LocalCluster(self._options, sink=self._log.append)
        await self._cluster.__aenter__()

    async def stop(self) -> None:
        """All processes ended."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await cluster.__aexit__(None, None, None)

    @property
    def bus(self) -> str:
        """The URL of its NATS while it runs."""
        return self._cluster.file().nats if self._cluster is not None else ""

    @property
    def cluster(self) -> str:
        """Its name on the bus."""
        return self._options.cluster

    def pids(self) -> Mapping[str, int]:
        """Every process but this one."""
        pids = dict(self._cluster.pids) if self._cluster is not None else {}
        pids.pop("up", None)
        return pids


class Peer:
    """kube-scheduler or koord-scheduler: one process on the control plane."""

    def __init__(self, plane: ControlPlane, name: str, scheduler: str) -> None:
        self.name = name
        self.scheduler = scheduler
        self._plane = plane
        self._part: Scheduler | None = None

    async def start(self) -> None:
        """Healthy."""
        if self._part is not None:
            await self._part.start()
        elif self.name == "kube-scheduler":
            self._part = await self._plane.start_scheduler()
        else:
            profiles = await asyncio.to_thread(_shipped_profiles, self._plane.binaries)
            self._part = await self._plane.start_koord_scheduler(config={"profiles": profiles})

    async def stop(self) -> None:
        """Ended."""
        if self._part is not None:
            await self._part.end()

    def pids(self) -> Mapping[str, int]:
        """The one process."""
        return {self.name: self._part.pid} if self._part is not None and self._part.pid else {}


def _shipped_profiles(binaries: Path) -> list[dict[str, Any]]:
    """The profiles of the release's own ConfigMap, which the build puts beside the program."""
    manifest = yaml.safe_load((binaries / "koordinator-scheduler-config.yaml").read_text())
    profiles: list[dict[str, Any]] = yaml.safe_load(manifest["data"]["koord-scheduler-config"])["profiles"]
    return profiles


def _load(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("*.yaml"))]
    return [definition for text in texts for definition in yaml.safe_load_all(text) if definition]


async def install_koordinator(api: HttpClusterApi, definitions: Path) -> None:
    """Koordinator's CRDs, without which its scheduler does not start; those of the same name stay as they are."""
    for definition in await asyncio.to_thread(_load, definitions):
        try:
            await api.create(_CRDS, None, definition)
        except ApiError as error:
            if error.code != 409:
                raise
