"""An open ledger for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.ledger.world import World, connected


@pytest.fixture
async def world(redis_url: str, cluster: str) -> AsyncIterator[World]:
    """An open ledger with nodes n1 and n2 of 4 cpu (4000) each."""
    async with connected(redis_url, cluster) as found:
        await found.node("n1", 4000)
        await found.node("n2", 4000)
        await found.open()
        yield found
