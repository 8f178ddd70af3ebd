"""Lists and watches: versions, pages, bookmarks, selectors, and the ways a watch ends."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from koord.localcluster.api.builtin import EVENTS, PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.expiry import EventExpiry
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Change, Entry, Subscription, WatchCache
from koord.localcluster.clusterapi import ApiError, WatchEvent
from tests.localcluster.api.rig import Client, pod

Connect = Callable[[], Client]


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def names(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def make(client: Client, path: str, name: str, **labels: str) -> dict[str, Any]:
    answer = client.post(path, {"metadata": {"name": name, "labels": labels}})
    assert answer.code == 201, answer.body
    body: dict[str, Any] = answer.body
    return body


def test_pages_are_one_consistent_list(client: Client, maps: str) -> None:
    for i in range(25):
        make(client, maps, f"c{i:02}")
    first = client.get(f"{maps}?limit=10").body
    assert first["metadata"]["remainingItemCount"] == 15
    make(client, maps, "c00-late")
    client.delete(f"{maps}/c24")
    token = first["metadata"]["continue"]
    second = client.get(f"{maps}?limit=10&continue={token}").body
    third = client.get(f"{maps}?limit=10&continue={second['metadata']['continue']}").body
    found = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]
    assert found == [f"c{i:02}" for i in range(25)]
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1 and "continue" not in third["metadata"]
    assert client.get(f"{maps}?limit=10&continue=nonsense").code == 400


def test_list_versions(client: Client, maps: str) -> None:
    made = make(client, maps, "a")
    version = int(made["metadata"]["resourceVersion"])
    listed = client.get(maps).body
    assert int(listed["metadata"]["resourceVersion"]) >= version
    assert client.get(f"{maps}?resourceVersion=0").code == 200
    assert client.get(f"{maps}?resourceVersion={version}&resourceVersionMatch=NotOlderThan").code == 200
    exact = client.get(f"{maps}?resourceVersion={version}&resourceVersionMatch=Exact").body
    assert exact["metadata"]["resourceVersion"] == str(version)
    make(client, maps, "b")
    old = client.get(f"{maps}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert [item["metadata"]["name"] for item in old.body["items"]] == ["a"]
    future = client.get(f"{maps}?resourceVersion={version + 10**9}")
    assert (future.code, future.body["reason"]) == (504, "Timeout")
    for bad, code in (("resourceVersion=x", 400), ("resourceVersionMatch=Exact", 422), ("limit=x", 400)):
        assert client.get(f"{maps}?{bad}").code == code, bad


def test_a_long_list_is_complete(client: Client, maps: str) -> None:
    for i in range(700):
        make(client, maps, f"c{i:03}")
    items = client.get(maps).body["items"]
    assert [item["metadata"]["name"] for item in items] == [f"c{i:03}" for i in range(700)]


def test_a_watch_from_a_version_sees_what_followed(connect: Connect, client: Client, maps: str) -> None:
    version = client.get(maps).body["metadata"]["resourceVersion"]
    make(client, maps, "a")
    client.patch(f"{maps}/a", {"data": {"x": "1"}})
    client.delete(f"{maps}/a")
    events = connect().watch(f"{maps}?watch=True&resourceVersion={version}&timeoutSeconds=30")
    seen = [next(events) for _ in range(3)]
    assert names(seen) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(set(versions))
    make(client, maps, "b")
    assert names([next(events)]) == [("ADDED", "b")]


def test_a_watch_without_version_starts_with_what_is_there(connect: Connect, client: Client, maps: str) -> None:
    make(client, maps, "a")
    for query in ("watch=1", "watch=true&resourceVersion=0"):
        events = connect().watch(f"{maps}?{query}")
        assert names([next(events)]) == [("ADDED", "a")]


def test_watch_list_ends_the_initial_events_with_a_bookmark(connect: Connect, client: Client, maps: str) -> None:
    make(client, maps, "a")
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = connect().watch(f"{maps}?{query}")
    assert names([next(events)]) == [("ADDED", "a")]
    mark = next(events)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["object"]["kind"] == "ConfigMap"
    make(client, maps, "b")
    added = next(events)
    assert names([added]) == [("ADDED", "b")]
    version = mark["object"]["metadata"]["resourceVersion"]
    assert int(added["object"]["metadata"]["resourceVersion"]) > int(version)
    resumed = connect().watch(f"{maps}?watch=1&resourceVersion={version}")
    assert names([next(resumed)]) == [("ADDED", "b")]
    assert client.get(f"{maps}?watch=1&sendInitialEvents=true").code == 422


def test_selectors_turn_changes_into_additions_and_deletions(connect: Connect, client: Client, maps: str) -> None:
    make(client, maps, "a", role="x")
    version = client.get(maps).body["metadata"]["resourceVersion"]
    events = connect().watch(f"{maps}?watch=1&labelSelector=role%3Dx&resourceVersion={version}")
    make(client, maps, "b", role="y")
    client.patch(f"{maps}/b", {"metadata": {"labels": {"role": "x"}}})
    client.patch(f"{maps}/b", {"data": {"k": "v"}})
    client.patch(f"{maps}/a", {"metadata": {"labels": {"role": "y"}}})
    client.delete(f"{maps}/a")
    client.delete(f"{maps}/b")
    assert names([next(events) for _ in range(4)]) == [
        ("ADDED", "b"),
        ("MODIFIED", "b"),
        ("DELETED", "a"),
        ("DELETED", "b"),
    ]


def test_a_watch_ends_after_its_timeout_with_a_bookmark(connect: Connect, client: Client, maps: str) -> None:
    make(client, maps, "a")
    events = list(connect().watch(f"{maps}?watch=1&timeoutSeconds=1&allowWatchBookmarks=1"))
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]


def test_a_watch_from_too_long_ago_or_the_future(client: Client, maps: str) -> None:
    old = client.get(f"{maps}?watch=1&resourceVersion=1").body
    assert (old["type"], old["object"]["code"], old["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert "too old resource version" in old["object"]["message"]
    assert client.get(f"{maps}?watch=1&resourceVersion={10**17}").code == 504


def _entry(version: int, size: int = 10) -> Entry:
    return Entry("ns", f"n{version}", f"u{version}", version, b"x" * size, None, (), False)


def test_the_ring_is_bounded_and_says_where_it_starts() -> None:
    cache = WatchCache(100, max_changes=1000, max_bytes=5_000)
    for version in range(101, 1_101):
        cache.append(Change("ADDED", _entry(version), None))
    assert cache.end == 1_000
    with pytest.raises(ApiError) as refused:
        cache.position(100)
    assert refused.value.code == 410
    position = cache.position(1_090)
    assert [change.entry.version for change in cache.read(position, 100)] == list(range(1_091, 1_101))
    held = cache.read(cache.position(1_100) - 400, 1_000)
    assert sum(len(change.entry.raw) for change in held) <= 5_000


def test_what_is_older_than_its_time_is_dropped_when_more_comes() -> None:
    now = 0.0
    cache = WatchCache(0, max_seconds=300.0, clock=lambda: now)
    for version in range(1, 61):  # one each ten seconds
        cache.append(Change("ADDED", _entry(version), None))
        now += 10.0
    assert cache.end == 60
    held = [change.entry.version for change in cache.read(cache.position(40), 100)]
    assert held == list(range(41, 61))
    assert cache.position(31) == 31
    with pytest.raises(ApiError) as refused:
        cache.position(20)
    assert refused.value.code == 410
    now += 10_000.0
    assert cache.position(31) == 31  # nothing comes, nothing goes
    cache.append(Change("ADDED", _entry(61), None))
    assert [change.entry.version for change in cache.read(cache.position(59), 9)] == [60, 61] and cache._bytes == 20


def test_states_of_before_count_once_and_only_while_the_ring_holds_them() -> None:
    now: dict[str, Entry] = {}
    cache = WatchCache(0, max_bytes=1_000, current=lambda _, name: now.get(name))

    def put(name: str, version: int) -> None:
        entry = Entry("ns", name, name, version, b"x" * 10, None, (), False)
        cache.append(Change("MODIFIED" if name in now else "ADDED", entry, now.get(name)))
        now[name] = entry

    for version in range(1, 1_000):
        put(f"n{version % 7}", version)
    held = {id(state): state for change in cache._changes for state in (change.entry, change.old) if state is not None}
    assert cache._bytes == sum(len(state.raw) for state in held.values())
    assert 800 < cache._bytes <= 1_000


def test_a_collection_as_it_was(plain: Cluster) -> None:
    maps = plain.resource("configmaps")
    states: list[tuple[int, list[tuple[str, bytes]]]] = []
    for step in range(40):
        name, number = f"c{step * 7 % 5}", step
        entry = plain.collection(maps).get("default", name)
        if entry is None:
            plain.create(maps, "default", {"metadata": {"name": name}, "data": {"n": str(number)}})
        elif step % 3:
            changed = {**decode(entry), "data": {"n": str(number)}}
            plain.replace(maps, "default", name, changed)
        else:
            plain.remove(maps, entry, decode(entry))
        states.append((plain.store.version, [(e.name, e.raw) for e in plain.collection(maps).entries("default")]))
    for version, state in states:
        assert [(e.name, e.raw) for e in plain.collection(maps).entries_at(None, version)] == state


async def test_a_slow_watcher_is_told_to_start_again() -> None:
    cache = WatchCache(0, max_changes=100, max_bytes=10**9)
    slow = Subscription(cache, cache.position(0), None, None)
    for version in range(1, 1_000):
        cache.append(Change("ADDED", _entry(version), None))
    with pytest.raises(ApiError) as refused:
        await slow.next(1)
    assert refused.value.code == 410


async def test_waiting_leaves_nothing_behind() -> None:
    cache = WatchCache(0)
    subscription = Subscription(cache, 0, None, None)
    for _ in range(3):
        assert await subscription.next(0.01) == []
    assert not cache._waiters


async def test_in_process_watch_gives_the_state_a_bookmark_and_changes(plain: Cluster) -> None:
    api = InProcessApi(plain)
    await api.create("pods", "default", pod("a"))
    batches = api.watch("pods")
    assert [(event.type, event.name) for event in await anext(batches)] == [("ADDED", "a")]
    (mark,) = await anext(batches)
    assert mark.type == "BOOKMARK" and mark.resource_version == plain.store.version
    await api.patch("pods", "default", "a", {"status": {"phase": "Running"}}, subresource="status")
    await api.patch("pods", "default", "a", b'{"metadata":{"labels":{"x":"y"}}}', kind="strategic")
    await api.delete("pods", "default", "a")
    events: list[WatchEvent] = []
    while len(events) < 3:
        events += await anext(batches)
    assert [event.type for event in events] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert json.loads(events[0].raw)["status"]["phase"] == "Running"
    items, version = await api.list("pods")
    assert items == [] and int(version) == plain.store.version
    resumed = api.watch("pods", resource_version=str(mark.resource_version))
    assert len(await anext(resumed)) == 3
    with pytest.raises(ApiError) as refused:
        await api.get("pods", "default", "a")
    assert refused.value.reason == "NotFound"


async def test_old_and_surplus_events_go(plain: Cluster) -> None:
    def event(name: str) -> None:
        body = {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}}
        plain.create(EVENTS, "default", body)

    expiry = EventExpiry(plain, seconds=60, limit=5)
    event("old")
    await expiry.sweep(0)
    event("young")
    assert await expiry.sweep(59) == 0
    assert await expiry.sweep(61) == 1
    assert [entry.name for entry in plain.collection(EVENTS).entries()] == ["young"]
    for i in range(7):
        event(f"e{i}")
    assert await expiry.sweep(62) == 3
    assert [entry.name for entry in plain.collection(EVENTS).entries()] == ["e2", "e3", "e4", "e5", "e6"]


def test_versions_start_at_the_clock_so_that_older_ones_are_too_old() -> None:
    first, second = Cluster(), Cluster(first_version=10**16)
    assert first.store.version > 1_700_000_000_000_000
    with pytest.raises(ApiError) as refused:
        second.collection(PODS).subscribe(None, None, first.store.version)
    assert refused.value.code == 410
