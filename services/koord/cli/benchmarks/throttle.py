"""Binding while the API server throttles and stalls: what pods wait, and that Events and reports give way to binds.

koord reaches the server through :mod:`koord.cli.benchmarks.apiweather`, the load generator goes past it. Plain pods
come at a steady rate, three times: in calm weather; while a share of the writes is answered 429 and another stalls; and
with room for fewer writes a second than pods, their Events and the conditions of pods that fit nowhere need together.
Beside them the usage of all nodes comes as the manager will send it (:mod:`koord.cli.benchmarks.nodereports`).
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.cli.apiprocess import ApiProcess
from koord.cli.benchmarks.apiweather import Weather
from koord.cli.benchmarks.contenders import Koord
from koord.cli.benchmarks.nodereports import NodeReports
from koord.cli.benchmarks.podload import NAMESPACE, Load, api_of, load_pods
from koord.cli.benchmarks.realcluster import NODES_BY_HAND, binaries, clear, make_nodes
from koord.cli.benchmarks.upprocess import say
from koord.cli.errors import CommandError, UsageProblem
from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.gateway.access import ApiAccess
from koord.gateway.kubeconfig import load_access
from koord.localcluster.controlplane.plane import ControlPlane
from koord.localcluster.httpapi import HttpClusterApi
from koord.localcluster.servers import ServerError
from koord.localcluster.tempdirs import TemporaryDirectory
from koord.runtime.ending import end

_MOST_P99_S = {"calm": 1.0, "weather": 5.0, "crowded": 5.0}
_REPORT_S = 60.0
"""A node reports so often: half of the reports must be there before the next."""


class _Involved(msgspec.Struct):
    name: str = ""


class _Event(msgspec.Struct, rename="camel"):
    involved_object: _Involved
    reason: str = ""


_event = msgspec.json.Decoder(_Event)


class Control:
    """The proxy's own door."""

    def __init__(self, access: ApiAccess, session: aiohttp.ClientSession) -> None:
        self._url = f"{access.url}/-/weather"
        self._headers = {"Authorization": access.authorization}
        self._session = session

    async def set(self, weather: Weather) -> None:
        """Let it be so from now on."""
        body = msgspec.json.encode(weather)
        async with self._session.put(self._url, data=body, headers=self._headers) as answer:
            if answer.status != 200:
                raise CommandError(f"weather: {await answer.text()}")

    async def told(self) -> dict[str, dict[str, int]]:
        """What became of the requests since, by kind."""
        async with self._session.get(self._url, headers=self._headers) as answer:
            return msgspec.json.decode(await answer.read(), type=dict[str, dict[str, int]])


