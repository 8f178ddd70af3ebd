"""Typed questions and answers on top of :meth:`Bus.ask` and :meth:`Bus.serve`; never on a per-pod path."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from nats.aio.subscription import Subscription

from koord.bus.connection import Bus
from koord.bus.errors import AskRefused
from koord.contracts.asks import Refusal
from koord.contracts.codec import ContractError, decode, encode
from koord.telemetry.context import TraceContext

Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)


class _Kind(msgspec.Struct):
    kind: str = ""


async def ask(
    bus: Bus, service: str, verb: str, question: msgspec.Struct, answer: type[A], *, trace: TraceContext | None = None,
    timeout: float = 5.0,
) -> A:  # fmt: skip
    """Ask ``service`` and decode what it says.

    AskRefused carries the service's reason; NobodyThere when it does not run; BusTimeout; ContractError when the answer
    is not an ``answer``.
    """
    context = trace or TraceContext.new()
    body = await bus.ask(bus.subjects.ask(service, verb), encode(question), timeout, traceparent=context.traceparent)
    return decode_answer(answer, body)


def decode_answer(answer: type[A], body: bytes) -> A:
    """The answer in ``body``; AskRefused when it is a Refusal."""
    try:
        kind = msgspec.msgpack.decode(body, type=_Kind).kind
    except msgspec.MsgspecError as error:
        raise ContractError(f"{answer.__name__}: {error}") from error
    if kind == "refusal":
        raise AskRefused(decode(Refusal, body).error)
    return decode(answer, body)


async def serve(
    bus: Bus, service: str, verb: str, question: type[Q], handler: Callable[[Q], Awaitable[msgspec.Struct]]
) -> Subscription:
    """Answer ``verb``. A question that does not decode, and what ``handler`` raises, go back as a Refusal."""

    async def answer(body: bytes) -> bytes:
        return encode(await handler(decode(question, body)))

    return await bus.serve(bus.subjects.ask(service, verb), answer)
