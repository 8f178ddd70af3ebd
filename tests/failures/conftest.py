"""A bed for each test, and the real API server that they share if it is to be one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from koord.localcluster.controlplane.plane import ControlPlane
from tests.failures.bed import REAL_KUBECONFIG, Bed, made
from tests.integration.conftest import REAL, run_alone
from tests.realcluster.fixtures import binaries_or_skip


@pytest.fixture(scope="session", autouse=True)
def real_server() -> Iterator[None]:
    """A kube-apiserver on which nobody acts but the test: no controllers, so no accounts and no taints either."""
    if not REAL:
        yield
        return
    flags = {"disable-admission-plugins": "ServiceAccount,TaintNodesByCondition"}
    plane = ControlPlane(binaries_or_skip(), apiserver_flags=flags)
    run_alone(plane.start())
    REAL_KUBECONFIG.append(plane.kubeconfig)
    try:
        yield
    finally:
        REAL_KUBECONFIG.clear()
        run_alone(plane.stop())


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str, tmp_path: Path) -> AsyncIterator[Bed]:
    """Two nodes of 4 cpu, a gateway and a reconciler, and an open ledger."""
    async with made(nats_url, redis_url, cluster, tmp_path / "api") as found:
        for name in ("n1", "n2"):
            await found.node(name, 4)
        await found.start("gateway", "reconciler")
        await found.opened()
        yield found
