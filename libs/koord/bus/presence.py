"""Which replicas of a service live: each says so every second, and whoever is not heard for three is gone.

The word goes through the bucket of leases, on a subject of its own per replica, so no message is new and what a dead
replica left there ends by itself. It is a hint: views differ for moments, and what replicas share by it must be safe
then (the ledger's claims are). A replica that a lock proves dead is dropped at once.
"""

import asyncio
import time
from collections.abc import Callable

from nats.aio.subscription import Subscription

from koord.bus.client import header_block, header_value
from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.telemetry.logs import get_logger

log = get_logger("koord.bus")

EVERY_S = 1.0
GONE_S = 3.0
LOOK_S = 0.2
_OPERATION = "KV-Operation"


class Presence:
    """``members`` are the live replicas, this one always among them; ``on_change`` is called when they changed."""

    def __init__(
        self,
        bus: Bus,
        service: str,
        incarnation: str,
        *,
        on_change: Callable[[], None],
        is_dead: Callable[[str], bool] | None = None,
        every_s: float = EVERY_S,
        gone_s: float = GONE_S,
    ) -> None:
        self._bus = bus
        self._own = _token(incarnation)
        self._incarnation = incarnation
        self._prefix = f"$KV.{bus.subjects.leases_bucket}.presence.{service}."
        self._service = service
        self._on_change = on_change
        self._is_dead = is_dead
        self._every_s = every_s
        self._gone_s = gone_s
        self._heard: dict[str, tuple[str, float]] = {}
        self._told = self._looked = 0.0
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """Incarnations of all live replicas, in order."""
        return tuple(sorted((self._incarnation, *(incarnation for incarnation, _ in self._heard.values()))))

    async def start(self) -> None:
        """Listen and tell; whoever lives answers at once."""
        self._subscription = self._bus.subscribe_raw(f"{self._prefix}*", self._on_word)
        self._tell()
        self._task = asyncio.create_task(self._run(), name=f"presence-{self._service}")

    async def stop(self) -> None:
        """Say goodbye."""
        # Before anything is awaited: whoever stops may be cancelled there.
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._bus.unsubscribe_raw(subscription)
        try:
            await end(self._task)
        finally:  # after the last word that one lives
            if subscription is not None and self._bus.connected:
                self._bus.nc.send(self._prefix + self._own, "", header_block((_OPERATION, "DEL")), b"")

    def _tell(self) -> None:
        if self._bus.connected:
            self._bus.nc.send(self._prefix + self._own, "", b"", self._incarnation.encode())

    def _on_word(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        member = subject[len(self._prefix) :].decode(errors="replace")
        if member == self._own:
            return
        if header_value(headers, _OPERATION.encode()) is not None:
            if self._heard.pop(member, None) is not None:
                self._on_change()
            return
        incarnation = body.decode(errors="replace")
        if _token(incarnation) != member:
            log.warning("a word of presence that is not its sender's", subject=subject.decode(errors="replace"))
            return
        new = member not in self._heard
        self._heard[member] = (incarnation, time.monotonic())
        if new:
            self._tell()
            self._on_change()

    async def _run(self) -> None:
        self._told = self._looked = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._look(time.monotonic())
            except Exception:  # a replica that says nothing any more is taken for dead while it works on
                log.exception("a look at the replicas failed", service=self._service)

    def _look(self, now: float) -> None:
        if now - self._told >= self._every_s:
            self._told = now
            self._tell()
        # Whoever slept, or was cut off, has not heard what the others said meanwhile.
        if now - self._looked > 5 * LOOK_S or not self._bus.connected:
            self._heard = {member: (incarnation, now) for member, (incarnation, _) in self._heard.items()}
        self._looked = now
        gone = [
            member
            for member, (incarnation, at) in self._heard.items()
            if now - at > self._gone_s or (self._is_dead is not None and self._is_dead(incarnation))
        ]
        for member in gone:
            log.info("a replica is gone", service=self._service, incarnation=self._heard.pop(member)[0])
        if gone:
            self._on_change()


def _token(incarnation: str) -> str:
    """A host's name may have dots."""
    return incarnation.replace(".", "_")
