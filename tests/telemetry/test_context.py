"""The text form of trace contexts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.telemetry.context import TraceContext


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_round_trip(trace_id: int, span_id: int, sampled: bool) -> None:
    context = TraceContext(trace_id, span_id, sampled)
    assert TraceContext.parse(context.traceparent) == context


@given(st.text(max_size=80))
def test_any_text_is_a_context_or_none(text: str) -> None:
    parsed = TraceContext.parse(text)
    assert parsed is None or TraceContext.parse(parsed.traceparent) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "1" * 16 + "-01-more",
        "00-" + "G" * 32 + "-" + "1" * 16 + "-01",
    ],
)
def test_invalid(text: str | None) -> None:
    assert TraceContext.parse(text) is None


def test_a_later_version_may_carry_more() -> None:
    assert TraceContext.parse("01-" + "1" * 32 + "-" + "1" * 16 + "-01-more") is not None


def test_child_stays_in_its_trace() -> None:
    root = TraceContext.new(sampled=False)
    child = root.child()
    assert child.trace_id == root.trace_id
    assert child.span_id != root.span_id
    assert child.sampled is False
