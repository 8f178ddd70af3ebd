"""How objects and messages are bent: places of a good one get values that do not belong there, or go.

The strategies are hypothesis'; what they draw is collected once (:func:`collect`), for the cases are sent together and
judged together. The default run is derandomised: the same cases on every machine. ``KOORD_FUZZ_CASES`` asks for another
number of cases, ``KOORD_FUZZ_SEED`` for others.
"""

import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

T = TypeVar("T")
Path = tuple[str | int, ...]

TOTAL = int(os.environ.get("KOORD_FUZZ_CASES", "10200"))
SEED = os.environ.get("KOORD_FUZZ_SEED")


class Bend(NamedTuple):
    """One place and what it becomes; ``gone``: it is left out."""

    path: Path
    value: Any
    gone: bool = False


def share(part: float) -> int:
    """How many of the cases are of a kind that makes up ``part`` of all."""
    return max(20, round(TOTAL * part))


def collect(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """``count`` draws. hypothesis ends early when it has seen all there is: then its draws are used again."""
    drawn: list[T] = []

    @settings(
        max_examples=count,
        derandomize=SEED is None,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(case: T) -> None:
        drawn.append(case)

    (draw if SEED is None else seed(SEED)(draw))()
    return [drawn[number % len(drawn)] for number in range(count)]


# Values ---------------------------------------------------------------------------------------------------------------

SPECIAL: Sequence[Any] = (
    "", " ", "\t", "\n", "\0", "-1", "0", "1", "1.5", "0x10", "1e30", "1e-30", "-0", "+1", "NaN", "12cores", "1Gi",
    "9" * 400, "a" * 300, "A_B", "a/b", "../../secrets", "a.b.c", ">", "*", "koord.>", "true", "false", "null", "None",
    "☃", "é", "\u202e", "2026-01-01T00:00:00Z", "2026-13-40T99:99:99Z", "{}", "[]", '{"a":', "quota", "default",
    0, -1, 1, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 1.5, -0.0, 1e300, None, True, False, [], {},
    [None], [[]], [{}], [1, "a"], {"a": None}, {"": ""}, {"a": {"b": [1]}},
)  # fmt: skip
_text = st.text(st.characters(codec="utf-8"), max_size=24)
_scalar = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), _text
)
_anything = st.recursive(
    _scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
values: st.SearchStrategy[Any] = st.one_of(st.sampled_from(SPECIAL), st.sampled_from(SPECIAL), _anything)


def places(good: Any, above: Path = ()) -> Iterator[Path]:
    """Every place in a nested object, the inner ones too, without the whole."""
    entries = good.items() if isinstance(good, dict) else enumerate(good) if isinstance(good, list) else ()
    for key, inner in entries:
        yield (*above, key)
        yield from places(inner, (*above, key))


def bends(paths: Sequence[Path], most: int = 3) -> st.SearchStrategy[list[Bend]]:
    """One to ``most`` bends at ``paths``."""
    one = st.builds(Bend, st.sampled_from(paths), values, st.sampled_from((False,) * 5 + (True,)))
    return st.lists(one, min_size=1, max_size=most)


def bent(good: Any, changes: Sequence[Bend]) -> Any:
    """A copy of ``good`` with the changes; a change at a place that another one took away is left out."""
    made = copy.deepcopy(good)
    for change in changes:
        holder, *_ = _holder(made, change.path)
        key = change.path[-1]
        if isinstance(holder, dict) and isinstance(key, str):
            if change.gone:
                holder.pop(key, None)
            else:
                holder[key] = copy.deepcopy(change.value)
        elif isinstance(holder, list) and isinstance(key, int) and key < len(holder):
            if change.gone:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(change.value)
    return made


def _holder(made: Any, path: Path) -> tuple[Any]:
    at = made
    for key in path[:-1]:
        if isinstance(at, dict) and isinstance(key, str):
            if key not in at:
                at[key] = {}
            at = at[key]
        elif isinstance(at, list) and isinstance(key, int) and key < len(at):
            at = at[key]
        else:
            return (None,)
    return (at,)


def broken(body: bytes) -> st.SearchStrategy[bytes]:
    """Bytes that are not quite ``body``: cut off, with a byte changed, or something else altogether."""
    cut = st.integers(0, max(0, len(body) - 1)).map(lambda length: body[:length])
    place = st.integers(0, max(0, len(body) - 1))
    flipped = st.builds(lambda at, byte: body[:at] + bytes([byte]) + body[at + 1 :], place, st.integers(0, 255))
    longer = st.binary(min_size=1, max_size=16).map(lambda tail: body + tail)
    return st.one_of(cut, flipped, longer, st.binary(max_size=64))
