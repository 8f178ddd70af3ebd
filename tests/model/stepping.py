"""Time and order in the hands of a test: a loop whose timers fire when nothing else can happen, and gates.

The code under test sleeps in back-offs and looks now and then. Here such a sleep ends when the machine lets time pass,
so a run depends on nothing but the machine's choices, and an hour costs nothing.
"""

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_PATIENCE_S = 120.0
_REAL_S = 0.25


class _Selector(selectors.DefaultSelector):
    """Waits only while something real is under way; else the earliest timer is the next thing to happen."""

    loop: "SteppedLoop"

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if self.loop.under_way:
            # A client of a server that was restarted sleeps before it connects again.
            wait_s = _REAL_S if timeout is None else min(timeout, _REAL_S)
            events = super().select(wait_s)
            self.loop.waited_s = 0.0 if events else self.loop.waited_s + wait_s
            assert self.loop.waited_s < _PATIENCE_S, "a real server did not answer"
            if not events:
                self.loop.now += wait_s
            return events
        assert timeout is not None, "nothing will ever happen any more"
        self.loop.now += timeout
        return events


class SteppedLoop(asyncio.SelectorEventLoop):
    """Time stands still but for what timers skip. ``under_way`` counts calls of real servers."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 1000.0
        self.under_way = 0
        self.waited_s = 0.0
        self._answered: asyncio.Future[None] | None = None
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    @property
    def quiet(self) -> bool:
        """Whether nobody but the caller could go on now."""
        return not self.under_way and not self._ready  # type: ignore[attr-defined]

    @contextmanager
    def real(self) -> Iterator[None]:
        """Inside, the world's own clocks and sockets count."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            if not self.under_way and self._answered is not None:
                self._answered.set_result(None)
                self._answered = None

    async def settle(self) -> None:
        """Wait until everybody stands at a gate, sleeps or has ended."""
        while not self.quiet:
            if self.under_way:
                self._answered = self._answered or self.create_future()
                await self._answered
            else:
                await asyncio.sleep(0)


class Actor:
    """One life of a process: its tasks, and whether it can still do anything."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.ahead_s = 0.0
        """How far its clock is ahead of the loop's: it acts as it will when so much time has passed."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self.errors: list[BaseException] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run ``work`` as this actor; so do the tasks that it makes."""
        with self.within():
            return asyncio.get_running_loop().create_task(work)

    @contextmanager
    def within(self) -> Iterator[None]:
        """What is called inside is called as this actor."""
        token = ACTOR.set(self)
        try:
            yield
        finally:
            ACTOR.reset(token)

    def ended(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and self.alive and (error := task.exception()) is not None:
            self.errors.append(error)

    async def die(self) -> None:
        """Between two steps, as by SIGKILL: what would run on the way out finds every gate shut."""
        self.alive = False
        while self.tasks:
            for task in list(self.tasks):
                task.cancel()
            await asyncio.wait(self.tasks)


ACTOR: ContextVar[Actor | None] = ContextVar("ACTOR", default=None)


def owned(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> "asyncio.Task[Any]":
    """A task factory: a task belongs to the actor that made it."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    actor = ACTOR.get()
    if actor is not None:
        actor.tasks.add(task)
        task.add_done_callback(actor.ended)
    return task


class Gate:
    """One call of an actor that waits to go on."""

    def __init__(self, actor: Actor, label: str) -> None:
        self.actor = actor
        self.label = label
        self.opened: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"{self.actor.name}: {self.label}"


class Gates:
    """Where actors stand."""

    def __init__(self, loop: SteppedLoop) -> None:
        self.loop = loop
        self.shut: list[Gate] = []

    async def stand(self, actor: Actor, label: str) -> None:
        """Wait to be let through; raises what the machine has in mind instead."""
        gate = Gate(actor, label)
        if actor.alive:
            self.shut.append(gate)
        try:
            fault = await gate.opened
        finally:
            if gate in self.shut:
                self.shut.remove(gate)
        if fault is not None:
            raise fault

    async def call(self, actor: Actor, label: str, call: Callable[[], Awaitable[T]], *, reads: bool) -> T:
        """A call of a real server: before it is sent, and unless it only reads before its answer is heard."""
        await self.stand(actor, f"{label} is {'asked' if reads else 'sent'}")
        with self.loop.real():
            answer = await call()
        if not reads:
            await self.stand(actor, f"{label} is answered")
        return answer

    async def open(self, gate: Gate, fault: Exception | None = None) -> None:
        """Let one call go on, and wait until everybody stands still again."""
        if gate in self.shut:
            self.shut.remove(gate)
            gate.opened.set_result(fault)
        await self.loop.settle()
