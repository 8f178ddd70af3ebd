"""Kubernetes' functions about lists, quantities, versions and named formats."""

import re
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

from koord.cel.opaque import FORMAT, QUANTITY, SEMVER, kind_of, make
from koord.kube.quantity import Quantity, QuantityError, parse

_INT = 1 << 63


def is_sorted(values: list[Any]) -> bool:
    """Whether no element is less than the one before it."""
    return all(left <= right for left, right in pairwise(values))


def total(values: list[Any]) -> Any:
    """The sum of numbers or durations."""
    found = sum(values, start=timedelta()) if values and isinstance(values[0], timedelta) else sum(values)
    if isinstance(found, int) and not -_INT <= found < _INT:
        raise ValueError("integer overflow")
    return found


def smallest(values: list[Any]) -> Any:
    """The least element; an error when there is none."""
    if not values:
        raise ValueError("min called on empty list")
    return min(values)


def largest(values: list[Any]) -> Any:
    """The greatest element; an error when there is none."""
    if not values:
        raise ValueError("max called on empty list")
    return max(values)


def _same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def index_of(values: list[Any], wanted: Any) -> int:
    """Where an element first is, or -1."""
    return next((i for i, value in enumerate(values) if _same(value, wanted)), -1)


def last_index_of(values: list[Any], wanted: Any) -> int:
    """Where an element last is, or -1."""
    return next((i for i in range(len(values) - 1, -1, -1) if _same(values[i], wanted)), -1)


def _nanos(value: Any) -> int:
    return int(value.text)


def quantity(text: str) -> Any:
    """A quantity, as its number of nanos: two that are the same amount are equal."""
    try:
        return make(QUANTITY, str(parse(text).nanos))
    except QuantityError:
        words = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise ValueError(words) from None


def is_quantity(text: str) -> bool:
    """Whether a text is a quantity."""
    try:
        return bool(parse(text)) or True
    except QuantityError:
        return False


def sign(value: Any) -> int:
    """-1, 0 or 1."""
    return (_nanos(value) > 0) - (_nanos(value) < 0)


def is_integer(value: Any) -> bool:
    """Whether a quantity has no fraction and an int holds it."""
    return _nanos(value) % 10**9 == 0 and -_INT <= _nanos(value) // 10**9 < _INT


def as_integer(value: Any) -> int:
    """A quantity as an int; an error when it is none."""
    if not is_integer(value):
        raise ValueError("cannot convert value to integer")
    return _nanos(value) // 10**9


def as_float(value: Any) -> float:
    """A quantity as a double."""
    return _nanos(value) / 10**9


def add(value: Any, other: Any) -> Any:
    """The sum of a quantity and another, or an int."""
    return make(QUANTITY, str(_nanos(value) + _operand(other)))


def subtract(value: Any, other: Any) -> Any:
    """The difference of a quantity and another, or an int."""
    return make(QUANTITY, str(_nanos(value) - _operand(other)))


def _operand(other: Any) -> int:
    return int(other) * 10**9 if isinstance(other, int) else _nanos(other)


def quantity_text(value: Any) -> str:
    """A quantity as Kubernetes writes it."""
    return Quantity(_nanos(value)).canonical()


_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


def _normal(text: str) -> str:
    """A version with the `v` in front dropped, leading zeros too, and what is missing of it filled in."""
    text = text.removeprefix("v")
    numbers = re.split(r"[-+]", text, maxsplit=1)[0]
    rest = text[len(numbers) :]
    parts = [part.lstrip("0") or "0" for part in numbers.split(".")] if numbers else []
    if rest and len(parts) < 3:
        return text
    return ".".join([*parts, *["0"] * (3 - len(parts))]) + rest


def semver(text: str, normalize: bool = False) -> Any:
    """A semantic version."""
    found = _normal(text) if normalize else text
    match = _VERSION.fullmatch(found) if len(found) <= 1000 else None
    if match is None or any(_zeros(part) for part in (match[4] or "").split(".")):
        raise ValueError("No Major.Minor.Patch elements found" if text.count(".") < 2 else f"Invalid version {text!r}")
    return make(SEMVER, found)


def _zeros(part: str) -> bool:
    return len(part) > 1 and part.isdecimal() and part.startswith("0")


def is_semver(text: str, normalize: bool = False) -> bool:
    """Whether a text is a semantic version."""
    try:
        return bool(semver(text, normalize))
    except ValueError:
        return False


def _numbers(value: Any) -> tuple[int, int, int]:
    match = _VERSION.fullmatch(value.text)
    assert match is not None
    return int(match[1]), int(match[2]), int(match[3])


def major(value: Any) -> int:
    """The first number of a version."""
    return _numbers(value)[0]


def minor(value: Any) -> int:
    """The second number of a version."""
    return _numbers(value)[1]


def patch(value: Any) -> int:
    """The third number of a version."""
    return _numbers(value)[2]


def _order(value: Any) -> Any:
    if kind_of(value) == QUANTITY:
        return _nanos(value)
    match = _VERSION.fullmatch(value.text)
    assert match is not None
    parts = (match[4] or "").split(".") if match[4] else []
    # A release comes after all of its pre-releases; numbers before words.
    shown = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
    return (*_numbers(value), not parts, shown)


def compare(value: Any, other: Any) -> int:
    """-1, 0 or 1."""
    left, right = _order(value), _order(other)
    return int(left > right) - int(left < right)


def greater(value: Any, other: Any) -> bool:
    """Whether a quantity or version is more than another."""
    return compare(value, other) > 0


def less(value: Any, other: Any) -> bool:
    """Whether a quantity or version is less than another."""
    return compare(value, other) < 0


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_LABEL}')"
)
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_OLD_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_OLD_LABEL_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_OLD_LABEL}')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_UUID = r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"


def _matching(pattern: str, longest: int, words: str) -> Callable[[str], list[str]]:
    compiled = re.compile(pattern)

    def check(text: str) -> list[str]:
        found = [f"must be no more than {longest} bytes"] if len(text.encode()) > longest else []
        return found if compiled.fullmatch(text[: longest + 1]) else [*found, words]

    return check


FORMATS: dict[str, Callable[[str], list[str]]] = {
    "dns1123Label": _matching(_LABEL, 63, _LABEL_WORDS),
    "dns1123Subdomain": _matching(_SUBDOMAIN, 253, _SUBDOMAIN_WORDS),
    "dns1035Label": _matching(_OLD_LABEL, 63, _OLD_LABEL_WORDS),
    "labelValue": _matching(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", 63, _VALUE_WORDS),
    "uuid": _matching(_UUID, 36, "does not match the UUID format"),
}
"""What is wrong with a text, by format."""


def named_format(name: str) -> Callable[[], Any]:
    """A function that answers a format."""
    return lambda: make(FORMAT, name)


def validate(form: Any, text: str) -> list[str]:
    """What is wrong with a text."""
    return FORMATS[form.text](text)
