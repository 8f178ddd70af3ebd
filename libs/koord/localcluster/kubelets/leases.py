"""The nodes' Leases, by which a real cluster knows that its kubelets live (namespace `kube-node-lease`).

The embedded cluster has no node lifecycle controller and needs none. A real one marks a node unknown, and taints it,
when neither its Lease nor its status has changed for `--node-monitor-grace-period` (50 s).
"""

import asyncio
import time
from collections.abc import Callable, Collection

from koord.kube.meta import micro_rfc3339
from koord.localcluster.clusterapi import ApiError, ClusterApi, Object
from koord.localcluster.kubelets.state import Kubelet
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

NAMESPACE = "kube-node-lease"
_LEASES = "leases.coordination.k8s.io"
_TICKS = 20
"""The renewals of one period are made in so many portions."""
_AT_ONCE = 16


class NodeLeases:
    """`run` it as a task: renews every living node's Lease each `period_s` seconds, evenly spread."""

    def __init__(self, api: ClusterApi, kubelets: Callable[[], Collection[Kubelet]], period_s: float) -> None:
        self._api = api
        self._kubelets = kubelets
        self._period_s = period_s
        self._held: dict[str, str] = {}

    async def run(self) -> None:
        """Until cancelled; the first round at once, for nodes may be old and nearly given up."""
        await self._renew([kubelet for kubelet in self._kubelets() if kubelet.alive])
        tick = 0
        while True:
            begun = time.monotonic()
            await self._renew([one for one in self._kubelets() if one.alive and one.number % _TICKS == tick])
            tick = (tick + 1) % _TICKS
            await asyncio.sleep(max(0.0, self._period_s / _TICKS - (time.monotonic() - begun)))

    async def _renew(self, kubelets: list[Kubelet]) -> None:
        waiting = iter(kubelets)

        async def some() -> None:
            for kubelet in waiting:
                try:
                    await self._renew_one(kubelet)
                except (ApiError, OSError) as error:
                    _log.warning("lease of the node not renewed", node=kubelet.name, error=str(error))

        await asyncio.gather(*(some() for _ in range(min(_AT_ONCE, len(kubelets)))))

    async def _renew_one(self, kubelet: Kubelet) -> None:
        """One request where the Lease is known to be there. A node made anew has another uid and a new Lease."""
        now = micro_rfc3339(time.time())
        if self._held.get(kubelet.name) == kubelet.uid:
            try:
                await self._api.patch(_LEASES, NAMESPACE, kubelet.name, {"spec": {"renewTime": now}})
                return
            except ApiError as error:
                if error.code != 404:
                    raise
        spec = {
            "holderIdentity": kubelet.name,
            "leaseDurationSeconds": max(1, int(self._period_s * 4)),
            "renewTime": now,
        }
        owner = {"apiVersion": "v1", "kind": "Node", "name": kubelet.name, "uid": kubelet.uid}
        metadata = {"name": kubelet.name, "namespace": NAMESPACE, "ownerReferences": [owner]}
        body: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            await self._api.create(_LEASES, NAMESPACE, body)
        except ApiError as error:
            if error.code != 409:
                raise
            change: Object = {"metadata": {"ownerReferences": [owner]}, "spec": spec}
            await self._api.patch(_LEASES, NAMESPACE, kubelet.name, change)
        self._held[kubelet.name] = kubelet.uid
