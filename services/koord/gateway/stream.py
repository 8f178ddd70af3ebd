"""The state stream as the reflectors see it: publishing, reading back, tombstones for what vanished unseen."""

import asyncio
from collections.abc import Mapping

import nats.errors
import nats.js.errors

from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable
from koord.bus.statepublisher import StatePublisher
from koord.kube.resources import Resource


class StateStream:
    """Adapts the bus's StatePublisher."""

    def __init__(self, bus: Bus, publisher: StatePublisher) -> None:
        self._bus = bus
        self._publisher = publisher
        self.publish = publisher.publish
        self.room = publisher.room
        self.listed = publisher.listed

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
        await future
