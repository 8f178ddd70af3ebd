"""Integers, booleans and durations as Go reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.protocol.gotext import DurationError, format_go_duration, go_bool, go_duration, go_int

SECOND = 10**9

# text, nanoseconds, what Go prints: recorded from time.ParseDuration
DURATIONS = [
    ("0", 0, "0s"),
    ("-0", 0, "0s"),
    ("1h30m", 5400 * SECOND, "1h30m0s"),
    ("90s", 90 * SECOND, "1m30s"),
    ("1.5s", 1_500_000_000, "1.5s"),
    (".5s", 500_000_000, "500ms"),
    ("1.s", SECOND, "1s"),
    ("-1.5h", -5400 * SECOND, "-1h30m0s"),
    ("15s", 15 * SECOND, "15s"),
    ("100us", 100_000, "100µs"),
    ("100µs", 100_000, "100µs"),
    ("100μs", 100_000, "100µs"),
    ("1ns", 1, "1ns"),
    ("0.3ns", 0, "0s"),
    ("1h1ms", 3600 * SECOND + 10**6, "1h0m0.001s"),
    ("2562047h47m16.854775807s", 2**63 - 1, "2562047h47m16.854775807s"),
    ("-9223372036854775808ns", -(2**63), "-2562047h47m16.854775808s"),
]


@pytest.mark.parametrize(("text", "nanoseconds", "printed"), DURATIONS)
def test_durations(text: str, nanoseconds: int, printed: str) -> None:
    assert go_duration(text) == nanoseconds
    assert format_go_duration(nanoseconds) == printed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1",
        "1d",
        "abc",
        "1h 2m",
        ".s",
        "1.5.5s",
        "++5s",
        "1e3s",
        "9223372036854775808ns",
        "3000000h",
        "１s",
        "9" * 5000 + "h",
    ],
)
def test_bad_durations_are_named(text: str) -> None:
    with pytest.raises(DurationError) as caught:
        go_duration(text)
    assert f'duration "{text}"' in str(caught.value)


@given(st.integers(-(2**63), 2**63 - 1))
def test_printed_durations_read_back(nanoseconds: int) -> None:
    assert go_duration(format_go_duration(nanoseconds)) == nanoseconds


@given(st.text(max_size=12) | st.text("0123456789.-+hmsunµ", max_size=16))
def test_any_text_is_a_duration_or_an_error(text: str) -> None:
    try:
        assert -(2**63) <= go_duration(text) < 2**63
    except DurationError as error:
        assert text in str(error)


def test_integers() -> None:
    assert go_int("5") == 5
    assert go_int("-5") == -5
    assert go_int("+5") == 5
    assert go_int("007") == 7
    assert go_int("2147483647") == 2**31 - 1
    assert go_int("2147483648") is None
    assert go_int("2147483648", 64) == 2**31
    for bad in ("", " 5", "5 ", "1_0", "0x5", "5.0", "five", "５", "9" * 5000):
        assert go_int(bad) is None, bad


def test_booleans() -> None:
    for text in ("1", "t", "T", "true", "True", "TRUE"):
        assert go_bool(text) is True
    for text in ("0", "f", "F", "false", "False", "FALSE"):
        assert go_bool(text) is False
    for text in ("", "yes", "tRUE", "2"):
        assert go_bool(text) is None
