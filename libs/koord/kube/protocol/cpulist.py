"""Lists of CPUs as Linux and Kubernetes write them (``0-3,8``), kept as integers of which bit ``n`` is CPU ``n``.

Unions, differences and counts of such masks are single machine operations, and equal sets are equal integers.
"""

import re
from functools import lru_cache
from typing import Final

MOST: Final = 4096
"""CPU ids are below this: a typing error must not become a mask of a gigabyte."""

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class CPUListError(ValueError):
    """A text that is no list of CPUs; the message names the text and the rule."""


@lru_cache(maxsize=1 << 14)
def parse_cpus(text: str) -> int:
    """The mask of a list such as ``0-3,8``; blanks around it are allowed, an empty text is no CPU. Cached.

    CPUListError names the text and the rule.
    """
    stripped = text.strip()
    if not stripped:
        return 0
    mask = 0
    for part in stripped.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise CPUListError(f'CPU list "{_shown(text)}": must be ids and ranges like 0-3,8')
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise CPUListError(f'CPU list "{_shown(text)}": {part} must not go downwards')
        if last >= MOST:
            raise CPUListError(f'CPU list "{_shown(text)}": {last} must be below {MOST}')
        mask |= (1 << last + 1) - (1 << first)
    return mask


def format_cpus(mask: int) -> str:
    """The shortest list of a mask: runs as ranges, ascending; no CPU is the empty text."""
    parts = []
    first = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        first += skip
        run = (mask + 1 & ~mask).bit_length() - 1
        parts.append(str(first) if run == 1 else f"{first}-{first + run - 1}")
        mask >>= run
        first += run
    return ",".join(parts)


def cpu_ids(mask: int) -> list[int]:
    """The CPUs of a mask, ascending."""
    ids = []
    while mask:
        low = mask & -mask
        ids.append(low.bit_length() - 1)
        mask ^= low
    return ids


def _shown(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"
