"""A machine whose moves a test makes one by one."""

import asyncio
from collections.abc import Iterator

import pytest

from koord.localcluster.servers import RedisServer
from tests.model.test_model import Machine


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server, plain = RedisServer(), asyncio.new_event_loop()
    plain.run_until_complete(server.start())
    yield server
    plain.run_until_complete(server.stop())
    plain.close()


@pytest.fixture
def machine(server: RedisServer) -> Iterator[Machine]:
    """Three nodes of four cpu and one of each actor; at its end everything must come to rest."""
    machine = type("Bound", (Machine,), {"server": server, "tell": staticmethod(print)})()
    try:
        machine.start()
        yield machine
    finally:
        machine.teardown()