class Phase:
    """One weather: the load, the Events that told of it, what the server was asked, and how the reports fared."""

    def __init__(
        self,
        load: Load,
        scheduled_at: dict[str, float],
        told: dict[str, dict[str, int]],
        reports: dict[str, float],
    ) -> None:
        self.load = load
        self.told = told
        self.reports = reports
        self.lags_s = sorted(at - load.bound_at[name] for name, at in scheduled_at.items() if name in load.bound_at)

    def figures(self, name: str) -> dict[str, float]:
        """Seconds, shares and counts, below the phase's name."""
        found = {
            f"{name}.bound": float(self.load.bound),
            f"{name}.bind_p50_s": self.load.quantile(0.5),
            f"{name}.bind_p99_s": self.load.quantile(0.99),
            f"{name}.events": float(len(self.lags_s)),
        }
        if self.lags_s:
            found[f"{name}.event_lag_p50_s"] = self.lags_s[len(self.lags_s) // 2]
        found |= {f"{name}.{key}": value for key, value in self.reports.items()}
        for what, counts in sorted(self.told.items()):
            for kind, count in sorted(counts.items()):
                if kind in ("bind", "event", "metric", "status"):
                    found[f"{name}.{what}.{kind}"] = float(count)
        return found


async def _run(parameters: Parameters) -> BenchResult:
    log: list[str] = []
    try:
        async with _server(parameters, log) as (direct, directory), _proxy(direct, directory, log) as weathered:
            phases = await _phases(parameters, direct, weathered, log)
    except (ServerError, CommandError, BusError, RuntimeError) as error:
        raise CommandError("\n".join([*log[-20:], str(error)])) from error
    return _result(parameters, phases)


async def _phases(parameters: Parameters, direct: str, weathered: str, log: list[str]) -> dict[str, Phase]:
    given = {key: float(str(value)) for key, value in parameters.items() if key not in ("server", "binaries")}
    bad = Weather(refused=given["refused"], stalled=given["stalled"], stall_s=given["stall_s"])
    weathers = {
        "calm": (Weather(), 0.0),
        "weather": (bad, 0.0),
        "crowded": (Weather(per_s=given["per_s"]), given["misfits"]),
    }
    access = await load_access(direct)
    found: dict[str, Phase] = {}
    async with api_of(access) as api, aiohttp.ClientSession() as http:
        control = Control(await load_access(weathered), http)
        await api.create("namespaces", None, {"metadata": {"name": NAMESPACE}})
        await make_nodes(api, 0, int(given["nodes"]))
        koord = Koord(weathered, log)
        await koord.start()
        try:
            async with _reports(koord, api, int(given["nodes"])) as reports:
                for name, (weather, misfits) in weathers.items():
                    await control.set(weather)
                    found[name] = await _phase(api, access, koord, control, reports, name, given, misfits)
                    await clear(api)
                    say(_words(name, found[name]))
        finally:
            await koord.stop()
    return found


@contextlib.asynccontextmanager
async def _reports(koord: Koord, api: HttpClusterApi, nodes: int) -> AsyncIterator[NodeReports]:
    bus = await Bus.connect(koord.bus, koord.cluster, "bench-manager")
    try:
        reports = NodeReports(bus, api, [f"node-{number:05d}" for number in range(nodes)])
        await reports.start()
        try:
            yield reports
        finally:
            await reports.stop()
    finally:
        await bus.close()


async def _phase(
    api: HttpClusterApi,
    access: ApiAccess,
    koord: Koord,
    control: Control,
    reports: NodeReports,
    name: str,
    given: dict[str, float],
    misfits: float,
) -> Phase:
    scheduled: dict[str, float] = {}
    rate, seconds = given["rate"], given["seconds"]
    following = asyncio.create_task(_follow_events(api, f"{name}-", scheduled), name="bench events")
    others = asyncio.create_task(_misfits(api, misfits, seconds), name="bench misfits")
    reports.begin()
    reporting = asyncio.create_task(reports.send(given["reports"], seconds), name="bench reports")
    try:
        load = await load_pods(access, koord.pids, int(rate * seconds), rate, prefix=name)
        told = await control.told()
        # What has given way comes now, or the next weather would begin with it.
        await control.set(Weather())
        deadline = time.monotonic() + given["events_s"]
        await reporting
        while (len(scheduled) < load.bound or reports.open) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    finally:
        await end(following, others, reporting)
    return Phase(load, scheduled, told, reports.figures())


async def _follow_events(api: HttpClusterApi, prefix: str, scheduled: dict[str, float]) -> None:
    async for events in api.watch("events", NAMESPACE):
        now = time.monotonic()
        for one in events:
            if one.type == "ADDED":
                event = _event.decode(one.raw)
                if event.reason == "Scheduled" and event.involved_object.name.startswith(prefix):
                    scheduled.setdefault(event.involved_object.name, now)


async def _misfits(api: HttpClusterApi, per_s: float, seconds: float) -> None:
    """Pods that fit nowhere: each costs a condition and an Event, and nobody waits for it."""
    if not per_s:
        return
    for number in range(int(per_s * seconds)):
        await api.create("pods", NAMESPACE, _misfit(f"misfit-{number:05d}"))
        await asyncio.sleep(1 / per_s)


@contextlib.asynccontextmanager
async def _server(parameters: Parameters, log: list[str]) -> AsyncIterator[tuple[str, Path]]:
    """The API server's kubeconfig, and a private directory."""
    kind = str(parameters["server"])
    if kind not in ("embedded", "real"):
        raise UsageProblem(f"-p server={kind}: embedded or real")
    with _directory() as directory:
        if kind == "embedded":
            argv = [sys.executable, "-m", "koord.localcluster.api", "--dir", str(directory / "api")]
            api = ApiProcess(argv, directory / "api-ready.json", log.append)
            await api.start()
            try:
                yield api.kubeconfig, directory
            finally:
                await api.stop()
            return
        plane = ControlPlane(binaries(parameters), apiserver_flags=NODES_BY_HAND)
        await plane.start()
        try:
            yield str(plane.kubeconfig), directory
        finally:
            await plane.stop()


@contextlib.asynccontextmanager
async def _proxy(kubeconfig: str, directory: Path, log: list[str]) -> AsyncIterator[str]:
    argv = [
        sys.executable, "-m", "koord.cli.benchmarks.apiweather", "--kubeconfig", kubeconfig,
        "--out", str(directory / "weather-kubeconfig"),
    ]  # fmt: skip
    ready = directory / "weather-ready.json"
    proxy = ApiProcess(argv, ready, log.append, name="weather", what="the proxy of the weather")
    await proxy.start()
    try:
        yield proxy.kubeconfig
    finally:
        await proxy.stop()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    made = TemporaryDirectory("koord-bench-")
    try:
        yield made.path
    finally:
        made.remove()


def _words(name: str, phase: Phase) -> str:
    figures = {key.partition(".")[2]: value for key, value in phase.figures(name).items()}
    return f"{name:>8} " + " ".join(f"{key}={value:.3g}" for key, value in figures.items())


def _result(parameters: Parameters, phases: dict[str, Phase]) -> BenchResult:
    figures: dict[str, float] = {}
    for name, phase in phases.items():
        figures |= phase.figures(name)
    ratios = {f"{name}.bind_p99_s": figures[f"{name}.bind_p99_s"] / most for name, most in _MOST_P99_S.items()}
    # Events give way: in the crowd they come later after their bindings than the bindings after their pods.
    lag = figures.get("crowded.event_lag_p50_s", float("inf"))
    ratios["crowded.bind_p50_over_event_lag"] = figures["crowded.bind_p50_s"] / lag
    # So do the reports of nodes, which come all the same.
    lag = figures.get("crowded.metric_lag_p50_s", float("inf"))
    ratios["crowded.bind_p50_over_metric_lag"] = figures["crowded.bind_p50_s"] / lag
    ratios["crowded.metric_lag_p50_s"] = lag / _REPORT_S
    return BenchResult(
        scenario=THROTTLE.name,
        parameters=dict(parameters),
        figures=figures,
        ratios=ratios,
        bound_by="the weather: 429s with Retry-After, stalls, and writes a second",
        ok=all(phase.load.bound == phase.load.pods for phase in phases.values()) and max(ratios.values()) <= 1.0,
    )


def _misfit(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/pause:3"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": Koord.scheduler,
            "nodeSelector": {"bench": "nowhere"},
            "containers": [container],
        },
    }


THROTTLE = Scenario(
    "throttle",
    "binding while the API server answers 429 and stalls: p99, and Events and reports of nodes give way",
    _run,
    {
        "nodes": 1000,
        "rate": 100,
        "seconds": 15,
        "refused": 0.1,
        "stalled": 0.1,
        "stall_s": 0.5,
        "per_s": 150,
        "misfits": 20,
        "reports": 17,
        "events_s": 30,
        "server": "embedded",
        "binaries": "",
    },
)
