"""A nats-server whose disk was full takes messages again once there is room, and says meanwhile what is wrong."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.js.api import StreamConfig

from koord.bus.ending import end
from koord.localcluster.servers import NatsServer
from koord.localcluster.storewatch import StoreWatch
from koord.localcluster.supervisor import Supervisor, brief

DEADLINE_S = 180.0
SIZE_MB = 24
ROOM = 8 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; skips where mounting is not allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = f"size={SIZE_MB}m"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


async def supervised(directory: Path | None) -> tuple[Supervisor, NatsServer]:
    supervisor, server = Supervisor(sink=lambda line: None), NatsServer(directory=directory)
    await supervisor.add(server, backoff=brief)
    return supervisor, server


@pytest.fixture
async def on_small_disk(small_disk: Path) -> AsyncIterator[NatsServer]:
    supervisor, server = await supervised(small_disk / "nats")
    yield server
    await supervisor.stop()


@pytest.fixture
async def on_large_disk() -> AsyncIterator[NatsServer]:
    supervisor, server = await supervised(None)
    yield server
    await supervisor.stop()


async def stores(server: NatsServer, body: bytes) -> bool:
    """Whether the stream takes a message."""
    try:
        async with await nats.connect(server.url, allow_reconnect=False, connect_timeout=2) as client:
            await client.jetstream(timeout=1).publish("s.x", body)
            return True
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError):
        return False


async def until_told(lines: list[str], text: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not any(text in line for line in lines):
        assert time.monotonic() < deadline, (text, lines)
        await asyncio.sleep(0.05)


async def test_a_full_disk_is_told_and_over_when_there_is_room(on_small_disk: NatsServer, small_disk: Path) -> None:
    server, lines = on_small_disk, list[str]()
    watch = StoreWatch([server], lines.append, every_s=0.1, room_bytes=ROOM)
    watching = asyncio.create_task(watch.run())
    try:
        async with await nats.connect(server.url) as client:
            await client.jetstream(timeout=10).add_stream(StreamConfig(name="S", subjects=["s.>"]))
        assert await stores(server, b"before")
        with pytest.raises(OSError, match="No space left"):
            (small_disk / "filler").write_bytes(bytes(SIZE_MB << 20))
        deadline = time.monotonic() + DEADLINE_S
        while await stores(server, bytes(1 << 16)):
            assert time.monotonic() < deadline
        await until_told(lines, "its disk is full")
        assert watch.restarted == 0, "a restart does not help yet"
        (small_disk / "filler").unlink()
        while not await stores(server, b"after"):
            assert time.monotonic() < deadline, lines
            await asyncio.sleep(0.1)
        assert watch.restarted >= 1
        async with await nats.connect(server.url) as client:
            assert (await client.jetstream(timeout=10).get_msg("S", 1)).data == b"before"
    finally:
        await end(watching)


async def test_only_what_a_server_says_from_now_on_counts(on_large_disk: NatsServer) -> None:
    server, lines = on_large_disk, list[str]()
    with server.log_file.open("a") as log:
        log.write("[ERR] an old one: no space left on device\n")
    watch = StoreWatch([server], lines.append, every_s=0.02, room_bytes=0)
    watching = asyncio.create_task(watch.run())
    pid = server.pid
    try:
        with server.log_file.open("a") as log:
            log.write("[INF] nothing of interest\n")
        deadline = time.monotonic() + DEADLINE_S
        while watch._read[server.name] < server.log_file.stat().st_size:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert not lines and server.pid == pid
        with server.log_file.open("a") as log:
            log.write("[ERR] JetStream failed to store a msg: no space left on device\n")
        await until_told(lines, "there is room")
        while server.pid in (None, pid):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    finally:
        await end(watching)
