"""The JSON paths of CRDs (`.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`), as kubectl's.

A path is read into steps, each from a list of values to the next. What a step cannot do (an index that is not there, a
comparison of a number with a text) is an error of the whole path, so that a column shows nothing: Kubernetes does the
same. `range` and `end` are not here: they print, and lead to no value.
"""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

MOST_VALUES: Final = 100_000
"""Values that a path may lead to on its way: `..` several times in a row multiplies them."""
_MOST_NESTED: Final = 32

_FIELD = re.compile(r"(?:\\.|[^\s.,\[\]$@{}\\])*")
_WORD = re.compile(r"[^\s.,\[\]$@{}]+")
_NUMBER = re.compile(r"[+-]?[0-9.]+")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_ESCAPED = re.compile(r"\\(.)")
_SLICE = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?")
_COMPARED = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}

Values = list[Any]
Step = Callable[[Values], Values]


class JsonPathError(ValueError):
    """A path that cannot be read, or cannot be followed in an object."""


class JsonPath:
    """A compiled path; `find` answers every value it leads to."""

    def __init__(self, text: str) -> None:
        self.text = text
        body = text.strip()
        if body.startswith("{") and body.endswith("}"):
            body = body[1:-1]
        if body and (body[0].isalnum() or body[0] == "_"):
            body = "." + body
        self._steps = _read(body)

    def find(self, obj: Any) -> Values:
        """All values at the path; empty when it leads nowhere. JsonPathError when a step is not possible."""
        return _follow(self._steps, [obj])

    def first(self, obj: Any) -> Any:
        """The first value at the path; None when there is none, or a step is not possible."""
        try:
            found = self.find(obj)
        except JsonPathError:
            return None
        return found[0] if found else None


def _follow(steps: list[Step], values: Values) -> Values:
    for step in steps:
        values = step(values)
        if len(values) > MOST_VALUES:
            raise JsonPathError(f"a path leads to more than {MOST_VALUES} values")
    return values


# Reading --------------------------------------------------------------------------------------------------------------


def _read(text: str, nested: int = 0) -> list[Step]:
    if nested > _MOST_NESTED:
        raise JsonPathError("filters are nested too deeply")
    steps: list[Step] = []
    at, end = 0, len(text)
    while at < end:
        rest = text[at]
        if text.startswith("[?(", at):
            inner, at = _filter_text(text, at + 3)
            steps.append(_filter(inner, nested))
        elif text.startswith("..", at):
            if steps and steps[-1] is _descend:
                raise JsonPathError(f"{text!r}: invalid multiple recursive descent")
            steps.append(_descend)
            at += 2
            if at < end and (text[at].isalnum() or text[at] == "_"):
                at = _field(text, at, steps)
        elif rest in " @$":
            at += 1
        elif rest == "[":
            close = text.find("]", at)
            if close < 0:
                raise JsonPathError(f"{text!r}: unterminated array")
            steps.append(_brackets(text[at + 1 : close], nested))
            at = close + 1
        elif rest == ".":
            at = _field(text, at + 1, steps)
        else:
            at = _literal(text, at, steps)
    return steps


def _field(text: str, at: int, steps: list[Step]) -> int:
    match = _FIELD.match(text, at)
    assert match is not None  # it matches nothing, too
    name = match[0]
    steps.append(_every if name == "*" else _member(name.replace("\\", "")))
    return match.end()


def _literal(text: str, at: int, steps: list[Step]) -> int:
    """A text, a number or a word; what is none of these cannot be read."""
    if match := _QUOTED.match(text, at):
        steps.append(_texts(_ESCAPED.sub(r"\1", match[0][1:-1])))
    elif text[at] in "+-" or text[at].isdigit():
        match = _NUMBER.match(text, at)
        if match is None:
            raise JsonPathError(f"{text!r}: cannot read a number at {text[at:]!r}")
        steps.append(_constant(_number(match[0])))
    elif text[at].isalpha() or text[at] == "_":
        match = _WORD.match(text, at)
        assert match is not None
        steps.append(_constant(match[0] == "true") if match[0] in ("true", "false") else _unknown(match[0]))
    else:
        raise JsonPathError(f"{text!r}: unrecognized character in action: {text[at]!r}")
    return match.end()


def _number(text: str) -> int | float:
    try:
        return int(text) if len(text) < 20 and "." not in text else float(text)
    except ValueError as error:
        raise JsonPathError(f"cannot parse number {text}") from error


