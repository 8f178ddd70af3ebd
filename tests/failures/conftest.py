"""A bed for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.failures.bed import Bed, made


@pytest.fixture
async def bed(nats_url: str, redis_url: str, cluster: str, tmp_path: Path) -> AsyncIterator[Bed]:
    """Two nodes of 4 cpu, a gateway and a reconciler, and an open ledger."""
    async with made(nats_url, redis_url, cluster, tmp_path / "api") as found:
        for name in ("n1", "n2"):
            await found.node(name, 4)
        await found.start("gateway", "reconciler")
        await found.opened()
        yield found
