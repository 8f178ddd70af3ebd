"""The one header of a state message: ``Koord: <ADDED|MODIFIED|DELETED> <resourceVersion> <epoch>``.

The body is the object as the API server sent it, less ``managedFields``. The epoch names the life of the stream: a new
one means that everything derived from it must be rebuilt.
"""

from typing import Literal, NamedTuple, cast

from koord.contracts.codec import ContractError

HEADER = "Koord"

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
_TYPES = frozenset(("ADDED", "MODIFIED", "DELETED"))


class StateHeader(NamedTuple):
    """What happened to the object, at which resourceVersion, in which life of the stream."""

    type: ChangeType
    resource_version: str
    epoch: str


def format_header(type_: ChangeType, resource_version: str, epoch: str) -> str:
    """The header's value."""
    return f"{type_} {resource_version} {epoch}"


def parse_header(value: str) -> StateHeader:
    """The header's parts; ContractError if it is not three words beginning with a known type."""
    parts = value.split(" ")
    if len(parts) != 3 or parts[0] not in _TYPES:
        raise ContractError(f"header {HEADER}: {value!r} is not '<ADDED|MODIFIED|DELETED> <resourceVersion> <epoch>'")
    return StateHeader(cast(ChangeType, parts[0]), parts[1], parts[2])
