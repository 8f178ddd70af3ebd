"""What a control plane of our own is made of, as far as it needs no Kubernetes: certificates, ports, the front door."""

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from koord.localcluster.controlplane.authority import Authority
from koord.localcluster.controlplane.binaries import default_folder, release
from koord.localcluster.controlplane.clients import scheduler_config_version
from koord.localcluster.controlplane.frontdoor import FrontDoor
from koord.localcluster.controlplane.kubeconfigs import certificate_user, write_kubeconfig
from koord.localcluster.ports import free_port
from koord.localcluster.servers import ServerError


async def test_a_certificate_names_user_and_groups_to_whom_trusts_the_authority(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.server("server")
    server_side.load_cert_chain(pair.certificate, pair.key)
    server_side.load_verify_locations(authority.ca)
    server_side.verify_mode = ssl.CERT_REQUIRED
    seen: list[dict[str, object]] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peercert"))
        writer.write(b"hello\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server_side)
    port = server.sockets[0].getsockname()[1]
    async with server:
        alice = authority.user("alice", ["readers", "writers"])
        assert authority.user("alice", ["readers", "writers"]) is alice
        assert authority.user("alice") != alice
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.tls(alice))
        assert await reader.readline() == b"hello\n"
        writer.close()
        subject = [pair for part in seen[0]["subject"] for pair in part]  # type: ignore[attr-defined]
        assert subject == [
            ("organizationName", "readers"),
            ("organizationName", "writers"),
            ("commonName", "alice"),
        ]
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=other.tls(other.user("alice")))
        stranger = ssl.create_default_context(cafile=str(authority.ca))
        eve = other.user("eve")
        stranger.load_cert_chain(eve.certificate, eve.key)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=stranger)
        # With TLS 1.3 a client learns of its refusal when it reads.
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            assert await reader.readline() == b""
        writer.close()
    assert len(seen) == 1


def test_keys_and_kubeconfigs_are_for_their_owner_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    user = authority.user("ann", ["readers"])
    path = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", authority.ca, certificate_user(user))
    keys = [path, *authority.folder.glob("*.key"), authority.service_account_keys().key]
    assert len(keys) >= 3
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    content = json.loads(path.read_text())
    assert base64.b64decode(content["users"][0]["user"]["client-certificate-data"]) == user.certificate.read_bytes()
    assert (
        base64.b64decode(content["clusters"][0]["cluster"]["certificate-authority-data"]) == authority.ca.read_bytes()
    )


def test_ports_are_not_those_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port < first for port in (free_port() for _ in range(20)))


@pytest.fixture
async def two() -> AsyncIterator[dict[str, asyncio.Server]]:
    """Two servers that say who they are and then repeat what they hear."""

    def named(name: str) -> object:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(f"{name}\n".encode())
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()
            writer.close()

        return talk

    servers = {name: await asyncio.start_server(named(name), "127.0.0.1", 0) for name in ("one", "two")}  # type: ignore[arg-type]
    yield servers
    for server in servers.values():
        server.close()


async def test_the_front_door_leads_to_one_that_lives(two: dict[str, asyncio.Server]) -> None:
    ports = {name: server.sockets[0].getsockname()[1] for name, server in two.items()}
    door = FrontDoor(lambda: list(ports.values()))
    await door.start()

    async def ask() -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        name = (await reader.readline()).decode().strip()
        if name:
            writer.write(b"x" * 1_000_000 + b"\n")
            assert len(await reader.readexactly(1_000_001)) == 1_000_001
        writer.close()
        return name

    try:
        assert {await ask() for _ in range(4)} == {"one", "two"}
        two["one"].close()
        assert {await ask() for _ in range(4)} == {"two"}
        two["two"].close()
        with contextlib.suppress(ConnectionError):
            assert await ask() == ""
    finally:
        await door.stop()


def test_the_binaries_are_looked_for_where_they_were_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTROLPLANE_BIN", raising=False)
    monkeypatch.delenv("REALCLUSTER_CACHE", raising=False)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with pytest.raises(ServerError, match=r"^no real control plane: etcd and kube-apiserver not there \(make real"):
        default_folder()
    built = tmp_path / ".realcluster" / "bin"
    built.mkdir(parents=True)
    (built / "etcd").touch()
    with pytest.raises(ServerError, match=r"^no real control plane: kube-apiserver not there \(make realcluster"):
        default_folder()
    (built / "kube-apiserver").touch()
    assert default_folder() == built
    monkeypatch.setenv("CONTROLPLANE_BIN", str(tmp_path / "below"))
    with pytest.raises(ServerError, match=r"CONTROLPLANE_BIN has none"):
        default_folder()
    monkeypatch.delenv("CONTROLPLANE_BIN")
    monkeypatch.setenv("REALCLUSTER_CACHE", str(tmp_path / ".realcluster"))
    assert default_folder() == built


def test_a_program_tells_its_release_and_with_it_the_configuration_that_it_knows(tmp_path: Path) -> None:
    program = tmp_path / "kube-scheduler"
    program.write_text("#!/bin/sh\necho Kubernetes v1.24.17\n")
    program.chmod(0o700)
    assert release(program) == (1, 24)
    versions = [scheduler_config_version(one).rpartition("/")[2] for one in ((1, 24), (1, 25), (1, 37))]
    assert versions == ["v1beta3", "v1", "v1"]
    program.write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    with pytest.raises(ServerError, match=r"kube-scheduler --version tells no release: 'no such flag"):
        release(program)
    with pytest.raises(ServerError, match=r"^absent: "):
        release(tmp_path / "absent")
