"""All resources followed, over all terms: as the leader into the stream, as a standby only to know what is there.

So a gateway that takes the Lease over has the pods' versions at hand, and tells the stream at once what it lacks.
"""

import asyncio
from collections.abc import Callable, Sequence

import aiohttp

from koord.bus.connection import Bus
from koord.bus.errors import BusError
from koord.bus.statepublisher import StatePublisher
from koord.gateway import metrics
from koord.gateway.access import ApiAccess
from koord.gateway.podindex import PodIndex
from koord.gateway.reflector import Reflector
from koord.gateway.stream import StateStream
from koord.kube.resources import PODS, WATCHED, Resource
from koord.runtime.ending import end
from koord.telemetry.logs import get_logger

log = get_logger("koord.gateway.following")

LOOK_S = 2.0
"""How often a leader looks for writes of others."""
FLUSH_S = 2.0


class Following:
    """``await start()``; then ``lead`` and ``stand_by`` in turn; ``await stop()``.

    ``may_publish`` says whether the leadership lasts, by the clock of this process. ``on_state`` is told when a
    resource's state changes.
    """

    def __init__(
        self,
        bus: Bus,
        access: ApiAccess,
        http: aiohttp.ClientSession,
        *,
        resources: Sequence[Resource] = WATCHED,
        on_state: Callable[[Reflector], None] | None = None,
        may_publish: Callable[[], bool] | None = None,
    ) -> None:
        self.pods = PodIndex()
        self._publisher = StatePublisher(bus, on_epoch=self._new_epoch)
        self._stream = StateStream(bus, self._publisher)
        self.reflectors = [
            Reflector(
                resource,
                access,
                http,
                self._stream,
                watcher=self.pods if resource == PODS else None,
                on_state=on_state,
                publishing=False,
                may_publish=may_publish,
            )
            for resource in resources
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._crashed = asyncio.get_running_loop().create_future()
        self._leading = False

    async def start(self) -> None:
        """Begin to list and watch, as a standby. BusError when the stream cannot be had."""
        await self._publisher.start()
        for reflector in self.reflectors:
            task = asyncio.create_task(reflector.run(), name=f"reflector-{reflector.resource.token}")
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        self._tasks.append(asyncio.create_task(self._trim(), name="gateway-trim"))

    async def lead(self) -> None:
        """Bring the stream up to date and keep it so, until cancelled; then :meth:`stand_by`. Raises what crashed."""
        self._leading = True
        counting = await self._begin()
        await asyncio.gather(*(reflector.lead() for reflector in self.reflectors))
        before = 0
        while True:
            await asyncio.wait([self._crashed], timeout=LOOK_S)
            if self._crashed.done():
                self._crashed.result()
            if not counting:
                counting = await self._begin()
                continue
            try:
                foreign = await self._stream.foreign()
            except BusError:
                continue
            unsure = self._stream.unsure()
            # Seen twice: no answer of ours that is under way. Whoever writes may have written more by then.
            if unsure or (foreign > 0 and before > 0):
                if unsure:
                    log.info("messages were sent again, comparing what the state stream holds")
                else:
                    log.warning("somebody else wrote to the state stream, comparing", messages=foreign)
                metrics.COMPARED.inc()
                counting = await self._begin()
                await asyncio.gather(*(reflector.compare() for reflector in self.reflectors))
                foreign = 0
            before = foreign

    async def stand_by(self) -> None:
        """Publish no more; returns when what was published is stored, or after two seconds."""
        self._leading = False
        for reflector in self.reflectors:
            reflector.stand_by()
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._publisher.flush()
        except TimeoutError:
            log.warning("the stream has not confirmed all that was published")

    async def stop(self) -> None:
        """End."""
        await end(*self._tasks)

    async def _begin(self) -> bool:
        try:
            await self._stream.begin()
        except BusError:
            return False
        return True

    async def _trim(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for reflector in self.reflectors:
                reflector.trim()

    def _new_epoch(self, epoch: str) -> None:
        for reflector in self.reflectors:
            reflector.reset()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self._crashed.done():
            self._crashed.set_exception(error)
            self._crashed.exception()  # seen, even if nobody waits
