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


def test_verbosity_changes_what_is_logged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    logs.configure("test", level="warning", format_="json")
    logger = logs.get_logger("koord.test")

    def say() -> list[str]:
        out.seek(0)
        out.truncate()
        for level in ("debug", "info", "warning", "error"):
            getattr(logger, level)(level)
        return [json.loads(line)["event"] for line in out.getvalue().splitlines()]

    said = {}
    for verbosity in (0, 1, 3, 4, 0):
        logs.set_verbosity(verbosity)
        said[verbosity] = say()
    assert said == {
        0: ["warning", "error"],
        1: ["info", "warning", "error"],
        3: ["info", "warning", "error"],
        4: ["debug", "info", "warning", "error"],
    }
    with pytest.raises(ValueError, match="must not be negative"):
        logs.set_verbosity(-1)
