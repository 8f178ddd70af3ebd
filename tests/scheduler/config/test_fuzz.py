"""Whatever is given, the reader answers with a configuration or a ConfigError that names something."""

import copy
import random
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.scheduler.config.errors import ConfigError
from koord.scheduler.config.flags import FLAGS
from koord.scheduler.config.reading import read
from koord.scheduler.config.registry import KINDS
from koord.scheduler.config.shipped import shipped_text
from koord.scheduler.config.switches import read_switches

SHIPPED: dict[str, Any] = yaml.safe_load(shipped_text())
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["*", "1m", "-1s", "10Gi", "cpu", "2", *KINDS]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def tried(text: str) -> None:
    try:
        found = read(text)
    except ConfigError as error:
        assert error.problems
        assert str(error)
    else:
        assert found.profiles


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a value."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(VALUES, min_size=1, max_size=3))
def test_a_good_file_with_parts_replaced(chance: random.Random, values: list[Any]) -> None:
    content = copy.deepcopy(SHIPPED)
    for value in values:
        path = chance.choice(places(content))
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    tried(yaml.safe_dump(content, allow_unicode=True))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    tried(text)
    tried(f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{text}")


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 6))
def test_a_good_text_with_characters_changed(chance: random.Random, changes: int) -> None:
    text = list(shipped_text())
    for _ in range(changes):
        text[chance.randrange(len(text))] = chance.choice("\t !&*:[]{}-\"'|>%@\n0")
    tried("".join(text))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=12), st.sampled_from([f"--{flag.name}={v}" for flag in FLAGS for v in ("1", "x", "")])
        )
    )
)
def test_any_command_line(arguments: list[str]) -> None:
    try:
        read_switches(arguments)
    except ConfigError as error:
        assert error.problems
