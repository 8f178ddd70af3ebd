"""Selectors with very many terms, matched in the time that an object's few labels take.

Whoever may send a selector may send thousands of terms; one after the other they would cost that for every object. Here
terms about one key become one test, and the keys are looked at from the labels' side.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from koord.kube.selectors import DOES_NOT_EXIST, EXISTS, GT, IN, NOT_IN, Requirement, Selector, whole_number

FEW: Final = 8
"""So many terms are quicker one after the other."""

Test = Callable[[Mapping[str, str]], bool]


class _Key(msgspec.Struct, gc=False):
    """What all terms about one key say together; `above` and `below` are what a whole number must be between."""

    required: bool = False
    absent: bool = False
    among: frozenset[str] | None = None
    not_among: frozenset[str] = frozenset()
    above: int | None = None
    below: int | None = None

    def allows(self, value: str) -> bool:
        """Whether the key may have this value."""
        if self.absent or value in self.not_among or (self.among is not None and value not in self.among):
            return False
        if self.above is None and self.below is None:
            return True
        number = whole_number(value)
        return (
            number is not None
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


def matcher(selector: Selector) -> Test:
    """A function of labels that says what `selector.matches` says."""
    if len(selector.requirements) <= FEW:
        return selector.matches
    keys = _joined(selector.requirements)
    required = sum(key.required for key in keys.values())
    if any(key.required and (key.absent or (key.among is not None and not key.among)) for key in keys.values()):
        return lambda labels: False
    known = keys.get

    def matches(labels: Mapping[str, str]) -> bool:
        found = 0
        for name, value in labels.items():
            key = known(name)
            if key is not None:
                if not key.allows(value):
                    return False
                found += key.required
        return found == required

    return matches


def _joined(requirements: Iterable[Requirement]) -> dict[str, _Key]:
    keys: dict[str, _Key] = {}
    refused: dict[str, list[frozenset[str]]] = {}
    for one in requirements:
        key = keys.get(one.key)
        if key is None:
            key = keys[one.key] = _Key()
        if one.operator == DOES_NOT_EXIST:
            key.absent = True
        elif one.operator == NOT_IN:
            refused.setdefault(one.key, []).append(one.values)
        else:
            key.required = True
            if one.operator == IN:
                key.among = one.values if key.among is None else key.among & one.values
            elif one.operator == GT:
                key.above = one.number if key.above is None else max(key.above, one.number)
            elif one.operator != EXISTS:
                key.below = one.number if key.below is None else min(key.below, one.number)
    for name, values in refused.items():
        keys[name].not_among = frozenset().union(*values)
    return keys
