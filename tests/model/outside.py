"""What the actors see of the outside: the API server, the state stream, the queue of decisions and the core messages.

Each of them keeps what is under way until the machine says what becomes of it.
"""

import asyncio
import itertools
import json
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any

from koord.bus.client import header_block
from koord.bus.decisions import Delivery
from koord.bus.errors import BusTimeout
from koord.bus.pull import Pulled
from koord.bus.statecache import MARKER, StateCache
from koord.contracts.codec import decode_decision
from koord.contracts.decisions import Decision
from koord.contracts.state import HEADER, ChangeType, format_header
from koord.contracts.subjects import Subjects
from koord.gateway.leanclient import NotSent, OutcomeUnknown, Response
from koord.kube.resources import Resource
from koord.localcluster.api.app import App
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.server import load_crds
from tests.model.stepping import Actor

TOKEN = "token"
JSON = "application/json"
EPOCH = "1"
REQUEST_TIMEOUT_S = 60.0


class Sent:
    """One request of the gateway. Its sender may be dead, or have given it up, before it takes effect."""

    def __init__(self, actor: Actor, method: str, path: str, body: bytes, content_type: str, at_s: float) -> None:
        self.actor = actor
        self.method = method
        self.path = path
        self.body = body
        self.content_type = content_type
        self.at_s = at_s
        self.response: Response | None = None
        self.answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    @property
    def awaited(self) -> bool:
        """Whether somebody still waits for the answer."""
        return self.actor.alive and not self.answer.done()

    @property
    def matters(self) -> bool:
        """Whether anything can still come of it."""
        return self.response is None or self.awaited

    @property
    def binds(self) -> bool:
        return self.method == "POST" and self.path.endswith("/binding")

    def __repr__(self) -> str:
        return f"{self.actor.name}: {self.method} {self.path} {'done' if self.response else 'sent'}"


class ApiServer:
    """The embedded API's application; the lean client's place is taken by :meth:`client`."""

    def __init__(self) -> None:
        self.cluster = Cluster(first_version=1000)
        with as_file(files("koord.kube") / "crds") as folder:
            load_crds(self.cluster, [folder])
        self._app = App(self.cluster, TOKEN, "http://model")
        self.under_way: list[Sent] = []
        self.marks: dict[str, list[tuple[int, str]]] = {}
        self.on_sent: Callable[[Sent], None] = lambda sent: None
        self.on_done: Callable[[Sent], None] = lambda sent: None

    def client(self, actor: Actor) -> "Client":
        """What a gateway sends with."""
        return Client(self, actor)

    async def execute(self, sent: Sent) -> None:
        """The server carries the request out."""
        if sent not in self.under_way or sent.response is not None:
            return
        sent.response = await self.request(sent.method, sent.path, sent.body, sent.content_type)
        self.on_done(sent)
        if not sent.awaited:
            self.under_way.remove(sent)

    def answer(self, sent: Sent) -> None:
        """The answer arrives."""
        if sent not in self.under_way:
            return
        self.under_way.remove(sent)
        if sent.awaited:
            assert sent.response is not None
            sent.answer.set_result(sent.response)

    def refuse(self, sent: Sent, status: int) -> None:
        """The server (or what stands before it) answers without doing anything."""
        self.under_way.remove(sent)
        if sent.awaited:
            body = json.dumps({"kind": "Status", "message": "the model says so"}).encode()
            sent.answer.set_result(Response(status, body, 0.0))

    def lose(self, sent: Sent, *, certainly_unsent: bool = False) -> None:
        """The sender hears nothing; the request may still take effect, unless it certainly was not sent."""
        if sent.response is not None or certainly_unsent:
            self.under_way.remove(sent)
        if sent.awaited:
            sent.answer.set_exception(NotSent("no connection") if certainly_unsent else OutcomeUnknown("cut off"))

    async def request(self, method: str, path: str, body: bytes = b"", content_type: str = JSON) -> Response:
        """One request, carried out at once."""
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"authorization", f"Bearer {TOKEN}".encode()), (b"content-type", content_type.encode())],
        }
        parts: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(part: dict[str, Any]) -> None:
            parts.append(part)

        await self._app(scope, receive, send)
        return Response(parts[0]["status"], b"".join(part.get("body", b"") for part in parts[1:]), 0.0)

    async def do(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> dict[str, Any]:
        """What a user, a kubelet or a foreign scheduler asks for; it must be taken."""
        answer = await self.request(method, path, b"" if body is None else json.dumps(body).encode(), content_type)
        assert answer.status < 300, (method, path, answer)
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def objects(self, resource: Resource) -> dict[str, dict[str, Any]]:
        """All objects, by key."""
        served = self.cluster.resource(f"{resource.plural}.{resource.group}".rstrip("."))
        found = {}
        for entry in self.cluster.collection(served).entries():
            key = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
            found[key] = json.loads(entry.raw)
        return found

    def mark(self, resource: Resource, mark: str) -> None:
        """The gateway lists with a consistent read and puts a mark into the state stream behind what it found."""
        self.marks.setdefault(resource.token, []).append((len(self.changes(resource, 0)), mark))

    def changes(self, resource: Resource, since: int) -> list[tuple[ChangeType, str, str, str, bytes]]:
        """(type, namespace, name, resourceVersion, body) of every change from the ``since``-th on."""
        served = self.cluster.resource(f"{resource.plural}.{resource.group}".rstrip("."))
        cache = self.cluster.collection(served).cache
        return [
            (change.type, change.entry.namespace, change.entry.name, str(change.entry.version), change.entry.raw)  # type: ignore[misc]
            for change in cache.read(since, 1 << 30)
        ]


class Client:
    """In the place of the gateway's LeanClient."""

    def __init__(self, server: ApiServer, actor: Actor) -> None:
        self._server = server
        self._actor = actor

    def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = JSON, *, lane: int = 0
    ) -> "asyncio.Future[Response]":
        sent = Sent(self._actor, method, path, body, content_type, asyncio.get_running_loop().time())
        if self._actor.alive:
            self._server.under_way.append(sent)
            self._server.on_sent(sent)
        return sent.answer


