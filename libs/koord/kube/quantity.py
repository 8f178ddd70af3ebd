"""Kubernetes quantities, exact: parsing, canonical form, sums.

A quantity is kept as an integer number of nano-units, which is exact because Kubernetes itself rounds anything finer up
to one nano. Beside it stands the *format family* of the text (decimal suffixes, binary suffixes, decimal exponent),
which decides what the canonical form looks like: ``1.5Gi`` becomes ``1536Mi``, ``1.5G`` becomes ``1500M``, ``1500e6``
becomes ``1500e6``.

A text without digits ("m", "-", ".") is zero to Kubernetes' reader, except with a suffix that sends it down the slow
path, where it is refused; so it is here.

What Kubernetes says about magnitudes ("no number greater than 2^63-1") its code only enforces for binary suffixes, by
capping. koord caps those in the same way and refuses larger decimal ones, whose canonical form Kubernetes gets wrong.
"""

import re
from enum import Enum
from functools import lru_cache, total_ordering
from typing import Final

NANO: Final = 10**9
MAX: Final = 2**63 - 1
"""The largest number of whole units that a quantity may stand for, either sign."""

_CACHE: Final = 1 << 16
_MAX_DIGITS: Final = 1000
_MOST_SHOWN: Final = 100

_GRAMMAR = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)")
_PLAIN = re.compile(r"([1-9][0-9]{0,14})(m|k|M|G|T|P|Ki|Mi|Gi|Ti|)")
_RULE = "must match ^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"

_DECIMAL: dict[str, int] = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: dict[str, int] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}
_PLAIN_FACTOR: dict[str, int] = {suffix: int(10 ** (exponent + 9)) for suffix, exponent in _DECIMAL.items()} | {
    suffix: NANO << exponent for suffix, exponent in _BINARY.items()
}

Number = str | int | float
"""What a quantity looks like in JSON: a string, or a bare number."""


class QuantityError(ValueError):
    """A text that is no quantity; the message names the text and the rule it breaks."""


