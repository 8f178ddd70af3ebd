"""nats-py's client with two shortcuts for hot paths; the only file that touches its private members.

nats-py builds a message object, queues it and wakes a task for every message, and awaits three calls for every
publish. For acknowledgements, state changes and decisions koord needs neither: a *hot* subscription hands the raw
bytes to a plain function inside the read loop, and :meth:`HotClient.send` appends a ready command to the buffer that
nats-py's flusher writes. Everything else (connecting, TLS, authentication, reconnecting, re-subscribing, ordinary
subscriptions and requests) stays nats-py's own. See docs/decisions/001-own-ack-layer.md.

Not promised: a hot handler gets no back-pressure from nats-py's pending limits; it returns an awaitable to make the
read loop (and so the server) wait.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

import nats.errors
from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription
from nats.protocol.parser import AUTHORIZATION_VIOLATION, PERMISSIONS_ERR, STALE_CONNECTION

from koord.bus.errors import BusError, TooLarge

# subject, reply, raw header block (or None), payload -> an awaitable to pause reading, or None
HotHandler = Callable[[bytes, bytes, bytes | None, bytes], Awaitable[None] | None]

_BAD_SUBJECT = re.compile(r"[\s\x00]")
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_HEADER_VALUE = re.compile(r"[\r\n\x00]")
_HEADER_LINE = b"NATS/1.0"
# Unanswered pings while a handler keeps the read loop waiting: our doing, not the server's.
_HELD = -(1 << 30)
SOON_S = 0.01
"""How long a message waits for others to go along with, if whoever sends it has the time."""


def header_block(*headers: tuple[str, str]) -> bytes:
    """Headers as they travel; BusError on a name or value that could not be read back."""
    lines = ["NATS/1.0"]
    for name, value in headers:
        if not _HEADER_NAME.fullmatch(name):
            raise BusError(f"header {name!r}: not a header name (letters, digits and !#$%&'*+-.^_`|~)")
        if _BAD_HEADER_VALUE.search(value) or value != value.strip():
            raise BusError(f"header {name}: {value!r} holds a line break or outer white space")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def header_value(block: bytes | None, name: bytes) -> str | None:
    """The value of one header in a raw block, or None; names are compared as written."""
    if block is None:
        return None
    start = block.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    return block[start : block.find(b"\r\n", start)].strip().decode("utf-8", "replace")


def status_of(block: bytes | None) -> tuple[int, str]:
    """Status code and text of a message that the server itself sent (100, 404, 408, 409, 503); (0, "") for others."""
    if block is None or not block.startswith(_HEADER_LINE + b" "):
        return 0, ""
    line = block[len(_HEADER_LINE) + 1 : block.find(b"\r\n")]
    code, _, text = line.partition(b" ")
    return (int(code), text.decode("utf-8", "replace")) if code.isdigit() else (0, "")


class HotClient(Client):
    """A nats-py client that can hand raw messages to a function and send without awaiting."""

    def __init__(self) -> None:
        super().__init__()
        self._hot: dict[int, HotHandler] = {}
        self._soon: asyncio.TimerHandle | None = None
        # Called the moment a connection is lost, before anything else can be sent.
        self.on_loss: Callable[[], None] = lambda: None

    def send(self, subject: str, reply: str, headers: bytes, payload: bytes, *, now: bool = True) -> None:
        """Queue one message for the flusher. ``headers`` is a block of :func:`header_block` or empty.

        What need not go out ``now`` goes with the next that must, or after ten milliseconds: each write on its own
        costs this process a system call and the server a wake-up. The order of messages stays. While disconnected the
        message waits in nats-py's buffer and goes out after the reconnect.
        """
        size = len(payload)
        self.check(subject, len(headers) + size)
        if headers:
            head = f"HPUB {subject} {reply} {len(headers)} {len(headers) + size}\r\n".encode()
            self._queue(b"".join((head, headers, payload, b"\r\n")), now)
        else:
            self._queue(b"".join((f"PUB {subject} {reply} {size}\r\n".encode(), payload, b"\r\n")), now)

    def check(self, subject: str, size: int) -> None:
        """Whether :meth:`send` would take a message of ``size`` bytes, headers included. TooLarge, BusError."""
        if not subject or _BAD_SUBJECT.search(subject):
            raise BusError(f"subject {subject!r}: empty or holds white space")
        if size > self._max_payload:
            raise TooLarge(f"{subject}: {size} bytes are more than the server takes (max_payload {self._max_payload})")

    def subscribe_hot(self, subject: str, handler: HotHandler) -> Subscription:
        """Hand every message on ``subject`` to ``handler``; survives reconnects; end it with ``unsubscribe()``."""
        if not subject or _BAD_SUBJECT.search(subject):
            raise BusError(f"subject {subject!r}: empty or holds white space")
        self._sid += 1
        subscription = Subscription(self, self._sid, subject)
        self._subs[self._sid] = subscription
        self._hot[self._sid] = handler
        self._queue(f"SUB {subject}  {self._sid}\r\n".encode())
        return subscription

    async def barrier(self, timeout: float = 5.0) -> None:
        """Return once the server has worked off everything sent so far, subscriptions included.

        nats-py's own ``flush`` writes its PING ahead of what waits in the buffer, so the buffer goes out first here.
        nats.errors.Error or TimeoutError when the connection is away.
        """
        if self.is_connected and self._flush_queue is not None:
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            await self._flush_queue.put(written)
            await asyncio.wait_for(written, timeout)
        await self.flush(timeout=max(1, int(timeout)))

    def drop(self, subscription: Subscription) -> None:
        """End a hot subscription at once, without awaiting; harmless when it ended already."""
        sid = subscription._id
        if self._subs.get(sid) is None:
            return
        self._remove_sub(sid)
        if self.is_connected:
            self._queue(f"UNSUB {sid} \r\n".encode())

    def _queue(self, command: bytes, now: bool = True) -> None:
        self._pending.append(command)
        self._pending_data_size += len(command)
        if now:
            self._wake_flusher()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_S, self._wake_flusher)

    def _wake_flusher(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self.is_connected and self._flush_queue is not None and self._flush_queue.empty():
            # The flusher resolves what it gets; nobody waits for this one.
            self._flush_queue.put_nowait(_NOBODY)

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._hot.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_err(self, err_msg: str) -> None:
        """What the server complains about before it closes the connection.

        nats-py closes for good on most of them; a service must come back. Only a refused authorization is final.
        """
        if any(known in err_msg for known in (STALE_CONNECTION, AUTHORIZATION_VIOLATION, PERMISSIONS_ERR)):
            await super()._process_err(err_msg)
            return
        error = nats.errors.Error(f"nats: {err_msg.strip(chr(39))}")
        await self._error_cb(error)
        await self._process_op_err(error)

    @property
    def is_held(self) -> bool:
        """Whether a handler keeps the read loop waiting: that nothing arrives says nothing about the server then."""
        return self._pings_outstanding < 0

    def connected_server(self) -> str | None:
        """``host:port`` of the server that we are, or were last, connected to."""
        server = self._current_server
        return server.uri.netloc if server is not None else None

    @property
    def cluster_name(self) -> str:
        """The name of the NATS cluster that the server belongs to, "" for a single server."""
        return str(self._server_info.get("cluster") or "")

    async def move_on(self) -> None:
        """Leave this server for another one, although the connection stands."""
        self._lose()
        await self.force_reconnect()

    async def _process_op_err(self, e: Exception) -> None:
        """The connection is no good: nats-py closes it tidily, which takes for ever when the server hangs and what was
        written last cannot leave. What was not confirmed is sent again anyway, so it is cut off."""
        if not self.is_closed and not self.is_reconnecting:
            self._lose()
        await super()._process_op_err(e)

    async def _connect_to_server(self, s: Srv) -> None:
        """An attempt that failed half-way (a server that took the connection and then hung) must leave nothing behind
        that reads on in the next one."""
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None and not task.done():
                task.cancel()
        self._abort()
        self._ps.reset()
        await super()._connect_to_server(s)

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            # Nobody waits for it any more. nats-py would resolve it again and so end its read loop.
            self._pongs.pop(0)
            self._pings_outstanding = 0
            return
        await super()._process_pong()

    def _lose(self) -> None:
        """What was not written yet is lost with the connection, as what was: it must not come first on the next one,
        before it is known which stream that leads to."""
        self._pending.clear()
        self._pending_data_size = 0
        self._abort()
        self.on_loss()

    def _abort(self) -> None:
        writer: Any = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        handler = self._hot.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers or b"")
            return
        # Whatever arrives shows that the server lives, however long its answers to pings wait behind it.
        self._pings_outstanding = 0
        try:
            wait = handler(subject, reply, headers, data)
            if wait is not None:
                self._pings_outstanding = _HELD
                try:
                    await wait
                finally:  # also when it fails: a connection that seems held for ever would never be given up
                    self._pings_outstanding = 0
        except Exception as error:  # a handler's fault must not end the read loop, which all subscriptions share
            await self._error_cb(error)


class _Nobody:
    """Stands in for the future that nats-py's flusher resolves after a flush."""

    def done(self) -> bool:
        return True


_NOBODY = cast("asyncio.Future[object]", _Nobody())
