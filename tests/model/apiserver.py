"""The API server: the embedded one's application, whose requests take effect when the machine says so."""

import asyncio
import copy
import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from koord.contracts.state import ChangeType
from koord.gateway.leanclient import NotSent, OutcomeUnknown, Response
from koord.kube.resources import BY_TOKEN, Resource
from koord.localcluster.api.app import App
from koord.localcluster.api.builtin import CRDS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.crds import read_definitions
from tests.model.stepping import Actor

TOKEN = "token"
JSON = "application/json"
REQUEST_TIMEOUT_S = 60.0


class StateChange(NamedTuple):
    """One message of the state stream; ``version`` also tells its order among all of them."""

    type: ChangeType
    namespace: str
    name: str
    version: str
    body: bytes

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


@cache
def _definitions() -> list[dict[str, Any]]:
    """The CRDs, read once: it takes longer than many a run."""
    folder = files("koord.kube") / "crds"
    texts = [path.read_text() for path in sorted(folder.iterdir(), key=str) if path.name.endswith(".yaml")]
    return [definition for text in texts for definition in read_definitions(text)]


class Life:
    """One life of the state stream: it begins with a list of all objects, then has one message for each change."""

    def __init__(self, logs: dict[str, list[StateChange]], version: int) -> None:
        self.listed: dict[str, dict[tuple[str, str], tuple[int, StateChange]]] = {}
        """By resource the objects of the list, with their places in the stream."""
        self.bases = {token: len(log) for token, log in logs.items()}
        """How many changes of each resource there were when it began."""
        self._count = 0
        self._version = version
        for token, log in logs.items():
            live: dict[tuple[str, str], StateChange] = {}
            for change in log:
                live.pop(change.key, None)
                if change.type != "DELETED":
                    live[change.key] = change
            here = self.listed[token] = {}
            for key, change in live.items():
                self._count += 1
                here[key] = (self._count, change)

    def place(self, version: int) -> int:
        """The place of a change in the stream."""
        return self._count + version - self._version


class Sent:
    """One request of the gateway. Its sender may be dead, or have given it up, before it takes effect."""

    def __init__(self, actor: Actor, method: str, path: str, body: bytes, content_type: str, at_s: float) -> None:
        self.actor = actor
        self.method = method
        self.path = path
        self.body = body
        self.content_type = content_type
        self.at_s = at_s
        self.held_until_s = 0.0
        """Somewhere on the way it is held up so long."""
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
        for definition in _definitions():
            self.cluster.create(CRDS, None, copy.deepcopy(definition))
        self._app = App(self.cluster, TOKEN, "http://model")
        self.under_way: list[Sent] = []
        self.marks: dict[str, list[tuple[int, int, str]]] = {}
        """By resource: after how many changes, at which version, and the mark."""
        self._logs: dict[str, list[StateChange]] = {}
        self.lives = [Life({}, self.cluster.store.version)]
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
        self.marks.setdefault(resource.token, []).append((len(self.log(resource)), self.cluster.store.version, mark))

    def log(self, resource: Resource) -> list[StateChange]:
        """Every change that there was."""
        log = self._logs.setdefault(resource.token, [])
        served = self.cluster.resource(f"{resource.plural}.{resource.group}".rstrip("."))
        cache = self.cluster.collection(served).cache
        if cache.end > len(log):
            log += [
                StateChange(
                    change.type,  # type: ignore[arg-type]
                    change.entry.namespace,
                    change.entry.name,
                    str(change.entry.version),
                    change.entry.raw,
                )
                for change in cache.read(len(log), 1 << 30)
            ]
        return log

    def lose_state(self) -> None:
        """The state stream is made anew: the gateway lists, and publishes what there is now."""
        for token in self._logs:
            self.log(BY_TOKEN[token])
        self.lives.append(Life(self._logs, self.cluster.store.version))

    def state_life(self) -> tuple[str, int]:
        """The epoch of the state stream, and its last place."""
        return str(len(self.lives) - 1), self.lives[-1].place(self.cluster.store.version)


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
