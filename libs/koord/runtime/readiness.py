"""Readiness as named gates: ``/readyz`` says which ones a service still waits for."""

import asyncio
from collections.abc import Callable

from koord.telemetry.logs import get_logger

log = get_logger("koord.runtime")


class Readiness:
    """Gates that are opened and closed, and checks that are asked each time. Ready when all are open."""

    def __init__(self) -> None:
        self._gates: dict[str, bool] = {}
        self._checks: dict[str, Callable[[], bool]] = {}
        self._changed = asyncio.Event()
        self._failing: set[str] = set()

    def require(self, *names: str) -> None:
        """Declare gates, closed at first."""
        for name in names:
            self._gates.setdefault(name, False)

    def open(self, name: str) -> None:
        """The gate is met."""
        self._gates[name] = True
        self._changed.set()

    def close(self, name: str) -> None:
        """The gate is not met (any more)."""
        self._gates[name] = False

    def check(self, name: str, probe: Callable[[], bool]) -> None:
        """Ask ``probe`` whenever readiness is asked for."""
        self._checks[name] = probe

    @property
    def gates(self) -> dict[str, bool]:
        """Every gate and check, and whether it is met."""
        return self._gates | {name: self._asked(name, probe) for name, probe in self._checks.items()}

    @property
    def waiting(self) -> list[str]:
        """The names of the gates not met."""
        closed = [name for name, is_open in self._gates.items() if not is_open]
        return closed + [name for name, probe in self._checks.items() if not self._asked(name, probe)]

    @property
    def ready(self) -> bool:
        """Whether every gate is met."""
        return not self.waiting

    async def wait(self) -> None:
        """Return once ready."""
        while not self.ready:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), 0.2)
            except TimeoutError:
                continue  # checks change without telling

    def _asked(self, name: str, probe: Callable[[], bool]) -> bool:
        """Whether it is met. A probe that fails is a gate that is not met; the answer must come all the same."""
        try:
            met = bool(probe())
        except Exception:
            if name not in self._failing:  # it is asked several times a second
                log.exception("a check of readiness fails", gate=name)
            self._failing.add(name)
            return False
        self._failing.discard(name)
        return met
