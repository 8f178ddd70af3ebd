# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""Label selectors: single tests, and all of an object's tests compiled; texts are read by ``selectortexts``.

Semantics are those of Kubernetes' own packages: ``NotIn`` and ``!=`` also match what lacks the key; ``Gt`` and ``Lt``
compare whole numbers and match nothing else. A selector that breaks a rule raises SelectorError when it is compiled,
never while matching.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from koord.kube.meta import View

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
        number = whole_number(value)
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
        requirement(f"matchLabels[{key}]", key, IN, [value]) for key, value in sorted(selector.match_labels.items())
    ]
    tests += [
        requirement(f"matchExpressions[{index}]", item.key, item.operator, item.values)
        for index, item in enumerate(selector.match_expressions)
        if _label_operator(index, item.operator)
    ]
    return Selector(tuple(tests))


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the object form matches; None matches nothing, as in Kubernetes. Compile it for repeated use."""
    return selector is not None and compile_label_selector(selector).matches(labels)


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


def requirement(where: str, key: str, operator: str, values: Sequence[str]) -> Requirement:
    """One compiled test; SelectorError begins with ``where`` and names the rule."""
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
        number = whole_number(values[0])
        check_value(where, values[0])
        if number is None:
            raise SelectorError(f'{where}.values: must be a whole number for operator {operator}, got "{values[0]}"')
        return Requirement(key, operator, number=number)
    raise SelectorError(f'{where}.operator: must be In, NotIn, Exists, DoesNotExist, Gt or Lt, got "{operator}"')


def whole_number(text: str) -> int | None:
    """The number that a label's value is for Gt and Lt, None when it is none of 64 bits."""
    if len(text) > 40 or not _INT.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
