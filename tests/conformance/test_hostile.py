"""Requests that nobody should send: they are refused or bounded, and the server goes on.

What both servers answer is stated once; where a test asserts only that the server goes on, the answers differ with
reason (a Go server reads deeper JSON and larger numbers than this one).
"""

import asyncio
import time
from typing import Any

import pytest

from tests.conformance.client import APPLY, JSON_PATCH, MERGE, STRATEGIC, Client
from tests.conformance.rig import config_map, unique

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def path_of(namespace: str, plural: str) -> str:
    return f"/api/v1/namespaces/{namespace}/{plural}"


def definition(group: str, schema: dict[str, Any], columns: list[Any] | None = None) -> dict[str, Any]:
    version: dict[str, Any] = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if columns:
        version["additionalPrinterColumns"] = columns
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"oddities.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "oddities", "kind": "Oddity"},
            "versions": [version],
        },
    }


def of_spec(spec: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": spec}}


def billion() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join(lines)


async def test_yaml_that_stands_for_a_billion_values_is_refused(client: Client, namespace: str) -> None:
    maps = path_of(namespace, "configmaps")
    body = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\n{billion()}\n".encode()
    made = await client.request("POST", maps, body, content_type="application/yaml")
    assert (made.status, made.reason) == (400, "BadRequest") and "excessive aliasing" in made.message
    applied = await client.request("PATCH", f"{maps}/c", body, content_type=APPLY, params={"fieldManager": "m"})
    assert (applied.status, applied.reason) == (400, "BadRequest") and "excessive aliasing" in applied.message
    itself = b"metadata: {name: c}\ndata: &a\n  x: *a\n"
    assert (await client.request("POST", maps, itself, content_type="application/yaml")).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"metadata: {name: !!python/object/apply:os.system [ls]}",
        b'metadata: {name: c}\ndata: {a: "\\ud800"}',
        b'metadata: {name: "\\ud800"}',
        b"metadata: {name: c}\ndata: {a: .nan}",
        b"metadata: {name: c}\n? [a, b]\n: 1",
        b"metadata: {name: c}\ndata: {null: a}",
        b"metadata: {name: \xff\xfe}",
        b"a: b: c",
    ],
)
async def test_yaml_that_is_no_object(client: Client, namespace: str, body: bytes) -> None:
    answer = await client.request("POST", path_of(namespace, "configmaps"), body, content_type="application/yaml")
    assert answer.status == 400, answer.body


async def test_yaml_is_read_as_json_has_it(client: Client, namespace: str) -> None:
    body = b"metadata: {name: c, annotations: {a: 2020-01-01}}\ndata: {2: a, true: b, <<: {z: c}}\n"
    made = await client.request("POST", path_of(namespace, "configmaps"), body, content_type="application/yaml")
    assert made.status == 201, made.body
    assert made.body["metadata"]["annotations"] == {"a": "2020-01-01"}
    assert made.body["data"] == {"2": "a", "true": "b", "z": "c"}


async def test_patterns_take_time_that_grows_with_the_text(client: Client, namespace: str) -> None:
    group = f"{unique('g')}.koord.test"
    texts = {"a": "(a+)+$", "b": "^(b|b)*c$", "c": "^(c*)*$", "d": "^[a-z]+$", "e": "(?i)^e{2,3}$"}
    fields = {name: {"type": "string", "pattern": pattern} for name, pattern in texts.items()}
    made = await client.post(DEFINITIONS, definition(group, of_spec({"type": "object", "properties": fields})))
    assert made.status == 201, made.body
    try:
        path = f"/apis/{group}/v1/namespaces/{namespace}/oddities"
        obj = {"apiVersion": f"{group}/v1", "kind": "Oddity", "metadata": {"name": "x"}}

        async def sent(spec: dict[str, str]) -> Any:
            answer = await client.post(path, {**obj, "spec": spec}, dryRun="All")
            while answer.status in (404, 429):  # the real server serves a definition a moment after it was made
                answer = await client.post(path, {**obj, "spec": spec}, dryRun="All")
            return answer

        wrong = {"a": "a" * 2000 + "!", "b": "b" * 2000, "c": "c" * 2000 + "!", "d": "d\n", "e": "eeee"}
        refused = await sent(wrong)
        assert refused.status == 422
        assert sorted(cause["field"] for cause in refused.body["details"]["causes"]) == [f"spec.{x}" for x in "abcde"]
        right = {"a": "a" * 2000, "b": "b" * 2000 + "c", "c": "c" * 2000, "d": "d", "e": "eEe"}
        assert (await sent(right)).status == 201
    finally:
        await client.delete(f"{DEFINITIONS}/oddities.{group}")


