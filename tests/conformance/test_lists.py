"""Lists: order, versions, pages over one state, selectors, and what is refused in which words."""

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.conformance.client import Answer, Client
from tests.conformance.rig import pod


def names(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [item["metadata"]["name"] for item in answer.body["items"]]


@pytest.fixture
async def five(client: Client, namespace: str) -> str:
    """A path with five secrets, c0 to c4; the even ones are labelled so."""
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for number in range(5):
        metadata = {"name": f"c{number}", "labels": {"even": str(number % 2 == 0).lower()}}
        body = {"metadata": metadata, "stringData": {"n": str(number)}}
        assert (await client.post(path, body)).status == 201
    return path


async def version_of(client: Client, path: str) -> str:
    return str((await client.get(path)).body["metadata"]["resourceVersion"])


async def test_a_list_is_ordered_and_has_a_version(client: Client, five: str) -> None:
    answer = await client.get(five)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("SecretList", "v1")
    assert names(answer) == ["c0", "c1", "c2", "c3", "c4"]
    assert answer.body["metadata"].keys() == {"resourceVersion"}
    # Items of a list say no kind: the list does.
    newest = max(int(item["metadata"]["resourceVersion"]) for item in answer.body["items"])
    assert int(answer.body["metadata"]["resourceVersion"]) >= newest


async def test_pages_are_one_state_whatever_happens_meanwhile(client: Client, five: str) -> None:
    first = await client.get(five, limit=2)
    assert names(first) == ["c0", "c1"] and first.body["metadata"]["remainingItemCount"] == 3
    assert (await client.delete(f"{five}/c3")).status == 200
    assert (await client.post(five, {"metadata": {"name": "c2b"}})).status == 201
    assert (await client.patch(f"{five}/c2", {"metadata": {"labels": {"late": "yes"}}})).status == 200
    token = first.body["metadata"]["continue"]
    second = await client.get(five, limit=2, **{"continue": token})
    assert names(second) == ["c2", "c3"] and second.body["metadata"]["remainingItemCount"] == 1
    assert "late" not in second.body["items"][0]["metadata"]["labels"]
    third = await client.get(five, limit=2, **{"continue": second.body["metadata"]["continue"]})
    assert names(third) == ["c4"] and third.body["metadata"].keys() == {"resourceVersion"}
    versions = {page.body["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1
    # The same page again, and all the rest at once.
    assert names(await client.get(five, limit=2, **{"continue": token})) == ["c2", "c3"]
    assert names(await client.get(five, **{"continue": token})) == ["c2", "c3", "c4"]
    assert names(await client.get(five)) == ["c0", "c1", "c2", "c2b", "c4"]


async def test_a_token_says_where_and_when_and_nothing_else(client: Client, namespace: str, five: str) -> None:
    token = {"continue": (await client.get(five, limit=2)).body["metadata"]["continue"]}
    assert names(await client.get(five, limit=1, labelSelector="even=true", **token)) == ["c2"]
    assert names(await client.get(five, fieldSelector="metadata.name!=c2", **token)) == ["c3", "c4"]
    assert names(await client.get(f"/api/v1/namespaces/{namespace}/services", **token)) == []
    assert (await client.get("/api/v1/secrets", limit=1, **token)).status == 200
    assert (await client.get(five, resourceVersion="0", **token)).status == 200
    refused = await client.get(five, resourceVersion="1", **token)
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert refused.message == "specifying resource version is not allowed when using continue"


@pytest.mark.since("1.25", "1.24.0 to 1.24.2 lose objects of pages with a selector")
async def test_limits_with_selectors_count_what_is_selected(client: Client, five: str) -> None:
    first = await client.get(five, limit=2, labelSelector="even=true")
    assert names(first) == ["c0", "c2"]
    assert "remainingItemCount" not in first.body["metadata"]
    token = first.body["metadata"]["continue"]
    second = await client.get(five, limit=2, labelSelector="even=true", **{"continue": token})
    assert names(second) == ["c4"] and "continue" not in second.body["metadata"]


async def test_long_pages_with_selectors_are_whole(client: Client, namespace: str) -> None:
    """On all releases, also where shorter ones lose objects: what koord lists with a selector it lists so."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    gate = asyncio.Semaphore(32)

    async def make(number: int) -> None:
        async with gate:
            labels = {"k": "yes" if number % 7 == 0 or number > 2050 else "no"}
            assert (await client.post(path, {"metadata": {"name": f"m{number:04}", "labels": labels}})).status == 201

    await asyncio.gather(*(make(number) for number in range(2200)))
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = await client.get(path, limit=2048, labelSelector="k=yes", **token)
        found += names(page)
        if not (more := page.body["metadata"].get("continue")):
            break
        token = {"continue": more}
    assert found == [f"m{number:04}" for number in range(2200) if number % 7 == 0 or number > 2050]


@pytest.mark.since("1.30", "lists from memory are in order")
async def test_version_zero_takes_no_pages(client: Client, five: str) -> None:
    assert names(await client.get(five, limit=2, resourceVersion="0")) == ["c0", "c1", "c2", "c3", "c4"]
    assert names(await client.get(five, limit=-1)) == ["c0", "c1", "c2", "c3", "c4"]


def token_of(**fields: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


async def test_bad_tokens(client: Client, five: str) -> None:
    bad = [
        "x",
        "garbage",
        token_of(v="meta.k8s.io/v9", rv=5, start="c1\0"),
        token_of(v="meta.k8s.io/v1", rv=0, start="c1\0"),
        token_of(v="meta.k8s.io/v1", rv=5, start=""),
        token_of(v="meta.k8s.io/v1", rv=-1, start="../c1\0"),
    ]
    for token in bad:
        refused = await client.get(five, **{"continue": token})
        assert (refused.status, refused.reason) == (400, "BadRequest"), (token, refused.body)
        assert refused.message.startswith("invalid continue token: continue key is not valid: ")


async def test_a_token_that_is_too_old_comes_with_one_that_goes_on_in_the_present(client: Client, crews: str) -> None:
    # Of a kind that is new: what a server holds in memory of its kinds may begin with its first version.
    kind = {"apiVersion": f"{crews.split('/')[2]}/v1", "kind": "Crew"}
    for number in range(5):
        assert (await client.post(crews, {**kind, "metadata": {"name": f"c{number}"}})).status == 201
    refused = await client.get(crews, limit=1, **{"continue": token_of(v="meta.k8s.io/v1", rv=1, start="c2\0")})
    assert (refused.status, refused.reason) == (410, "Expired")
    assert refused.message.startswith("The provided continue parameter is too old to display a consistent list result.")
    fresh = refused.body["metadata"]["continue"]
    page = await client.get(crews, limit=1, **{"continue": fresh})
    assert names(page) == ["c3"]
    assert names(await client.get(crews, limit=1, **{"continue": page.body["metadata"]["continue"]})) == ["c4"]


@pytest.mark.since("1.30", "lists from memory are in order")
async def test_an_exact_version_is_the_past(client: Client, five: str) -> None:
    version = await version_of(client, five)
    await client.delete(f"{five}/c1")
    await client.patch(f"{five}/c0", {"metadata": {"labels": {"even": "maybe"}}})
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    past = await client.get(five, **exact)
    assert names(past) == ["c0", "c1", "c2", "c3", "c4"]
    assert past.body["metadata"]["resourceVersion"] == version
    assert past.body["items"][0]["metadata"]["labels"] == {"even": "true"}
    assert names(await client.get(five, labelSelector="even=true", **exact)) == ["c0", "c2", "c4"]
    page = await client.get(five, limit=2, **exact)
    assert names(page) == ["c0", "c1"] and page.body["metadata"]["remainingItemCount"] == 3
    assert names(await client.get(five, **{"continue": page.body["metadata"]["continue"]})) == ["c2", "c3", "c4"]
    for loose in ({"resourceVersion": version}, {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}):
        assert names(await client.get(five, **loose)) == ["c0", "c2", "c3", "c4"]


async def test_a_version_that_is_too_old_or_not_reached(client: Client, five: str, crews: str) -> None:
    version = await version_of(client, five)
    gone = await client.get(crews, resourceVersion="1", resourceVersionMatch="Exact")
    assert (gone.status, gone.reason) == (410, "Expired")
    assert gone.message == "The resourceVersion for the provided list is too old."
    future = await client.get(five, resourceVersion=str(int(version) + 10**9))
    assert (future.status, future.reason) == (504, "Timeout")
    assert future.message.startswith(f"Timeout: Too large resource version: {int(version) + 10**9}, current: ")
    assert future.body["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    named = await client.get(f"{five}/c0", resourceVersion=str(int(version) + 10**9))
    assert (named.status, named.reason) == (504, "Timeout")
    assert (await client.get(f"{five}/c0", resourceVersion="0")).status == 200
    assert (await client.get(f"{five}/c0", resourceVersion=version)).status == 200


NOT_SUPPORTED = 'Unsupported value: "Foo": supported values: '


@pytest.mark.parametrize(
    ("params", "broken"),
    [
        (
            {"resourceVersionMatch": "Foo"},
            [
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                f'resourceVersionMatch: {NOT_SUPPORTED}"Exact", "NotOlderThan", ""',
            ],
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            ['resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'],
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "5", "continue": "x"},
            ["resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"],
        ),
        ({"sendInitialEvents": "true"}, ["sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"]),
        (
            {"watch": "1", "sendInitialEvents": "true"},
            [
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to"
                " NotOlderThan"
            ],
        ),
        (
            {"watch": "1", "resourceVersionMatch": "Exact", "resourceVersion": "5"},
            [
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents"
                " is provided",
                'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
        (
            {"watch": "1", "resourceVersionMatch": "Foo", "sendInitialEvents": "true"},
            [
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to"
                " NotOlderThan",
                f'resourceVersionMatch: {NOT_SUPPORTED}"NotOlderThan"',
            ],
        ),
    ],
)
@pytest.mark.since("1.34", "watch-list", only=("params4", "params6"))
@pytest.mark.since("1.30", "sendInitialEvents is known", only=("params3", "params5"))
async def test_parameters_that_do_not_go_together(
    client: Client, namespace: str, params: dict[str, str], broken: list[str]
) -> None:
    refused = await client.get(f"/api/v1/namespaces/{namespace}/pods", **params)
    assert (refused.status, refused.reason) == (422, "Invalid")
    text = broken[0] if len(broken) == 1 else "[" + ", ".join(broken) + "]"
    assert refused.message == f'ListOptions.meta.k8s.io "" is invalid: {text}'
    details = refused.body["details"]
    assert (details["group"], details["kind"]) == ("meta.k8s.io", "ListOptions")
    assert [f"{cause['field']}: {cause['message']}" for cause in details["causes"]] == broken
    assert {cause["reason"] for cause in details["causes"]} <= {"FieldValueForbidden", "FieldValueNotSupported"}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"limit": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"timeoutSeconds": "x"}, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"resourceVersion": "abc"},
            'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc":'
            " invalid syntax",
        ),
    ],
)
@pytest.mark.since("1.34", "400 for a version that is no number, not 500", only=("params2",))
async def test_parameters_that_cannot_be_read(
    client: Client, namespace: str, params: dict[str, str], message: str
) -> None:
    refused = await client.get(f"/api/v1/namespaces/{namespace}/pods", **params)
    assert (refused.status, refused.reason, refused.message) == (400, "BadRequest", message)


@pytest.mark.parametrize("selector", ["a in", "a=b=c", "!", "a in (b", "-x", "x=-", ",,", "a>b>c", "(a)", "a notin b"])
async def test_label_selectors_that_cannot_be_read(client: Client, namespace: str, selector: str) -> None:
    for watch in ({}, {"watch": "1"}):
        refused = await client.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector, **watch)
        assert (refused.status, refused.reason) == (400, "BadRequest"), refused.body


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("even", ["c0", "c1", "c2", "c3", "c4"]),
        ("!even", []),
        ("even=true", ["c0", "c2", "c4"]),
        ("even==true", ["c0", "c2", "c4"]),
        ("even!=true", ["c1", "c3"]),
        ("other!=true", ["c0", "c1", "c2", "c3", "c4"]),
        ("even in (true, maybe)", ["c0", "c2", "c4"]),
        ("even notin (true),even", ["c1", "c3"]),
        ("even=", []),
        ("", ["c0", "c1", "c2", "c3", "c4"]),
    ],
)
async def test_label_selectors(client: Client, five: str, selector: str, expected: list[str]) -> None:
    assert names(await client.get(five, labelSelector=selector)) == expected


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ("api/v1/{}/secrets", "field label not supported: spec.x"),
        ("api/v1/{}/pods", "field label not supported: spec.x"),
        ("api/v1/{}/services", "field label not supported: spec.x"),
        ("api/v1/nodes", "field label not supported: spec.x"),
        ("api/v1/namespaces", "field label not supported: spec.x"),
        ("api/v1/{}/events", "field label not supported: spec.x"),
        ("apis/batch/v1/{}/jobs", 'field label "spec.x" not supported for Job'),
        (
            "apis/apps/v1/{}/deployments",
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "api/v1/{}/configmaps",
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
@pytest.mark.since("1.34", "field selectors of Services", only=("services",))
async def test_fields_that_a_kind_does_not_offer(client: Client, namespace: str, resource: str, message: str) -> None:
    path = "/" + resource.format(f"namespaces/{namespace}")
    refused = await client.get(path, fieldSelector="spec.x=1")
    assert (refused.status, refused.reason, refused.message) == (400, "BadRequest", message)


async def test_field_selectors(client: Client, five: str, namespace: str, node: str) -> None:
    assert names(await client.get(five, fieldSelector="metadata.name=c1")) == ["c1"]
    assert names(await client.get(five, fieldSelector="metadata.name=none")) == []
    both = f"metadata.name!=c1,metadata.namespace={namespace}"
    assert names(await client.get(five, fieldSelector=both)) == ["c0", "c2", "c3", "c4"]
    assert names(await client.get(five, fieldSelector="type!=Opaque")) == []
    assert names(await client.get("/api/v1/nodes", fieldSelector=f"metadata.name={node},spec.unschedulable=false")) == [
        node
    ]
    pods = f"/api/v1/namespaces/{namespace}/pods"
    assert (await client.post(pods, pod("a", schedulerName="koord", restartPolicy="Never"))).status == 201
    assert (await client.post(pods, pod("b", schedulerName="koord", nodeName=node))).status == 201
    for selector, expected in (
        ("spec.nodeName=", ["a"]),
        (f"spec.nodeName={node}", ["b"]),
        ("spec.nodeName!=", ["b"]),
        ("status.phase=Pending", ["a", "b"]),
        ("spec.schedulerName=koord,spec.restartPolicy=Never", ["a"]),
        ("status.podIP=", ["a", "b"]),
    ):
        assert names(await client.get(pods, fieldSelector=selector)) == expected, selector
    for bad in ("metadata.name", "metadata.name=x=y"):
        assert (await client.get(pods, fieldSelector=bad)).status == 400
