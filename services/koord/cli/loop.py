"""Running a coroutine from a command, on uvloop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from koord.telemetry import logs

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a new loop. Logs go to standard error, where they cannot spoil ``--json``."""
    logs.configure("cli", level="warning")
    return uvloop.run(coroutine)