@pytest.mark.parametrize("pattern", ["a{1001}", "(?=a)", "(?<!a)b", "x*+", "(", "((a{1,100}){1,100}){1,100}"])
async def test_patterns_that_go_does_not_know_are_refused(client: Client, pattern: str) -> None:
    spec = {"type": "string", "pattern": pattern}
    answer = await client.post(DEFINITIONS, definition(f"{unique('g')}.koord.test", of_spec(spec)), dryRun="All")
    assert (answer.status, answer.reason) == (422, "Invalid") and "regular expression" in answer.message


async def test_definitions_with_odd_bounds_and_columns_are_served(client: Client, namespace: str) -> None:
    group = f"{unique('g')}.koord.test"
    schema = of_spec({"type": "object", "properties": {"a": {"type": "string", "minLength": -1}}})
    paths = [".spec.a", ".spec[?(@.x>1)].y", ".spec[", "."]
    columns = [{"name": f"c{i}", "type": "string", "jsonPath": path} for i, path in enumerate(paths)]
    assert (await client.post(DEFINITIONS, definition(group, schema, columns))).status == 201
    try:
        path = f"/apis/{group}/v1/namespaces/{namespace}/oddities"
        obj = {"apiVersion": f"{group}/v1", "kind": "Oddity", "metadata": {"name": "x"}, "spec": {"a": "b"}}
        made = await client.post(path, obj)
        deadline = time.monotonic() + 60
        while made.status in (404, 429) and time.monotonic() < deadline:  # not served yet, or its storage is being made
            await asyncio.sleep(0.05)
            made = await client.post(path, obj)
        assert made.status == 201, made.body
        accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        table = await client.request("GET", path, headers=accept)
        assert table.status == 200 and table.body["rows"][0]["cells"][1] == "b"
    finally:
        await client.delete(f"{DEFINITIONS}/oddities.{group}")


@pytest.mark.since("1.34", "400 for a version that is no number, not 500")
async def test_numbers_of_any_length(client: Client, namespace: str) -> None:
    pods, maps = path_of(namespace, "pods"), path_of(namespace, "configmaps")
    for number in ("1" * 400, "1" * 5000, "1e400", "9" * 20):
        spec = '{"containers":[{"name":"a","image":"b"}],"priority":' + number + "}"
        body = '{"metadata":{"name":"p"},"spec":' + spec + "}"
        assert (await client.request("POST", pods, body.encode())).status == 400
        listed = await client.get(maps, resourceVersion=number)
        assert listed.status == 400 and "strconv.ParseUint" in listed.message
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 99999999999, "selector": {"matchLabels": {"a": "b"}}}}
    refused = await client.post(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", budget)
    assert refused.status == 400 and "minAvailable of type int32" in refused.message
    assert (await client.post(maps, config_map("c", a="b"))).status == 201
    index = [{"op": "add", "path": "/metadata/finalizers", "value": ["x.y/z"]}]
    index.append({"op": "add", "path": f"/metadata/finalizers/{'9' * 5000}", "value": ["x.y/a"]})
    assert (await client.patch(f"{maps}/c", index, JSON_PATCH)).status == 422


@pytest.mark.since("1.30", "directives among labels are dropped")
async def test_patches_with_directives_of_the_wrong_type(client: Client, namespace: str) -> None:
    maps = path_of(namespace, "configmaps")
    assert (await client.post(maps, config_map("c", a="b"))).status == 201
    assert (await client.patch(f"{maps}/c", {"data": {"$retainKeys": 5}}, STRATEGIC)).status == 400
    assert (await client.patch(f"{maps}/c", {"metadata": {"labels": {"$patch": 5}}}, STRATEGIC)).status == 200
    applied = await client.request(
        "PATCH", f"{maps}/c", b"apiVersion: 5\nkind: []\n", content_type=APPLY, params={"fieldManager": "m"}
    )
    assert applied.status == 400 and applied.message == "invalid object type: /, Kind="


@pytest.mark.since("1.37", "each broken rule is told once")
async def test_owners_and_annotations_keep_their_rules_on_updates(client: Client, namespace: str) -> None:
    maps = path_of(namespace, "configmaps")
    assert (await client.post(maps, config_map("c"))).status == 201

    def owner(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name, "controller": True}

    wrong: dict[str, Any]
    for wrong in ({"ownerReferences": [{}]}, {"ownerReferences": [owner("a"), owner("b")]}):
        patched = await client.patch(f"{maps}/c", {"metadata": wrong}, MERGE)
        made = await client.post(maps, {"metadata": {"name": "d", **wrong}})
        assert (patched.status, made.status) == (422, 422), patched.body
        assert [cause["message"] for cause in patched.body["details"]["causes"]] == [
            cause["message"] for cause in made.body["details"]["causes"]
        ]
    assert "Only one reference can have Controller set to true" in patched.message
    large = await client.patch(f"{maps}/c", {"metadata": {"annotations": {"a": "x" * 300_000}}}, MERGE)
    assert large.status == 422 and "may not be more than 262144 bytes" in large.message


async def test_a_server_goes_on_after_what_it_cannot_read(client: Client, namespace: str) -> None:
    maps = path_of(namespace, "configmaps")
    assert (await client.post(maps, config_map("c", a="b"))).status == 201
    for depth in (900, 9_000, 90_000):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d"},"data":' + deep + b"}"
        assert (await client.request("POST", maps, body)).status == 400
        for kind in (MERGE, STRATEGIC):
            refused = await client.request("PATCH", f"{maps}/c", b'{"data":' + deep + b"}", content_type=kind)
            assert 400 <= refused.status < 500, (depth, kind, refused.body)
    huge = b'{"metadata":{"name":"d"},"data":{"a":"' + b"x" * (4 << 20) + b'"}}'
    # The server answers before it has read all, so the connection is of no more use.
    assert (await client.request("POST", maps, huge, headers={"Connection": "close"})).status == 413
    for text in (b"\xff", b"\\ud800", b"\xed\xa0\x80"):
        answer = await client.request("POST", maps, b'{"metadata":{"name":"' + text + b'"}}')
        assert answer.status in (400, 422)
    assert (await client.get(f"{maps}/c")).body["data"] == {"a": "b"}


