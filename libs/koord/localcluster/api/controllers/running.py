"""All controllers of one cluster, started and stopped together."""

import asyncio
from typing import Any

from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.collector import GarbageCollector
from koord.localcluster.api.controllers.definitions import DefinitionController
from koord.localcluster.api.controllers.deployments import DeploymentController
from koord.localcluster.api.controllers.deviceclaims import DeviceClaimController
from koord.localcluster.api.controllers.disruption import DisruptionController
from koord.localcluster.api.controllers.namespaces import NamespaceController
from koord.localcluster.api.controllers.replicas import ReplicaSetController
from koord.localcluster.api.inprocess import InProcessApi


class Controllers:
    """Garbage collector, namespaces, definitions, disruption budgets, ReplicaSets, Deployments and claims on devices of
    one cluster.

    `start` on the running loop; or, without one, `listen` and `settle`.
    """

    def __init__(self, cluster: Cluster) -> None:
        api = InProcessApi(cluster, "kube-controller-manager")
        self.collector = GarbageCollector(cluster, api)
        self.namespaces = NamespaceController(cluster, api)
        self.definitions = DefinitionController(cluster, api)
        self.disruption = DisruptionController(cluster, api)
        self.replica_sets = ReplicaSetController(cluster, api)
        self.deployments = DeploymentController(cluster, api)
        self.device_claims = DeviceClaimController(cluster, api)
        self._all = (
            self.collector,
            self.namespaces,
            self.definitions,
            self.disruption,
            self.replica_sets,
            self.deployments,
            self.device_claims,
        )
        self._tasks: list[asyncio.Task[Any]] = []
        self._store = cluster.store

    def listen(self) -> None:
        """Take notes of what is to be done, from now on and from what is there."""
        for controller in self._all:
            controller.start()

    def start(self) -> None:
        """Work in the background."""
        self.listen()
        self._tasks = [
            asyncio.create_task(controller.queue.run(), name=f"controllers: {type(controller).__name__}")
            for controller in self._all
        ]

    async def settle(self) -> None:
        """Work until nobody has anything to do now."""
        while True:
            for controller in self._all:
                await controller.queue.settle()
            if all(controller.queue.idle for controller in self._all):
                return

    async def stop(self) -> None:
        """End the work; what is left to do is found again at the next start."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        for controller in self._all:
            self._store.unlisten(controller.on_write)
