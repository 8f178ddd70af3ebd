# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""Selectors: labels (object and text form), fields, node selector terms, tolerations.

Semantics are those of Kubernetes' own packages: ``NotIn`` and ``!=`` also match what lacks the key; ``Gt`` and ``Lt``
compare whole numbers and match nothing else; a node selector term without any test matches no node. A selector that
breaks a rule raises SelectorError when it is compiled, never while matching.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from koord.kube.meta import View
from koord.kube.nodes import NO_EXECUTE, NO_SCHEDULE, Taint
from koord.kube.pods import NodeSelector, NodeSelectorTerm, PodSpec, PreferredSchedulingTerm, Toleration

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GT: Final = "Gt"
LT: Final = "Lt"

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_INT = re.compile(r"[+-]?[0-9]+")


class SelectorError(ValueError):
    """A selector that breaks a rule; the message names the part and the rule."""


class LabelSelectorRequirement(View, frozen=True):
    """One test of a label."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class LabelSelector(View, frozen=True):
    """The object form; all parts must hold, an empty one matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One compiled test of a mapping. ``number`` is the operand of Gt and Lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    number: int = 0

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` pass the test."""
        value = labels.get(self.key)
        operator = self.operator
        if operator == IN:
            return value is not None and value in self.values
        if operator == NOT_IN:
            return value is None or value not in self.values
        if operator == EXISTS:
            return value is not None
        if operator == DOES_NOT_EXIST:
            return value is None
        if value is None:
            return False
        number = _int64(value)
        if number is None:
            return False
        return number > self.number if operator == GT else number < self.number

    def __str__(self) -> str:
        if self.operator == EXISTS:
            return self.key
        if self.operator == DOES_NOT_EXIST:
            return f"!{self.key}"
        if self.operator in (GT, LT):
            return f"{self.key}{'>' if self.operator == GT else '<'}{self.number}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.operator == IN else '!='}{next(iter(self.values))}"
        return f"{self.key} {'in' if self.operator == IN else 'notin'} ({','.join(sorted(self.values))})"


class Selector(msgspec.Struct, frozen=True, gc=False):
    """Compiled tests that must all hold; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` pass every test."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING: Final = Selector()