async def test_long_lists_merge_in_one_pass(client: Client, namespace: str) -> None:
    """Thousands of elements once took seconds, in which nobody else was answered."""
    pods = path_of(namespace, "pods")
    variables = [{"name": f"E{i}", "value": "a"} for i in range(1500)]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b", "env": variables}]}}
    assert (await client.post(pods, pod)).status == 201
    # Fields of a container cannot change, so what a patch makes of the list is seen in what did not.
    order = [{"name": item["name"]} for item in variables]
    same = {"containers": [{"name": "a", "env": variables, "$setElementOrder/env": order}]}
    patched = await client.patch(f"{pods}/p", {"spec": same}, STRATEGIC)
    assert patched.status == 200, patched.body
    assert patched.body["spec"]["containers"][0]["env"] == variables


async def test_selectors_of_thousands_of_terms(client: Client, namespace: str) -> None:
    maps = path_of(namespace, "configmaps")
    labels = {"a": "1", "b": "x"}
    assert (await client.post(maps, {"metadata": {"name": "c", "labels": labels}})).status == 201
    absent = ",".join(f"!n{i}" for i in range(4000))
    cases = [
        (absent, True),
        (f"{absent},a,b=x,a>0", True),
        (f"{absent},a=2", False),
        (",".join(f"a!={i}" for i in range(2, 4000)), True),
        (",".join(f"a!={i}" for i in range(4000)), False),
        (f"a in ({','.join(map(str, range(4000)))})", True),
        (",".join(f"n{i}" for i in range(4000)), False),
    ]
    for text, found in cases:
        listed = await client.get(maps, labelSelector=text)
        assert listed.status == 200, listed.body
        assert ("c" in [item["metadata"]["name"] for item in listed.body["items"]]) is found, text[-40:]
    others = ",".join(f"metadata.name!=n{i}" for i in range(2000))
    for text, found in (
        (others, True),
        (f"{others},metadata.name!=c", False),
        ("metadata.name=c,metadata.name=d", False),
    ):
        listed = await client.get(maps, fieldSelector=text)
        assert ("c" in [item["metadata"]["name"] for item in listed.body["items"]]) is found


async def test_thousands_of_warnings_are_cut_short(client: Client, namespace: str) -> None:
    """An answer with a header for each could be read by no client."""
    pairs = "".join(f"u{i}: 1\n" for i in range(5_000))
    body = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: warned}}\n{pairs}".encode()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = await client.request("POST", path, body, content_type="application/yaml")
    assert made.status == 201, made.body
