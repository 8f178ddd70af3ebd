"""Texts in labels and annotations that Go reads with ``strconv`` and ``time``: integers, booleans, durations.

Kubernetes' and Koordinator's keys carry such texts, so what is a good value is decided by Go's rules, not Python's:
no surrounding blanks, no underscores, and "1h" but not "1d".
"""

import re
from typing import Final

_INT = re.compile(r"[+-]?[0-9]+")
_TRUE = frozenset(("1", "t", "T", "true", "True", "TRUE"))
_FALSE = frozenset(("0", "f", "F", "false", "False", "FALSE"))
_PART = re.compile(r"([0-9]*)(\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MAX: Final = 2**63 - 1
_FRACTION: Final = 30
"""Digits that are looked at: more of them can no longer change the answer."""


class DurationError(ValueError):
    """A text that is no Go duration; the message names the text and the rule."""


def go_int(text: str, bits: int = 32) -> int | None:
    """A signed decimal integer of ``bits``; None when the text is none or out of range."""
    if len(text) > 64 or not text.isascii() or not _INT.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def go_bool(text: str) -> bool | None:
    """A boolean as ``strconv.ParseBool`` reads it; None for any other text."""
    if text in _TRUE:
        return True
    return False if text in _FALSE else None


def go_duration(text: str) -> int:
    """Nanoseconds of a Go duration such as ``1h30m``, ``-1.5s`` or ``0``; fractions of a nanosecond are dropped.

    DurationError names the text and the rule.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest:
        raise DurationError(f'duration "{text}": must be numbers with units, like 1h30m or 90s')
    total, position = 0, 0
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None or not (match[1] or match[3]) or not match[0].replace("µ", "u").replace("μ", "u").isascii():
            raise DurationError(f'duration "{text}": "{rest[position:]}" must be a number and one of ns us ms s m h')
        unit, whole, fraction = _UNITS[match[4]], match[1].lstrip("0") or "0", (match[3] or "")[:_FRACTION]
        total += int(whole[:_FRACTION]) * unit
        if fraction:
            total += int(fraction) * unit // int(10 ** len(fraction))
        if total > _MAX + text.startswith("-"):
            raise DurationError(f'duration "{text}": must fit in 2^63-1 nanoseconds (about 292 years)')
        position = match.end()
    return -total if text.startswith("-") else total


def format_go_duration(nanoseconds: int) -> str:
    """The text Go prints for a duration: ``1h30m0s``, ``1.5s``, ``250ms``, ``0s``."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < 10**9:
        for unit, name in ((10**6, "ms"), (10**3, "µs"), (1, "ns")):
            if rest >= unit:
                return f"{sign}{_fraction(rest, unit)}{name}"
        return "0s"
    minutes, nanos = divmod(rest, 60 * 10**9)
    seconds = f"{_fraction(nanos, 10**9)}s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _fraction(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1).rstrip('0')}"
