"""Several nats-servers that form one cluster on loopback: JetStream replicates, clients may connect to any of them.

Each is a process with a private directory of its own; together they behave as three machines would, so that tests and
benchmarks can kill, pause and part them. With ``weather=True`` all traffic between them passes through in-process
proxies (:mod:`koord.localcluster.links`), which can cut, silence or delay it; the clients' connections never do.

A cluster is *ready* when it has a leader of its own for JetStream's bookkeeping; nothing can be made before that. The
first start takes about two seconds, for the servers wait that long for each other. Losing a stream's leader costs 4 to
9 seconds without one: that is nats-server's election timeout, which cannot be set.
"""

import asyncio
import json
import re
import secrets
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from koord.localcluster.links import LinkProxy, Weather
from koord.localcluster.ports import HOST, free_port
from koord.localcluster.process import signal_group
from koord.localcluster.servers import NatsServer, ServerError
from koord.localcluster.tempdirs import TemporaryDirectory

_START_ATTEMPTS = 5
_POLL_S = 0.02
_CLUSTER_FILE = "cluster-name"
# Below a server's store: what the raft groups of streams and consumers have agreed on, a folder each.
_RAFT_LOGS = Path("jetstream", "$SYS", "_js_")
_RAFT_GROUP = re.compile(r"[CS]-R\d+[FM]-\w+")


class NatsMember(NatsServer):
    """One server of a cluster; its name (``nats-1``) is the one that JetStream reports as a leader's."""

    def __init__(
        self, name: str, cluster: "NatsCluster", *, directory: Path, port: int, route_port: int, binary: Path | None
    ) -> None:
        super().__init__(directory=directory, port=port, binary=binary)
        self.name = name
        self.route_port = route_port
        self._cluster = cluster
        self._forgotten: set[str] = set()

    async def start(self) -> str:
        """As any server, without the logs that it is to forget."""
        if self.pid is None and self._forgotten:
            await asyncio.to_thread(self._drop_logs)
        return await super().start()

    def forget_logs(self, raft_groups: Iterable[str]) -> None:
        """At its next start the logs of these raft groups are empty, so that their leaders fill it from a snapshot.

        The term and the vote stay, and so do the messages it holds. Only for a server whose entries the others have,
        see :mod:`koord.localcluster.natswatch`.
        """
        self._forgotten.update(group for group in raft_groups if _RAFT_GROUP.fullmatch(group))

    def _drop_logs(self) -> None:
        for store in self._data():
            for group in self._forgotten:
                for part in ("msgs", "snapshots"):
                    shutil.rmtree(store / _RAFT_LOGS / group / part, ignore_errors=True)
        self._forgotten.clear()

    def configuration(self) -> dict[str, Any]:
        """As a single server's, with the routes to the others."""
        return super().configuration() | {
            # JetStream knows its peers by these names: they must be the same after a restart.
            "server_name": self.name,
            "cluster": {
                "name": self._cluster.name,
                "listen": f"{HOST}:{self.route_port}",
                "advertise": f"{HOST}:{self._cluster.address_of(self)}",
                "routes": [
                    f"nats://{HOST}:{self._cluster.address_of(other)}"
                    for other in self._cluster.servers
                    if other is not self
                ],
                # A route that is silent must be found out in seconds, not in minutes.
                "ping_interval": "2s",
            },
        }

    def recognises(self, greeting: dict[str, Any]) -> bool:
        """Other clusters have a ``nats-1`` too; the cluster's name is this one's alone."""
        return super().recognises(greeting) and greeting.get("cluster") == self._cluster.name

    def pause(self) -> None:
        """SIGSTOP: as a machine that hangs. Its connections stand."""
        if self._process is not None:
            signal_group(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            signal_group(self._process, signal.SIGCONT)


class NatsCluster:
    """``size`` (3 or 5) servers named ``nats-1`` ...; ``directory`` as for one server (kept if given, else temporary).

    ``weather`` puts proxies between the servers: ``cluster.weather`` is then the means to make it bad.
    """

    def __init__(
        self, size: int = 3, *, directory: Path | None = None, weather: bool = False, binary: Path | None = None
    ) -> None:
        if size not in (3, 5):
            raise ValueError(f"{size} NATS servers: a cluster has 3 or 5, so that a majority survives a split")
        self.size = size
        self.name = ""
        self.servers: list[NatsMember] = []
        self.weather = Weather()
        self._with_proxies = weather
        self._proxies: dict[str, LinkProxy] = {}
        self._given_directory = directory
        self._temporary: TemporaryDirectory | None = None
        self._binary = binary

    @property
    def url(self) -> str:
        """All servers, comma-separated, as ``nats.url`` takes them."""
        return ",".join(server.url for server in self.servers)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name of those that run now."""
        return {server.name: server.pid for server in self.servers if server.pid is not None}

    def server(self, name: str) -> NatsMember:
        """The server of that name, as :func:`koord.bus.leaders.stream_leader` answers it. KeyError."""
        for server in self.servers:
            if server.name == name:
                return server
        raise KeyError(f"no NATS server {name!r}; there are {', '.join(server.name for server in self.servers)}")

    def address_of(self, server: NatsMember) -> int:
        """The port at which the others reach a server's routes."""
        proxy = self._proxies.get(server.name)
        return proxy.port if proxy is not None else server.route_port

    async def prepare(self) -> list[NatsMember]:
        """Choose directories and ports and answer the servers, not started: for callers that supervise them.

        Start them all at once, then await :meth:`ready`.
        """
        if self._given_directory is not None:
            root = self._given_directory
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            if self._temporary is None:
                self._temporary = await asyncio.to_thread(TemporaryDirectory, "koord-nats-cluster-")
            root = self._temporary.path
        name = root / _CLUSTER_FILE
        if not name.exists():
            name.write_text(f"koord-{secrets.token_hex(4)}")
        self.name = name.read_text()
        self.servers = [
            NatsMember(
                f"nats-{number}",
                self,
                directory=root / f"nats-{number}",
                port=free_port(),
                route_port=free_port(),
                binary=self._binary,
            )
            for number in range(1, self.size + 1)
        ]
        if self._with_proxies:
            for server in self.servers:
                proxy = self._proxies[server.name] = LinkProxy(server.name, server.route_port, self.weather)
                await proxy.start()
        return self.servers

    async def start(self) -> str:
        """Start all and wait until the cluster is ready; the URL. ServerError when it does not come up."""
        for attempt in range(1, _START_ATTEMPTS + 1):
            await self.prepare()
            results = await asyncio.gather(*(server.start() for server in self.servers), return_exceptions=True)
            errors = [result for result in results if isinstance(result, BaseException)]
            if not errors:
                await self.ready()
                return self.url
            await self._end()
            # A port that was free a moment ago may have been taken meanwhile: choose others.
            taken = all(isinstance(error, ServerError) and "in use" in str(error) for error in errors)
            if not taken or attempt == _START_ATTEMPTS:
                raise errors[0]
        raise AssertionError("unreachable")

    async def ready(self, timeout_s: float = 60.0) -> None:
        """Wait until JetStream of the cluster answers through every server that runs. ServerError on timeout."""
        running = [server for server in self.servers if server.pid is not None]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(_jetstream_answers(server.port) for server in running))
                if len(running) == self.size:
                    await _replicas_find_a_place(running[0].port, self.size)
        except TimeoutError:
            tails = "\n".join(f"{server.name}: {server.log_tail(5)}" for server in running)
            raise ServerError(f"the NATS cluster has no leader after {timeout_s:g} s\n{tails}") from None

    async def ask(self, subject: str, question: dict[str, Any], *, timeout_s: float = 2.0) -> dict[str, Any]:
        """One question to JetStream through any server that runs; ``{"error": ...}`` also when nobody answers."""
        for server in self.servers:
            if server.pid is not None:
                return await _ask(server.port, subject, question, timeout_s)
        return {"error": "no NATS server runs"}

    async def stop(self) -> None:
        """End all and remove the temporary directory; may be called again."""
        await self._end()
        if self._temporary is not None:
            await asyncio.to_thread(self._temporary.remove)
            self._temporary = None

    async def _end(self) -> None:
        self.weather.clear()
        for server in self.servers:
            server.resume()  # a paused process does not hear SIGTERM
        # Nobody needs a tidy hand-over of leaders to servers that end as well.
        await asyncio.gather(*(server.kill() for server in self.servers))
        await asyncio.gather(*(server.stop() for server in self.servers))
        await asyncio.gather(*(proxy.stop() for proxy in self._proxies.values()))
        self._proxies.clear()


