"""Selectors as texts, of labels (``kubectl -l``) and of fields (``--field-selector``).

A text may have thousands of terms: reading is linear, what is long is not remembered and not repeated in errors.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from koord.kube.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    GT,
    IN,
    LT,
    NOT_IN,
    Requirement,
    Selector,
    SelectorError,
    requirement,
)

_REMEMBERED_LENGTH: Final = 1_024
_SHOWN: Final = 512


def shortened(text: str) -> str:
    """A selector's text for an error, with an end that says so when it is cut."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def parse_label_selector(text: str) -> Selector:
    """The text form of ``kubectl -l``; SelectorError names the text, the place and the rule."""
    return _known_labels(text) if len(text) <= _REMEMBERED_LENGTH else _read_labels(text)


def _read_labels(text: str) -> Selector:
    return Selector(tuple(_LabelText(text).requirements()))


_known_labels = lru_cache(maxsize=1024)(_read_labels)


class FieldSelector(msgspec.Struct, frozen=True, gc=False):
    """Compiled tests of an object's fields: (field, value, must be equal). A field that is not there reads as empty."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether ``fields`` (path to text) pass every test."""
        return all((fields.get(field, "") == value) is equal for field, value, equal in self.terms)

    def __str__(self) -> str:
        return ",".join(f"{field}{'=' if equal else '!='}{_escape(value)}" for field, value, equal in self.terms)


def parse_field_selector(text: str) -> FieldSelector:
    """The text form of ``--field-selector``: ``a=b,c!=d``; ``\\\\``, ``\\,`` and ``\\=`` are escapes."""
    return _known_fields(text) if len(text) <= _REMEMBERED_LENGTH else _read_fields(text)


def _read_fields(text: str) -> FieldSelector:
    terms = []
    for part in _split_escaped(text):
        match = re.search(r"!=|==|=", part)
        if match is None:
            raise SelectorError(
                f'field selector "{shortened(text)}": "{part}" must be field=value, field==value or field!=value'
            )
        if match.start() == 0:
            raise SelectorError(f'field selector "{shortened(text)}": "{part}" names no field')
        terms.append((part[: match.start()], _unescape(text, part[match.end() :]), match[0] != "!="))
    return FieldSelector(tuple(terms))


_known_fields = lru_cache(maxsize=1024)(_read_fields)


def _split_escaped(text: str) -> list[str]:
    parts, start, index = [], 0, 0
    while index < len(text):
        if text[index] == "\\":
            index += 1
        elif text[index] == ",":
            parts.append(text[start:index])
            start = index + 1
        index += 1
    parts.append(text[start:])
    return [part for part in parts if part]


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)


def _unescape(text: str, value: str) -> str:
    out, index = [], 0
    while index < len(value):
        char = value[index]
        if char == "\\":
            index += 1
            if index == len(value) or value[index] not in "\\,=":
                raise SelectorError(f'field selector "{shortened(text)}": "\\" must be followed by "\\", "," or "="')
            char = value[index]
        elif char in ",=":
            raise SelectorError(f'field selector "{shortened(text)}": "{char}" in a value must be written "\\{char}"')
        out.append(char)
        index += 1
    return "".join(out)


class _LabelText:
    """A recursive-descent reader of the text form, one token ahead."""

    _TOKEN = re.compile(r"\s*(==|!=|[(),=!<>]|[^\s(),=!<>]+)")

    def __init__(self, text: str) -> None:
        self._where = f'selector "{shortened(text)}"'
        self._tokens: list[str] = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = self._TOKEN.match(stripped, position)
            if match is None:  # cannot happen: the token pattern covers every character
                raise self._error(f'unexpected "{stripped[position]}"')
            self._tokens.append(match[1])
            position = match.end()
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if not self._tokens:
            return found
        while True:
            found.append(self._one())
            token = self._next()
            if not token:
                return found
            if token != ",":
                raise self._error(f'expected "," or the end, found "{token}"')
            if not self._peek():
                raise self._error('a requirement must follow ","')

    def _one(self) -> Requirement:
        where = self._where
        if self._peek() == "!":
            self._next()
            return requirement(where, self._word("a key"), DOES_NOT_EXIST, [])
        key = self._word("a key")
        token = self._peek()
        if token in ("", ","):
            return requirement(where, key, EXISTS, [])
        self._next()
        if token in ("=", "=="):
            return requirement(where, key, IN, [self._value()])
        if token == "!=":
            return requirement(where, key, NOT_IN, [self._value()])
        if token in ("in", "notin"):
            return requirement(where, key, IN if token == "in" else NOT_IN, self._values())
        if token in (">", "<"):
            return requirement(where, key, GT if token == ">" else LT, [self._word("a whole number")])
        raise self._error(f'expected =, ==, !=, in, notin, > or <, found "{token}"')

    def _values(self) -> list[str]:
        if self._next() != "(":
            raise self._error('"(" must follow in and notin')
        values = []
        while True:
            values.append(self._value())
            token = self._next()
            if token == ")":
                return values
            if token != ",":
                raise self._error(f'expected "," or ")" in a list of values, found "{token}"')

    def _value(self) -> str:
        return "" if self._peek() in ("", ",", ")") else self._word("a value")

    def _word(self, what: str) -> str:
        token = self._next()
        if not token or token in ("==", "!=") or token in "(),=!<>":
            raise self._error(f'expected {what}, found "{token}"' if token else f"expected {what} at the end")
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _error(self, rule: str) -> SelectorError:
        return SelectorError(f"{self._where}: {rule}")
