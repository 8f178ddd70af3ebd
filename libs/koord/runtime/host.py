"""What a service is given: its connections, telemetry, tasks, gates and leadership."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from koord.bus.connection import Bus
from koord.bus.ending import end
from koord.bus.leases import KvLease
from koord.runtime.lifelock import LifeLock
from koord.runtime.pages import Pages
from koord.runtime.readiness import Readiness
from koord.runtime.settings import CommonSettings
from koord.telemetry.logs import Logger, get_logger
from koord.telemetry.setup import Telemetry
from koord.telemetry.spans import Spans

if TYPE_CHECKING:
    from koord.ledger.client import Ledger


def new_incarnation(name: str) -> str:
    """A name for one life of one process: says where it runs, never comes again."""
    return f"{name}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class HostError(RuntimeError):
    """A service asked its host for something that it did not declare as needed."""


class Leadership:
    """A role that is ours: ``epoch`` is the fencing epoch that the ledger gave; ``lost`` is set when it is over."""

    def __init__(self, role: str, epoch: int, lease: KvLease) -> None:
        self.role = role
        self.epoch = epoch
        self._lease = lease

    @property
    def lost(self) -> asyncio.Event:
        """Set once the lease is lost or given back."""
        return self._lease.lost

    @property
    def held(self) -> bool:
        """Whether the lease is held by the clock of this process."""
        return self._lease.held

    async def release(self) -> None:
        """Give the role back."""
        await self._lease.release()


class Host:
    """One service's surroundings. ``incarnation`` is unique to this process's life."""

    def __init__(
        self,
        name: str,
        common: CommonSettings,
        telemetry: Telemetry,
        *,
        bus: Bus | None = None,
        ledger: "Ledger | None" = None,
        incarnation: str = "",
    ) -> None:
        self.name = name
        self.incarnation = incarnation or new_incarnation(name)
        self.common = common
        self.telemetry = telemetry
        self.log: Logger = get_logger(name)
        self.ready = Readiness()
        self.life = LifeLock(common.locks, self.incarnation)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.http_port = 0
        self.pages = Pages()
        self._bus = bus
        self._ledger = ledger
        self._tasks: set[asyncio.Task[Any]] = set()
        self._leaderships: list[Leadership] = []
        self._roles: dict[str, Callable[[], bool]] = {}

    @property
    def bus(self) -> Bus:
        """The connection to NATS; HostError when the service does not list "bus" in its needs."""
        if self._bus is None:
            raise HostError(f"service {self.name}: 'bus' is not among its needs")
        return self._bus

    @property
    def ledger(self) -> "Ledger":
        """The connection to the ledger; HostError when the service does not list "ledger" in its needs."""
        if self._ledger is None:
            raise HostError(f"service {self.name}: 'ledger' is not among its needs")
        return self._ledger

    def attach(self, *, bus: Bus | None = None, ledger: "Ledger | None" = None) -> None:
        """Give the host a connection; it closes it in :meth:`close`."""
        if bus is not None:
            self._bus = bus
            self.ready.check("nats", lambda: bus.connected)
            bus.closed.add_done_callback(self._bus_closed)
        if ledger is not None:
            self._ledger = ledger

    @property
    def spans(self) -> Spans:
        """Where spans are recorded."""
        return self.telemetry.spans

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run ``work`` for as long as the service lives. If it raises, the process logs it and exits with code 1."""
        task = asyncio.create_task(work, name=f"{self.name}-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException) -> None:
        """End the process with exit code 1 because of ``error``."""
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # seen, even if nobody waits

    def lease(self, role: str) -> KvLease:
        """A lease of this incarnation, not asked for yet; ``/readyz`` tells the role while it is held."""
        lease = KvLease(self.bus, role, self.incarnation, is_dead=self.life.is_dead)
        self.role(role, lambda: lease.held)
        return lease

    def role(self, name: str, held: Callable[[], bool]) -> None:
        """A role this process stands for; ``/readyz`` tells whether it has it."""
        self._roles[name] = held

    @property
    def leads(self) -> list[str]:
        """The roles that are this process's now."""
        return [name for name, held in self._roles.items() if held()]

    async def lead(self, role: str) -> Leadership:
        """Wait until this incarnation leads ``role``: the lease elects, the ledger gives the fencing epoch."""
        from koord.ledger.model import LedgerUnavailable

        ledger = self.ledger
        while True:
            lease = self.lease(role)
            await lease.acquire()
            while lease.held:
                try:
                    epoch = await ledger.lead(role)
                except LedgerUnavailable as error:
                    self.log.warning("the ledger gives no epoch yet", role=role, error=str(error))
                    await asyncio.sleep(0.5)
                    continue
                leadership = Leadership(role, epoch, lease)
                self._leaderships = [one for one in self._leaderships if not one.lost.is_set()]
                self._leaderships.append(leadership)
                return leadership
            await lease.release()

    async def close(self) -> None:
        """End the tasks, give the roles back, close the connections."""
        await end(*self._tasks)
        for leadership in self._leaderships:
            await leadership.release()
        if self._ledger is not None:
            await self._ledger.close()
        if self._bus is not None:
            await self._bus.close()

    def _bus_closed(self, closed: "asyncio.Future[str]") -> None:
        if not closed.cancelled():
            self.fail(ConnectionError(closed.result()))

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.log.error("a task crashed", task=task.get_name(), exc_info=error)
            self.fail(error)
