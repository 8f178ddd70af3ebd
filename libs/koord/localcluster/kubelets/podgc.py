"""The pod garbage collector's part for deleted nodes: a pod bound to a node that does not exist is ended and deleted.

As the one of kube-controller-manager: the node has to be gone for a while, the API is asked once more, then the pod is
marked Failed (condition DisruptionTarget, reason DeletionByPodGC) unless it has ended, and deleted without grace. Its
other duties (too many ended pods, unscheduled pods being deleted) are not played.
"""

import asyncio
import time
from collections.abc import Iterable

from koord.kube.meta import now_rfc3339
from koord.localcluster.clusterapi import ApiError, ClusterApi
from koord.localcluster.kubelets.book import Bound, PodBook
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

MESSAGE = "PodGC: node no longer exists"
_LOOK_S = 0.5


class PodCollector:
    """`run` it as a task. `delay_s`: how long a node must be gone."""

    def __init__(self, api: ClusterApi, book: PodBook, delay_s: float) -> None:
        self._api = api
        self._book = book
        self._delay_s = delay_s
        self._gone_since: dict[str, float] = {}
        self.collected = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(min(_LOOK_S, self._delay_s))
            await self.look(time.monotonic())

    async def look(self, now: float) -> None:
        """Delete what has been without a node for long enough."""
        lost: dict[str, list[Bound]] = {}
        for pod in self._book.without_node():
            lost.setdefault(pod.node, []).append(pod)
        self._gone_since = {node: self._gone_since.get(node, now) for node in lost}
        for node, pods in lost.items():
            if now - self._gone_since[node] >= self._delay_s:
                try:
                    if await self._exists(node):
                        self._gone_since[node] = now  # not one of ours: it has a kubelet of its own
                    else:
                        await self._collect(pods)
                except (ApiError, OSError) as error:
                    _log.warning("pods of a deleted node not collected yet", node=node, error=str(error))

    async def _exists(self, node: str) -> bool:
        try:
            await self._api.get("nodes", None, node)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    async def _collect(self, pods: Iterable[Bound]) -> None:
        now = now_rfc3339(time.time())
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByPodGC",
            "message": MESSAGE,
            "lastTransitionTime": now,
        }
        patch = {"status": {"phase": "Failed", "conditions": [condition]}}
        for pod in pods:
            try:
                if not pod.ended:
                    body = {"metadata": {"uid": pod.uid}, **patch}
                    await self._api.patch("pods", pod.namespace, pod.name, body, kind="strategic", subresource="status")
                await self._api.delete("pods", pod.namespace, pod.name, uid=pod.uid, grace_period_seconds=0)
            except ApiError as error:
                if error.code not in (404, 409):  # gone, or replaced by one of its name
                    raise
            else:
                self.collected += 1