def _brackets(text: str, nested: int) -> Step:
    """An index, a slice, a quoted name, or several of them with commas."""
    if "," in text:
        parts = [_read(f"[{part.strip()}]", nested + 1) for part in text.split(",")]
        return lambda values: [found for part in parts for found in _follow(part, values)]
    if len(text) >= 2 and text[0] == text[-1] == "'" and "'" not in text[1:-1]:
        inner = _read("." + text[1:-1], nested + 1)
        return lambda values: _follow(inner, values)
    match = _SLICE.fullmatch(":" if text == "*" else text)
    if match is None:
        raise JsonPathError(f"invalid array index {text}")
    start, stop, step = (_whole((part or "").removeprefix(":")) for part in match.groups())
    if match[2] is None:
        return _index(start or 0)
    return _slice(start or 0, stop, 1 if step is None else step)


def _whole(text: str) -> int | None:
    if text in ("", "-"):
        if text:
            raise JsonPathError("array index - is not a number")
        return None
    if len(text) > 19:
        raise JsonPathError(f"array index {text} is not a number")
    return int(text)


def _filter_text(text: str, at: int) -> tuple[str, int]:
    """What is between `[?(` and its `)]`, and where the path goes on."""
    start, opened, closed = at, "", False
    while at < len(text):
        char = text[at]
        if char in "\"'":
            if not opened:
                opened = char
            elif char == opened and text[at - 1] != "\\":
                closed = True
        elif char == ")" and bool(opened) == closed:
            if text[at + 1 : at + 2] != "]":
                raise JsonPathError(f"{text!r}: unclosed array expect ]")
            return text[start:at], at + 2
        at += 1
    raise JsonPathError(f"{text!r}: unterminated filter")


def _filter(text: str, nested: int) -> Step:
    match = _COMPARED.fullmatch(text)
    if match is None:
        tested = _read(text, nested + 1)
        return lambda values: [item for item in _items(values) if _leads_somewhere(tested, item)]
    left, right = _read(match[1], nested + 1), _read(match[3], nested + 1)
    compared = match[2]

    def passed(item: Any) -> bool:
        lefts = _follow(left, [item])
        if not lefts:
            return False
        rights = _follow(right, [item])
        if not rights:
            return False
        if len(lefts) > 1 or len(rights) > 1:
            raise JsonPathError("can only compare one element at a time")
        return _compare(compared, lefts[0], rights[0])

    return lambda values: [item for item in _items(values) if passed(item)]


# Following ------------------------------------------------------------------------------------------------------------


def _member(name: str) -> Step:
    return lambda values: [value[name] for value in values if type(value) is dict and name in value]


def _texts(text: str) -> Step:
    return lambda values: [text]


def _constant(constant: Any) -> Step:
    return lambda values: [constant] * len(values)


def _unknown(word: str) -> Step:
    def fail(values: Values) -> Values:
        raise JsonPathError(f"unrecognized identifier {word}")

    return fail


def _children(value: Any) -> Values:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _every(values: Values) -> Values:
    return [inner for value in values for inner in _children(value)]


def _descend(values: Values) -> Values:
    """All values that have others inside of them, from the outside in."""
    found: Values = []
    pending = values[::-1]
    while pending:
        value = pending.pop()
        if inner := _children(value):
            found.append(value)
            pending.extend(reversed(inner))
            if len(found) > MOST_VALUES:
                break
    return found


def _lists(values: Values) -> Iterator[Values]:
    for value in values:
        if isinstance(value, list):
            yield value
        elif value is not None:
            raise JsonPathError("not an array or slice")


def _items(values: Values) -> Iterator[Any]:
    for value in _lists(values):
        yield from value


def _index(index: int) -> Step:
    def take(values: Values) -> Values:
        found = []
        for value in _lists(values):
            if not -len(value) <= index < len(value):
                raise JsonPathError(f"array index out of bounds: index {index}, length {len(value)}")
            found.append(value[index])
        return found

    return take


def _slice(start: int, stop: int | None, step: int) -> Step:
    def take(values: Values) -> Values:
        found = []
        for value in _lists(values):
            size = len(value)
            first = start + size if start < 0 else start
            last = size if stop is None else stop + size if stop < 0 else stop
            if first == last:
                continue
            if not 0 <= first < size or not 0 <= last <= size or first > last:
                raise JsonPathError(f"array index out of bounds: {first}:{last}, length {size}")
            if step <= 0:
                raise JsonPathError("step must be > 0")
            found += value[first:last:step]
        return found

    return take


def _leads_somewhere(steps: list[Step], item: Any) -> bool:
    try:
        return bool(_follow(steps, [item]))
    except JsonPathError:
        return False


def _compare(compared: str, left: Any, right: Any) -> bool:
    """Only values of one type compare, and of those in an order only numbers and texts."""
    if type(left) is not type(right) or not isinstance(left, str | int | float):
        raise JsonPathError("incompatible types for comparison")
    if compared in ("==", "!="):
        return bool((left == right) is (compared == "=="))
    order = _ORDERS.get(compared)
    if order is None:
        raise JsonPathError(f"unrecognized filter operator {compared}")
    if isinstance(left, bool):
        raise JsonPathError("invalid type for comparison")
    return order(left, right)