class Feed:
    """What one cache has seen of one resource's stream. ``late`` is how much the first picture lacks at the end."""

    def __init__(self, server: ApiServer, resource: Resource, cache: StateCache[Any], late: int = 0) -> None:
        self._server = server
        self._resource = resource
        self._cache = cache
        self._subjects = Subjects("model")
        changes = server.changes(resource, 0)
        self.position = max(0, len(changes) - late)
        last: dict[tuple[str, str], int] = {}
        for index, (_, namespace, name, _, _) in enumerate(changes[: self.position]):
            last[namespace, name] = index
        cache.epoch = EPOCH
        for index in sorted(last.values()):
            self._tell(changes[index], index + 1)
        self._marked = 0
        self._tell_marks()
        self._tell_mark("")
        cache.caught_up()

    @property
    def token(self) -> str:
        return self._resource.token

    @property
    def behind(self) -> bool:
        """Whether there is something to deliver."""
        marks = self._server.marks.get(self._resource.token, [])
        return bool(self._server.changes(self._resource, self.position)) or self._marked < len(marks)

    def deliver(self, most: int) -> None:
        """The next changes arrive, and the marks between them."""
        for change in self._server.changes(self._resource, self.position)[:most]:
            self.position += 1
            self._tell(change, self.position)
            self._tell_marks()
        self._tell_marks()
        self._cache.pause()

    def _tell_marks(self) -> None:
        for at, mark in self._server.marks.get(self._resource.token, [])[self._marked :]:
            if at > self.position:
                break
            self._marked += 1
            self._tell_mark(mark)

    def _tell_mark(self, mark: str) -> None:
        subject = self._subjects.state(self._resource.token, MARKER, MARKER).encode()
        header = header_block((HEADER, format_header("ADDED", "1", EPOCH)))
        self._cache.message(subject, header, json.dumps({"mark": mark}).encode() if mark else b"", self.position)

    def _tell(self, change: tuple[ChangeType, str, str, str, bytes], sequence: int) -> None:
        type_, namespace, name, version, raw = change
        subject = self._subjects.state(self._resource.token, namespace, name).encode()
        self._cache.message(subject, header_block((HEADER, format_header(type_, version, EPOCH))), raw, sequence)


class Message:
    """A decision on its way to the queue, or in it. ``stored`` tells its publisher once the queue has it."""

    def __init__(self, actor: Actor, subject: str, body: bytes, headers: bytes) -> None:
        self.actor = actor
        self.subject = subject
        self.body = body
        self.headers = headers
        self.stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.delivered = 0
        self.out = False
        self.number = 0

    def __repr__(self) -> str:
        decision = decode_decision(self.body)
        return f"{self.subject.rsplit('.', 1)[1]} {decision.id} {'out' if self.out else 'in'}"


