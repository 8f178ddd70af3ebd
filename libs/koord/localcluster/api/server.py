"""The server as a process: certificates, a port, granian around the application, the ready file, and its end."""

import asyncio
import base64
import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import yaml
from granian import net
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server.embed import Server

from koord.localcluster.api import crds
from koord.localcluster.api.app import App
from koord.localcluster.api.builtin import CRDS
from koord.localcluster.api.certificates import CertificateFiles, make_certificates
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.running import Controllers
from koord.localcluster.api.datadir import DataDirectory, some_ports
from koord.localcluster.api.expiry import expire_forever
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.journal import JournalError
from koord.localcluster.api.privatefiles import write_private
from koord.localcluster.api.store import decode

_BACKLOG = 1024
_START_SECONDS = 60.0
_PORT_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Ready(msgspec.Struct):
    """The ready file: how to reach the server."""

    url: str
    kubeconfig: str
    ca: str
    token: str
    pid: int


class Running(Protocol):
    """Components that run in the server's process."""

    async def failed(self) -> None:
        """Wait until one fails, and raise its error."""

    async def stop(self) -> None:
        """End them."""


Components = Callable[[InProcessApi], Awaitable[Running]]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. The OSError names the address."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # A server that starts again on its port must not wait for the connections of its earlier life.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    return listener


class _OwnSocketServer(Server):
    """granian on a socket that is ours already.

    Left alone, granian binds by number and shares the port (SO_REUSEPORT): two servers that were told the same free
    port would both start, and get each other's connections.
    """

    def listen_on(self, listener: socket.socket) -> None:
        """Use this socket; its descriptor is granian's from now on."""
        self._listener = listener

    def _init_shared_socket(self) -> None:
        holder: Any = vars(net)["SocketHolder"]  # the stubs of granian know neither its place nor its arguments
        self._shd: Any = holder(self._listener.detach(), False, _BACKLOG)


def kubeconfig(url: str, ca: Path, token: str) -> str:
    """A kubeconfig with one cluster, one user and one context, all named koord."""
    authority = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "koord", "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": "koord-admin", "user": {"token": token}}],
        "contexts": [{"name": "koord", "context": {"cluster": "koord", "user": "koord-admin", "namespace": "default"}}],
        "current-context": "koord",
        "preferences": {},
    }
    return yaml.safe_dump(config, sort_keys=False)


def load_crds(cluster: Cluster, folders: list[Path]) -> None:
    """Create the definitions in all `*.yaml` of some folders; what was stored before is brought up to date."""
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            for definition in crds.read_definitions(path.read_text()):
                stored = cluster.collection(CRDS).get("", definition["metadata"]["name"])
                if stored is None:
                    cluster.create(CRDS, None, definition)
                else:
                    old = decode(stored)
                    cluster.update(CRDS, stored, old, {**old, "spec": definition["spec"]})


