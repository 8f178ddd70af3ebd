"""Bad weather at the API server: a reverse proxy that answers 429 and stalls requests, as an overloaded server does.

It stands between koord and the API server; the load generator goes past it. HTTP/1.1 on loopback without TLS towards
koord, whatever the kubeconfig says towards the server; answers pass as bytes, so watches and long lists cost little.

    python -m koord.cli.benchmarks.apiweather --kubeconfig K --out KUBECONFIG --ready-file F

``PUT /-/weather`` sets the :class:`Weather`, ``GET /-/weather`` tells what became of the requests, by kind.
"""

import argparse
import asyncio
import contextlib
import json
import random
import secrets
import signal
import sys
from collections import Counter
from pathlib import Path

import msgspec
import uvloop

from koord.gateway.access import AccessError, ApiAccess
from koord.gateway.kubeconfig import load_access

_MOST_HEAD = 64 * 1024
_CHUNK = 256 * 1024
_KINDS = {"binding": "bind", "events": "event", "leases": "lease", "status": "status", "eviction": "evict"}


class Weather(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens to writes other than of Leases.

    ``refused``: the share that is answered 429, with ``retry_after`` in seconds. ``stalled``: the share that waits
    ``stall_s`` before it is passed on. ``per_s``: more than so many a second are answered 429, too (0: no limit), as by
    the server's own flow control; what was saved up is at most a tenth of a second's.
    """

    refused: float = 0.0
    retry_after: int = 1
    stalled: float = 0.0
    stall_s: float = 0.5
    per_s: float = 0.0


class Sky:
    """The weather now, and what it did so far."""

    def __init__(self, seed: int) -> None:
        self.weather = Weather()
        self._random = random.Random(seed)
        self._saved = 0.0
        self._at = 0.0
        self.passed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.stalled: Counter[str] = Counter()

    def change(self, weather: Weather, now: float) -> None:
        """Another weather from now on; the counts begin anew."""
        self.weather = weather
        self._saved, self._at = 0.0, now
        for counts in (self.passed, self.refused, self.stalled):
            counts.clear()

    def strike(self, method: str, path: str, now: float) -> tuple[bool, float]:
        """Whether this request is refused, and how long it waits (s)."""
        weather = self.weather
        kind = kind_of(method, path)
        if kind in ("read", "lease"):
            self.passed[kind] += 1
            return False, 0.0
        if self._random.random() < weather.refused or not self._has_room(now):
            self.refused[kind] += 1
            return True, 0.0
        self.passed[kind] += 1
        if self._random.random() < weather.stalled:
            self.stalled[kind] += 1
            return False, weather.stall_s
        return False, 0.0

    def told(self) -> dict[str, dict[str, int]]:
        """Requests by what became of them and kind."""
        return {"passed": dict(self.passed), "refused": dict(self.refused), "stalled": dict(self.stalled)}

    def _has_room(self, now: float) -> bool:
        rate = self.weather.per_s
        if not rate:
            return True
        self._saved = min(max(1.0, rate / 10), self._saved + (now - self._at) * rate)
        self._at = now
        if self._saved < 1.0:
            return False
        self._saved -= 1.0
        return True


def kind_of(method: str, path: str) -> str:
    """``read``, ``bind``, ``evict``, ``event``, ``lease``, ``metric`` (of a node), ``status`` or ``other``."""
    if method in ("GET", "HEAD"):
        return "read"
    parts = path.partition("?")[0].split("/")
    if "nodemetrics" in parts[-3:]:
        return "metric"
    return next((kind for word, kind in _KINDS.items() if word in parts[-2:]), "other")


class Proxy:
    """Listens on a free loopback port; one connection to the server for each of a client's."""

    def __init__(self, access: ApiAccess, sky: Sky) -> None:
        self._access = access
        self._sky = sky
        self._token = secrets.token_hex(16)
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Listen no more; connections end with the process."""
        if self._server is not None:
            self._server.close()

    def kubeconfig(self) -> bytes:
        """A kubeconfig that leads here."""
        here = {"name": "weather", "context": {"cluster": "weather", "user": "weather"}}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "weather", "cluster": {"server": self.url}}],
            "users": [{"name": "weather", "user": {"token": self._token}}],
            "contexts": [here],
            "current-context": "weather",
        }
        return msgspec.json.encode(content)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upward: asyncio.StreamWriter | None = None
        pump: asyncio.Task[None] | None = None
        access = self._access
        try:
            while True:
                method, path, fields, length = _head(await reader.readuntil(b"\r\n\r\n"))
                body = await reader.readexactly(length) if length else b""
                if not any(field == f"authorization: bearer {self._token}" for field in map(str.lower, fields)):
                    writer.write(_answer(401, "Unauthorized", "no such token"))
                    continue
                if path == "/-/weather":
                    writer.write(self._control(method, body))
                    continue
                refused, wait_s = self._sky.strike(method, path, asyncio.get_running_loop().time())
                if refused:
                    retry = f"Retry-After: {self._sky.weather.retry_after}\r\n"
                    writer.write(_answer(429, "TooManyRequests", "bad weather", retry))
                    continue
                if wait_s:
                    await asyncio.sleep(wait_s)
                if upward is None:
                    downward, upward = await asyncio.open_connection(
                        access.host,
                        access.port,
                        ssl=access.ssl,
                        server_hostname=(access.server_name or access.host) if access.ssl else None,
                        limit=_CHUNK,
                    )
                    pump = asyncio.create_task(_pump(downward, writer))
                kept = [field for field in fields if not field.lower().startswith(("authorization:", "host:"))]
                kept.append(f"Host: {access.authority}")
                if access.authorization:
                    kept.append(f"Authorization: {access.authorization}")
                head = "\r\n".join([f"{method} {access.prefix}{path} HTTP/1.1", *kept])
                upward.write(f"{head}\r\n\r\n".encode("latin-1") + body)
                await upward.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            pass  # the client left, or speaks no HTTP
        finally:
            if pump is not None:
                pump.cancel()
            for end in (writer, upward):
                if end is not None:
                    end.close()

    def _control(self, method: str, body: bytes) -> bytes:
        if method == "PUT":
            try:
                weather = msgspec.json.decode(body, type=Weather)
            except msgspec.MsgspecError as error:
                return _answer(422, "Invalid", str(error))
            self._sky.change(weather, asyncio.get_running_loop().time())
        told = msgspec.json.encode(self._sky.told())
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(told)}\r\n\r\n"
        return head.encode() + told


def _head(raw: bytes) -> tuple[str, str, list[str], int]:
    """Method, path, header fields as lines, and the length of the body; ValueError."""
    request, *fields = raw[:-4].decode("latin-1").split("\r\n")
    method, path, _ = request.split(" ", 2)
    length = 0
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "content-length":
            length = int(value)
        elif name.lower() == "transfer-encoding":
            raise ValueError("a body without a length")
    return method, path, fields, length


def _answer(code: int, reason: str, message: str, fields: str = "") -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    body = msgspec.json.encode(status | {"code": code})
    head = f"HTTP/1.1 {code} {reason}\r\nContent-Type: application/json\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def _tell(out: Path, kubeconfig: bytes, ready: Path) -> None:
    out.touch(mode=0o600)
    out.write_bytes(kubeconfig)
    part = ready.with_name(f".{ready.name}.part")
    part.write_text(json.dumps({"kubeconfig": str(out)}))
    part.rename(ready)


async def _run(kubeconfig: str, out: Path, ready: Path, seed: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    proxy = Proxy(await load_access(kubeconfig), Sky(seed))
    await proxy.start()
    _tell(out, proxy.kubeconfig(), ready)
    await ended.wait()
    await proxy.stop()


def main() -> int:
    """The process."""
    parser = argparse.ArgumentParser(prog="python -m koord.cli.benchmarks.apiweather", allow_abbrev=False)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            uvloop.run(_run(given.kubeconfig, given.out, given.ready_file, given.seed))
    except AccessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
