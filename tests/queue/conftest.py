"""A small cluster with a quota service, on real NATS and Redis."""

from collections.abc import AsyncIterator

import pytest

from koord.kube.resources import NODES
from koord.quota.service import QuotaService
from koord.quota.settings import QuotaSettings
from tests.queue.harness import MiniCluster, node, running


@pytest.fixture
async def mini(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[MiniCluster]:
    async with running(nats_url, redis_url, cluster) as made:
        await made.put(NODES, node("n"))
        quota_service = QuotaService(await made.host("quota"), QuotaSettings())
        await quota_service.start()
        yield made
