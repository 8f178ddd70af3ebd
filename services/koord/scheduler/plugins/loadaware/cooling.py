"""Nodes that evicted best-effort pods a moment ago, which such pods had better stay away from for some time.

An agent evicts when memory or cpu runs short, and what it then reports looks like a node with room: without a pause
the same pods come back and are evicted again (spec 10 section 7). What was evicted is known while the pod is there; a
scheduler that starts later knows nothing of earlier ones.
"""

from collections.abc import Mapping
from math import inf

import numpy as np

from koord.kube.podresources import kubernetes_qos
from koord.kube.pods import PodSpec
from koord.kube.protocol import qos
from koord.scheduler.engine.cluster import Cluster


def best_effort(spec: PodSpec, labels: Mapping[str, str]) -> bool:
    """Whether the pod is of QoS class BE, by label or by default."""
    return qos.qos_class_with_default(labels, kubernetes_qos(spec)) == qos.BE


class CoolDowns:
    """Until when (seconds since the epoch), by node. ``on``: of each row, whether it is not over yet."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._until: dict[str, float] = {}
        self._now = -inf
        self.on = cluster.column(np.bool_)

    def begin(self, node: str, until: float) -> int | None:
        """A pod was evicted from a node; the row that is to be asked anew by that."""
        if until <= max(self._until.get(node, -inf), self._now):
            return None
        self._until[node] = until
        row = self._cluster.index.find(node)
        if row is None or self.on.data[row]:
            return None
        self.on.data[row] = True
        return row

    def node_set(self, node: str, row: int) -> None:
        """A node is on a row."""
        self.on.data[row] = node in self._until

    def tick(self, now: float) -> list[int]:
        """It is ``now``: rows whose time is over."""
        self._now = now
        over = [node for node, until in self._until.items() if until <= now]
        rows: list[int] = []
        for node in over:
            del self._until[node]
            row = self._cluster.index.find(node)
            if row is not None:
                self.on.data[row] = False
                rows.append(row)
        return rows
