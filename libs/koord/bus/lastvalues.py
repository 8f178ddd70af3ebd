"""The last message of each subject of a stream: told once at the start, then as new ones come.

For values that are computed and published anew as a whole, like runtime quotas: a reader that starts late has them at
once. After a gap the stream is read again, so a value may be told twice; nothing is ever told as gone. While the stream
has no leader (NATS cluster) values come live; an older one may follow for the moment until the stream has them, too.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from nats.aio.subscription import Subscription

from koord.bus.connection import Bus
from koord.bus.ordered import OrderedReader
from koord.contracts.codec import ContractError, decode

T = TypeVar("T", bound=msgspec.Struct)


class LastValues(Generic[T]):
    """Reads ``filter_subject`` of ``stream`` and decodes each message as ``type_``.

    ``on_value`` is called from the event loop and must be quick; ``on_bad`` is told subject and rule of what does not
    decode.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        filter_subject: str,
        type_: type[T],
        on_value: Callable[[T], None],
        on_bad: Callable[[ContractError], None],
    ) -> None:
        self._type = type_
        self._on_value = on_value
        self._on_bad = on_bad
        self._bus = bus
        self._live = bus.subjects.live_of(filter_subject)
        self._subscription: Subscription | None = None
        self._reader = OrderedReader(bus, stream, filter_subject, self)

    def start(self) -> None:
        """Begin to read."""
        self._subscription = self._bus.subscribe_raw(self._live, self._on_live)
        self._reader.start()

    async def close(self) -> None:
        """Stop."""
        if self._subscription is not None:
            self._bus.unsubscribe_raw(self._subscription)
            self._subscription = None
        await self._reader.close()

    def _on_live(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        self.message(subject, headers, body, 0)

    # What the reader tells ------------------------------------------------------------------------------------------

    async def starting(self) -> None:
        """A replay begins."""

    def message(self, subject: bytes, headers: bytes | None, body: bytes, sequence: int) -> None:
        """One value."""
        try:
            value = decode(self._type, body)
        except ContractError as error:
            self._on_bad(ContractError(f"{subject.decode()}: {error}"))
            return
        self._on_value(value)

    def caught_up(self) -> None:
        """All that the stream held has been told."""

    def pause(self) -> None:
        """Nothing is gathered."""
