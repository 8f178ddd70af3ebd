"""The state stream as the reflectors see it: publishing, reading back, tombstones for what vanished unseen.

It also notices when somebody else wrote there. A predecessor that was only stopped for a while may publish old states
when it goes on, before it sees that it leads no more; the places in the stream that were not ours give it away.
"""

import asyncio
from collections.abc import Mapping

import nats.errors
import nats.js.errors

from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable
from koord.bus.statepublisher import StatePublisher
from koord.bus.streams import state_life
from koord.kube.resources import Resource


class StateStream:
    """Adapts the bus's StatePublisher. ``begin`` the count of our own writes, then ``foreign`` tells of others'."""

    def __init__(self, bus: Bus, publisher: StatePublisher) -> None:
        self._bus = bus
        self._publisher = publisher
        self.publish = publisher.publish
        self.room = publisher.room
        self._first = 0
        self._ours = 0
        self._highest = 0
        self._extra = 0
        self._least: int | None = None
        """The least excess of places over ours at any of our writes since the last look."""
        self._resent = self._resent_last = 0

    def stored(self, sequence: int) -> None:
        """A change that was published has this place in the stream."""
        self._ours += 1
        self._highest = max(self._highest, sequence)
        extra = self._highest - self._first - self._ours
        if self._least is None or extra < self._least:
            self._least = extra

    async def listed(self, resource: Resource, resource_version: str, mark: str = "") -> int:
        """Say that the stream holds the whole resource; returns when everything published before is stored."""
        sequence = await self._publisher.listed(resource, resource_version, mark)
        self.stored(sequence)
        return sequence

    async def begin(self) -> None:
        """Count from here. BusUnavailable."""
        _, self._first = await state_life(self._bus)
        self._ours = self._extra = 0
        self._highest, self._least = self._first, None
        self._resent = self._resent_last = self._bus.acks.resent

    async def foreign(self) -> int:
        """How many places in the stream since :meth:`begin` were not filled by us. BusUnavailable.

        One of ours whose answer is still under way makes the excess of places over ours too large, never too small:
        while we write it is the least since the last look that counts, and exact when nothing is under way. What had
        to be sent again may have two places: see :meth:`unsure`.
        """
        _, last = await state_life(self._bus)
        least, self._least = self._least, None
        if not self._bus.acks.in_flight:
            self._extra = max(last, self._highest) - self._first - self._ours
        elif least is not None:
            self._extra = least
        return self._extra - (self._bus.acks.resent - self._resent)

    def unsure(self) -> bool:
        """Whether messages had to be sent again since :meth:`begin`, and none since the last call.

        Each may have taken one place or several, so others' writes do not show any more in the number of places.
        """
        before, self._resent_last = self._resent_last, self._bus.acks.resent
        return self._resent < before == self._resent_last

    async def held(self, resource: Resource) -> Mapping[str, str]:
        """The resourceVersion of every live object that the stream holds, by key."""
        held = await self._publisher.held(resource)
        return {key: seen.resource_version for key, seen in held.items() if seen.type != "DELETED"}

    async def bury(self, resource: Resource, key: str, resource_version: str) -> None:
        """Publish a tombstone with the last object that the stream holds."""
        namespace, _, name = key.rpartition("/")
        subjects = self._bus.subjects
        subject = subjects.state(resource.token, namespace, name)
        try:
            last = await self._bus.js.get_last_msg(subjects.state_stream, subject, direct=True)
        except nats.js.errors.NotFoundError:
            return  # not there any more: nothing to bury
        except (nats.errors.Error, TimeoutError) as error:
            raise BusUnavailable(f"{subject}: {error or 'no answer in time'}") from error
        await self._publisher.room()
        future: asyncio.Future[int] = self._publisher.publish(
            resource, "DELETED", namespace, name, resource_version, last.data or b"{}"
        )
        self.stored(await future)
