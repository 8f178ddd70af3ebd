"""Server-side tables: what `kubectl get` shows. Cells are computed here, by the columns of each resource."""

import re
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from koord.localcluster.api.resources import Column, Route
from koord.localcluster.clusterapi import Object

_UNKNOWN = "<unknown>"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
CREATION = "Time since its creation"


def encode_text(value: Any) -> str:
    """Compact JSON as text."""
    return msgspec.json.encode(value).decode()


def parse_time(text: Any) -> float | None:
    """Seconds since the epoch of an API time (RFC 3339), or None if it is none."""
    if not isinstance(text, str) or _TIME.fullmatch(text) is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def human_duration(seconds: float) -> str:
    """An age as kubectl writes it: two units while small, then one (`42s`, `3m5s`, `17m`, `2d3h`, `400d`, `2y`)."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if total < 120:
        return f"{total}s"
    minutes = total // 60
    if minutes < 10:
        return _pair(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = total // 3600
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _pair(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    if days < 365 * 8:
        return _pair(years, "y", days % 365, "d")
    return f"{years}y"


def _pair(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"


def age_of(timestamp: Any) -> str:
    """How long ago an API time was."""
    at = parse_time(timestamp)
    return _UNKNOWN if at is None else human_duration(time.time() - at)


NAME = Column("Name", "string", lambda obj: obj["metadata"]["name"], "Name of the object", 0, "name")
AGE = Column("Age", "string", lambda obj: age_of(obj["metadata"].get("creationTimestamp")), CREATION)


def table(route: Route, objects: Iterable[Object], metadata: Object, include: str, *, headers: bool) -> Object:
    """A `Table` of objects. `include` says what comes with a row: `None`, `Metadata` or `Object`.

    A watch sends the column definitions with its first event only (`headers`).
    """
    columns = (AGE,) if route.columns is None else route.columns
    if not any(column.format == "name" for column in columns):
        columns = (NAME, *columns)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in columns] if headers else None,
        "rows": [_row(columns, obj, include) for obj in objects],
    }


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(columns: tuple[Column, ...], obj: Object, include: str) -> Object:
    row: Object = {"cells": [_cell(column, obj) for column in columns]}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = partial(obj)
    return row


def partial(obj: Object, api_version: str = "meta.k8s.io/v1") -> Object:
    """An object reduced to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj["metadata"]}


def _cell(column: Column, obj: Object) -> Any:
    try:
        value = column.value(obj)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        # Objects are shown as they are, also when a status was written by hand and has odd types.
        return None
    # Objects are shown as they are, also where a text should be.
    return encode_text(value) if isinstance(value, dict | list) else value
