"""The text form of a set of completion indexes: `0-2,5`."""

from collections.abc import Set as AbstractSet


def format_indexes(indexes: AbstractSet[int]) -> str:
    """Sorted, runs of more than two as a range, as in `status.completedIndexes`."""
    parts: list[str] = []
    ordered = sorted(indexes)
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        first, last = ordered[at], ordered[end]
        if last > first + 1:
            parts.append(f"{first}-{last}")
        else:
            parts.extend(str(index) for index in ordered[at : end + 1])
        at = end + 1
    return ",".join(parts)


def parse_indexes(text: str, below: int) -> set[int]:
    """The indexes smaller than `below`; parts that are malformed or run backwards are left out."""
    indexes: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (last.isdecimal() if dash else True):
            indexes.update(range(int(first), min(int(last if dash else first) + 1, below)))
    return indexes
