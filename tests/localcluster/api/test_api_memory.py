"""What the server holds: objects at their size, in one heap, and not more of them however many have come and gone."""

import asyncio
import ctypes
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from koord.localcluster.api import app as app_module
from koord.localcluster.api import deletion, store
from koord.localcluster.api.app import App
from koord.localcluster.api.builtin import EVENTS, PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.deleteoptions import DeleteOptions
from koord.localcluster.api.expiry import EventExpiry
from koord.localcluster.api.listing import Page, Pager, list_page
from koord.localcluster.api.pods import bind
from koord.localcluster.api.requests import Query
from koord.localcluster.api.watchcache import WatchCache
from koord.localcluster.clusterapi import Object
from tests.localcluster.api.rig import Client, Server, pod

_HEAP = 64 * 1024 * 1024
_BYTES_OVERHEAD = sys.getsizeof(b"") + 48  # malloc rounds up, and does not cut off less than 32 bytes
glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_usable_size"), reason="malloc is not glibc's")


def _thread_heaps(pid: int) -> int:
    """The heaps that glibc made for threads: 64 MiB of address space each, a used part and a reserved rest."""
    found, before = 0, (0, 0, "")
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, mode, *rest = line.split()
        start, end = (int(number, 16) for number in span.split("-"))
        anonymous = len(rest) < 4
        if anonymous and mode == "---p" and before[1] == start and before[2] == "rw-p":
            found += before[0] % _HEAP == 0 and end == before[0] + _HEAP
        before = (start, end, mode if anonymous else "")
    return found


_ALLOCATE = """
import sys, threading
from koord.localcluster.api.allocator import use_one_arena
if sys.argv[1] == "one":
    assert use_one_arena()
done, end = threading.Event(), threading.Event()
def work():
    kept = [bytes(2_000) for _ in range(100)]
    done.set()
    end.wait()
thread = threading.Thread(target=work)
thread.start()
done.wait()
print("ready", flush=True)
sys.stdin.read()
end.set()
"""


