"""Who comes first: the order of units inside a queue and of queues among each other (spec 70 section 3.8)."""

from typing import NamedTuple


class Rank(NamedTuple):
    """Sort key of a unit: priority descending (absent is 0), creation ascending, name ascending, uid last.

    ``created`` is the RFC 3339 text of creationTimestamp, which sorts as time does (always UTC, whole seconds).
    """

    minus_priority: int
    created: str
    name: str
    uid: str


def rank(priority: int | None, created: str, name: str, uid: str) -> Rank:
    """The unit's place: smaller goes first."""
    return Rank(-(priority or 0), created, name, uid)


class QueueRank(NamedTuple):
    """Sort key of a queue: priority descending, then the older one, then the name."""

    minus_priority: int
    created: str
    name: str


def queue_rank(priority: int | None, created: str, name: str) -> QueueRank:
    """The queue's place; queues that share an exhausted ancestor are served in this order."""
    return QueueRank(-(priority or 0), created, name)
