"""Preconditions inside patches, and whether an object already holds a patch."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.gateway.patching import PatchError, holds, with_preconditions


def test_a_merge_patch_carries_its_preconditions_in_the_metadata() -> None:
    body = with_preconditions(b'{"metadata":{"labels":{"a":"b"}},"status":{}}', "merge", "u", "7")
    assert json.loads(body) == {
        "metadata": {"labels": {"a": "b"}, "uid": "u", "resourceVersion": "7"},
        "status": {},
    }
    assert json.loads(with_preconditions(b"{}", "strategic", "u", "")) == {"metadata": {"uid": "u"}}


def test_a_json_patch_tests_first() -> None:
    body = with_preconditions(b'[{"op":"remove","path":"/spec/x"}]', "json", "u", "7")
    assert [(step["op"], step["path"]) for step in json.loads(body)] == [
        ("test", "/metadata/uid"),
        ("test", "/metadata/resourceVersion"),
        ("remove", "/spec/x"),
    ]


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"[]", "merge"), (b"{}", "json"), (b"[1]", "json"), (b"{", "merge"), (b'{"metadata":[1]}', "merge")],
)
def test_what_is_no_patch_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(PatchError):
        with_preconditions(body, kind, "u", "7")  # type: ignore[arg-type]


def test_holds_is_about_what_the_patch_names() -> None:
    have = b'{"a":{"b":1,"c":[1,2]},"d":"x"}'
    assert holds(have, b'{"a":{"b":1}}')
    assert holds(have, b'{"a":{"c":[1,2]},"e":null}')
    assert not holds(have, b'{"d":null}')
    assert not holds(have, b'{"a":{"c":[1]}}')
    assert not holds(have, b'{"d":{"x":1}}')


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def merge(have: object, patch: object) -> object:
    """RFC 7396, straight from its text."""
    if not isinstance(patch, dict):
        return patch
    result = dict(have) if isinstance(have, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


@given(objects, objects)
def test_holds_agrees_with_applying_the_patch(have: dict[str, object], patch: dict[str, object]) -> None:
    applied = merge(have, patch)
    assert holds(json.dumps(applied).encode(), json.dumps(patch).encode())
    if applied != have:
        assert not holds(json.dumps(have).encode(), json.dumps(patch).encode())
