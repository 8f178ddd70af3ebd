"""Runs one service from connecting to draining. Exit codes: 0 after SIGTERM or SIGINT, 1 after a failure."""

import asyncio
import contextlib
import gc
import signal
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import uvloop

from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.bus.errors import BusError
from koord.bus.streams import StreamLimits, ensure_streams
from koord.runtime.host import Host, new_incarnation
from koord.runtime.http import Health
from koord.runtime.service import ServiceSpec
from koord.runtime.settings import CommonSettings
from koord.telemetry import logs
from koord.telemetry.metrics import histogram
from koord.telemetry.setup import TelemetryError, setup

if TYPE_CHECKING:
    from koord.ledger.client import Ledger

R = TypeVar("R")

RETRY_FIRST_S = 0.1
RETRY_MOST_S = 5.0
LAG_EVERY_S = 0.5

_lag = histogram(
    "koord_event_loop_lag_seconds",
    "How much later than asked a timer ran",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
)


def run_service(spec: ServiceSpec, common: CommonSettings, settings: msgspec.Struct) -> int:
    """Run ``spec`` until SIGTERM, SIGINT or a failure; the exit code."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(spec, common, settings))


async def serve(spec: ServiceSpec, common: CommonSettings, settings: msgspec.Struct) -> int:
    """The same inside a running loop (tests)."""
    logs.configure(spec.name, level=common.log.level, format_=common.log.format)
    # Services hold hundreds of thousands of small, acyclic objects: frequent collections only cost latency.
    gc.set_threshold(50_000, 50, 100)
    incarnation = new_incarnation(spec.name)
    try:
        telemetry = setup(spec.name, incarnation, common.cluster)
    except TelemetryError as error:
        logs.get_logger(spec.name).error("telemetry cannot be set up", error=str(error))
        return 1
    host = Host(spec.name, common, telemetry, incarnation=incarnation)
    try:
        host.life.hold()
    except OSError as error:
        host.log.error("cannot lock a file (setting locks)", locks=common.locks, error=error.strerror or str(error))
        return 1
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, host, stop, number)
    health = Health(host)
    try:
        port = await health.start()
        host.log.info("serving health and metrics", host=common.http.host, port=port)
        telemetry.start()
        return await _live(spec, settings, host, stop)
    except OSError as error:
        host.log.error("cannot listen", host=common.http.host, port=common.http.port, error=str(error))
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        await health.stop()
        with contextlib.suppress(Exception):
            await telemetry.shutdown()
        host.life.let_go()


def _stop(host: Host, stop: asyncio.Event, number: signal.Signals) -> None:
    if not stop.is_set():
        host.log.info("stopping", signal=number.name)
    stop.set()


async def _live(spec: ServiceSpec, settings: msgspec.Struct, host: Host, stop: asyncio.Event) -> int:
    """Connect, start, wait, drain."""
    host.ready.require("started")
    stopping: asyncio.Future[Any] = asyncio.create_task(stop.wait(), name="stop")
    try:
        if "bus" in spec.needs:
            bus = await _unless(stopping, _retried(host, "NATS", host.common.nats.url, _connect_bus(host)))
            if bus is None:
                return 0
            host.attach(bus=bus)
        if "ledger" in spec.needs:
            ledger = await _unless(stopping, _retried(host, "Redis", host.common.redis.url, _connect_ledger(host)))
            if ledger is None:
                return 0
            host.attach(ledger=ledger)
        service = spec.build(host, settings)
        host.spawn(_measure_lag(), "lag")
        starting: asyncio.Future[Any] = asyncio.create_task(service.start(), name=f"{spec.name}-start")
        failed: asyncio.Future[Any] = host.failed
        await asyncio.wait((starting, stopping, failed), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            host.ready.open("started")
            gc.collect()
            gc.freeze()
            host.log.info("started", incarnation=host.incarnation)
            await asyncio.wait((stopping, failed), return_when=asyncio.FIRST_COMPLETED)
        else:
            await end(starting)
        code = 1 if host.failed.done() else 0
        host.ready.close("started")
        try:
            await asyncio.wait_for(service.drain(), host.common.drain_s)
        except TimeoutError:
            host.log.error("not drained in time", seconds=host.common.drain_s)
            code = 1
        return code
    except Exception:
        host.log.exception("the service failed")
        return 1
    finally:
        stopping.cancel()
        await host.close()
        host.log.info("stopped")


async def _unless(stopping: "asyncio.Future[Any]", work: Awaitable[R]) -> R | None:
    """The result of ``work``, or None when stopping came first."""
    task: asyncio.Future[Any] = asyncio.ensure_future(work)
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        result: R = task.result()
        return result
    await end(task)
    return None


async def _retried(host: Host, what: str, url: str, connect: Callable[[], Awaitable[R]]) -> R:
    """Connect, again and again, saying what is wrong."""
    delay, begun, url = RETRY_FIRST_S, time.monotonic(), logs.without_password(url)
    gate = f"connected to {what}"
    host.ready.require(gate)
    while True:
        try:
            connected = await connect()
            host.ready.open(gate)
            return connected
        except (BusError, OSError, TimeoutError) as error:
            waited = round(time.monotonic() - begun, 1)
            host.log.warning(f"waiting for {what}", url=url, error=str(error) or repr(error), waited_s=waited)
        await asyncio.sleep(delay)
        delay = min(delay * 2, RETRY_MOST_S)


def _connect_bus(host: Host) -> Callable[[], Awaitable[Bus]]:
    async def connect() -> Bus:
        nats = host.common.nats
        bus = await Bus.connect(nats.url, host.common.cluster, host.incarnation, credentials=nats.credentials)
        try:
            await ensure_streams(bus, StreamLimits(replicas=nats.replicas))
        except BaseException:
            await bus.close()
            raise
        return bus

    return connect


def _connect_ledger(host: Host) -> Callable[[], Awaitable["Ledger"]]:
    async def connect() -> "Ledger":
        from koord.ledger.client import Ledger
        from koord.ledger.model import LedgerUnavailable

        try:
            return await Ledger.connect(host.common.redis.url, host.common.cluster, host.incarnation)
        except LedgerUnavailable as error:
            raise ConnectionError(str(error)) from error

    return connect


async def _measure_lag() -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_EVERY_S
        await asyncio.sleep(LAG_EVERY_S)
        _lag.observe(max(0.0, loop.time() - due))
