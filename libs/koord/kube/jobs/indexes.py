"""The index lists of Indexed Jobs: ``1,3-5``."""

import re

_PART = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


def count_indexes(text: str, below: int) -> int:
    """How many different indexes smaller than ``below`` the list names; malformed and descending parts are ignored."""
    spans = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            continue
        first = int(match[1])
        last = min(int(match[2]) if match[2] else first, below - 1)
        if first <= last:
            spans.append((first, last))
    total, reached = 0, -1
    for first, last in sorted(spans):
        if last > reached:
            total += last - max(first, reached + 1) + 1
            reached = last
    return total
