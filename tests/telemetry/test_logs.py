"""Logs go where standard error is now, and never take a service down."""

import io
import json
import sys

import pytest

from koord.telemetry import logs


def test_lines_follow_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    logs.configure("test", level="info", format_="json")
    logger = logs.get_logger("koord.test")
    logger.info("one", pod="ns/a")
    monkeypatch.setattr(sys, "stderr", second)
    logger.info("two")
    line = json.loads(first.getvalue())
    assert (line["event"], line["pod"], line["service"], line["level"]) == ("one", "ns/a", "test", "info")
    assert json.loads(second.getvalue())["event"] == "two"


def test_a_reader_that_went_away_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = io.StringIO()
    monkeypatch.setattr(sys, "stderr", gone)
    logs.configure("test", level="info")
    gone.close()
    logs.get_logger("koord.test").warning("nobody listens")


def test_an_unknown_level_is_named() -> None:
    with pytest.raises(ValueError, match=r"log\.level: 'loud'"):
        logs.configure("test", level="loud")