class Decisions:
    """The work queue: what it holds comes again until it is acknowledged, in any order after the first time."""

    def __init__(self) -> None:
        self.on_the_way: list[Message] = []
        self.held: list[Message] = []
        self.acknowledged: list[Message] = []
        self.lives = itertools.count(1)
        self.life = next(self.lives)
        self._numbers = itertools.count(1)

    def arrive(self, message: Message, *, lost: bool = False, twice: bool = False) -> None:
        """A publish reaches the queue, or does not; twice: it was sent again on the way."""
        if message not in self.on_the_way:
            return
        self.on_the_way.remove(message)
        if not lost:
            self._store(message)
            if twice:
                self._store(Message(message.actor, message.subject, message.body, message.headers))
        if message.actor.alive and not message.stored.done():
            if lost:
                message.stored.set_exception(BusTimeout("no acknowledgement"))
            else:
                message.stored.set_result(message.number)

    def _store(self, message: Message) -> None:
        message.number = next(self._numbers)
        self.held.append(message)

    def hand_out(self, message: Message, bus: "SteppedBus") -> Delivery:
        """Deliver one message, for the first time or again."""
        message.out = True
        message.delivered += 1
        reply = f"$JS.ACK.stream.gateway.{message.delivered}.{message.number}.1.1.0"
        return Delivery(bus, Pulled(message.subject.encode(), reply.encode(), message.headers, message.body))  # type: ignore[arg-type]

    def heard(self, reply: str, body: bytes) -> None:
        """An acknowledgement of any kind."""
        number = int(reply.split(".")[5])
        for message in self.held:
            if message.number == number:
                if body.startswith(b"-NAK"):
                    message.out = False
                elif body.startswith((b"+ACK", b"+TERM")):
                    self.held.remove(message)
                    self.acknowledged.append(message)
                return

    def again(self, message: Message) -> None:
        """The acknowledgement was lost after all."""
        self.acknowledged.remove(message)
        message.out = False
        self.held.append(message)

    def all_back(self) -> None:
        """The consumer was made anew, or the time to acknowledge is over."""
        for message in self.held:
            message.out = False

    def lose_all(self) -> None:
        """The stream's store is lost."""
        self.held.clear()
        self.acknowledged.clear()
        self.life = next(self.lives)

    def unacknowledged(self) -> list[Decision]:
        return [decode_decision(message.body) for message in self.held]


class Core:
    """A message that everybody who is there hears, or nobody."""

    def __init__(self, subject: str, body: bytes) -> None:
        self.subject = subject
        self.body = body

    def __repr__(self) -> str:
        return self.subject


class SteppedBus:
    """What one actor has for a connection to NATS."""

    clustered = False

    def __init__(self, actor: Actor, decisions: Decisions, messages: list[Core]) -> None:
        self.subjects = Subjects("model")
        self.nc = self
        self.acks = _Acks(self)
        self.actor = actor
        self.decisions = decisions
        self.messages = messages
        self.handlers: list[tuple[str, Callable[[bytes, bytes, bytes | None, bytes], None]]] = []

    def send(self, subject: str, reply: str, headers: bytes, body: bytes) -> None:
        if not self.actor.alive:
            return
        if subject.startswith("$JS.ACK."):
            self.decisions.heard(subject, body)
        else:
            self.messages.append(Core(subject, body))

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> None:
        self.send(subject, "", b"", payload)

    async def room(self) -> None:
        return

    def subscribe_raw(self, subject: str, handler: Callable[[bytes, bytes, bytes | None, bytes], None]) -> object:
        self.handlers.append((subject.removesuffix(">"), handler))
        return handler

    def unsubscribe_raw(self, subscription: object) -> None:
        self.handlers = [pair for pair in self.handlers if pair[1] is not subscription]


class _Acks:
    def __init__(self, bus: SteppedBus) -> None:
        self._bus = bus

    async def room(self) -> None:
        return

    def publish(
        self, subject: str, body: bytes, headers: bytes = b"", *, timeout: float | None = None, raw: bool = False
    ) -> "asyncio.Future[int]":
        message = Message(self._bus.actor, subject, body, headers)
        if self._bus.actor.alive:
            self._bus.decisions.on_the_way.append(message)
        return message.stored