async def _jetstream_answers(port: int) -> None:
    """Until the server says that JetStream has a leader."""
    while True:
        if "error" not in await _ask(port, "$JS.API.INFO", {}):
            return
        await asyncio.sleep(_POLL_S)


async def _replicas_find_a_place(port: int, size: int) -> None:
    """Until a stream with a replica on each server can be made: the leader may not have heard of all of them yet."""
    name = f"koord-ready-{secrets.token_hex(4)}"
    wanted = {"name": name, "subjects": [name], "storage": "memory", "num_replicas": size}
    while True:
        if "error" not in await _ask(port, f"$JS.API.STREAM.CREATE.{name}", wanted):
            await _ask(port, f"$JS.API.STREAM.DELETE.{name}", {})
            return
        await asyncio.sleep(_POLL_S)


async def _ask(port: int, subject: str, question: dict[str, Any], timeout_s: float = 2.0) -> dict[str, Any]:
    """One question to JetStream, in NATS' own protocol; ``{"error": ...}`` also when nobody answers."""
    body = json.dumps(question).encode()
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(
                    b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.koord 1\r\n'
                    + f"PUB {subject} _INBOX.koord {len(body)}\r\n".encode()
                    + body
                    + b"\r\n"
                )
                while line := await reader.readline():
                    if line.startswith(b"PING"):
                        writer.write(b"PONG\r\n")
                    elif line.startswith(b"MSG"):
                        answer: dict[str, Any] = json.loads(await reader.readexactly(int(line.split()[-1])))
                        return answer
                    elif line.startswith(b"HMSG"):
                        break  # a message without a body: no responders
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
        return {"error": str(error) or type(error).__name__}
    return {"error": "no responders"}
