"""A finished span as plain data, and how it becomes a span of the OpenTelemetry SDK when it is exported."""

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from koord.telemetry.context import TraceContext

AttributeValue = str | int | float | bool
Attributes = Mapping[str, AttributeValue]

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_SCOPE = InstrumentationScope("koord")


class SpanRecord:
    """One finished span. Times are ns since the epoch; ``error`` is the status description, None means ok."""

    __slots__ = ("attributes", "context", "end_ns", "error", "links", "name", "parent", "start_ns")

    def __init__(
        self,
        name: str,
        context: TraceContext,
        parent: TraceContext | None,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None,
        links: Sequence[TraceContext],
        error: str | None,
    ) -> None:
        self.name = name
        self.context = context
        self.parent = parent
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.attributes = attributes
        self.links = links
        self.error = error

    def readable(self, resource: Resource) -> ReadableSpan:
        """The SDK's form, as exporters take it."""
        return ReadableSpan(
            name=self.name,
            context=_span_context(self.context, remote=False),
            parent=_span_context(self.parent, remote=True) if self.parent is not None else None,
            resource=resource,
            attributes=dict(self.attributes) if self.attributes else None,
            links=[Link(_span_context(link, remote=True)) for link in self.links],
            kind=SpanKind.INTERNAL,
            instrumentation_scope=_SCOPE,
            status=Status(StatusCode.ERROR, self.error) if self.error is not None else Status(StatusCode.UNSET),
            start_time=self.start_ns,
            end_time=max(self.start_ns, self.end_ns),
        )


def _span_context(context: TraceContext, *, remote: bool) -> SpanContext:
    return SpanContext(context.trace_id, context.span_id, is_remote=remote, trace_flags=_SAMPLED)
