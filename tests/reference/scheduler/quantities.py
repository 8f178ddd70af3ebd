"""Quantities, and what a pod requests (spec 10 section 3.15, "Effective pod request")."""

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000 ** (power + 1)) for power, letter in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{f"{letter}i": Fraction(1024 ** (power + 1)) for power, letter in enumerate(("K", "M", "G", "T", "P", "E"))},
}
FLOORS = {"cpu": Fraction(1, 10), "memory": Fraction(200 * 1024 * 1024)}
Amounts = dict[str, Fraction]


def parse(text: str) -> Fraction:
    """A quantity with a suffix (no exponents here)."""
    digits = text.rstrip("numkMGTPEi")
    return Fraction(digits) * _SUFFIXES[text[len(digits) :]]


def whole(resource: str, amount: Fraction) -> int:
    """Cpu in milli-cores, all else in whole units, rounded up."""
    return ceil(amount * 1000) if resource == "cpu" else ceil(amount)


def amounts(texts: Mapping[str, str]) -> dict[str, int]:
    """A resource list in whole numbers."""
    return {name: whole(name, parse(text)) for name, text in texts.items()}


def pod_request(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod takes of its node, without the pod itself."""
    return _request(json.dumps(spec), False)


def floored_request(spec: Mapping[str, Any]) -> dict[str, int]:
    """The same, a container that does not name cpu or memory counting 100m or 200Mi."""
    return _request(json.dumps(spec), True)


@lru_cache(10_000)
def _request(spec: str, floored: bool) -> dict[str, int]:
    effective = _effective(json.loads(spec), FLOORS if floored else {})
    return {name: whole(name, amount) for name, amount in effective.items()}


def _effective(spec: Mapping[str, Any], floors: Amounts) -> Amounts:
    together: Amounts = {}
    for container in spec.get("containers", []):
        _add(together, _of(container, floors))
    sidecars: Amounts = {}
    starting: list[Amounts] = []
    for container in spec.get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            _add(sidecars, _of(container, floors))
            starting.append(dict(sidecars))
        else:
            phase = dict(sidecars)
            _add(phase, _of(container, floors))
            starting.append(phase)
    _add(together, sidecars)
    names = {name for phase in [together, *starting] for name in phase}
    found = {name: max(phase.get(name, Fraction(0)) for phase in [together, *starting]) for name in names}
    for name, text in spec.get("resources", {}).get("requests", {}).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            found[name] = parse(text)
    _add(found, {name: parse(text) for name, text in spec.get("overhead", {}).items()})
    return found


def _of(container: Mapping[str, Any], floors: Amounts) -> Amounts:
    resources = container.get("resources", {})
    # The API server writes a limit down as the request where there is none.
    texts = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {**floors, **{name: parse(text) for name, text in texts.items()}}


def _add(total: Amounts, more: Mapping[str, Fraction]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount
