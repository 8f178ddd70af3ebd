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
