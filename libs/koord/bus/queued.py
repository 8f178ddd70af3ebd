"""What waits in the queue of decisions, read without taking it: for the gateway, which must know what may still come.

A work queue takes no second consumer, so the messages are read directly, hundreds per request; a queue of any length
costs memory for one page.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import StreamInfo

from koord.bus.client import header_value, status_of
from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable
from koord.contracts.codec import ContractError, decode_decision
from koord.contracts.decisions import Decision

PAGE: Final = 500
_ANSWER_S: Final = 5.0
_ENDS: Final = (204, 404)


async def unacknowledged(bus: Bus, page: int = PAGE) -> AsyncIterator[list[Decision]]:
    """The decisions that the queue holds, handed out or not, oldest first, in pages. BusUnavailable.

    Each that was there at the start and is still there when its page is read is in one of them. What does not decode is
    left out. In a NATS cluster any replica may answer a direct read; while one lags, the stream's leader is read
    instead, which costs a round trip per message.
    """
    read = _page if await _replicas_are_current(bus) else _page_of_leader
    sequence = 1
    while True:
        found, last = await read(bus, sequence, page)
        if not last:
            return
        sequence = last + 1
        yield found


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


async def _replicas_are_current(bus: Bus) -> bool:
    """Whether each replica that is up holds all that is confirmed by now. True for a single server."""
    cluster = (await _queue(bus)).cluster
    replicas = (cluster.replicas if cluster is not None else None) or []
    return all(peer.offline or (peer.current and not peer.lag) for peer in replicas)


async def _page_of_leader(bus: Bus, sequence: int, size: int) -> tuple[list[Decision], int]:
    """As :func:`_page`, one message after the other from the stream's leader."""
    stream, found, last = bus.subjects.decisions_stream, list[Decision](), 0
    try:
        for _ in range(size):
            message = await bus.js.get_msg(stream, sequence, bus.subjects.decision_all, next=True)
            last = message.seq or 0
            sequence = last + 1
            with contextlib.suppress(ContractError):
                found.append(decode_decision(message.data or b""))
    except nats.js.errors.NotFoundError:
        pass
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {stream}: {error or 'no answer'}") from error
    return found, last


async def _page(bus: Bus, sequence: int, size: int) -> tuple[list[Decision], int]:
    """The decisions from ``sequence`` on, at most ``size``, and the place of the last message (0: there is none)."""
    stream, inbox = bus.subjects.decisions_stream, bus.nc.new_inbox()
    found = list[Decision]()
    last = 0
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def message(subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        nonlocal last
        status, text = status_of(headers)
        if status in _ENDS and not ended.done():
            ended.set_result(None)
        elif status and not ended.done():
            ended.set_exception(BusUnavailable(f"stream {stream}: {text or status}"))
        if status:
            return
        last = max(last, int(header_value(headers, b"Nats-Sequence") or 0))
        with contextlib.suppress(ContractError):
            found.append(decode_decision(body))

    subscription = bus.subscribe_raw(inbox, message)
    request = {"seq": sequence, "batch": size, "next_by_subj": bus.subjects.decision_all}
    try:
        bus.nc.send(f"$JS.API.DIRECT.GET.{stream}", inbox, b"", msgspec.json.encode(request))
        await asyncio.wait_for(ended, _ANSWER_S)
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {stream}: {error or 'not read back in time'}") from error
    finally:
        bus.unsubscribe_raw(subscription)
    return found, last
