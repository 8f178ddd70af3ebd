"""A whole koord on this machine: servers, embedded API, trace store and every service, each its own process.

The embedded API server is the outside world: it is not restarted, because its objects end with it, unless a data
directory keeps them. Everything else is restarted with backoff when it dies, as the design promises that it may.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from koord.cli import crds
from koord.cli.api import connect
from koord.cli.apiprocess import ApiProcess
from koord.cli.clusters import ClusterFile
from koord.cli.errors import CommandError, UsageProblem
from koord.cli.replicas import SERVICES, slots
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.components import KINDS
from koord.localcluster.natscluster import NatsCluster
from koord.localcluster.natswatch import ReplicaWatch
from koord.localcluster.ports import free_port
from koord.localcluster.process import Child, LineSink, to_stderr
from koord.localcluster.servers import NatsServer, RedisServer, ServerError
from koord.localcluster.storewatch import StoreWatch
from koord.localcluster.supervisor import Supervisor, brief
from koord.localcluster.tempdirs import TemporaryDirectory
from koord.runtime.settings import read_file

_READY_S = 240.0
_READY_EACH_S = 4.0
"""Processes that start at once share the machine."""
_POLL_S = 0.05
_ENDS = 5
_LEASE_S = 20.0
"""Twice in the 50 s after which a cluster gives up a node that says nothing."""
API_TIMEOUT_S = "2"
"""The embedded API server works on no request longer, and none outlives its process."""


class LocalOptions(msgspec.Struct, frozen=True):
    """What to run. ``kubeconfig`` empty means the embedded API with ``nodes`` fake nodes, ``gpu_nodes`` of them GPU.

    On a cluster that is not ours nothing is made unless asked for: ``crds`` makes koord's definitions that are missing;
    ``nodes`` registers fake nodes there, beside which stand-ins run for the ``operators`` named (kinds of jobs).
    ``config`` is a settings file that every service gets; what this process decides itself (addresses, the cluster's
    name) goes before it. ``log_level`` and ``scheduler_names`` left empty are the file's, or the defaults of ``up``.
    ``data_dir`` keeps the embedded API's objects over restarts of its process and of the whole cluster.
    ``replicas`` says how many processes a service has, one unless named; their names are then ``gateway-1`` and so on.
    ``nats_servers`` is 1, or 3 or 5 for a cluster of servers ``nats-1`` ... that hold every stream each.
    """

    cluster: str = "local"
    nodes: int = 10
    gpu_nodes: int = 0
    kubeconfig: str = ""
    crds: bool = False
    operators: tuple[str, ...] = KINDS
    redis_binary: str = ""
    scheduler_names: tuple[str, ...] = ()
    services: tuple[str, ...] = SERVICES
    trace_ratio: float | None = None
    log_level: str = ""
    config: Path | None = None
    data_dir: Path | None = None
    replicas: Mapping[str, int] = {}
    nats_servers: int = 1


class LocalCluster:
    """An async context manager; inside, everything is ready."""

    def __init__(self, options: LocalOptions, *, sink: LineSink = to_stderr) -> None:
        self.options = options
        self._sink = sink
        self._supervisor = Supervisor(sink=sink, on_restart=self._restarted, on_end=self._ended)
        self._directory = TemporaryDirectory("koord-up-")
        many = options.nats_servers > 1
        self._nats: NatsServer | NatsCluster = NatsCluster(options.nats_servers) if many else NatsServer()
        self._redis = RedisServer(binary=Path(options.redis_binary) if options.redis_binary else None)
        self._api: ApiProcess | None = None
        self._otlp = ""
        self._http: dict[str, int] = {}
        # What has failed for good while starting, in words.
        self._failed: CommandError | None = None
        self._ends: Counter[str] = Counter()
        self._config = read_file(options.config) if options.config is not None else {}
        self.kubeconfig = options.kubeconfig
        self.lost = asyncio.Event()
        self.on_restart: Callable[[], None] | None = None
        self._watchers: list[asyncio.Task[None]] = []

    @property
    def directory(self) -> Path:
        """The cluster's private directory, removed at its end."""
        return self._directory.path

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name; ``up`` is this process."""
        pids = {"up": os.getpid()} | self._supervisor.pids
        if self._api is not None and self._api.pid is not None:
            pids["apiserver"] = self._api.pid
        return pids

    @property
    def restarts(self) -> dict[str, int]:
        """How often each supervised process was started again."""
        return dict(self._supervisor.restarts)

    def _restarted(self, name: str) -> None:
        if self.on_restart is not None:
            self.on_restart()

    def _ended(self, name: str, code: int) -> None:
        """A service that ends again and again while the cluster starts will not do better the next time."""
        self._ends[name] += 1
        if name not in self._http:
            return
        if code == UsageProblem.code:
            self._failed = UsageProblem(f"{name} refuses its settings (see its output above)")
        elif self._ends[name] >= _ENDS:
            self._failed = CommandError(
                f"{name} ended {_ENDS} times while starting, the last time with code {code} (see its output above)"
            )

    def file(self) -> ClusterFile:
        """What clients need to know."""
        return ClusterFile(
            kubeconfig=self.kubeconfig,
            nats=self._nats.url,
            redis=self._redis.url,
            otlp=self._otlp,
            cluster=self.options.cluster,
            pids=self.pids,
            http={name: f"http://127.0.0.1:{port}" for name, port in self._http.items()},
        )

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        try:
            await asyncio.gather(
                self._start_nats(), self._supervisor.add(self._redis, backoff=brief), self._start_traces()
            )
        except (ServerError, OSError) as error:
            raise CommandError(str(error)) from error
        if not self.kubeconfig:
            await self._start_api()
        else:
            await self._prepare()
        # The reconciler opens the ledger and the gateway fills the bus; all retry, so they start at once.
        processes = [(each, slot) for each in self.options.services for slot in slots(each, self.options.replicas)]
        await asyncio.gather(*(self._start_service(service, slot) for service, slot in processes))
        await asyncio.gather(*(self._wait_ready(slot) for _, slot in processes))

    async def _stop(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        try:
            await self._supervisor.stop()
            if self._api is not None:
                await self._api.stop()
            if isinstance(self._nats, NatsCluster):
                await self._nats.stop()
        finally:  # also when somebody cannot wait: the kernel ends the children with this process
            self._directory.remove()

    async def _start_nats(self) -> None:
        if isinstance(self._nats, NatsServer):
            await self._supervisor.add(self._nats, backoff=brief)
            self._watch_store([self._nats])
            return
        await asyncio.gather(*(self._supervisor.add(server, backoff=brief) for server in await self._nats.prepare()))
        await self._nats.ready()
        watch = ReplicaWatch(self._nats, self._sink)
        self._watchers.append(asyncio.create_task(watch.run(), name="watch of the NATS servers"))
        self._watch_store(self._nats.servers)

    def _watch_store(self, servers: Sequence[NatsServer]) -> None:
        watch = StoreWatch(servers, self._sink)
        self._watchers.append(asyncio.create_task(watch.run(), name="watch of the NATS servers' disk"))

    async def _start_traces(self) -> None:
        if _traces_go_elsewhere():
            return
        port = free_port()
        self._otlp = f"http://127.0.0.1:{port}"
        argv = [sys.executable, "-m", "koord.localcluster.traces", "--port", str(port)]
        await self._supervisor.add(Child("traces", argv, sink=self._drop_url))
        await self._wait_http("traces", f"{self._otlp}/healthz")

    def _drop_url(self, line: str) -> None:
        if not line.endswith(self._otlp):
            self._sink(line)

    async def _start_api(self) -> None:
        data = self.options.data_dir
        argv = [
            sys.executable, "-m", "koord.localcluster.api", "--dir", str((data or self.directory) / "api"),
            "--nodes", str(self.options.nodes), "--gpu-nodes", str(self.options.gpu_nodes),
        ]  # fmt: skip
        if data is not None:
            argv += ["--data-dir", str(data)]
        self._api = ApiProcess(argv, self.directory / "api-ready.json", self._sink)
        if data is not None:
            await self._supervisor.add(self._api)
        else:
            await self._api.start()
            self._watchers.append(asyncio.create_task(self._watch_api(self._api), name="watch of the API server"))
        self.kubeconfig = self._api.kubeconfig

    async def _prepare(self) -> None:
        """Make what was asked for on the cluster of the kubeconfig; say what it lacks otherwise."""
        try:
            async with await connect(self.kubeconfig) as api:
                lacking = await crds.missing(api)
                if self.options.crds:
                    await crds.install(api, lacking)
                elif lacking:
                    names = ", ".join(definition["metadata"]["name"] for definition in lacking)
                    self._sink(f"[up] the cluster does not define {names}; --install-crds makes them")
        except (ApiError, TimeoutError) as error:
            raise CommandError(f"the cluster of --kubeconfig: {error or 'no answer in time'}") from error
        if self.options.nodes:
            await self._start_outside()

    async def _start_outside(self) -> None:
        """Fake nodes, and stand-ins for job operators, beside a real API server."""
        nodes = {"nodes": self.options.nodes, "gpu_nodes": self.options.gpu_nodes}
        # A real cluster collects the pods of nodes that are gone by itself.
        kubelets = nodes | {"lease_s": _LEASE_S, "gc_delay_s": 0}
        wanted = {"kubelets": kubelets, "operators": {"kinds": self.options.operators}}
        argv = [
            sys.executable, "-m", "koord.cli.outside", "--kubeconfig", self.kubeconfig,
            "--components", json.dumps(wanted),
        ]  # fmt: skip
        ready = self.directory / "outside-ready.json"
        await self._supervisor.add(
            ApiProcess(argv, ready, self._sink, name="outside", what="the process of the fake nodes")
        )

    async def _watch_api(self, api: ApiProcess) -> None:
        code = await api.wait()
        self._sink(f"[apiserver] ended with code {code}; its objects are gone, so the cluster ends")
        self.lost.set()

    async def _start_service(self, service: str, slot: str) -> None:
        port = self._http[slot] = free_port()
        argv = [sys.executable, "-m", "koord.cli.main", "run", service]
        if self.options.config is not None:
            argv += ["--config", str(self.options.config)]
        env = self.environment() | {"KOORD_HTTP__PORT": str(port), "KOORD_SLOT": slot}
        await self._supervisor.add(Child(slot, argv, env=env, sink=self._sink), stage=1)

    def environment(self) -> dict[str, str]:
        """The environment of the services: where the servers are, and settings of this cluster."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("KOORD_")}
        names = self.options.scheduler_names or (
            ("koord-scheduler",) if self.options.kubeconfig else ("koord-scheduler", "default-scheduler")
        )
        env = inherited | {
            "KOORD_CLUSTER": self.options.cluster,
            "KOORD_NATS__URL": self._nats.url,
            "KOORD_REDIS__URL": self._redis.url,
            "KOORD_KUBECONFIG": self.kubeconfig,
            "KOORD_LOCKS": str(self._locks()),
        }
        if self.options.nats_servers > 1:
            env["KOORD_NATS__REPLICAS"] = str(self.options.nats_servers)
        if self.options.log_level or not self._says("log", "level"):
            env["KOORD_LOG__LEVEL"] = self.options.log_level or "warning"
        if not self.options.kubeconfig and not self._says("gateway", "api_timeout_s"):
            env["KOORD_GATEWAY__API_TIMEOUT_S"] = API_TIMEOUT_S
        if self.options.scheduler_names or "scheduler_names" not in self._config:
            env["KOORD_SCHEDULER_NAMES"] = json.dumps(names)
        if self._otlp:
            env["OTEL_EXPORTER_OTLP_ENDPOINT"] = self._otlp
        if self.options.trace_ratio is not None:
            env["OTEL_TRACES_SAMPLER"] = "parentbased_traceidratio"
            env["OTEL_TRACES_SAMPLER_ARG"] = str(self.options.trace_ratio)
        return env

    def _locks(self) -> Path:
        """Where the services' locks lie, by which they see each other's death."""
        path = self.directory / "locks"
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def _says(self, section: str, key: str) -> bool:
        """Whether the settings file has a value of its own."""
        part = self._config.get(section)
        return isinstance(part, dict) and key in part

    async def _wait_ready(self, name: str) -> None:
        await self._wait_http(name, f"http://127.0.0.1:{self._http[name]}/readyz")

    async def _wait_http(self, name: str, url: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _READY_S + _READY_EACH_S * len(self._http)
        last = "no answer"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while True:
                try:
                    async with session.get(url) as answer:
                        if answer.status == 200:
                            return
                        last = (await answer.text()).strip()
                except (aiohttp.ClientError, TimeoutError) as error:
                    last = str(error) or type(error).__name__
                if self._failed is not None:
                    raise self._failed
                if self.lost.is_set() or loop.time() > deadline:
                    raise CommandError(f"{name} is not ready: {last}")
                await asyncio.sleep(_POLL_S)


def _traces_go_elsewhere() -> bool:
    """Whether the user's OTEL_* variables say where traces go, or that there are none; then there is no local store."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return (
        any(os.environ.get(name) for name in names)
        or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
        or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    )
