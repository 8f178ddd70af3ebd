"""Patterns of schemas in Go's syntax (RE2), matched in time that grows with the text and not with what it could mean.

Python's `re` tries one possibility after the other: `(a+)+$` against thirty letters holds up the whole server for
minutes. Here a pattern becomes a nondeterministic automaton of which all states are followed at the same time; the
sets of states that occur are remembered per character, so most steps are one look-up. Only `re`'s parser is used.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

MOST_REPEATS = 1000
"""The largest number of repetitions in a pattern, as in Go."""
_MOST_NODES = 20_000
_MOST_STEPS = 20_000
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_DIGIT, _SPACE = frozenset("0123456789"), frozenset("\t\n\f\r ")
_CLASSES = {"DIGIT": _DIGIT, "SPACE": _SPACE, "WORD": _WORD}
_START, _NEWLINE, _LETTER, _OTHER = range(4)
_END = ""
Test = Callable[[str], bool]


class _Node(NamedTuple):
    """One state: `test` of a character (None: passed without one), `at` a place that must be met; then `after`."""

    test: Test | None
    at: str
    after: tuple[int, ...]


class _Key(NamedTuple):
    kernel: frozenset[int]
    before: int


def _kind(char: str) -> int:
    return _NEWLINE if char == "\n" else _LETTER if char in _WORD else _OTHER


class Pattern:
    """A compiled pattern. Raises `re.error` for a text that is none in Go."""

    def __init__(self, text: str) -> None:
        parsed = parser.parse(text.replace(r"\z", r"\Z"), re.ASCII)
        self._nodes: list[_Node] = [_Node(None, "", ())]
        self._first = self._sequence(parsed, parsed.state.flags, 0)
        self._steps: dict[tuple[_Key, str], _Key | None] = {}

    def search(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        key: _Key | None = _Key(frozenset((self._first,)), _START)
        steps = self._steps
        for char in (*text, _END) if len(text) < 64 else _characters(text):
            at = (key, char)
            if at in steps:
                key = steps[at]
            else:
                if len(steps) > _MOST_STEPS:
                    steps.clear()
                key = steps[at] = self._step(key, char)  # type: ignore[index,arg-type]
            if key is None:
                return True
        return False

    def _step(self, key: _Key, char: str) -> _Key | None:
        """The states after one more character (at the end `_END`); None when the pattern has been found."""
        pending, seen, nodes = list(key.kernel), set(key.kernel), self._nodes
        following = {self._first}
        while pending:
            at = pending.pop()
            if at == 0:
                return None
            node = nodes[at]
            if node.test is not None:
                if char != _END and node.test(char):
                    following.update(node.after)
                continue
            if node.at and not _is_at(node.at, key.before, char):
                continue
            for other in node.after:
                if other not in seen:
                    seen.add(other)
                    pending.append(other)
        return _Key(frozenset(following), _kind(char) if char else key.before)

    # --- from the parsed pattern to states, from its end to its beginning

    def _add(self, test: Test | None, at: str, *after: int) -> int:
        if len(self._nodes) >= _MOST_NODES:
            raise re.error("expression too large")
        self._nodes.append(_Node(test, at, after))
        return len(self._nodes) - 1

    def _sequence(self, items: Iterable[Any], flags: int, after: int) -> int:
        for operation, argument in reversed(list(items)):
            after = self._one(str(operation), argument, flags, after)
        return after

    def _one(self, operation: str, argument: Any, flags: int, after: int) -> int:
        match operation:
            case "SUBPATTERN":
                _, added, dropped, inner = argument
                return self._sequence(inner, (flags | added) & ~dropped, after)
            case "BRANCH":
                return self._add(None, "", *(self._sequence(inner, flags, after) for inner in argument[1]))
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, inner = argument
                return self._repeat(least, most, inner, flags, after)
            case "AT":
                many = flags & re.MULTILINE and str(argument) in ("AT_BEGINNING", "AT_END")
                return self._add(None, f"{argument}_LINE" if many else str(argument), after)
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._add(_test_of(operation, argument, flags), "", after)
        raise re.error(f"invalid or unsupported Perl syntax: {operation.lower()}")

    def _repeat(self, least: int, most: int, inner: Any, flags: int, after: int) -> int:
        endless = most == codes.MAXREPEAT
        if least > MOST_REPEATS or (not endless and most > MOST_REPEATS):
            raise re.error("invalid repeat count")
        if endless:
            loop = self._add(None, "", after)
            self._nodes[loop] = _Node(None, "", (self._sequence(inner, flags, loop), after))
            after = loop
        else:
            skipped = after
            for _ in range(most - least):
                after = self._add(None, "", self._sequence(inner, flags, after), skipped)
        for _ in range(least):
            after = self._sequence(inner, flags, after)
        return after


def _characters(text: str) -> Iterable[str]:
    yield from text
    yield _END


def _is_at(place: str, before: int, char: str) -> bool:
    match place:
        case "AT_BEGINNING" | "AT_BEGINNING_STRING":
            return before == _START
        case "AT_END" | "AT_END_STRING":
            return char == _END
        case "AT_BEGINNING_LINE":
            return before in (_START, _NEWLINE)
        case "AT_END_LINE":
            return char in (_END, "\n")
    edge = (before == _LETTER) != (char in _WORD)
    return edge if place == "AT_BOUNDARY" else not edge


def _test_of(operation: str, argument: Any, flags: int) -> Test:
    if operation == "ANY":
        return (lambda _: True) if flags & re.DOTALL else (lambda char: char != "\n")
    if operation == "IN":
        test = _class_test(argument)
    else:
        wanted, equal = chr(argument), operation == "LITERAL"
        test = lambda char: (char == wanted) is equal  # noqa: E731
    if not flags & re.IGNORECASE:
        return test
    if operation == "NOT_LITERAL" or (operation == "IN" and str(argument[0][0]) == "NEGATE"):
        return lambda char: test(char) and test(char.lower()) and test(char.upper())
    return lambda char: test(char) or test(char.lower()) or test(char.upper())


def _class_test(items: list[tuple[Any, Any]]) -> Test:
    negated = False
    singles: set[str] = set()
    ranges: list[tuple[str, str]] = []
    without: list[frozenset[str]] = []
    for operation, argument in items:
        match str(operation):
            case "NEGATE":
                negated = True
            case "LITERAL":
                singles.add(chr(argument))
            case "RANGE":
                ranges.append((chr(argument[0]), chr(argument[1])))
            case _:
                name = str(argument).removeprefix("CATEGORY_")
                if name.startswith("NOT_"):
                    without.append(_CLASSES[name.removeprefix("NOT_")])
                else:
                    singles |= _CLASSES[name]

    def test(char: str) -> bool:
        inside = (
            char in singles
            or any(low <= char <= high for low, high in ranges)
            or any(char not in others for others in without)
        )
        return inside is not negated

    return test


compiled = lru_cache(maxsize=1024)(Pattern)
"""A pattern, of which the latest thousand are remembered."""

_LINEAR = re.compile(r"\^(?:[A-Za-z0-9 /_:@-]|\\[.dw/-]|\[\^?[A-Za-z0-9_./:\\-]+\])*[*+]?\$?")


def is_harmless(text: str) -> bool:
    """Whether Python's `re` needs no more than one pass: anchored, at most one repetition, which comes last."""
    return _LINEAR.fullmatch(text) is not None