class Format(Enum):
    """The family of suffixes a quantity was written in; the canonical form stays in it where it can."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@total_ordering
class Quantity:
    """An immutable, exact amount. Equality and order compare the amount, not the format."""

    __slots__ = ("format", "nanos")

    nanos: int
    format: Format

    def __init__(self, nanos: int, format: Format = Format.DECIMAL_SI) -> None:  # noqa: A002 - Kubernetes' own word
        object.__setattr__(self, "nanos", nanos)
        object.__setattr__(self, "format", format)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Quantity is immutable, cannot set {name}")

    def value(self) -> int:
        """Whole units; a fraction is rounded up (away from zero), as Kubernetes does."""
        return _round_up(self.nanos, NANO)

    def milli(self) -> int:
        """Thousandths of a unit; what is finer is rounded up (away from zero)."""
        return _round_up(self.nanos, 10**6)

    def canonical(self) -> str:
        """The form Kubernetes stores: no fraction, the largest suffix possible, the family kept where it is exact."""
        nanos = self.nanos
        if nanos == 0:
            return "0"
        if self.format is Format.BINARY_SI and abs(nanos) >= 1024 * NANO and nanos % NANO == 0:
            return _binary(nanos // NANO)
        amount, exponent = nanos, -9
        while exponent < 18 and amount % 1000 == 0:
            amount //= 1000
            exponent += 3
        if self.format is Format.DECIMAL_EXPONENT:
            return f"{amount}e{exponent}" if exponent else str(amount)
        return f"{amount}{_DECIMAL_SUFFIX[exponent]}"

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.format)

    def __mul__(self, factor: int) -> "Quantity":
        return Quantity(self.nanos * factor, self.format)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __str__(self) -> str:
        return self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({self.canonical()!r})"


def parse(text: Number) -> Quantity:
    """The quantity in ``text``, which may be a JSON number; QuantityError names the text and the rule."""
    if isinstance(text, str):
        return _parse(text)
    if isinstance(text, bool) or not isinstance(text, int | float):
        raise QuantityError(f"quantity {text!r}: must be a string or a number, got {type(text).__name__}")
    return _parse(repr(text))


@lru_cache(maxsize=_CACHE, typed=True)
def nano(text: Number) -> int:
    """Nano-units, exact: what sums over several quantities must be made of. Cached."""
    if isinstance(text, str):
        plain = _PLAIN.fullmatch(text)
        if plain is not None:
            nanos = int(plain[1]) * _PLAIN_FACTOR[plain[2]]
            if nanos <= MAX * NANO:
                return nanos
    return parse(text).nanos


@lru_cache(maxsize=_CACHE, typed=True)
def milli(text: Number) -> int:
    """Thousandths, rounded up: cpu in milli-cores. Cached."""
    return _round_up(nano(text), 10**6)


@lru_cache(maxsize=_CACHE, typed=True)
def value(text: Number) -> int:
    """Whole units, rounded up: bytes, pieces. Cached."""
    return _round_up(nano(text), NANO)


def of_milli(amount: int) -> Quantity:
    """A decimal quantity of ``amount`` thousandths (cpu)."""
    return Quantity(amount * 10**6)


def of_value(amount: int, format: Format = Format.DECIMAL_SI) -> Quantity:  # noqa: A002
    """A quantity of ``amount`` whole units; memory reads better with ``Format.BINARY_SI``."""
    return Quantity(amount * NANO, format)


def _shown(text: str) -> str:
    """What a message quotes of a text, which may be a megabyte: messages become Events, conditions and log lines."""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _parse(text: str) -> Quantity:
    if not text:
        raise QuantityError(f'quantity "": {_RULE}')
    match = _GRAMMAR.fullmatch(text)
    if match is None or not text.isascii():
        raise QuantityError(f'quantity "{_shown(text)}": {_RULE}')
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    family, base, exponent = _suffix(text, suffix)
    digitless = not whole and not fraction
    if digitless and (exponent >= 50 if base == 2 else exponent < -9):
        raise QuantityError(f'quantity "{_shown(text)}": needs at least one digit before its suffix')
    if len(whole) + len(fraction) > _MAX_DIGITS:
        raise QuantityError(f'quantity "{text[:20]}…": must not have more than {_MAX_DIGITS} digits')
    digits = 0 if digitless else int(whole + fraction)
    nanos = _scaled(digits, len(fraction), base, exponent)
    if nanos > MAX * NANO:
        if family is not Format.BINARY_SI:
            raise QuantityError(f'quantity "{_shown(text)}": must not exceed 2^63-1 in magnitude')
        nanos = MAX * NANO
    if family is Format.BINARY_SI and 0 < nanos < NANO:
        family = Format.DECIMAL_SI
    return Quantity(-nanos if sign == "-" else nanos, family)


def _suffix(text: str, suffix: str) -> tuple[Format, int, int]:
    """Family, base and exponent of a suffix. ``E`` alone is exa, ``E`` before digits an exponent."""
    exponent = _DECIMAL.get(suffix)
    if exponent is not None:
        return Format.DECIMAL_SI, 10, exponent
    exponent = _BINARY.get(suffix)
    if exponent is not None:
        return Format.BINARY_SI, 2, exponent
    if suffix[0] in "eE" and re.fullmatch(r"[+-]?[0-9]{1,18}", suffix[1:]):
        return Format.DECIMAL_EXPONENT, 10, int(suffix[1:])
    raise QuantityError(
        f'quantity "{_shown(text)}": unknown suffix "{_shown(suffix)}", '
        "must be one of n u m k M G T P E Ki Mi Gi Ti Pi Ei, or e and a whole exponent"
    )


def _scaled(digits: int, places: int, base: int, exponent: int) -> int:
    """``digits`` with ``places`` of them after the point, times the suffix, in nanos; finer is rounded up."""
    if digits == 0:
        return 0
    if base == 2:
        return -(-(digits * NANO << exponent) // _ten(places))
    power = exponent - places + 9
    if power > 40:  # beyond any limit already; do not build a number with a billion digits
        return MAX * NANO + 1
    if power >= 0:
        return digits * _ten(power)
    if -power > 40 + len(str(digits)):  # smaller than a nano for certain
        return 1
    return -(-digits // _ten(-power))


def _ten(power: int) -> int:
    return int(10**power)


def _round_up(nanos: int, unit: int) -> int:
    """Divide, rounding away from zero."""
    return -(-nanos // unit) if nanos >= 0 else nanos // unit


def _binary(units: int) -> str:
    exponent = 0
    while exponent < 60 and units % 1024 == 0:
        units //= 1024
        exponent += 10
    return f"{units}{_BINARY_SUFFIX[exponent] if exponent else ''}"
