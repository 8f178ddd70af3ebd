"""OTLP protobuf to stored spans."""

from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from koord.localcluster.traces.store import StoredSpan


class OtlpError(ValueError):
    """A body that is no ExportTraceServiceRequest."""


def spans_of(body: bytes) -> Iterator[StoredSpan]:
    """The spans of one export request; OtlpError before the first if it does not decode.

    A span without ids is left out, as the OTLP specification asks of receivers.
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise OtlpError(f"not an ExportTraceServiceRequest: {error}") from error
    return _spans(request)


def _spans(request: ExportTraceServiceRequest) -> Iterator[StoredSpan]:
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        service = str(resource.get("service.name", "unknown"))
        instance = str(resource.get("service.instance.id", ""))
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                if len(span.trace_id) == 16 and len(span.span_id) == 8:
                    yield _stored(span, service, instance)


def _stored(span: Span, service: str, instance: str) -> StoredSpan:
    return StoredSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        service=service,
        instance=instance,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        links=[link.trace_id.hex() for link in span.links],
        error=(span.status.message or "failed") if span.status.code == Status.STATUS_CODE_ERROR else None,
    )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, str | int | float | bool]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> str | int | float | bool:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return value.int_value
    if kind == "double_value":
        return value.double_value
    if kind == "bool_value":
        return value.bool_value
    return str(value).strip()
