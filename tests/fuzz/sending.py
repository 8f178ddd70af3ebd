"""Sending bent objects and messages, and hearing what is answered at once."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec

from koord.bus.client import header_block
from koord.bus.connection import TRACEPARENT, Bus
from koord.bus.errors import AskRefused
from koord.bus.questions import decode_answer
from koord.contracts.asks import BarrierRaised, BindingsSettled, PodExplanation
from koord.contracts.codec import decode
from koord.contracts.results import Result
from koord.gateway.access import ApiAccess
from koord.gateway.kubeconfig import load_access
from koord.telemetry.context import TraceContext
from tests.fuzz.messages import MessageCase
from tests.fuzz.objects import ObjectCase

AT_ONCE = 16
ANSWERS: dict[str, type[msgspec.Struct]] = {
    "explain": PodExplanation,
    "settle": BindingsSettled,
    "barrier": BarrierRaised,
}


class Accepted(NamedTuple):
    """An object that the API took."""

    case: ObjectCase
    namespace: str
    name: str
    uid: str
    manifest: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Posts:
    """Posts objects as they are, byte for byte; an async context manager."""

    def __init__(self, access: ApiAccess) -> None:
        self._access = access
        self.accepted: list[Accepted] = []
        self.refused: list[ObjectCase] = []
        self.unnamed: list[str] = []

    @classmethod
    async def to(cls, kubeconfig: str) -> Self:
        return cls(await load_access(kubeconfig))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": self._access.authorization, "Content-Type": "application/json"},
            connector=aiohttp.TCPConnector(limit=AT_ONCE, ssl=self._access.ssl or False),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def post(self, cases: Sequence[ObjectCase]) -> None:
        """Some at a time; what is not taken must be refused with a Status that names what was bent."""
        waiting = iter(cases)

        async def some() -> None:
            for case in waiting:
                await self._one(case)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))

    async def ask(self, case: ObjectCase) -> tuple[int, str]:
        """One object; the status of the answer and its message."""
        async with self._session.post(f"{self._access.url}{case.path}", data=case.body) as answer:
            return answer.status, str(msgspec.json.decode(await answer.read()).get("message", ""))

    async def _one(self, case: ObjectCase) -> None:
        async with self._session.post(f"{self._access.url}{case.path}", data=case.body) as answer:
            body = await answer.read()
        if answer.status == 201:
            made = msgspec.json.decode(body)
            meta = made["metadata"]
            self.accepted.append(Accepted(case, meta.get("namespace", ""), meta["name"], meta["uid"], made))
            return
        self.refused.append(case)
        message = str(msgspec.json.decode(body).get("message", ""))
        if not 400 <= answer.status < 500 or not _names(case, message):
            self.unnamed.append(f"{case.path} {answer.status}: {message!r} to {case.body[:300]!r} {case.keys}")


_TYPED = (
    "json: cannot unmarshal ",
    "quantities must match the regular expression",
    'parsing time "',
    "illegal base64 data",
    "the API version in the data (",
    " cannot be handled as a ",
)


def _names(case: ObjectCase, message: str) -> bool:
    """Whether a refusal says what of the object it is about; a body that is no JSON object has no places to name."""
    if any(words in message for words in _TYPED):
        return (
            True  # Kubernetes' own words for a wrong type or kind: they name its field or the rule, not a key of a map
        )
    if not message:
        return False
    # The first names the object, which got its name from a bend; the second is Kubernetes' word for priorityClassName.
    if "already exists" in message or "no PriorityClass with name" in message:
        return True
    return not case.keys or any(key in message for key in (*case.keys, "metadata", "spec")) or "$" in message


class Messages:
    """Publishes messages and hears the results of all decisions."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.results: dict[str, list[Result]] = {}
        self.heard: Counter[str] = Counter()
        self.unnamed: list[str] = []
        self.refusals = self.answered = 0
        bus.subscribe_raw(f"{bus.subjects.root}.result.>", self._on_result)

    def _on_result(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        if subject.endswith(b".fuzz"):
            return  # one of our own
        result = decode(Result, body)
        self.results.setdefault(result.id, []).append(result)
        self.heard[subject.decode().split(".")[3]] += 1

    async def send(self, cases: Sequence[MessageCase]) -> None:
        """All of them, each stored where its subject belongs to a stream."""
        trace = TraceContext.new().traceparent
        stored: list[asyncio.Future[int]] = []
        for case in cases:
            await self._bus.room()
            match case.channel:
                case "decision":
                    block = header_block((TRACEPARENT, trace))
                    stored.append(self._bus.acks.publish(case.subject, case.body, block))
                case "state" | "stored" | "lease":
                    stored.append(self._bus.publish_acked(case.subject, case.body, case.headers))
                case "core" | "wake":
                    await self._bus.publish(case.subject, case.body)
                case "ask":
                    await self._ask(case, trace)
        await asyncio.gather(*stored)
        await self._bus.barrier()

    async def _ask(self, case: MessageCase, trace: str) -> None:
        verb = case.subject.rpartition(".")[2]
        answer = await self._bus.ask(case.subject, case.body, 30.0, traceparent=trace)
        try:
            decode_answer(ANSWERS[verb], answer)
            refusal = ""
        except AskRefused as error:
            refusal = str(error)
        self.answered += 1
        self.refusals += bool(refusal)
        if case.bad and not refusal:
            self.unnamed.append(f"{case.subject}: an answer to {case.body[:200]!r}")
