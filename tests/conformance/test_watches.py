"""Watches: where they begin, what they tell, how they end."""

from typing import Any

import pytest

from tests.conformance.client import STRATEGIC, Client
from tests.conformance.rig import pod

Event = dict[str, Any]


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


@pytest.fixture
def secrets(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


async def make(client: Client, path: str, name: str, **labels: str) -> dict[str, Any]:
    made = await client.post(path, {"metadata": {"name": name, "labels": labels}})
    assert made.status == 201, made.body
    body: dict[str, Any] = made.body
    return body


async def version_of(client: Client, path: str) -> str:
    return str((await client.get(path)).body["metadata"]["resourceVersion"])


async def test_a_watch_from_a_version_tells_what_followed(client: Client, secrets: str) -> None:
    await make(client, secrets, "before")
    version = await version_of(client, secrets)
    made = await make(client, secrets, "a")
    patched = (await client.patch(f"{secrets}/a", {"metadata": {"labels": {"x": "y"}}})).body
    assert (await client.delete(f"{secrets}/a")).status == 200
    async with client.watch(secrets, resourceVersion=version) as watch:
        assert watch.headers["Content-Type"] == "application/json"
        events = await watch.take(3)
        assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        seen = [event["object"]["metadata"]["resourceVersion"] for event in events]
        assert seen[:2] == [made["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"]]
        # The last state, with the version of the deletion.
        assert int(seen[2]) > int(seen[1]) and events[2]["object"]["metadata"]["labels"] == {"x": "y"}
        assert {event["object"]["kind"] for event in events} == {"Secret"}
        await make(client, secrets, "b")
        assert told(await watch.take(1)) == [("ADDED", "b")]


@pytest.mark.parametrize("params", [{}, {"resourceVersion": "0"}, {"resourceVersion": ""}])
async def test_a_watch_without_a_version_begins_with_what_is_there(
    client: Client, secrets: str, params: dict[str, Any]
) -> None:
    await make(client, secrets, "a")
    await make(client, secrets, "b")
    async with client.watch(secrets, **params) as watch:
        assert sorted(told(await watch.take(2))) == [("ADDED", "a"), ("ADDED", "b")]
        await client.delete(f"{secrets}/a")
        assert told(await watch.take(1)) == [("DELETED", "a")]


@pytest.mark.parametrize("version", ["", "0", "now"])
@pytest.mark.since("1.34", "watch-list")
async def test_a_watch_list_ends_its_beginning_with_a_bookmark(client: Client, secrets: str, version: str) -> None:
    await make(client, secrets, "a")
    now = await version_of(client, secrets)
    params: dict[str, Any] = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    params["resourceVersion"] = now if version == "now" else version
    async with client.watch(secrets, **params) as watch:
        assert told([await watch.next()]) == [("ADDED", "a")]
        mark = await watch.next()
        assert (mark["type"], mark["object"]["kind"], mark["object"]["apiVersion"]) == ("BOOKMARK", "Secret", "v1")
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        reached = mark["object"]["metadata"]["resourceVersion"]
        await make(client, secrets, "b")
        assert told(await watch.take(1)) == [("ADDED", "b")]
    async with client.watch(secrets, resourceVersion=reached) as watch:
        assert told(await watch.take(1)) == [("ADDED", "b")]


@pytest.mark.since("1.34", "watch-list")
async def test_a_watch_list_of_nothing_is_a_bookmark(client: Client, secrets: str) -> None:
    params: dict[str, Any] = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with client.watch(secrets, **params) as watch:
        assert (await watch.next())["type"] == "BOOKMARK"


@pytest.mark.since("1.34", "watch-list")
async def test_a_watch_list_without_bookmarks_has_no_end_mark(client: Client, secrets: str) -> None:
    await make(client, secrets, "a")
    async with client.watch(secrets, sendInitialEvents="true", resourceVersionMatch="NotOlderThan") as watch:
        assert told([await watch.next()]) == [("ADDED", "a")]
        await make(client, secrets, "b")
        assert told([await watch.next()]) == [("ADDED", "b")]


@pytest.mark.since("1.34", "watch-list")
async def test_sending_no_initial_events(client: Client, secrets: str) -> None:
    await make(client, secrets, "a")
    params: dict[str, Any] = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    async with client.watch(secrets, **params) as watch:
        await make(client, secrets, "b")
        assert told([await watch.next()]) == [("ADDED", "b")]


async def test_selectors_turn_changes_into_additions_and_deletions(client: Client, secrets: str) -> None:
    await make(client, secrets, "a", role="x")
    version = await version_of(client, secrets)
    async with client.watch(secrets, labelSelector="role=x", resourceVersion=version) as watch:
        await make(client, secrets, "b", role="y")
        await client.patch(f"{secrets}/b", {"metadata": {"labels": {"role": "x"}}})
        await client.patch(f"{secrets}/b", {"metadata": {"labels": {"more": "x"}}})
        left = (await client.patch(f"{secrets}/a", {"metadata": {"labels": {"role": "y", "new": "1"}}})).body
        await client.delete(f"{secrets}/a")
        await client.delete(f"{secrets}/b")
        events = await watch.take(4)
    assert told(events) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a"), ("DELETED", "b")]
    # What left the selection is told as it was while it belonged to it, with the version at which it left.
    metadata = events[2]["object"]["metadata"]
    assert metadata["labels"] == {"role": "x"}
    assert metadata["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_a_pod_leaves_the_queue_of_unbound_pods_when_it_is_bound(
    client: Client, namespace: str, node: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    version = await version_of(client, pods)
    async with client.watch(pods, fieldSelector="spec.nodeName=", resourceVersion=version) as watch:
        assert (await client.post(pods, pod("a", schedulerName="koord"))).status == 201
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}}
        bound = await client.post(f"{pods}/a/binding", {**binding, "target": {"kind": "Node", "name": node}})
        assert bound.status == 201, bound.body
        events = await watch.take(2)
    assert told(events) == [("ADDED", "a"), ("DELETED", "a")]
    assert "nodeName" not in events[1]["object"]["spec"]
    now = (await client.get(f"{pods}/a")).body
    assert events[1]["object"]["metadata"]["resourceVersion"] == now["metadata"]["resourceVersion"]


