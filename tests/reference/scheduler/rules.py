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
    balanced_relative: bool = False
    added_affinity: list[dict[str, Any]] | None = None
    added_preferred: list[dict[str, Any]] = field(default_factory=list)
    fit_plus: dict[str, tuple[str, int]] = field(default_factory=dict)
    scarce: tuple[str, ...] = ()
    hard_weight: int = 1
    ignore_preferred: bool = False
    default_constraints: list[dict[str, Any]] | None = None
    """None: the built-in ones."""
