"""Connections to the real server, closed at the end, and helpers that wait for a condition instead of sleeping."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from koord.bus.connection import Bus
from koord.bus.streams import ensure_streams

Connect = Callable[..., Awaitable[Bus]]


class Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""


class Thing(msgspec.Struct):
    """What the tests read of an object."""

    metadata: Meta
    size: int = 0


def body(name: str, size: int = 0, *, namespace: str = "default", pad: int = 0) -> bytes:
    return msgspec.json.encode(
        {"metadata": {"name": name, "namespace": namespace}, "size": size, "unknown": {"x": ["y" * pad]}}
    )


async def until(condition: Callable[[], object], *, timeout: float = 60.0, what: str = "") -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or condition}")
        await asyncio.sleep(0.005)


@pytest.fixture
async def connect(nats_url: str, cluster: str) -> AsyncIterator[Connect]:
    """Makes a bus of this test's cluster with its streams; ``url=`` for another server."""
    made: list[Bus] = []

    async def make(name: str = "test", *, url: str = nats_url, streams: bool = True, **options: float) -> Bus:
        bus = await Bus.connect(url, cluster, name, **options)  # type: ignore[arg-type]
        made.append(bus)
        if streams:
            await ensure_streams(bus)
        return bus

    yield make
    for bus in made:
        if bus.connected:
            for stream in (
                bus.subjects.state_stream,
                bus.subjects.decisions_stream,
                bus.subjects.quota_stream,
                f"KV_{bus.subjects.leases_bucket}",
            ):
                try:
                    await bus.js.delete_stream(stream)
                except Exception as error:  # gone already, or never made
                    assert "not found" in str(error) or "ServiceUnavailable" in type(error).__name__, error
        await bus.close()


@pytest.fixture
async def bus(connect: Connect) -> Bus:
    return await connect("one")