class ApiServer:
    """One embedded API server, living on the running event loop until `stop`.

    With a data directory it has that one's token, certificates and port (unless `port` says another).
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data: DataDirectory | None = None,
    ) -> None:
        self.cluster = cluster
        self.controllers = Controllers(cluster)
        self._data = data
        self.token = secrets.token_urlsafe(24) if data is None else data.identity().token
        self.url = ""
        self._folder = folder
        self._host = host
        self._port = port
        self._server: _OwnSocketServer | None = None
        self._task: asyncio.Task[Any] | None = None
        self._tidy: list[asyncio.Task[None]] = []

    async def start(self) -> Ready:
        """Listen, and answer how to reach the server once it does."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._data is None:
            files = await asyncio.to_thread(make_certificates, self._folder)
            listener = listen(self._host, self._port)
        else:
            files = await asyncio.to_thread(self._data.certificates)
            listener = await _listen_again(self._data, self._host, self._port)
        port = int(listener.getsockname()[1])
        self.url = f"https://{self._host}:{port}"
        app = App(self.cluster, self.token, f"{self._host}:{port}")
        self._server = self._granian(app, listener, files)
        self._task = asyncio.create_task(self._server.serve())
        await self._answering(port, files.ca)
        path = self._folder / "kubeconfig"
        text = kubeconfig(self.url, files.ca, self.token)
        if not (self._data is not None and path.exists() and path.read_text() == text):
            write_private(path, text)
        self._tidy = [asyncio.create_task(expire_forever(self.cluster)), asyncio.create_task(app.tidy_forever())]
        store = self.cluster.store
        if store.journal is not None:
            store.journal.start(store.state, lambda: store.version)
        self.controllers.start()
        return Ready(self.url, str(path), str(files.ca), self.token, os.getpid())

    def _granian(self, app: App, listener: socket.socket, files: CertificateFiles) -> _OwnSocketServer:
        async def target(scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)

        server = _OwnSocketServer(
            target,
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            websockets=False,
            backlog=_BACKLOG,
            # Watches count as running requests: the limit must be far above what clients hold open.
            backpressure=100_000,
            log_level=LogLevels.error,
            ssl_cert=files.certificate,
            ssl_key=files.key,
        )
        server.listen_on(listener)
        return server

    async def _answering(self, port: int, ca: Path) -> None:
        """Wait for the first answer; the socket alone says nothing, it accepts before granian does."""
        context = await asyncio.to_thread(ssl.create_default_context, cafile=str(ca))
        asking = asyncio.create_task(_ask(self._host, port, context))
        serving = self._task
        if serving is None:
            raise RuntimeError("the API server was not started")
        async with asyncio.timeout(_START_SECONDS):
            await asyncio.wait({asking, serving}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            asking.cancel()
            raise RuntimeError("the API server ended while starting") from serving.exception()
        await asking

    async def stop(self) -> None:
        """End all watches, then listen no longer."""
        await self.controllers.stop()
        for task in self._tidy:
            task.cancel()
        for collection in list(self.cluster.store.collections.values()):
            collection.cache.close()
        await asyncio.sleep(0)
        if self._server is not None and self._task is not None:
            self._server.stop()  # type: ignore[no-untyped-call]
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._task, 5)
        await self.cluster.admission.aclose()
        if self.cluster.store.journal is not None:
            await self.cluster.store.journal.stop()


async def _listen_again(data: DataDirectory, host: str, port: int) -> socket.socket:
    """Listen where this data directory's clients look for it; `JournalError` when another process has the port."""
    identity = data.identity()
    if not port and not identity.port:
        for candidate in some_ports():
            with contextlib.suppress(OSError):
                listener = listen(host, candidate)
                break
        else:
            listener = listen(host, 0)
    else:
        wanted = port or identity.port
        deadline = time.monotonic() + _PORT_SECONDS
        while True:
            try:
                listener = listen(host, wanted)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise JournalError(
                        f"data directory {data.path}: its port {wanted}: {error.strerror}; free the port, or choose"
                        " another with --port (then kubeconfigs written before are no longer valid)"
                    ) from error
                await asyncio.sleep(0.1)
    identity.port = listener.getsockname()[1]
    if identity != data.identity():
        data.keep(identity)
    return listener


async def _ask(host: str, port: int, context: ssl.SSLContext) -> None:
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: koord\r\nConnection: close\r\n\r\n")
    status = await reader.readline()
    writer.close()
    if b" 200 " not in status:
        raise RuntimeError(f"the API server answered {status!r} to its first request")


async def run(
    server: ApiServer, ready_file: Path | None, components: Components | None, announce: Callable[[Ready], None]
) -> int:
    """Serve until SIGTERM or SIGINT; the ready file appears when clients can connect and components have started."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    ready = await server.start()
    running = await components(InProcessApi(server.cluster)) if components is not None else None
    # What lives long here (bytes, structs outside of the collector's sight) holds no cycles: look rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    if ready_file is not None:
        write_private(ready_file, msgspec.json.encode(ready).decode())
    announce(ready)
    failed = await _stopped_or_failed(stopping, running)
    if running is not None and not failed:
        await running.stop()
    await server.stop()
    if ready_file is not None:
        await asyncio.to_thread(ready_file.unlink, missing_ok=True)
    return 1 if failed else 0


async def _stopped_or_failed(stopping: asyncio.Event, running: Running | None) -> bool:
    """Wait for the order to stop; True when a component failed first (a cluster with dead kubelets is no cluster)."""
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(stopping.wait())]
    if running is not None:
        waiting.append(asyncio.create_task(running.failed()))
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    errors = [error for task in done if (error := task.exception()) is not None]
    for error in errors:
        _log.error("a component failed", exc_info=error)
    return bool(errors)