def compile_label_selector(selector: LabelSelector) -> Selector:
    """The compiled form; SelectorError names the field and the rule."""
    tests = [
        _requirement(f"matchLabels[{key}]", key, IN, [value]) for key, value in sorted(selector.match_labels.items())
    ]
    tests += [
        _requirement(f"matchExpressions[{index}]", item.key, item.operator, item.values)
        for index, item in enumerate(selector.match_expressions)
        if _label_operator(index, item.operator)
    ]
    return Selector(tuple(tests))


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the object form matches; None matches nothing, as in Kubernetes. Compile it for repeated use."""
    return selector is not None and compile_label_selector(selector).matches(labels)


@lru_cache(maxsize=1024)
def parse_label_selector(text: str) -> Selector:
    """The text form of ``kubectl -l``; SelectorError names the text, the place and the rule."""
    return Selector(tuple(_LabelText(text).requirements()))


class FieldSelector(msgspec.Struct, frozen=True, gc=False):
    """Compiled tests of an object's fields: (field, value, must be equal). A field that is not there reads as empty."""

    terms: tuple[tuple[str, str, bool], ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether ``fields`` (path to text) pass every test."""
        return all((fields.get(field, "") == value) is equal for field, value, equal in self.terms)

    def __str__(self) -> str:
        return ",".join(f"{field}{'=' if equal else '!='}{_escape(value)}" for field, value, equal in self.terms)


@lru_cache(maxsize=1024)
def parse_field_selector(text: str) -> FieldSelector:
    """The text form of ``--field-selector``: ``a=b,c!=d``; ``\\\\``, ``\\,`` and ``\\=`` are escapes."""
    terms = []
    for part in _split_escaped(text):
        match = re.search(r"!=|==|=", part)
        if match is None:
            raise SelectorError(f'field selector "{text}": "{part}" must be field=value, field==value or field!=value')
        if match.start() == 0:
            raise SelectorError(f'field selector "{text}": "{part}" names no field')
        terms.append((part[: match.start()], _unescape(text, part[match.end() :]), match[0] != "!="))
    return FieldSelector(tuple(terms))


# Nodes ----------------------------------------------------------------------------------------------------------------


class CompiledTerm(msgspec.Struct, frozen=True, gc=False):
    """A compiled node selector term: tests of labels and tests of the node's name; empty matches nothing."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether the node of that name with those labels passes every test."""
        if not self.labels and not self.fields:
            return False
        return all(test.matches(labels) for test in self.labels) and all(
            test.matches({"metadata.name": name}) for test in self.fields
        )


def compile_term(term: NodeSelectorTerm, path: str = "term") -> CompiledTerm:
    """The compiled form of one term; SelectorError names the field below ``path`` and the rule."""
    labels = tuple(
        _requirement(f"{path}.matchExpressions[{index}]", item.key, item.operator, item.values)
        for index, item in enumerate(term.match_expressions)
    )
    fields = []
    for index, item in enumerate(term.match_fields):
        where = f"{path}.matchFields[{index}]"
        if item.key != "metadata.name":
            raise SelectorError(f'{where}.key: must be metadata.name, got "{item.key}"')
        if item.operator not in (IN, NOT_IN):
            raise SelectorError(f'{where}.operator: must be In or NotIn, got "{item.operator}"')
        if len(item.values) != 1:
            raise SelectorError(f"{where}.values: must have exactly one element, got {len(item.values)}")
        fields.append(Requirement(item.key, item.operator, frozenset(item.values)))
    return CompiledTerm(labels, tuple(fields))


def compile_node_selector(selector: NodeSelector, path: str = "nodeSelectorTerms") -> tuple[CompiledTerm, ...]:
    """The compiled terms, of which one must match; without any, no node matches."""
    return tuple(compile_term(term, f"{path}[{index}]") for index, term in enumerate(selector.node_selector_terms))


def matches_node_selector(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Whether one term of ``selector`` matches the node. Compile it for repeated use."""
    return any(term.matches(labels, name) for term in compile_node_selector(selector))


def matches_node(spec: PodSpec, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node passes a pod's nodeSelector and its required node affinity."""
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return matches_node_selector(affinity.required, labels, name)


def compile_preferred(
    terms: Sequence[PreferredSchedulingTerm], path: str = "preferred"
) -> tuple[tuple[int, CompiledTerm], ...]:
    """Weights and compiled preferences; terms that are empty or weigh 0 change no score and are left out."""
    compiled = []
    for index, term in enumerate(terms):
        preference = compile_term(term.preference, f"{path}[{index}].preference")
        if term.weight and (preference.labels or preference.fields):
            compiled.append((term.weight, preference))
    return tuple(compiled)


# Taints ---------------------------------------------------------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration accepts one taint. An unknown operator accepts nothing."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: tuple[str, ...] = (NO_SCHEDULE, NO_EXECUTE),
) -> Taint | None:
    """The first taint of one of the ``effects`` that no toleration accepts, or None."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


# Rules ----------------------------------------------------------------------------------------------------------------


def check_key(where: str, key: str) -> None:
    """Raise unless ``key`` is a label key: an optional DNS prefix, ``/``, a name of at most 63 characters."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _DNS.fullmatch(prefix)):
        raise SelectorError(f'{where}: key "{key}": prefix must be a DNS subdomain of at most 253 characters')
    if not name or len(name) > 63 or not _NAME.fullmatch(name):
        raise SelectorError(
            f'{where}: key "{key}": name must be 1 to 63 letters, digits, "-", "_" or ".", '
            "beginning and ending with a letter or digit"
        )


def check_value(where: str, value: str) -> None:
    """Raise unless ``value`` is a label value: empty, or like a key's name."""
    if value and (len(value) > 63 or not _NAME.fullmatch(value)):
        raise SelectorError(
            f'{where}: value "{value}": must be empty or at most 63 letters, digits, "-", "_" or ".", '
            "beginning and ending with a letter or digit"
        )


def _label_operator(index: int, operator: str) -> bool:
    if operator not in (IN, NOT_IN, EXISTS, DOES_NOT_EXIST):
        raise SelectorError(
            f'matchExpressions[{index}].operator: must be In, NotIn, Exists or DoesNotExist, got "{operator}"'
        )
    return True


def _requirement(where: str, key: str, operator: str, values: Sequence[str]) -> Requirement:
    check_key(where, key)
    if operator in (IN, NOT_IN):
        if not values:
            raise SelectorError(f"{where}.values: must not be empty for operator {operator}")
        for value in values:
            check_value(where, value)
        return Requirement(key, operator, frozenset(values))
    if operator in (EXISTS, DOES_NOT_EXIST):
        if values:
            raise SelectorError(f"{where}.values: must be empty for operator {operator}")
        return Requirement(key, operator)
    if operator in (GT, LT):
        if len(values) != 1:
            raise SelectorError(f"{where}.values: must have exactly one element for operator {operator}")
        number = _int64(values[0])
        check_value(where, values[0])
        if number is None:
            raise SelectorError(f'{where}.values: must be a whole number for operator {operator}, got "{values[0]}"')
        return Requirement(key, operator, number=number)
    raise SelectorError(f'{where}.operator: must be In, NotIn, Exists, DoesNotExist, Gt or Lt, got "{operator}"')


def _int64(text: str) -> int | None:
    if len(text) > 40 or not _INT.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


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
                raise SelectorError(f'field selector "{text}": "\\" must be followed by "\\", "," or "="')
            char = value[index]
        elif char in ",=":
            raise SelectorError(f'field selector "{text}": "{char}" in a value must be written "\\{char}"')
        out.append(char)
        index += 1
    return "".join(out)


class _LabelText:
    """A recursive-descent reader of the text form, one token ahead."""

    _TOKEN = re.compile(r"\s*(==|!=|[(),=!<>]|[^\s(),=!<>]+)")

    def __init__(self, text: str) -> None:
        self._text = text
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
        where = f'selector "{self._text}"'
        if self._peek() == "!":
            self._next()
            return _requirement(where, self._word("a key"), DOES_NOT_EXIST, [])
        key = self._word("a key")
        token = self._peek()
        if token in ("", ","):
            return _requirement(where, key, EXISTS, [])
        self._next()
        if token in ("=", "=="):
            return _requirement(where, key, IN, [self._value()])
        if token == "!=":
            return _requirement(where, key, NOT_IN, [self._value()])
        if token in ("in", "notin"):
            return _requirement(where, key, IN if token == "in" else NOT_IN, self._values())
        if token in (">", "<"):
            return _requirement(where, key, GT if token == ">" else LT, [self._word("a whole number")])
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
        return SelectorError(f'selector "{self._text}": {rule}')
