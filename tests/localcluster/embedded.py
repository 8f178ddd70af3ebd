"""What tests of kubelets and operators share: an embedded store, binding, waiting."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import as_file, files
from typing import Any

from koord.localcluster.api import pods
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.server import load_crds
from koord.localcluster.clusterapi import ApiError


def embedded() -> InProcessApi:
    """An empty cluster, in process, that leaves the removal of bound pods to kubelets."""
    return InProcessApi(Cluster(graceful_pods=True))


def with_crds() -> InProcessApi:
    """The same, serving the job kinds that are custom resources."""
    api = embedded()
    with as_file(files("koord.kube") / "crds") as folder:
        load_crds(api._cluster, [folder])
    return api


@asynccontextmanager
async def scheduler(api: InProcessApi, nodes: int) -> AsyncIterator[None]:
    """Binds every pending pod to the next of `node-00001`, ... in turn, as soon as it appears."""

    async def run() -> None:
        turn = 0
        async for batch in api.watch("pods", field_selector="spec.nodeName="):
            for event in batch:
                if event.type in ("ADDED", "MODIFIED"):
                    turn += 1
                    with contextlib.suppress(ApiError):  # deleted meanwhile
                        await bind(api, event.name, f"node-{turn % nodes + 1:05d}", event.namespace)

    task = asyncio.create_task(run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def bind(api: InProcessApi, name: str, node: str, namespace: str = "default") -> None:
    """Bind a pod as a scheduler does."""
    pods.bind(api._cluster, namespace, name, {"target": {"kind": "Node", "name": node}})


async def until(condition: Callable[[], Awaitable[Any]], limit_s: float = 60.0) -> Any:
    """Poll until `condition` answers something true; that answer."""
    deadline = time.monotonic() + limit_s
    while not (value := await condition()):
        assert time.monotonic() < deadline, "condition not met in time"
        await asyncio.sleep(0.005)
    return value
