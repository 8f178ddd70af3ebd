"""The background exporter: takes records off the hot path and sends them by OTLP/HTTP as OTEL_* says.

The SDK's exporter blocks, so it runs in a thread of its own; while it is busy or the collector is away records wait in
:class:`koord.telemetry.spans.Spans`, which is bounded.
"""

import asyncio
import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from koord.telemetry.records import SpanRecord
from koord.telemetry.spans import Spans

INTERVAL_S = 0.5
BATCH = 2048


def endpoint_configured() -> bool:
    """Whether OTEL_* names a place to send traces to and does not switch them off."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return bool(os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"))


class Exporter:
    """Sends what :class:`Spans` holds, twice a second and once more when it stops."""

    def __init__(self, spans: Spans, resource: Resource, exporter: SpanExporter | None = None) -> None:
        self._spans = spans
        self._resource = resource
        self._exporter = exporter if exporter is not None else OTLPSpanExporter()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="otlp")
        self._task: asyncio.Task[None] | None = None
        self.exported = 0
        self.failed = 0

    def start(self) -> None:
        """Begin on the running loop."""
        self._task = asyncio.create_task(self._run(), name="telemetry-export")

    async def stop(self, timeout_s: float = 3.0) -> None:
        """Send what is left, within ``timeout_s``, and end the thread."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._send(self._spans.take(time.time_ns(), final=True)), timeout_s)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self._send(self._spans.take(time.time_ns()))

    async def _send(self, records: list[SpanRecord]) -> None:
        loop = asyncio.get_running_loop()
        for start in range(0, len(records), BATCH):
            batch = records[start : start + BATCH]
            if await loop.run_in_executor(self._pool, self._export, batch):
                self.exported += len(batch)
            else:
                self.failed += len(batch)

    def _export(self, batch: list[SpanRecord]) -> bool:
        # In the thread: building SDK spans (about 30 µs each) would hold up the loop.
        try:
            result = self._exporter.export([record.readable(self._resource) for record in batch])
        except Exception:
            # Telemetry never takes a service down; failures are counted and shown as a metric.
            return False
        return result is SpanExportResult.SUCCESS
