"""Running a coroutine from a command, on uvloop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a new loop."""
    return uvloop.run(coroutine)
