"""What tests of kubelets and operators share: an embedded store, binding, waiting."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from koord.localcluster.api import pods
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.inprocess import InProcessApi


def embedded() -> InProcessApi:
    """An empty cluster, in process, that leaves the removal of bound pods to kubelets."""
    return InProcessApi(Cluster(graceful_pods=True))


async def bind(api: InProcessApi, name: str, node: str, namespace: str = "default") -> None:
    """Bind a pod as a scheduler does."""
    pods.bind(api._cluster, namespace, name, {"target": {"kind": "Node", "name": node}})


async def until(condition: Callable[[], Awaitable[Any]], limit_s: float = 10.0) -> Any:
    """Poll until `condition` answers something true; that answer."""
    deadline = time.monotonic() + limit_s
    while not (value := await condition()):
        assert time.monotonic() < deadline, "condition not met in time"
        await asyncio.sleep(0.005)
    return value
