"""Values of expressions, in the form in which they can be given to others."""

from datetime import datetime, timedelta
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2


def as_data(value: Any) -> Any:
    """The value of one expression in the form in which it can be given to another."""
    if isinstance(value, dict):
        return {name: as_data(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_data(inner) for inner in value]
    if isinstance(value, datetime):
        found = timestamp_pb2.Timestamp()
        found.FromDatetime(value)
        return found
    if isinstance(value, timedelta):
        length = duration_pb2.Duration()
        length.FromTimedelta(value)
        return length
    return bytes(value) if isinstance(value, bytearray) else value
