"""A whole service process: readiness, metrics, signals, crashes, exit codes; leadership through real servers."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from koord.bus.connection import Bus
from koord.bus.streams import ensure_streams
from koord.ledger.client import Ledger
from koord.localcluster.ports import free_port
from koord.localcluster.servers import NatsServer
from koord.runtime.host import Host, HostError
from koord.runtime.readiness import Readiness
from koord.runtime.service import ServiceSpec, UnknownService, find
from koord.runtime.settings import CommonSettings
from koord.telemetry.setup import setup
from tests.runtime.sample import SampleSettings

ROOT = Path(__file__).parents[2]


class Process:
    """The sample service as a process."""

    def __init__(self, tmp_path: Path, cluster: str, nats: str, redis: str = "", **settings: object) -> None:
        self.port = free_port()
        self._out = tmp_path / f"out-{self.port}"
        environment = {
            **os.environ,
            "KOORD_CLUSTER": cluster,
            "KOORD_NATS__URL": nats,
            "KOORD_HTTP__PORT": str(self.port),
            **{f"KOORD_{key.upper()}": str(value) for key, value in settings.items()},
        }
        arguments = [sys.executable, "-m", "tests.runtime.sample"]
        if redis:
            environment["KOORD_REDIS__URL"] = redis
            arguments.append("--ledger")
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=out, stderr=out)

    @property
    def output(self) -> str:
        return self._out.read_text(errors="replace")

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body; (0, "") while nobody listens."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def until(self, path: str, status: int, text: str = "", *, timeout: float = 150.0) -> str:
        deadline = time.monotonic() + timeout
        while True:
            got, body = await self.get(path)
            if got == status and text in body:
                return body
            assert time.monotonic() < deadline, (got, body, self.output)
            assert self.process.poll() is None, self.output
            await asyncio.sleep(0.02)

    async def says(self, text: str, *, timeout: float = 150.0) -> None:
        deadline = time.monotonic() + timeout
        while text not in self.output:
            assert time.monotonic() < deadline, self.output
            await asyncio.sleep(0.02)

    async def ends(self, code: int, *, timeout: float = 150.0) -> str:
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.output
            await asyncio.sleep(0.02)
        assert self.process.returncode == code, self.output
        return self.output


@pytest.fixture
def start(tmp_path: Path, cluster: str, nats_url: str) -> Iterator[Any]:
    started: list[Process] = []

    def make(nats: str = nats_url, redis: str = "", **settings: object) -> Process:
        process = Process(tmp_path, cluster, nats, redis, **settings)
        started.append(process)
        return process

    yield make
    for process in started:
        if process.process.poll() is None:
            process.process.kill()
        process.process.wait()


async def test_waits_for_nats_says_so_then_serves_and_drains(start: Any, own_nats: NatsServer) -> None:
    await own_nats.kill()
    service = start(own_nats.url)
    body = await service.until("/readyz", 503)
    assert '"started"' in body and '"connected to NATS"' in body and '"ready":false' in body
    assert await service.get("/healthz") == (200, "ok\n")
    await service.says("waiting for NATS")
    assert own_nats.url in service.output
    await own_nats.restart(empty=False)
    assert '"waiting":[]' in await service.until("/readyz", 200)
    _, metrics = await service.get("/metrics")
    assert "koord_event_loop_lag_seconds_bucket" in metrics and "process_cpu_seconds_total" in metrics
    await own_nats.kill()
    assert '"nats"' in await service.until("/readyz", 503, "nats")
    await own_nats.restart(empty=False)
    await service.until("/readyz", 200)
    service.process.send_signal(signal.SIGTERM)
    output = await service.ends(0)
    assert "drained" in output and "stopped" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_waiting_ends_at_once(start: Any, number: signal.Signals) -> None:
    service = start("nats://user:secret@127.0.0.1:1")
    await service.says("waiting for NATS")
    service.process.send_signal(number)
    output = await service.ends(0)
    assert "nats://***@127.0.0.1:1" in output and "secret" not in output


async def test_a_signal_during_the_start_drains(start: Any) -> None:
    service = start(sample__hang_start=True)
    await service.until("/readyz", 503, "warm")
    service.process.send_signal(signal.SIGTERM)
    assert "drained" in await service.ends(0)


async def test_a_crashed_task_is_logged_with_its_traceback_and_ends_the_process(start: Any) -> None:
    output = await start(sample__crash_after_s=0.3).ends(1)
    assert "a task crashed" in output and "sample-crasher" in output
    assert "ZeroDivisionError" in output and "crashed on purpose" in output and "sample.py" in output
    assert "drained" in output


async def test_a_failed_start_is_exit_code_1(start: Any) -> None:
    output = await start(sample__fail_start=True).ends(1)
    assert "cannot start on purpose" in output


async def test_a_drain_past_its_deadline_is_exit_code_1(start: Any) -> None:
    service = start(drain_s=0.3, sample__drain_s=60)
    await service.until("/readyz", 200)
    service.process.send_signal(signal.SIGTERM)
    assert "not drained in time" in await service.ends(1)


async def test_a_taken_port_is_named(start: Any, tmp_path: Path) -> None:
    first = start()
    await first.until("/healthz", 200)
    second = start(http__port=first.port)
    assert str(first.port) in await second.ends(1)
    assert "cannot listen" in second.output


async def test_a_bad_otel_variable_is_named(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "nonsense")
    assert "OTEL_TRACES_SAMPLER" in await start().ends(1)


async def test_leadership_passes_on_with_a_higher_epoch(start: Any, redis_url: str) -> None:
    first = start(redis=redis_url, sample__lead=True)
    await first.says("leads epoch=")
    second = start(redis=redis_url, sample__lead=True)
    await second.says("standing by")
    assert '"warm"' in await second.until("/readyz", 503)
    first.process.send_signal(signal.SIGTERM)
    await first.ends(0)
    await second.says("leads epoch=")
    epochs = [int(p.output.split("leads epoch=")[1].split()[0]) for p in (first, second)]
    assert 0 < epochs[0] < epochs[1]


async def test_a_killed_leader_is_followed_after_the_lease(start: Any, redis_url: str) -> None:
    first = start(redis=redis_url, sample__lead=True)
    await first.says("leads epoch=")
    second = start(redis=redis_url, sample__lead=True)
    await second.says("standing by")
    first.process.kill()
    await second.says("leads epoch=")


async def test_a_leader_proven_dead_is_followed_at_once(start: Any, redis_url: str, tmp_path: Path) -> None:
    first = start(redis=redis_url, sample__lead=True, locks=tmp_path)
    await first.says("leads epoch=")
    assert '"leads":["sample"]' in await first.until("/readyz", 200)
    _, metrics = await first.get("/metrics")
    assert "koord_sample_leader 1.0" in metrics
    second = start(redis=redis_url, sample__lead=True, locks=tmp_path)
    await second.says("standing by")
    assert '"leads":[]' in await second.until("/readyz", 503)
    first.process.kill()
    await second.says("the holder of a role died")
    await second.says("leads epoch=")


async def test_a_place_for_locks_that_is_none_is_named(start: Any) -> None:
    assert "nowhere" in await start(locks="nowhere").ends(1)


async def test_redis_away_is_waited_for(start: Any) -> None:
    service = start(redis="redis://:secret@127.0.0.1:1/0")
    await service.says("waiting for Redis")
    service.process.send_signal(signal.SIGTERM)
    assert "secret" not in await service.ends(0)


async def test_a_host_gives_only_what_was_declared(nats_url: str, redis_url: str, cluster: str) -> None:
    host = Host("sample", CommonSettings(cluster=cluster), setup("sample", ""))
    with pytest.raises(HostError, match="'bus'"):
        _ = host.bus
    with pytest.raises(HostError, match="'ledger'"):
        _ = host.ledger
    bus = await Bus.connect(nats_url, cluster, "host")
    await ensure_streams(bus)
    host.attach(bus=bus, ledger=await Ledger.connect(redis_url, cluster, host.incarnation))
    leadership = await host.lead("sample")
    assert leadership.held and leadership.epoch > 0 and not leadership.lost.is_set()
    await host.close()
    assert leadership.lost.is_set() and not bus.connected


async def test_readiness_names_its_gates() -> None:
    ready = Readiness()
    ready.require("pods synced", "nodes synced")
    flag = [False]
    ready.check("nats", lambda: flag[0])
    ready.check("broken", lambda: bool(1 / len(flag[1:])))
    assert ready.waiting == ["pods synced", "nodes synced", "nats", "broken"]
    ready.open("pods synced")
    ready.open("nodes synced")
    flag[:] = [True, True]
    await asyncio.wait_for(ready.wait(), 60)
    ready.close("pods synced")
    assert ready.waiting == ["pods synced"] and not ready.ready


def test_an_unknown_service_lists_the_known_ones() -> None:
    with pytest.raises(UnknownService, match=r"'nonsense'.*gateway"):
        find("nonsense")


def test_a_spec_names_its_settings() -> None:
    spec = ServiceSpec("x", "y", SampleSettings, lambda host, settings: None)  # type: ignore[arg-type,return-value]
    assert spec.needs == {"bus", "ledger"}
