"""Fixtures that every area shares: real servers, and a cluster name of its own for each test.

One nats-server and one redis-server live per test process (so `pytest -n 2` has two of each); tests keep out of each
other's way by the cluster name, which is part of every subject, stream and key. A test that kills or restarts a server
takes `own_nats` or `own_redis`, which nobody else uses.
"""

import asyncio
import gc
import itertools
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from koord.localcluster.servers import NatsServer, RedisServer
from tests.realcluster import since
from tests.realcluster.fixtures import control_plane, make_control_plane, own_control_plane

__all__ = ["control_plane", "make_control_plane", "own_control_plane"]

T = TypeVar("T")

# A machine that is busy with something else makes no test fail.
settings.register_profile("koord", deadline=None)
settings.load_profile("koord")

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What holds since a release is not asked of an older one."""
    since.mark(items)


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    # Not asyncio.run: that would unset the loop that pytest-asyncio holds. Not in a thread: children die with it.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """URL of this test process' nats-server (JetStream on)."""
    server = NatsServer()
    yield _run(server.start())
    _run(server.stop())


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """URL of this test process' redis-server (no persistence)."""
    server = RedisServer()
    yield _run(server.start())
    _run(server.stop())


@pytest.fixture
def cluster() -> str:
    """A cluster name that no other test uses."""
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
async def own_nats() -> AsyncIterator[NatsServer]:
    """A started nats-server of this test alone: `kill()`, `restart(empty=...)`."""
    server = NatsServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def own_redis() -> AsyncIterator[RedisServer]:
    """A started redis-server of this test alone: `kill()`, `restart(empty=...)`."""
    server = RedisServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def collected_never() -> Iterator[None]:
    """No collection of cycles: what is held is there to be counted, and nobody's time has pytest's whole heap in it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
