"""Sets of fields against a plain model: a set of paths."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.localcluster.api.apply import fieldsets
from koord.localcluster.api.apply.comparing import compare, equal, fields_of, whole
from koord.localcluster.api.apply.elements import TypedError, element, respell, shown
from koord.localcluster.api.apply.fieldsets import Fields
from koord.localcluster.api.apply.merging import merge, remove
from koord.localcluster.api.apply.structure import DEDUCED, ListType, Type, type_of
from koord.localcluster.api.schemas.builtin import builtin_schema
from koord.localcluster.api.schemas.custom import custom_schema

Path = tuple[str, ...]

steps = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"', "v:1"])
path_sets = st.sets(st.lists(steps, min_size=1, max_size=3).map(tuple), max_size=8)


def built(paths: Iterable[Path]) -> Fields:
    """The set of some paths, made by uniting them one by one."""
    result: Fields = {}
    for path in paths:
        one: Fields = {}
        for step in reversed(path):
            one = {step: one}
        result = fieldsets.union(result, one)
    return result


def members(fields: Fields) -> set[Path]:
    return set(fieldsets.paths(fields))


@given(path_sets)
def test_a_set_has_its_paths(paths: set[Path]) -> None:
    fields = built(paths)
    assert members(fields) == paths
    assert all(fieldsets.contains(fields, path) for path in paths)
    # The form is the only one of these paths: what is read of it is the same again.
    assert fieldsets.read(fields) == fields


@given(path_sets, path_sets)
def test_sets_behave_as_sets(left: set[Path], right: set[Path]) -> None:
    one, other = built(left), built(right)
    assert members(fieldsets.union(one, other)) == left | right
    assert fieldsets.difference(one, other) == built(left - right)
    assert fieldsets.intersection(one, other) == built(left & right)
    under = {path for path in left if not any(path[: len(top)] == top for top in right)}
    assert fieldsets.without(one, other) == built(under)
    assert (one, other) == (built(left), built(right))


@pytest.mark.parametrize(
    ("given_", "step"),
    [
        ('k:{"b":2, "a":"x"}', 'k:{"a":"x","b":2}'),
        ('v:"a<b"', 'v:"a\\u003cb"'),
        ("v:1.0", "v:1"),
        ("i:07", "i:7"),
        ("q:new", None),
    ],
)
def test_steps_are_respelled(given_: str, step: str | None) -> None:
    assert respell(given_) == step


@pytest.mark.parametrize("text", ["x", "xy", "v:{", "k:[1]", "i:x", ""])
def test_what_is_no_step(text: str) -> None:
    with pytest.raises(ValueError):
        respell(text)


@pytest.mark.parametrize("value", ["s", [], {"f:a": 1}, {"x": {}}])
def test_what_is_no_set(value: Any) -> None:
    with pytest.raises(ValueError):
        fieldsets.read(value)


def test_paths_are_shown_as_kubernetes_shows_them() -> None:
    path = ["f:spec", 'k:{"containerPort":80,"protocol":"TCP"}', 'v:"a\\u003c"', "i:3"]
    assert shown(path) == '.spec[containerPort=80,protocol="TCP"][="a<"][3]'


# --- objects

keys = st.sampled_from("abc")
scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from("xy")
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(keys, anything, max_size=3)


@given(objects, objects)
def test_a_comparison_of_what_has_no_schema(old: Any, new: Any) -> None:
    comparison = compare(old, new, DEDUCED)
    assert (comparison == ({}, {}, {})) == equal(old, new)
    back = compare(new, old, DEDUCED)
    assert (back.added, back.removed) == (comparison.removed, comparison.added)
    assert members(comparison.added).isdisjoint(members(comparison.removed))
    assert compare({}, new, DEDUCED).added == {k: v for k, v in whole(new, DEDUCED).items() if k != "."}


full = st.dictionaries(
    keys,
    st.recursive(
        st.booleans() | st.integers(-2, 2) | st.sampled_from("xy"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, min_size=1, max_size=3),
        max_leaves=8,
    ),
    max_size=3,
)


@given(objects, full)
def test_a_merge_has_all_of_both(live: Any, config: Any) -> None:
    merged = merge(live, config, DEDUCED)
    again = merge(merged, config, DEDUCED)
    assert equal(again, merged)
    # What was applied is there (nulls and empty maps would leave maps as they are).
    for path in members(fields_of(config, DEDUCED)):
        have, want = merged, config
        for step in path:
            have, want = have[step[2:]], want[step[2:]]
        assert equal(have, want) or isinstance(want, dict)


_TYPED = type_of(
    custom_schema(
        {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "words": {"type": "array", "items": {"type": "string"}},
                "whole": {"type": "object", "additionalProperties": True, "x-kubernetes-map-type": "atomic"},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "value": {"type": "integer"}},
                    },
                },
            },
        }
    )
)
items = st.lists(
    st.fixed_dictionaries({"name": keys}, optional={"value": st.integers(0, 2)}),
    max_size=3,
    unique_by=lambda item: item["name"],
)
typed = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(0, 3),
        "names": st.lists(keys, max_size=3, unique=True),
        "words": st.lists(keys, max_size=3),
        "whole": st.dictionaries(keys, st.integers(0, 1), max_size=2),
        "items": items,
    },
)


@given(typed, typed)
def test_merging_lists(live: Any, config: Any) -> None:
    merged = merge(live, config, _TYPED)
    assert equal(merge(merged, config, _TYPED), merged)
    want = [item["name"] for item in config.get("items", [])]
    have = [item["name"] for item in merged.get("items", [])]
    assert [name for name in have if name in want] == want
    assert set(have) == {item["name"] for item in live.get("items", [])} | set(want)
    assert set(merged.get("names", [])) == set(live.get("names", [])) | set(config.get("names", []))
    assert merged.get("words") == config.get("words", live.get("words"))
    # Everything that merging added, taken out again, leaves what there was, but for order and what was replaced.
    comparison = compare(live, merged, _TYPED)
    taken = remove(merged, comparison.added, _TYPED) or {}
    rest = compare(live, taken, _TYPED)
    assert rest.added == {}
    assert {path for path in members(rest.removed) if fieldsets.contains(comparison.modified, path)} == set()


@given(typed)
def test_the_fields_of_an_object_are_what_it_adds(obj: Any) -> None:
    added = members(compare({}, obj, _TYPED).added)
    own = members(fields_of(obj, _TYPED))
    assert own <= added
    assert added - own <= {("f:names",), ("f:items",)}  # no applier owns such a list itself
    left = remove(obj, fields_of(obj, _TYPED), _TYPED) or {}
    assert all(key in ("names", "items") and not value for key, value in left.items())


def test_items_without_keys_are_refused() -> None:
    keyed = ListType(True, ("name",), None, False)
    plain = ListType(True, (), None, False)
    for item, of in ((None, keyed), (1, keyed), ({}, keyed), ({}, plain), ([], plain), (None, plain)):
        with pytest.raises(TypedError):
            element(item, of)


def test_a_built_in_key_that_is_left_out_has_its_default() -> None:
    pod = type_of(builtin_schema("core.v1.Pod"))

    def at(of: Type, *names: str) -> Type:
        for name in names:
            inner = of.list.element if name == "*" and of.list else of.map.field(name) if of.map else None
            assert inner is not None
            of = inner
        return of

    ports = at(pod, "spec", "containers", "*", "ports").list
    assert ports is not None
    assert element({"containerPort": 80}, ports) == 'k:{"containerPort":80,"protocol":"TCP"}'
    containers = at(pod, "spec", "containers").list
    assert containers is not None
    assert element({"image": "i"}, containers) == 'k:{"name":""}'
