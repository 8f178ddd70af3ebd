"""What waits in the queue of decisions, read without taking it: for the gateway, which must know what may still come.

A work queue takes no second consumer, so the messages are read directly, hundreds per request; a queue of any length
costs memory for one page.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

import nats.errors
import nats.js.errors
from nats.js.api import StreamInfo

from koord.bus.connection import Bus
from koord.bus.directread import Stored, read_stored
from koord.bus.errors import BusUnavailable
from koord.contracts.codec import ContractError, decode_decision
from koord.contracts.decisions import Decision

PAGE: Final = 500


async def unacknowledged(bus: Bus, page: int = PAGE) -> AsyncIterator[list[Decision]]:
    """The decisions that the queue holds, handed out or not, oldest first, in pages. BusUnavailable.

    Each that was there at the start and is still there when its page is read is in one of them. What does not decode is
    left out. In a NATS cluster any replica may answer a direct read, and one that lags ends too early; so where it ends
    the stream's leader is asked whether anything follows.
    """
    stream, subjects = bus.subjects.decisions_stream, bus.subjects.decision_all
    after = 0
    while True:
        found = await read_stored(bus, stream, subjects, after + 1, most=page) or await _of_leader(bus, after + 1)
        if not found:
            return
        after = found[-1].sequence
        decisions: list[Decision] = []
        for message in found:
            with contextlib.suppress(ContractError):
                decisions.append(decode_decision(message.body))
        yield decisions


async def queue_made(bus: Bus) -> str:
    """When the queue was made, which tells one life of it from another. BusUnavailable."""
    created = (await _queue(bus)).created
    return created.isoformat() if created is not None else ""


async def _queue(bus: Bus) -> StreamInfo:
    stream = bus.subjects.decisions_stream
    try:
        return await bus.js.stream_info(stream)
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {stream}: {error or 'no answer'}") from error


async def _of_leader(bus: Bus, first: int) -> list[Stored]:
    """The next message from ``first`` on that the stream's leader has, if any."""
    stream, subjects = bus.subjects.decisions_stream, bus.subjects.decision_all
    try:
        message = await bus.js.get_msg(stream, first, subjects, next=True)
    except nats.js.errors.NotFoundError:
        return []
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {stream}: {error or 'no answer'}") from error
    return [Stored((message.subject or "").encode(), None, message.data or b"", message.seq or first)]
