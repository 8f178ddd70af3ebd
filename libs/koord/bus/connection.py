"""One connection to NATS: core and acknowledged publishing, subscriptions, questions, and what happens on a reconnect.

Several servers may be given; a lost connection moves to another one, and so does one whose server is cut off from its
cluster (:mod:`koord.bus.failover`).

After a reconnect, in this order: in a NATS cluster a live copy of what waits goes out, the streams are made sure to
exist (the server may have lost its store), what waited for a confirmation is sent again, then every ``on_reconnect``
hook runs (caches replay, pull loops ask anew). While the connection is away nothing is lost that a caller holds a
future for; core messages are hints and may be.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from koord.bus.acks import Acks
from koord.bus.client import HotClient, HotHandler, header_block
from koord.bus.doubt import TailDoubt
from koord.bus.errors import BusError, BusTimeout, BusUnavailable, NobodyThere
from koord.bus.failover import Probe, Rotation
from koord.contracts.asks import Refusal
from koord.contracts.codec import encode
from koord.contracts.subjects import Subjects
from koord.telemetry.logs import get_logger, without_password

if TYPE_CHECKING:
    from koord.bus.streams import StreamLimits

log = get_logger("koord.bus")

TRACEPARENT = "traceparent"
# A server that hangs accepts a connection (its kernel does) and then says nothing.
CONNECT_TIMEOUT_S = 2.0
LOOK_TIMEOUT_S = 1.0
# A question to JetStream that a dying leader took is never answered: ask again soon.
API_TIMEOUT_S = 3.0
QUICK_TIMEOUT_S = 1.0
PING_S = 2.0
PING_SEVERAL_S = 1.0
# What a server should take in one message: the bind of 4,096 pods has more than 1.5 MB.
MAX_PAYLOAD = 8 << 20
Hook = Callable[[], Awaitable[None]]


class _Names(msgspec.Struct):
    streams: list[str] | None = None
    error: msgspec.Raw | None = None


class Bus:
    """A connection with its acknowledgement layer. Make one with :meth:`connect`; close it with :meth:`close`."""

    def __init__(self, client: HotClient, url: str, cluster: str, name: str) -> None:
        self.nc = client
        self.url = without_password(url)  # for messages
        self.name = name
        self.subjects = Subjects(cluster)
        self.js: JetStreamContext = client.jetstream(timeout=API_TIMEOUT_S)
        # For cheap questions to a stream's leader, asked again and again while there is none.
        self.js_quick: JetStreamContext = client.jetstream(timeout=QUICK_TIMEOUT_S)
        self.acks: Acks
        self._prepare: dict[str, Hook] = {}
        self._preparing: asyncio.Task[None] | None = None
        self._reconnect: list[Hook] = []
        self._disconnect: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Future[None]] = set()
        self._recovering: asyncio.Task[None] | None = None
        self._closing = False
        self._connecting = True
        self._complaint = ""
        self._rotation = Rotation()
        # What the streams may hold, as :func:`koord.bus.streams.ensure_streams` was told last.
        self.limits: StreamLimits | None = None
        # Whether the state stream is one of a NATS cluster, as far as is known.
        self.clustered = False
        # Whether the state stream seems to have lost messages (see :func:`koord.bus.streams.state_life`).
        self.doubt = TailDoubt()
        # Resolves with the reason if the connection ends for good although nobody closed it (refused authorization).
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @classmethod
    async def connect(
        cls,
        url: str,
        cluster: str,
        name: str,
        *,
        timeout: float = 5.0,
        limit: int = 4096,
        ack_timeout: float = 2.0,
        ping_interval: float | None = None,
        credentials: str = "",
    ) -> "Bus":
        """Connect to ``url`` (one or several, comma-separated) within ``timeout`` seconds or raise BusUnavailable.

        ``name`` appears in the server's monitoring. ``limit`` bounds the acknowledged messages in flight.
        ``credentials`` is a NATS credentials file. One of the servers is enough. Later losses of the connection are
        healed for ever; a server that says nothing for three ``ping_interval`` is left (2 s; 1 s where there
        is another one to go to, which costs little if this one was only slow).
        """
        client = HotClient()
        bus = cls(client, url, cluster, name)
        servers = [part.strip() for part in url.split(",") if part.strip()]
        if ping_interval is None:
            ping_interval = PING_S if len(servers) < 2 else PING_SEVERAL_S
        try:
            await asyncio.wait_for(
                client.connect(
                    servers,
                    name=name,
                    error_cb=bus._on_error,
                    disconnected_cb=bus._on_disconnect,
                    reconnected_cb=bus._on_reconnect,
                    closed_cb=bus._on_closed,
                    allow_reconnect=True,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.2,  # type: ignore[arg-type]  # seconds; annotated int
                    connect_timeout=min(CONNECT_TIMEOUT_S, timeout),  # type: ignore[arg-type]
                    reconnect_to_server_handler=bus._rotation.choose,
                    ping_interval=ping_interval,  # type: ignore[arg-type]
                    max_outstanding_pings=2,
                    pending_size=16 << 20,
                    user_credentials=credentials or None,
                ),
                timeout,
            )
        except (TimeoutError, OSError, nats.errors.Error) as error:
            bus._closing = True
            await client.close()
            raise BusUnavailable(f"NATS at {bus.url}: {bus._complaint or error or 'no answer'}") from error
        bus._connecting = False
        if client.max_payload < MAX_PAYLOAD:
            # Large objects are left out, and the binds of large gangs cannot be sent.
            small = client.max_payload
            log.warning("NATS at %s takes %d bytes a message, set its max_payload to %d", bus.url, small, MAX_PAYLOAD)
        bus.clustered = bool(client.cluster_name)
        bus.acks = Acks(
            client,
            limit=limit,
            ack_timeout=ack_timeout,
            missing=bus.missing,
            prepare=bus.prepare,
            live_name=bus.subjects.live_of,
            has_live=lambda: bus.clustered,
        )
        bus.spawn(Probe(client, bus.url).run())
        return bus

    @property
    def connected(self) -> bool:
        """Whether the connection stands right now."""
        return bool(self.nc.is_connected)

    @property
    def recovering(self) -> bool:
        """Whether the connection is back and the streams are not looked at yet: they may have no leader."""
        return self.connected and self._recovering is not None and not self._recovering.done()

    def on_prepare(self, name: str, hook: Hook) -> None:
        """Run ``hook`` after each reconnect before anything is sent again (making streams); one hook per ``name``."""
        self._prepare[name] = hook

    def on_reconnect(self, hook: Hook) -> Callable[[], None]:
        """Run ``hook`` after each reconnect, as its own task; the returned function takes it off again."""
        self._reconnect.append(hook)
        return lambda: self._reconnect.remove(hook) if hook in self._reconnect else None

    def on_disconnect(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` when the connection breaks."""
        self._disconnect.append(hook)

    async def prepare(self) -> None:
        """Run the prepare hooks now; concurrent callers share one run."""
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._run_prepare(), name="bus-prepare")
        await asyncio.shield(self._preparing)

    async def missing(self, subject: str) -> bool:
        """Whether JetStream says that no stream takes ``subject``; False while it has no leader to say anything."""
        question = msgspec.json.encode({"subject": subject})
        try:
            answer = await self.nc.request("$JS.API.STREAM.NAMES", question, timeout=LOOK_TIMEOUT_S)
            names = msgspec.json.decode(answer.data, type=_Names)
        except (nats.errors.Error, msgspec.MsgspecError, TimeoutError, OSError):
            return False
        return names.error is None and not names.streams

    async def _run_prepare(self) -> None:
        for hook in list(self._prepare.values()):
            await hook()

    # Publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
        """Core publish: at most once, nobody confirms. BusUnavailable when disconnected and the buffer is full."""
        try:
            await self.nc.publish(subject, payload, headers=headers)
        except nats.errors.MaxPayloadError as error:
            raise BusError(f"{subject}: {len(payload)} bytes are more than the server takes") from error
        except nats.errors.Error as error:
            raise BusUnavailable(f"{subject}: {error}") from error

    def publish_traced(self, subject: str, payload: bytes, traceparent: str, *, now: bool = True) -> None:
        """Core publish with the one header ``traceparent``, without awaiting; ``now`` as in :meth:`HotClient.send`."""
        self.nc.send(subject, "", header_block((TRACEPARENT, traceparent)), payload, now=now)

    def publish_acked(
        self,
        subject: str,
        payload: bytes,
        header: tuple[str, str] | None = None,
        *,
        timeout: float | None = 30.0,
        latest: bool = False,
        live: bool = False,
    ) -> "asyncio.Future[int]":
        """Publish into a stream; the future resolves to the sequence once stored (see :mod:`koord.bus.acks`)."""
        block = header_block(header) if header is not None else b""
        return self.acks.publish(subject, payload, block, timeout=timeout, latest=latest, live=live)

    async def room(self) -> None:
        """Back-pressure of :meth:`publish_acked`."""
        await self.acks.room()

    # Subscribing --------------------------------------------------------------------------------------------------

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]], *, queue: str = ""
    ) -> Subscription:
        """An ordinary subscription: ``callback`` gets nats-py messages one after the other."""

        async def call(msg: Msg) -> None:
            try:
                await callback(msg)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("the handler of %s failed on %s", subject, msg.subject)

        subscription = await self.nc.subscribe(
            subject, queue=queue, cb=call, pending_msgs_limit=1 << 20, pending_bytes_limit=256 << 20
        )
        if self.connected:
            try:
                await self.barrier()  # the server knows it before the caller goes on
            except BaseException:
                self.unsubscribe_raw(subscription)  # the caller has nothing to end it with
                raise
        return subscription

    def subscribe_raw(self, subject: str, handler: HotHandler) -> Subscription:
        """A hot subscription: raw bytes to a plain function (see :mod:`koord.bus.client`)."""
        return self.nc.subscribe_hot(subject, handler)

    async def barrier(self) -> None:
        """Return once the server has worked off everything sent so far (subscriptions included). BusUnavailable."""
        try:
            await self.nc.barrier()
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise BusUnavailable(f"NATS at {self.url}: {error or 'no answer'}") from error

    def unsubscribe_raw(self, subscription: Subscription) -> None:
        """End a hot subscription."""
        if not self.nc.is_closed:
            self.nc.drop(subscription)

    # Questions ----------------------------------------------------------------------------------------------------

    async def ask(self, subject: str, payload: bytes, timeout: float = 5.0, *, traceparent: str = "") -> bytes:
        """Ask and wait for the raw answer. NobodyThere, BusTimeout; refusals are told apart in koord.bus.questions."""
        headers = {TRACEPARENT: traceparent} if traceparent else None
        try:
            message = await self.nc.request(subject, payload, timeout=timeout, headers=headers)
        except nats.errors.NoRespondersError as error:
            raise NobodyThere(f"{subject}: no service answers it") from error
        except nats.errors.TimeoutError as error:
            raise BusTimeout(f"{subject}: no answer within {timeout:g} s") from error
        except nats.errors.Error as error:
            raise BusUnavailable(f"{subject}: {error}") from error
        return bytes(message.data)

    async def serve(self, subject: str, handler: Callable[[bytes], Awaitable[bytes]]) -> Subscription:
        """Answer questions on ``subject``, each as its own task. What ``handler`` raises goes back as a Refusal.

        Several instances of one service share the questions (queue group).
        """

        async def call(msg: Msg) -> None:
            self.spawn(self._answer(subject, msg, handler))

        return await self.subscribe(subject, call, queue="serve")

    async def _answer(self, subject: str, msg: Msg, handler: Callable[[bytes], Awaitable[bytes]]) -> None:
        try:
            answer = await handler(msg.data)
        except (BusError, ValueError, KeyError, LookupError, msgspec.MsgspecError) as error:
            answer = encode(Refusal(str(error) or type(error).__name__))
        except Exception as error:
            log.exception("the handler of %s failed", subject)
            answer = encode(Refusal(f"{type(error).__name__}: {error}"))
        if msg.reply:
            trace = (msg.headers or {}).get(TRACEPARENT)
            self.nc.send(msg.reply, "", header_block((TRACEPARENT, trace)) if trace else b"", answer)

    # Life ---------------------------------------------------------------------------------------------------------

    def spawn(self, work: Awaitable[None]) -> None:
        """Run ``work`` until it ends or the bus closes; its failure is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: "asyncio.Future[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the bus failed", exc_info=error)

    async def close(self) -> None:
        """Flush what is buffered, fail what waits, close."""
        if self._closing:
            return
        self._closing = True
        for task in (*self._tasks, self._recovering, self._preparing):
            if task is not None:
                task.cancel()
        if self.connected:
            try:
                await self.nc.barrier(2.0)
            except (nats.errors.Error, TimeoutError, OSError) as error:
                log.debug("flush before closing: %s", error)
        self.acks.close()
        with contextlib.suppress(OSError):  # the socket may have broken a moment ago
            await self.nc.close()

    async def __aenter__(self) -> "Bus":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if self._closing or text == self._complaint:
            return  # the same complaint each reconnect attempt says nothing new
        self._complaint = text
        if self._connecting and isinstance(error, OSError | nats.errors.Error):
            return  # connect() raises it
        if isinstance(error, OSError | nats.errors.Error):
            log.warning("NATS at %s: %s", self.url, text)
        else:
            log.error("a handler failed: %s", text, exc_info=error)

    async def _on_disconnect(self) -> None:
        if self._closing:
            return
        log.warning("NATS at %s: connection lost, reconnecting", self.url)
        if (server := self.nc.connected_server()) is not None:
            self._rotation.lost(server)
        if self._recovering is not None:
            self._recovering.cancel()
        self.acks.pause()
        for hook in self._disconnect:
            hook()

    async def _on_reconnect(self) -> None:
        self._complaint = ""
        if not self._closing:
            # nats-py counts the reconnect as done when this callback returns, so the work goes elsewhere.
            self._recovering = asyncio.create_task(self._recover(), name="bus-recover")

    async def _recover(self) -> None:
        self.acks.reconnected()
        delay = 0.1
        while True:
            try:
                await self.prepare()
                break
            except Exception as error:
                log.warning("NATS at %s: streams not ready after the reconnect: %s", self.url, error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 0.4)
        log.info("NATS at %s: connected again", self.url)
        self.acks.resume()
        for hook in list(self._reconnect):
            self.spawn(hook())

    async def _on_closed(self) -> None:
        if self._closing:
            return
        log.error("NATS at %s: the connection was closed for good: %s", self.url, self.nc.last_error)
        if not self.closed.done():
            self.closed.set_result(f"NATS at {self.url}: closed for good: {self.nc.last_error}")
