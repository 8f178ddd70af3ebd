"""Where decisions leave the scheduler of a benchmark: they are made and counted, and not sent."""

import asyncio
from collections.abc import Callable, Iterable

from koord.contracts.decisions import Decision, Delete
from koord.scheduler.binds import Binds
from koord.scheduler.flights import Flight
from koord.scheduler.outgoing import Outgoing


class Decided(Binds):
    """Binds that are made and counted, and not sent."""

    on_decided: Callable[[Flight], None]

    def publish(self, flight: Flight) -> None:
        """The decision is ready: its claim is settled, as when the API shows the pods bound."""
        flight.bind = self._claims.bind(flight)
        for uid in list(flight.open):
            self.flights.settle(uid)
        self.on_decided(flight)


class Kept(Outgoing):
    """Decisions that are not sent: ``on_delete`` is told which pods are to go."""

    on_delete: Callable[[Delete], None]

    def add(self, decisions: Iterable[Decision]) -> None:
        """Answer deletions once whoever asks for them has finished; the rest is for the eyes of others."""
        for decision in decisions:
            if isinstance(decision, Delete):
                asyncio.get_running_loop().call_soon(self.on_delete, decision)
