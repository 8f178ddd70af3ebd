"""``/debug/pprof/*``: what the process does, in Python's terms (spec 10 section 2.11). With profiling on only.

The names are Go's, the answers text: folded stacks as flame graph tools read them, stacks of tasks and threads, and
where memory was allocated if Python is told to keep account of that. Nothing is measured while nobody asks.
"""

import asyncio
import sys
import threading
import time
import traceback
import tracemalloc
from collections import Counter
from types import FrameType

from koord.runtime.pages import Asked, Page, Pages

ROOT = "/debug/pprof"
DEFAULT_S, MOST_S = 30.0, 120.0
EVERY_S = 0.01
MOST_TASKS = 1000
MOST_PLACES = 200
_PAGES = {
    "profile": "stacks of all threads, sampled for ?seconds= (30); folded, one line each: frame;frame;frame count",
    "goroutine": "stacks of threads and tasks, as they are now",
    "heap": "where memory was allocated, if the process was started with PYTHONTRACEMALLOC=1 (or more frames)",
    "cmdline": "how the process was started",
}


class Profiling:
    """The pages. One profile at a time, taken by a thread of its own: about 1 % of the process while it runs."""

    def __init__(self, pages: Pages) -> None:
        self._busy = False
        pages.add("GET", ROOT, self._index)
        pages.add("GET", f"{ROOT}/profile", self._profile)
        pages.add("GET", f"{ROOT}/goroutine", self._stacks)
        pages.add("GET", f"{ROOT}/heap", self._heap)
        pages.add("GET", f"{ROOT}/cmdline", self._cmdline)
        pages.add("GET", f"{ROOT}/{{name}}", self._absent)

    async def _index(self, asked: Asked) -> Page:
        return _text("".join(f"{ROOT}/{name}\t{what}\n" for name, what in _PAGES.items()))

    async def _absent(self, asked: Asked) -> Page:
        return _text(f"there is no profile {asked.names['name']} here, only {', '.join(_PAGES)}\n", 404)

    async def _cmdline(self, asked: Asked) -> Page:
        return _text("\0".join(sys.orig_argv))

    async def _profile(self, asked: Asked) -> Page:
        text = asked.query.get("seconds", "")
        try:
            seconds = float(text) if text else DEFAULT_S
        except ValueError:
            seconds = -1.0
        if not 0.0 < seconds <= MOST_S:
            return _text(f"seconds: {text[:20]!r}: must be above 0 and at most {MOST_S:g}\n", 400)
        if self._busy:
            return _text("a profile is being taken: ask again when it is done\n", 429)
        self._busy = True
        try:
            counts = await asyncio.to_thread(_sample, seconds)
        finally:
            self._busy = False
        return _text("".join(f"{stack} {count}\n" for stack, count in counts.most_common()))

    async def _stacks(self, asked: Asked) -> Page:
        return _text("".join(_threads()) + "".join(_tasks()))

    async def _heap(self, asked: Asked) -> Page:
        if not tracemalloc.is_tracing():
            return _text(f"not kept: {_PAGES['heap']}\n", 409)
        return _text(await asyncio.to_thread(_allocations))


def _sample(seconds: float) -> Counter[str]:
    """Stacks by how often they were seen, less the sampler's own."""
    counts: Counter[str] = Counter()
    own = threading.get_ident()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident != own:
                counts[_folded(names.get(ident, "?"), frame)] += 1
        time.sleep(EVERY_S)
    return counts


def _folded(thread: str, frame: FrameType | None) -> str:
    parts: list[str] = []
    while frame is not None:
        parts.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return ";".join([thread, *reversed(parts)]).replace(" ", "_")


def _threads() -> list[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: list[str] = []
    for ident, frame in sys._current_frames().items():
        found += [f"thread {names.get(ident, '?')}\n", *traceback.format_stack(frame), "\n"]
    return found


def _tasks() -> list[str]:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    found = [f"tasks: {len(tasks)}\n\n"]
    for task in tasks[:MOST_TASKS]:
        found.append(f"task {task.get_name()}\n")
        for frame in task.get_stack():
            code = frame.f_code
            found.append(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}\n')
        found.append("\n")
    return found


def _allocations() -> str:
    current, peak = tracemalloc.get_traced_memory()
    statistics = tracemalloc.take_snapshot().statistics("lineno")
    lines = [f"bytes traced: {current}, at most: {peak}\n"]
    lines += [
        f"{each.size} bytes in {each.count} blocks: {each.traceback[0].filename}:{each.traceback[0].lineno}\n"
        for each in statistics[:MOST_PLACES]
    ]
    return "".join(lines)


def _text(text: str, status: int = 200) -> Page:
    return Page(status, text.encode(), "text/plain")
