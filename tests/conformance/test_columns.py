"""Printer columns of every type over odd values and odd paths: the same cells, whatever a definition asks for."""

from typing import Any

import pytest

from tests.conformance.client import Client
from tests.conformance.definitions import DEFINITIONS, definition
from tests.conformance.test_schemas import define

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
SPEC: dict[str, Any] = {
    "t": "text",
    "e": "",
    "i": 3,
    "f": 1.5,
    "m6": 1234567.5,
    "small": 0.00001,
    "big": 1e20,
    "whole": 2.0,
    "b": True,
    "nb": False,
    "past": "2020-01-01T00:00:00Z",
    "zone": "2020-01-01T05:00:00.5+05:00",
    "later": "2090-01-01T00:00:00Z",
    "l": ["a", "b"],
    "el": [],
    "em": {},
    "lm": [
        {"name": "a", "v": 1, "ok": True, "t": ["<x>"]},
        {"name": "b", "v": 2, "ok": False},
        {"name": "c"},
    ],
    "m": {"x": "y", "n": {"k": 1}},
    "a.b": "dotted",
    "42": "number",
}
# path: what a column of texts shows; an absent one is null
TEXTS: dict[str, Any] = {
    ".spec.t": "text",
    ".spec.e": "",
    ".spec.i": "3",
    ".spec.f": "1.5",
    ".spec.m6": "1.2345675e+06",
    ".spec.small": "1e-05",
    ".spec.big": "1e+20",
    ".spec.whole": "2",
    ".spec.b": "true",
    ".spec.nb": "false",
    ".spec.l": '["a","b"]',
    ".spec.el": "[]",
    ".spec.em": "{}",
    ".spec.m": '{"n":{"k":1},"x":"y"}',
    ".spec.lm[0]": r'{"name":"a","ok":true,"t":["\u003cx\u003e"],"v":1}',
    ".spec.missing": None,
    ".spec.missing.deep": None,
    ".spec.t.x": None,
    ".spec.t[0]": None,
    ".spec.m[0]": None,
    r".spec.a\.b": "dotted",
    r".spec['a\.b']": "dotted",
    ".spec['t']": "text",
    ".spec.42": "number",
    ".spec.l[0]": "a",
    ".spec.l[-1]": "b",
    ".spec.l[5]": None,
    ".spec.l[*]": "a",
    ".spec.l[1:]": "b",
    ".spec.l[::2]": "a",
    ".spec.l[-3:]": None,
    ".spec.l[1,0]": "b",
    ".spec.lm[0]['name','v']": "a",
    ".spec.lm[*].v": "1",
    '.spec.lm[?(@.name=="b")].v': "2",
    ".spec.lm[?(@.name=='zz')].v": None,
    ".spec.lm[?(@.v>1)].name": "b",
    ".spec.lm[?(@.v>=1)].name": "a",
    ".spec.lm[?(@.v!=1)].name": "b",
    ".spec.lm[?(@.v==1.5)].name": None,
    '.spec.lm[?(@.v=="1")].name': None,
    ".spec.lm[?(@.name==a)].v": None,
    ".spec.lm[?(@.ok==true)].name": "a",
    ".spec.lm[?(@.ok<true)].name": None,
    ".spec.lm[?(@.t)].name": "a",
    ".spec..k": "1",
    "..k": "1",
    ".metadata.name": "x",
    ".kind": "Thing",
}
NUMBERS = {".spec.i": 3, ".spec.f": 1.5, ".spec.whole": 2, ".spec.t": None, ".spec.b": None, ".spec.l": None}
TYPED: dict[str, dict[str, Any]] = {
    "integer": {**NUMBERS, ".spec.f": 1},
    "number": NUMBERS,
    "boolean": {".spec.b": True, ".spec.nb": False, ".spec.i": None, ".spec.t": None, ".spec.missing": None},
    "date": {
        ".spec.t": "<invalid>",
        ".spec.e": "<unknown>",
        ".spec.later": "<invalid>",
        ".spec.i": None,
        ".spec.b": None,
        ".spec.l": None,
        ".spec.missing": None,
    },
}
UNREADABLE = (
    ".spec[t]",
    ".spec.l,spec.t",
    ".spec.x[",
    '.spec.lm[?(@.name=="a"].v',
    ".spec.l[a]",
    ".spec....k",
)


async def shown(client: Client, namespace: str, columns: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of one object under a definition with these columns."""
    body = definition(SCHEMA, additionalPrinterColumns=columns)
    await define(client, body)
    group = body["spec"]["group"]
    path = f"/apis/{group}/v1/namespaces/{namespace}/things"
    made = await client.post(
        path, {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": SPEC}
    )
    assert made.status == 201, made.body
    answer = await client.request("GET", path, headers=TABLE)
    await client.delete(f"{DEFINITIONS}/{body['metadata']['name']}")
    assert answer.status == 200, answer.body
    table: dict[str, Any] = answer.body
    return table


def column(kind: str, path: str) -> dict[str, Any]:
    return {"name": path, "type": kind, "jsonPath": path}


@pytest.mark.parametrize(("kind", "expected"), [("string", TEXTS), *TYPED.items()])
async def test_cells(client: Client, namespace: str, kind: str, expected: dict[str, Any]) -> None:
    table = await shown(client, namespace, [column(kind, path) for path in expected])
    cells = dict(zip(expected, table["rows"][0]["cells"][1:], strict=True))
    assert cells == expected
    assert {path: type(cell) for path, cell in cells.items()} == {path: type(cell) for path, cell in expected.items()}


async def test_ages(client: Client, namespace: str) -> None:
    table = await shown(client, namespace, [column("date", ".spec.past"), column("date", ".spec.zone")])
    past, zone = table["rows"][0]["cells"][1:]
    assert past == zone and past[0].isdigit() and "y" in past


async def test_descriptions(client: Client, namespace: str) -> None:
    told = {**column("string", ".spec.t"), "description": "What it is", "priority": 1, "format": "byte"}
    table = await shown(client, namespace, [told, column("string", ".spec.i")])
    first, second = table["columnDefinitions"][1:]
    assert first == {"name": ".spec.t", "type": "string", "format": "byte", "description": "What it is", "priority": 1}
    assert second["description"] == "Custom resource definition column (in JSONPath format): .spec.i"


@pytest.mark.parametrize("path", UNREADABLE)
async def test_a_path_that_cannot_be_read_ends_the_columns(client: Client, namespace: str, path: str) -> None:
    table = await shown(
        client, namespace, [column("string", ".spec.t"), column("string", path), column("string", ".kind")]
    )
    assert [one["name"] for one in table["columnDefinitions"]] == ["Name", ".spec.t"]
    assert table["rows"][0]["cells"] == ["x", "text"]


async def test_without_a_readable_path_there_is_the_name(client: Client, namespace: str) -> None:
    table = await shown(client, namespace, [column("string", ".spec[t]")])
    assert [one["name"] for one in table["columnDefinitions"]] == ["Name"]
    assert table["rows"][0]["cells"] == ["x"]
