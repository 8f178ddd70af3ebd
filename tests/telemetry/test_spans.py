"""What is kept of the spans that services leave."""

import asyncio
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from koord.telemetry.context import TraceContext
from koord.telemetry.export import Exporter
from koord.telemetry.metrics import MetricError, counter, gauge, render
from koord.telemetry.setup import TelemetryError, sampling_ratios
from koord.telemetry.spans import MAX_PENDING, MAX_SLOW, Spans

SECOND = 1_000_000_000


def names(spans: Spans, *, final: bool = False) -> list[str]:
    return [record.name for record in spans.take(0, final=final)]


def test_reserved_ids_become_the_span() -> None:
    spans = Spans()
    root = spans.root()
    context = spans.reserve(root)
    inner = spans.record("inner", parent=context, start_ns=1, end_ns=2)
    spans.record("outer", parent=root, start_ns=0, end_ns=3, context=context)
    taken = {record.name: record for record in spans.take(0)}
    assert taken["inner"].parent == taken["outer"].context == context
    assert inner.trace_id == root.trace_id


def test_of_many_pods_the_first_the_slowest_and_the_failed_are_kept() -> None:
    spans = Spans()
    job = spans.root()
    for pod in range(1000):
        length = SECOND * 100 if pod in (500, 900) else pod
        error = "bind refused" if pod == 700 else None
        spans.record("bind", parent=job, start_ns=0, end_ns=length, attributes={"pod": pod}, error=error, pod=True)
    early = [record.attributes["pod"] for record in spans.take(0) if record.attributes]
    assert early == [*range(32), 700]
    late = [record.attributes["pod"] for record in spans.take(0, final=True) if record.attributes]
    assert sorted(late) == [500, 900, 994, 995, 996, 997, 998, 999]


def test_slow_ones_come_out_when_their_trace_is_quiet() -> None:
    spans = Spans()
    job = spans.root()
    for pod in range(40):
        spans.record("bind", parent=job, start_ns=0, end_ns=pod + 1, pod=True)
    assert len(spans.take(SECOND)) == 32
    assert len(spans.take(6 * SECOND)) == 8
    assert spans.take(60 * SECOND) == []


def test_an_unsampled_trace_keeps_only_failures() -> None:
    spans = Spans(ratio=0.0)
    root = spans.root()
    assert root.sampled is False
    spans.record("fine", parent=root, start_ns=0, end_ns=1)
    spans.record("failed", parent=root, start_ns=0, end_ns=1, error="no")
    assert names(spans) == ["failed"]


def test_disabled_keeps_nothing_but_still_answers_ids() -> None:
    spans = Spans(enabled=False)
    assert spans.record("any", parent=None, start_ns=0, end_ns=1).trace_id
    assert names(spans, final=True) == []


def test_pending_is_bounded() -> None:
    spans = Spans()
    for _ in range(MAX_PENDING + 5):
        spans.record("flood", parent=None, start_ns=0, end_ns=1)
    assert spans.dropped == 5


class Keep(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS


class Broken(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise ConnectionError("collector is away")


async def test_stop_sends_what_is_left() -> None:
    spans, keep = Spans(), Keep()
    exporter = Exporter(spans, Resource.create({"service.name": "koord-test"}), keep)
    exporter.start()
    link = TraceContext.new()
    spans.record("last", parent=None, start_ns=5, end_ns=9, attributes={"pod": "a"}, links=[link], error="bad")
    await exporter.stop()
    (span,) = keep.spans
    assert (span.name, span.start_time, span.end_time) == ("last", 5, 9)
    assert span.status.description == "bad"
    assert span.links[0].context.trace_id == link.trace_id
    assert exporter.exported == 1


async def test_a_broken_collector_is_counted_and_harms_nobody() -> None:
    spans = Spans()
    exporter = Exporter(spans, Resource.create({}), Broken())
    exporter.start()
    spans.record("any", parent=None, start_ns=0, end_ns=1)
    await asyncio.wait_for(exporter.stop(), 60)
    assert exporter.failed == 1


@pytest.mark.parametrize("text", ["abc", "-1", "1.5", "nan"])
def test_bad_ratio_is_named(text: str) -> None:
    with pytest.raises(TelemetryError, match="OTEL_TRACES_SAMPLER_ARG"):
        sampling_ratios({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": text})


@pytest.mark.parametrize(
    ("environ", "ratios"),
    [
        ({}, (1.0, 0.01)),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, (1.0, 1.0)),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, (0.0, 0.0)),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, (0.1, 0.1)),
    ],
)
def test_ratios(environ: dict[str, str], ratios: tuple[float, float]) -> None:
    assert sampling_ratios(environ) == ratios


def test_slow_spans_of_unsampled_traces_are_kept_up_to_a_bound() -> None:
    spans = Spans(ratio=1.0, pod_ratio=0.0)
    assert spans.root().sampled
    pod = spans.pod_root()
    for _ in range(MAX_SLOW + 9):
        spans.record("slow", parent=pod, start_ns=0, end_ns=2 * SECOND)
    assert len(spans.take(0)) == MAX_SLOW
    spans.record("slow again", parent=pod, start_ns=0, end_ns=2 * SECOND)
    assert names(spans) == ["slow again"]


def test_a_metric_is_made_once_and_of_one_kind() -> None:
    first = counter("koord_test_things", "Things.", ["kind"])
    assert counter("koord_test_things", "Things.", ["kind"]) is first
    first.labels("a").inc()
    assert b'koord_test_things_total{kind="a"} 1.0' in render()
    with pytest.raises(MetricError, match="koord_test_things"):
        gauge("koord_test_things", "Things.")
