"""Headers and subjects: what is written is read back; what could not be read back is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.bus.client import header_block, header_value, status_of
from koord.bus.errors import BusError
from koord.bus.statecache import key_of
from koord.bus.tracecheck import header_names
from koord.contracts.codec import ContractError
from koord.contracts.state import format_header, parse_header
from koord.contracts.subjects import Subjects

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9\-]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\x00"), max_size=60).map(str.strip)


@settings(deadline=None)
@given(NAMES, VALUES)
def test_a_header_is_read_back(name: str, value: str) -> None:
    block = header_block((name, value))
    assert header_value(block, name.encode()) == value
    assert header_names(block) == [name]
    assert status_of(block) == (0, "")


@settings(deadline=None)
@given(NAMES, VALUES, NAMES, VALUES)
def test_of_two_headers_each_is_found(first: str, one: str, second: str, two: str) -> None:
    if first == second:
        return
    block = header_block((first, one), (second, two))
    assert header_value(block, first.encode()) == one
    assert header_value(block, second.encode()) == two


@settings(deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_no_header_can_inject_another_line(name: str, value: str) -> None:
    try:
        block = header_block((name, value))
    except BusError as error:
        assert "header" in str(error)
        return
    assert block.count(b"\r\n") == 3
    assert block.endswith(b"\r\n\r\n")


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_reading_a_broken_block_never_raises(block: bytes) -> None:
    header_value(b"NATS/1.0" + block, b"Koord")
    header_names(b"NATS/1.0" + block)
    status_of(b"NATS/1.0" + block)
    status_of(block)


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (b"NATS/1.0 404 No Messages\r\n\r\n", (404, "No Messages")),
        (b"NATS/1.0 503\r\n\r\n", (503, "")),
        (b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\n\r\n", (100, "Idle Heartbeat")),
        (None, (0, "")),
    ],
)
def test_status_lines(block: bytes | None, status: tuple[int, str]) -> None:
    assert status_of(block) == status


@settings(deadline=None)
@given(st.text(max_size=40))
def test_a_state_header_that_is_not_three_words_is_named(text: str) -> None:
    try:
        header = parse_header(text)
    except ContractError as error:
        assert "Koord" in str(error)
    else:
        assert format_header(*header) == text


LABEL = r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?"


@settings(deadline=None)
@given(st.from_regex(LABEL, fullmatch=True), st.from_regex(rf"{LABEL}(\.{LABEL}){{0,3}}", fullmatch=True))
def test_an_objects_key_survives_its_subject(namespace: str, name: str) -> None:
    subjects = Subjects("local")
    skip = len(subjects.state("pods_core", "", "x")) - 3
    assert key_of(subjects.state("pods_core", namespace, name)[skip:]) == f"{namespace}/{name}"
    assert key_of(subjects.state("pods_core", "", name)[skip:]) == name
