"""Running a coroutine from a command, on uvloop."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from koord.cli.errors import CommandError
from koord.telemetry import logs

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T], *, with_parent: bool = False) -> T:
    """Run to the end on a new loop. Logs go to standard error, where they cannot spoil ``--json``.

    ``with_parent``: tidily ended, by cancelling it, when the process ends that started this one.
    """
    logs.configure("cli", level="warning")
    return uvloop.run(_with_parent(coroutine) if with_parent else coroutine)


async def _with_parent(coroutine: Coroutine[Any, Any, T]) -> T:
    # Not the kernel's signal at a parent's death: that watches the thread which forked, and threads come and go.
    loop, work = asyncio.get_running_loop(), asyncio.ensure_future(coroutine)
    parent = os.pidfd_open(os.getppid())
    ended = False

    def end() -> None:
        nonlocal ended
        ended = True
        loop.remove_reader(parent)
        work.cancel()

    loop.add_reader(parent, end)
    try:
        return await work
    except asyncio.CancelledError:
        if not ended:
            work.cancel()
            raise
        raise CommandError("the process that started this one has ended") from None
    finally:
        loop.remove_reader(parent)
        os.close(parent)
