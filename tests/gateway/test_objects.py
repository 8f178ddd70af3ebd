"""Watch lines and list pages: read as sent, cut only where managedFields stand, broken ones named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.gateway.objects import ObjectError, read_line, read_object, read_page, read_status

POD: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"x": "é"}},
    "spec": {"nodeName": "node-1", "containers": [{"name": "c", "args": ['"managedFields"']}]},
}


def line(obj: dict[str, Any], type_: str = "ADDED") -> bytes:
    return json.dumps({"type": type_, "object": obj}).encode()


def read(raw: Any) -> Any:
    return read_object(raw, kind="Pod", api_version="v1", pod=True)


def test_an_object_is_forwarded_byte_for_byte() -> None:
    type_, raw = read_line(line(POD))
    brief = read(raw)
    assert (type_, brief.namespace, brief.name, brief.uid, brief.node) == ("ADDED", "n", "a", "u", "node-1")
    assert brief.body == json.dumps(POD).encode()


def test_managed_fields_are_cut_and_nothing_else() -> None:
    metadata = {**POD["metadata"], "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}]}
    brief = read(json.dumps({**POD, "metadata": metadata}).encode())
    assert json.loads(brief.body) == POD


def test_list_items_get_the_kind_that_watch_events_have() -> None:
    bare = {key: value for key, value in POD.items() if key not in ("kind", "apiVersion")}
    page = read_page(json.dumps({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [bare]}).encode())
    assert (page.resource_version, page.token) == ("9", "t")
    assert json.loads(read(page.items[0]).body) == POD
    assert read_page(b'{"metadata":{"resourceVersion":"1"},"items":null}').items == []


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b'{"metadata":{"name":"a"}}', "resourceVersion"),
        (b'{"metadata":{"resourceVersion":"1"}}', "metadata.name: missing"),
        (b'{"metadata":{"name":3,"resourceVersion":"1"}}', "$.metadata.name"),
        (b'{"spec":{"nodeName":[]},"metadata":{"name":"a","resourceVersion":"1"}}', "$.spec.nodeName"),
        (b"[]", "Pod"),
    ],
)
def test_what_is_no_object_is_named(raw: bytes, rule: str) -> None:
    with pytest.raises(ObjectError, match=rule.replace("$", r"\$")):
        read(raw)


def test_an_unknown_watch_type_is_named() -> None:
    with pytest.raises(ObjectError, match="'CHANGED'"):
        read_line(line(POD, "CHANGED"))


@given(st.integers(min_value=0, max_value=len(line(POD)) - 1))
def test_a_truncated_line_is_an_error_and_nothing_worse(cut: int) -> None:
    with pytest.raises(ObjectError):
        read_line(line(POD)[:cut])


@given(st.binary(max_size=64))
def test_no_bytes_make_it_fail_otherwise(raw: bytes) -> None:
    for reader in (read_line, read_page, read):
        try:
            reader(raw)
        except ObjectError:
            continue
    read_status(raw)


def deep(levels: int) -> bytes:
    return (
        b'{"metadata":{"name":"deep","resourceVersion":"3"},"spec":{"x":'
        + b'{"a":' * levels
        + b"1"
        + b"}" * (levels + 2)
    )


def test_an_item_nested_beyond_reading_does_not_hide_the_others() -> None:
    first = json.dumps({**POD, "spec": {"text": 'brackets }]{[ and \\" quotes'}}).encode()
    page = read_page(
        b'{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"t"}, "items" : ['
        + b",".join((first, deep(5000), json.dumps(POD).encode()))
        + b"]}"
    )
    assert (page.resource_version, page.token, len(page.items)) == ("9", "t", 3)
    assert read(page.items[0]).body == first
    with pytest.raises(ObjectError, match="recursion"):
        read(page.items[1])
    assert read(page.items[2]).name == "a"


def test_a_line_nested_beyond_reading_is_an_error() -> None:
    with pytest.raises(ObjectError):
        read_line(b'{"type":"ADDED","object":' + deep(5000) + b"}")
