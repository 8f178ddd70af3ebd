"""The trace store over HTTP, fed by the exporter that services use."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest

from koord.localcluster.traces.store import StoredSpan, TraceStore
from koord.telemetry.context import TraceContext
from koord.telemetry.setup import setup


@pytest.fixture
async def url() -> AsyncIterator[str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "koord.localcluster.traces", stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    line = await asyncio.wait_for(child.stdout.readline(), 60)
    yield line.decode().strip()
    child.terminate()
    await asyncio.wait_for(child.wait(), 60)


async def test_what_a_service_records_can_be_read_back(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    telemetry = setup("test", "test-1", "here")
    telemetry.start()
    now = time.time_ns()
    spans = telemetry.spans
    root = spans.record("queue.enqueue", parent=None, start_ns=now, end_ns=now + 5, attributes={"job": "ns/a"})
    other = TraceContext.new()
    spans.record("queue.admit", parent=root, start_ns=now + 9, end_ns=now + 12, links=[other], error="refused")
    await telemetry.shutdown()
    async with aiohttp.ClientSession() as session, session.get(f"{url}/traces/{root.trace_id:032x}") as answer:
        first, second = await answer.json()
    assert (first["name"], first["service"], first["attributes"]) == ("queue.enqueue", "koord-test", {"job": "ns/a"})
    assert second["parent_id"] == first["span_id"]
    assert second["error"] == "refused"
    assert second["links"] == [f"{other.trace_id:032x}"]


@pytest.mark.parametrize(
    ("headers", "body"),
    [({}, b"\xff\xff not protobuf"), ({"Content-Encoding": "gzip"}, b"\x1f\x8b broken")],
)
async def test_bad_body_is_refused_and_harms_nothing(url: str, headers: dict[str, str], body: bytes) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/v1/traces", data=body, headers=headers) as answer:
            assert answer.status == 400
        async with session.get(f"{url}/healthz") as answer:
            assert (await answer.json())["traces"] == 0


async def test_unknown_and_malformed_ids(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/traces/{'0' * 31}1") as answer:
            assert await answer.json() == []
        async with session.get(f"{url}/traces/xyz") as answer:
            assert answer.status == 400
            assert "trace_id" in (await answer.json())["error"]


def span(trace: int, number: int) -> StoredSpan:
    return StoredSpan(f"{trace:032x}", f"{number:016x}", "", "s", "svc", "i", number, number + 1)


def test_the_ring_is_bounded_and_drops_the_oldest_trace() -> None:
    store = TraceStore(max_bytes=20_000)
    for trace in range(200):
        store.add(span(trace, 1))
    assert store.size <= 20_000
    assert store.evicted > 0
    assert store.trace(f"{0:032x}") == []
    assert len(store.trace(f"{199:032x}")) == 1


def test_a_span_sent_twice_is_shown_once() -> None:
    store = TraceStore()
    store.add(span(1, 1))
    store.add(span(1, 1))
    assert len(store.trace(f"{1:032x}")) == 1