async def test_a_watch_of_one_object(client: Client, secrets: str) -> None:
    await make(client, secrets, "a")
    await make(client, secrets, "b")
    async with client.watch(secrets, fieldSelector="metadata.name=b") as watch:
        assert told(await watch.take(1)) == [("ADDED", "b")]
        await client.patch(f"{secrets}/a", {"metadata": {"labels": {"x": "y"}}})
        await client.patch(f"{secrets}/b", {"metadata": {"labels": {"x": "y"}}})
        assert told(await watch.take(1)) == [("MODIFIED", "b")]


async def test_all_namespaces(client: Client, namespace: str, secrets: str) -> None:
    version = await version_of(client, "/api/v1/secrets")
    async with client.watch("/api/v1/secrets", resourceVersion=version) as watch:
        await make(client, secrets, "a")
        while (event := await watch.next())["object"]["metadata"]["namespace"] != namespace:
            pass
        assert told([event]) == [("ADDED", "a")]


async def test_a_watch_ends_after_its_time(client: Client, secrets: str) -> None:
    await make(client, secrets, "a")
    for seconds in (1, 5, 25):  # a busy server may need its time for the first event
        async with client.watch(secrets, timeoutSeconds=seconds) as watch:
            if seen := told(await watch.rest()):
                break
    assert seen == [("ADDED", "a")]


async def test_a_version_that_is_too_old_is_told_in_the_stream(client: Client, crews: str) -> None:
    # Of a kind that is new: what a server holds in memory of its kinds may begin with its first version.
    async with client.watch(crews, resourceVersion="1", timeoutSeconds=5) as watch:
        (error,) = await watch.rest()
    status = error["object"]
    assert (error["type"], status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_events_of_no_change(client: Client, secrets: str) -> None:
    made = await make(client, secrets, "a", x="y")
    version = await version_of(client, secrets)
    same = await client.patch(f"{secrets}/a", {"metadata": {"labels": {"x": "y"}}})
    assert same.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    again = await client.patch(f"{secrets}/a", {"metadata": {"labels": {"x": "y"}}}, STRATEGIC)
    assert again.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    async with client.watch(secrets, resourceVersion=version) as watch:
        await make(client, secrets, "b")
        assert told(await watch.take(1)) == [("ADDED", "b")]


async def test_a_watch_as_metadata_and_as_a_table(client: Client, secrets: str) -> None:
    await make(client, secrets, "a", x="y")
    partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    async with client.watch(secrets, headers={"Accept": partial}) as watch:
        shown = (await watch.next())["object"]
        assert (shown["kind"], shown["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert shown["metadata"]["labels"] == {"x": "y"} and "type" not in shown
    async with client.watch(secrets, headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}) as watch:
        shown = (await watch.next())["object"]
        assert (shown["kind"], shown["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
        assert shown["rows"][0]["cells"][:3] == ["a", "Opaque", 0]
        await make(client, secrets, "b")
        more = (await watch.next())["object"]
        # Only the first event says the columns.
        assert not more.get("columnDefinitions") and more["rows"][0]["object"]["metadata"]["name"] == "b"
