"""Structured logs by structlog: one event and its fields, as JSON or, on a terminal, as coloured text."""

import contextlib
import logging
import re
import sys
from typing import Literal, TextIO, cast

import structlog

LogFormat = Literal["json", "console"]
Logger = structlog.typing.FilteringBoundLogger
# As far as the last @ before the next address: a password that is not escaped as it should be is hidden, too.
_USER = re.compile(r"(?:(?<=://)|^)(?:(?!://).)*@")


_NUMBERS = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()}


class _Level:
    """What is logged now. Only lines that pass it cost more than a comparison."""

    def __init__(self) -> None:
        self.configured = logging.INFO
        self.now = logging.INFO

    def __call__(self, logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if _NUMBERS.get(method, logging.ERROR) < self.now:
            raise structlog.DropEvent
        return event


_level = _Level()


class _StandardError:
    """Standard error as it is at the moment; a reader that went away ends the lines, never the service."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure(service: str, *, level: str = "info", format_: LogFormat = "console") -> None:
    """Set up the process's logs on standard error; ValueError for an unknown level."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log.level: {level!r} is not one of debug, info, warning, error, critical")
    _level.configured = _level.now = number
    sink = cast(TextIO, _StandardError())
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if format_ == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    )
    structlog.configure(
        processors=[
            _level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if format_ == "json" else _keep,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(min(number, logging.DEBUG)),
        logger_factory=structlog.WriteLoggerFactory(sink),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    # Libraries that log through the standard module (nats, aiohttp) show only what is worth a look.
    logging.basicConfig(level=max(number, logging.WARNING), stream=sink, format="%(name)s: %(message)s", force=True)


def set_verbosity(verbosity: int) -> None:
    """Log as much as klog would with ``-v``: from 4 on everything, from 1 on what is worth knowing, 0: as configured.

    ValueError: it is negative.
    """
    if verbosity < 0:
        raise ValueError(f"{verbosity} must not be negative")
    shown = logging.DEBUG if verbosity >= 4 else logging.INFO if verbosity else _level.configured
    _level.now = min(shown, _level.configured)


def _keep(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return event


def get_logger(name: str) -> Logger:
    """A logger whose lines say where they come from: ``log.info("bound", pod="ns/a", node="n1")``."""
    return cast(Logger, structlog.get_logger(component=name))


def without_password(url: str) -> str:
    """An address, or several, as logs and messages may show it: ``nats://u:p@a:4222`` is ``nats://***@a:4222``."""
    return _USER.sub("***@", url)
