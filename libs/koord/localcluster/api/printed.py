"""The cells of custom resources' printer columns: values as Go prints them."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from koord.localcluster.api.jsonpath import JsonPath
from koord.localcluster.api.tables import age_of, parse_time
from koord.localcluster.clusterapi import Object

_sorted = msgspec.json.Encoder(order="sorted").encode
_LONGEST = 2**63
# Go writes these in JSON so that they may stand in HTML.
_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPES = str.maketrans(_HTML)


def printed_cell(path: JsonPath, kind: str) -> Callable[[Object], Any]:
    """What a column of a type shows: the first value at its path, if it is of the type; texts show anything."""

    def read(obj: Object) -> Any:
        return _shown(path.first(obj), kind)

    return read


def _shown(value: Any, kind: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "string":
            return None if value is None else text_of(value)
        case "integer":
            if not number:
                return None
            # What is beyond 64 bits is the least number there: what Go's conversion makes on most machines.
            return int(value) if -_LONGEST <= value < _LONGEST else -_LONGEST
        case "number":
            return _plain(float(value)) if number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date" if isinstance(value, str):
            return (age_of(value) if parse_time(value) is not None else "<invalid>") if value else "<unknown>"
    return None


def _plain(number: float) -> int | float:
    """A number as Go writes it into JSON: without a fraction where it has none."""
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def text_of(value: Any) -> str:
    """A value as a text cell shows it: maps and lists as JSON with sorted keys, numbers as Go's `%v`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and not -_LONGEST <= value < _LONGEST):
        return _general(float(value))
    if isinstance(value, dict | list):
        return _sorted(_whole_numbers(value)).decode().translate(_ESCAPES)
    return str(value)


def _whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(inner) for inner in value]
    return _plain(value) if isinstance(value, float) else value


def _general(number: float) -> str:
    """The shortest text that means the number, as Go's `%v`: with an exponent below 1e-4 and from a million on."""
    if number == 0 or not math.isfinite(number):
        return "0" if number == 0 else str(number)
    sign, digits, exponent = _parts(number)
    if 0 <= exponent < 6:
        whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{whole}.{fraction}" if fraction else sign + whole
    if -4 <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def _parts(number: float) -> tuple[str, str, int]:
    """Sign, the shortest digits, and the power of ten of the first one."""
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return "-" if sign else "", text.rstrip("0"), exponent + len(text) - 1
