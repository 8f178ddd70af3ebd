"""One of three servers is parted from the others, with clients on it: they leave it, and nothing is lost or made up.

With a cluster for each case, for nats-server may take long to fill the replicas of a leader that was parted.
"""

import time
from collections.abc import AsyncIterator

import pytest

from koord.bus import failover
from koord.localcluster.natscluster import NatsCluster
from tests.bus.traffic import traffic


@pytest.fixture
async def three() -> AsyncIterator[NatsCluster]:
    cluster = NatsCluster(3, weather=True)
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.mark.parametrize("silent", [False, True])
async def test_a_server_that_is_parted_from_the_others_is_left(
    three: NatsCluster, cluster: str, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    """Its clients' connections stand, but nothing can be stored through it."""
    monkeypatch.setattr(failover, "PROBE_EVERY_S", 0.5)
    async with traffic(
        {"any": three.url, "gateway": three.server("nats-1").url, "reader": three.server("nats-1").url}, cluster
    ) as load:
        since = time.monotonic()
        three.weather.part(["nats-1"], ["nats-2", "nats-3"], silent=silent)
        await load.flowing()
        print(f"a server parted, {silent=}: publishing paused {load.longest_pause(since):.1f} s at most")
        three.weather.clear()
        await load.flowing()
        await load.judge()
