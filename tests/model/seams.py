"""Where the code under test meets what a test cannot have: its clock, and the reader of a real stream.

Inside :func:`stepped` the scheduler, the queue and the quota service read the loop's time, each with what its actor is
ahead of it; caches and last values are told by the model instead of by a consumer.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, cast
from unittest.mock import patch

from koord.bus import decisions, statecache
from koord.bus.ordered import OrderedReader
from koord.gateway import executor
from koord.reconciler import catchingup
from tests.model.feeds import Feed
from tests.model.stepping import ACTOR, SteppedLoop

PACKAGES = ("koord.scheduler", "koord.queue", "koord.quota", "koord.runtime.freshness", "tests.model.actors")
EPOCH_S = 1_800_000_000.0
"""What the wall's clock shows when the loop's shows 0."""


class Clock:
    """In the place of the module ``time``."""

    def __init__(self, loop: SteppedLoop) -> None:
        self._loop = loop
        self.perf_counter = time.perf_counter

    def monotonic(self) -> float:
        actor = ACTOR.get()
        return self._loop.now + (actor.ahead_s if actor is not None else 0.0)

    def time(self) -> float:
        return EPOCH_S + self.monotonic()

    def time_ns(self) -> int:
        return int(self.time() * 1e9)


async def _life(bus: Any, known: int = 0, known_epoch: str = "") -> tuple[str, int]:
    return cast("tuple[str, int]", bus.state_life())


async def _last(reader: OrderedReader) -> int:
    feed: Feed = vars(reader)["feed"]
    return feed.last()


async def _closed(reader: OrderedReader) -> None:
    await asyncio.sleep(0)


class _Loud:
    """A log that tells of exceptions: what the code takes for a broken callback or decision is a defect here."""

    def __init__(self, log: Any, tell: Callable[[str], None]) -> None:
        self._log = log
        self._tell = tell

    def exception(self, text: str, *arguments: object, **fields: object) -> None:
        self._tell(f"{text}: {fields or arguments}: {sys.exc_info()[1]!r}")
        self._log.exception(text, *arguments, **fields)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@contextmanager
def stepped(loop: SteppedLoop, tell: Callable[[str], None]) -> Iterator[None]:
    """Until the end of the block. ``tell`` hears what was logged as an exception."""
    clock = Clock(loop)
    with ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            if not name.startswith(PACKAGES) or not isinstance(module, ModuleType):
                continue
            if vars(module).get("time") is time:
                patches.enter_context(patch.object(module, "time", clock))
            if vars(module).get("monotonic") is time.monotonic:
                patches.enter_context(patch.object(module, "monotonic", clock.monotonic))
        patches.enter_context(patch.object(OrderedReader, "start", lambda reader: None))
        patches.enter_context(patch.object(OrderedReader, "close", _closed))
        patches.enter_context(patch.object(OrderedReader, "last", _last))
        patches.enter_context(patch.object(statecache, "state_life", _life))
        patches.enter_context(patch.object(catchingup, "state_life", _life))
        for logging in (statecache, decisions, executor):
            patches.enter_context(patch.object(logging, "log", _Loud(logging.log, tell)))
        yield
