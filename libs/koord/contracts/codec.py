"""MessagePack of the bus bodies: tagged structs, versioned, unknown fields ignored, so services upgrade one by one."""

from typing import TypeVar

import msgspec

from koord.contracts.decisions import Decision

T = TypeVar("T", bound=msgspec.Struct)

_encoder = msgspec.msgpack.Encoder()
_decision = msgspec.msgpack.Decoder(Decision)
_decoders: dict[type, msgspec.msgpack.Decoder[msgspec.Struct]] = {}


_UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What decoding raises; the second on a body that nests thousands of levels deep."""


class ContractError(ValueError):
    """A message that does not decode; says what was expected, where it broke and what rule it broke."""


def encode(message: msgspec.Struct) -> bytes:
    """The body of one message."""
    return _encoder.encode(message)


def decode(type_: type[T], body: bytes) -> T:
    """The message of ``type_`` in ``body``; ContractError names the type, the field's path and the rule."""
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.msgpack.Decoder(type_)
    try:
        return decoder.decode(body)  # type: ignore[return-value]
    except _UNREADABLE as error:
        raise ContractError(f"{type_.__name__}: {error}") from error


def decode_decision(body: bytes) -> Decision:
    """Any decision, told apart by its tag; ContractError as in :func:`decode`."""
    try:
        return _decision.decode(body)
    except _UNREADABLE as error:
        raise ContractError(f"Decision: {error}") from error
