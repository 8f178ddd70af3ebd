"""What a benchmark is and what it answers; the drivers live in the room or service that they measure.

Entry points of the group ``koord.bench`` name a :class:`Scenario` or a list of them.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

Parameters = Mapping[str, object]


class BenchResult(msgspec.Struct, frozen=True):
    """One run. ``figures`` are measured, ``published`` are others' figures for the same thing, ``ratios`` compare them
    (or a figure with its threshold); ``bound_by`` says what limited it; ``ok`` whether every threshold held."""

    scenario: str
    parameters: dict[str, object]
    figures: dict[str, float]
    published: dict[str, float] = {}
    ratios: dict[str, float] = {}
    bound_by: str = ""
    ok: bool = True


class Scenario(msgspec.Struct, frozen=True):
    """A benchmark by name. ``defaults`` are its parameters; ``run`` gets them with the user's changes."""

    name: str
    summary: str
    run: Callable[[Parameters], "Awaitable[BenchResult] | BenchResult"]
    defaults: dict[str, object] = {}
