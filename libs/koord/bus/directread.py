"""Reading a stream without its leader: Direct Get is answered by any replica that is up, also while none leads.

A replica that lags answers with less, never with something else; whoever reads on from the last sequence misses
nothing. A stream that does not exist answers nobody (503), one that has nothing from there on says so at once.
"""

import asyncio
from typing import NamedTuple

import msgspec
import nats.errors

from koord.bus.client import header_value, status_of
from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable

_ENDS = (204, 404)


class Stored(NamedTuple):
    """One message as the stream holds it; ``headers`` has the server's own ``Nats-...`` beside the sender's."""

    subject: bytes
    headers: bytes | None
    body: bytes
    sequence: int


async def read_stored(
    bus: Bus,
    stream: str,
    filter_subject: str,
    first: int,
    *,
    most: int = 500,
    most_bytes: int = 0,
    timeout: float = 5.0,
) -> list[Stored]:
    """The messages on ``filter_subject`` from sequence ``first`` on, at most ``most``; empty if the replica has none.

    ``most_bytes`` bounds the answer too (0: the server's own bound). BusUnavailable when nobody answers within
    ``timeout`` seconds; what had come by then is answered, without a gap.
    """
    inbox = bus.nc.new_inbox()
    found: list[Stored] = []
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def message(_: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        if ended.done():
            return
        status, text = status_of(headers)
        if not status:
            before = header_value(headers, b"Nats-Last-Sequence")
            if before is not None and int(before) != (found[-1].sequence if found else 0):
                ended.set_result(None)  # the connection broke in between: what came before is in order, the rest is not
                return
            subject = (header_value(headers, b"Nats-Subject") or "").encode()
            found.append(Stored(subject, headers, body, int(header_value(headers, b"Nats-Sequence") or 0)))
        elif status in _ENDS:
            ended.set_result(None)
        else:
            ended.set_exception(BusUnavailable(f"stream {stream}: {text or status}"))

    request: dict[str, object] = {"seq": max(1, first), "batch": most, "next_by_subj": filter_subject}
    if most_bytes:
        request["max_bytes"] = most_bytes
    subscription = bus.subscribe_raw(inbox, message)
    try:
        bus.nc.send(f"$JS.API.DIRECT.GET.{stream}", inbox, b"", msgspec.json.encode(request))
        await asyncio.wait_for(ended, timeout)
    except (nats.errors.Error, TimeoutError) as error:
        if not found:
            raise BusUnavailable(f"stream {stream}: {error or 'not read back in time'}") from error
    finally:
        bus.unsubscribe_raw(subscription)
    return found


async def read_last(bus: Bus, stream: str, subject: str, *, timeout: float = 5.0) -> Stored | None:
    """What was stored last on ``subject``, which may have wildcards; None: nothing. BusUnavailable as above."""
    inbox = bus.nc.new_inbox()
    answered: asyncio.Future[Stored | None] = asyncio.get_running_loop().create_future()

    def message(_: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        if answered.done():
            return
        status, text = status_of(headers)
        if not status:
            named = (header_value(headers, b"Nats-Subject") or "").encode()
            answered.set_result(Stored(named, headers, body, int(header_value(headers, b"Nats-Sequence") or 0)))
        elif status in _ENDS:
            answered.set_result(None)
        else:
            answered.set_exception(BusUnavailable(f"stream {stream}: {text or status}"))

    subscription = bus.subscribe_raw(inbox, message)
    try:
        bus.nc.send(f"$JS.API.DIRECT.GET.{stream}", inbox, b"", msgspec.json.encode({"last_by_subj": subject}))
        return await asyncio.wait_for(answered, timeout)
    except (nats.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {stream}: {error or 'not read back in time'}") from error
    finally:
        bus.unsubscribe_raw(subscription)
