"""What one connection published and no stream confirmed yet: in flight, refused for now, waiting behind the bound."""

import itertools
from collections import deque
from collections.abc import Iterator

from koord.bus.flights import Flight


class Unconfirmed:
    """Each message is in one place. ``bytes`` counts ``flight`` and ``retry``, ``backlog_bytes`` the backlog."""

    def __init__(self) -> None:
        # By order, in the order of sending; the same mapping for ever.
        self.flight: dict[int, Flight] = {}
        self.retry: list[Flight] = []
        self.bytes = 0
        self.backlog: deque[Flight] = deque()
        self.backlog_bytes = 0

    def __len__(self) -> int:
        return len(self.flight) + len(self.retry) + len(self.backlog)

    def __iter__(self) -> Iterator[Flight]:
        return itertools.chain(self.flight.values(), self.retry, self.backlog)

    def take_sent(self) -> list[Flight]:
        """Everything that was sent, oldest first, and in no place any more."""
        taken = sorted((*self.flight.values(), *self.retry), key=lambda flight: flight.order)
        self.flight.clear()
        self.retry = []
        return taken

    def sent_before(self, moment: float) -> list[Flight]:
        """In flight since ``moment`` or longer, oldest first."""
        found: list[Flight] = []
        for flight in self.flight.values():
            if flight.sent > moment:
                break  # the dict is in order of sending
            found.append(flight)
        return found

    def forget_done(self) -> None:
        """Those whose future is resolved."""
        for order in [order for order, flight in self.flight.items() if flight.future.done()]:
            self.bytes -= self.flight.pop(order).size
        self.bytes -= sum(flight.size for flight in self.retry if flight.future.done())
        self.retry = [flight for flight in self.retry if not flight.future.done()]
        self.backlog = deque(flight for flight in self.backlog if not flight.future.done())
        self.backlog_bytes = sum(flight.size for flight in self.backlog)

    def clear(self) -> None:
        """Forget all."""
        self.flight.clear()
        self.retry = []
        self.backlog.clear()
        self.bytes = self.backlog_bytes = 0