@glibc
@pytest.mark.parametrize(("how", "heaps"), [("many", 1), ("one", 0)])
def test_threads_share_the_heap(how: str, heaps: int) -> None:
    command = [sys.executable, "-c", _ALLOCATE, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            assert _thread_heaps(process.pid) == heaps
        finally:
            process.kill()


@glibc
def test_the_server_has_one_heap(server: Server, connect: Callable[[], Client], namespace: str) -> None:
    clients = [connect() for _ in range(4)]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for i in range(40):
        answer = clients[i % 4].post(path, {"metadata": {"name": f"c{i}"}, "data": {"x": "y" * (60 * i)}})
        assert answer.code == 201
    assert len(clients[0].get(path).body["items"]) == 40
    assert len(list(Path(f"/proc/{server.process.pid}/task").iterdir())) > 1
    assert _thread_heaps(server.process.pid) == 0


@glibc
def test_an_object_takes_the_memory_of_its_bytes(plain: Cluster) -> None:
    usable = ctypes.CDLL(None).malloc_usable_size
    usable.restype, usable.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    for size in range(0, 4_000, 100):
        plain.create(PODS, "default", {**pod(f"p{size}"), "x": "y" * size})
    entries = plain.collection(PODS).entries()
    assert len(entries) == 40
    for entry in entries:
        if len(entry.raw) > 512:  # what is smaller is not malloc's
            assert usable(id(entry.raw)) <= len(entry.raw) + _BYTES_OVERHEAD


def test_what_a_change_leaves_alone_is_held_once(plain: Cluster) -> None:
    plain.create(PODS, "default", {**pod("a"), "metadata": {"name": "a", "labels": {"app": "x"}}})
    first = plain.collection(PODS).get("default", "a")
    plain.patch(PODS, "default", "a", lambda obj: _with(obj, annotations={"x": "y"}))
    second = plain.collection(PODS).get("default", "a")
    assert first is not None and second is not None and second.version > first.version
    assert second.labels is first.labels and second.fields is first.fields and second.uid is first.uid
    plain.patch(PODS, "default", "a", lambda obj: _with(obj, labels={"app": "y"}))
    third = plain.collection(PODS).get("default", "a")
    assert third is not None and third.labels == {"app": "y"} and second.labels == {"app": "x"}
    plain.patch(PODS, "default", "a", lambda obj: _with(obj, labels={}))
    fourth = plain.collection(PODS).get("default", "a")
    assert fourth is not None and fourth.labels is None


def _with(obj: Object, **metadata: dict[str, str]) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def _run(obj: Object) -> Object:
    return {**obj, "status": {"phase": "Running"}}


async def test_a_begun_list_goes_without_a_next_one(plain: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        plain.create(PODS, "default", pod(name))
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pager, collection = Pager(), plain.collection(PODS)

    def page(query: str) -> Page:
        return list_page(plain.store, pager, collection, None, None, Query(query.encode()))

    first = page("limit=2")
    assert first.token is not None
    for seconds in (299.0, 9.0):
        now += seconds
        pager.tidy()
        assert [entry.name for entry in page(f"limit=2&continue={first.token}").entries] == ["c"]
        assert pager._entries == 3
    now += 11.0
    pager.tidy()
    assert not pager._held and not pager._entries


async def test_the_server_tidies_up(plain: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "_TIDY_SECONDS", 0.001)
    served, tidied = App(plain, "token", "here:1"), asyncio.Event()
    monkeypatch.setattr(served._objects, "tidy", tidied.set)
    task = asyncio.create_task(served.tidy_forever())
    async with asyncio.timeout(60):
        await tidied.wait()
    task.cancel()
    await asyncio.wait({task})


async def test_churn_leaves_nothing_behind(plain: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods come and go, each with an Event, twelve times as many as there are at any moment; bounds are low here."""
    monkeypatch.setattr(store, "_KNOWN_LABELS", 8)
    for resource in (PODS, EVENTS):
        plain.collection(resource).cache = WatchCache(plain.store.version, max_changes=200)
    expiry = EventExpiry(plain, limit=40)
    alive: list[str] = []
    made = 0

    async def churn() -> None:
        nonlocal made
        for _ in range(40):
            made += 1
            name = f"pod-{made:06}"
            labels = {"app": "x", "gang": f"gang-{made // 8:06}"}
            plain.create(PODS, "default", {**pod(name), "metadata": {"name": name, "labels": labels}})
            bind(plain, "default", name, {"target": {"name": f"node-{made % 50}"}})
            plain.patch(PODS, "default", name, _run, subresource="status")
            about = {"kind": "Pod", "namespace": "default", "name": name}
            plain.create(EVENTS, "default", {"metadata": {"name": name}, "involvedObject": about, "message": name})
            alive.append(name)
        for name in alive[:-80]:
            deletion.delete(plain, PODS, "default", name, DeleteOptions())
        del alive[:-80]
        await expiry.sweep(0.0)

    held: list[int] = []
    tracemalloc.start()
    try:
        for _ in range(24):
            await churn()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert plain.collection(PODS).count == 80 and plain.collection(EVENTS).count == 40
    # The rings drop an eighth of their length at a time: what is held goes up and down with them.
    before, after = max(held[4:12]), max(held[16:])
    assert before > 200_000
    assert after < before * 1.04


def test_objects_with_the_same_labels_share_them(plain: Cluster) -> None:
    def made(name: str, labels: dict[str, str]) -> dict[str, str] | None:
        plain.create(PODS, "default", {**pod(name), "metadata": {"name": name, "labels": labels}})
        entry = plain.collection(PODS).get("default", name)
        assert entry is not None
        return entry.labels

    first = made("a", {"app": "x"})
    assert first == {"app": "x"} and made("b", {"app": "x"}) is first
    assert made("c", {"app": "y"}) == {"app": "y"} and made("d", {}) is None
    for i in range(1_100):
        made(f"e{i}", {"n": str(i)})
    assert made("f", {"app": "x"}) == {"app": "x"}
    assert len(plain.collection(PODS)._known_labels) < 1_024
