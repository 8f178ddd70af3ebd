"""What a profile sets: which plugins run in which order, their weights and their arguments."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Rules:
    """Arguments under the names that spec 10 gives them. ``plugins`` in the order in which they filter."""

    plugins: list[str]
    weights: dict[str, int]
    strategy: str = "LeastAllocated"
    resources: dict[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    shape: list[tuple[int, int]] = field(default_factory=list)
    ignored_resources: set[str] = field(default_factory=set)
    ignored_groups: set[str] = field(default_factory=set)
    balanced: tuple[str, ...] = ("cpu", "memory")
    added_affinity: list[dict[str, Any]] | None = None
    fit_plus: dict[str, tuple[str, int]] = field(default_factory=dict)
    scarce: tuple[str, ...] = ()
