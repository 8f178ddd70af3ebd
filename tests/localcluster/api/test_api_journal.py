"""The write-ahead file by itself: what it restores, what it refuses, and what a disk that is full or lies costs."""

import asyncio
import copy
import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.localcluster.api.builtin import CRDS, NAMESPACES, PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.running import Controllers
from koord.localcluster.api.deleteoptions import DeleteOptions
from koord.localcluster.api.deletion import delete
from koord.localcluster.api.journal import Journal, JournalError
from koord.localcluster.api.records import BadRecord, Kind, pack, read, synced_beyond
from koord.localcluster.clusterapi import ApiError
from tests.localcluster.api.rig import pod

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


def opened(folder: Path, **options: Any) -> Cluster:
    return Cluster(journal=Journal(folder, **options))


def state(cluster: Cluster) -> dict[tuple[str, str, str], bytes]:
    return {
        (key, entry.namespace, entry.name): entry.raw for key, entries in cluster.store.state() for entry in entries
    }


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def log_of(folder: Path) -> Path:
    return max(folder.glob("log-*"), key=lambda path: int(path.name[4:]))


async def compact(cluster: Cluster) -> None:
    """Wait for one more snapshot."""
    journal = cluster.store.journal
    assert journal is not None
    before, deadline = journal.snapshots, time.monotonic() + 60
    while journal.snapshots == before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def start(cluster: Cluster) -> Journal:
    journal = cluster.store.journal
    assert journal is not None
    journal.start(cluster.store.state, lambda: cluster.store.version)
    return journal


async def settle(cluster: Cluster) -> None:
    """Do what the controllers have to do now."""
    controllers = Controllers(cluster)
    controllers.listen()
    await controllers.settle()


async def test_what_was_written_is_there_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    for name in ("a", "b", "c"):
        first.create(PODS, "default", pod(name))
    first.patch(PODS, "default", "a", lambda obj: {**obj, "metadata": {**obj["metadata"], "labels": {"x": "y"}}})
    delete(first, PODS, "default", "b", DeleteOptions())
    first.create(CRDS, None, copy.deepcopy(DEFINITION))
    widgets = first.resource("widgets.example.com")
    first.create(widgets, "default", {"metadata": {"name": "w"}, "spec": {"size": 1}})
    again = opened(tmp_path)
    assert state(again) == state(first)
    assert again.store.version > first.store.version
    served = again.resource("widgets.example.com")
    again.create(served, "default", {"metadata": {"name": "v"}})
    delete(again, CRDS, None, "widgets.example.com", DeleteOptions())
    await settle(again)
    third = opened(tmp_path)
    assert "widgets.example.com" not in third.registry.resources
    assert state(third) == state(again)
    assert third.collection(PODS).get("default", "a").labels == {"x": "y"}  # type: ignore[union-attr]


async def test_watches_resume_after_a_restart_but_not_at_versions_that_were_never_given(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.create(PODS, "default", pod("a"))
    seen = first.store.version
    first.create(PODS, "default", pod("b"))
    delete(first, PODS, "default", "a", DeleteOptions())
    last = first.store.version
    again = opened(tmp_path)
    again.create(PODS, "default", pod("c"))
    again.store.check_version(seen)
    events = await again.collection(PODS).subscribe(None, None, seen).next(1)
    assert [(kind, entry.name) for kind, entry in events] == [("ADDED", "b"), ("DELETED", "a"), ("ADDED", "c")]
    assert [entry.version for _, entry in events] == sorted(entry.version for _, entry in events)
    again.store.check_version(last)
    for lost in (last + 1, again.store.version - 2):
        with pytest.raises(ApiError) as refused:
            again.store.check_version(lost)
        assert refused.value.code == 410
    with pytest.raises(ApiError) as refused:
        again.collection(PODS).subscribe(None, None, 1)
    assert refused.value.code == 410


async def test_a_log_that_has_grown_gives_way_to_a_snapshot(tmp_path: Path) -> None:
    first = opened(tmp_path, sync_s=0.001, min_log_bytes=20_000)
    journal = start(first)
    first.create(CRDS, None, copy.deepcopy(DEFINITION))
    first.create(first.resource("widgets.example.com"), "default", {"metadata": {"name": "w"}})
    for i in range(200):
        first.create(PODS, "default", pod(f"p-{i}"))
    before = first.store.version
    await compact(first)
    first.create(PODS, "default", pod("later"))
    await journal.stop()
    assert [path.name.split("-")[0] for path in files(tmp_path)] == ["log", "snapshot"]
    assert journal.snapshots < 10
    again = opened(tmp_path)
    assert state(again) == state(first)
    with pytest.raises(ApiError) as refused:
        again.collection(PODS).subscribe(None, None, before - 100)
    assert refused.value.code == 410
    (event,) = await again.collection(PODS).subscribe(None, None, first.store.version - 1).next(1)
    assert event[1].name == "later"


async def test_a_crash_while_the_snapshot_is_written_loses_nothing(tmp_path: Path) -> None:
    first = opened(tmp_path, sync_s=0.001, min_log_bytes=20_000)
    start(first)
    for i in range(200):
        first.create(PODS, "default", pod(f"p-{i}"))
    snapshot = tmp_path / "snapshot-2"
    old = (tmp_path / "log-1").read_bytes()
    await compact(first)
    first.create(PODS, "default", pod("later"))
    # As it looks before the rename: the old log is there, the snapshot is not.
    snapshot.unlink()
    (tmp_path / "log-1").write_bytes(old)
    (tmp_path / "snapshot-2.part").write_bytes(b"half")
    again = opened(tmp_path)
    assert state(again) == state(first)
    assert not (tmp_path / "snapshot-2.part").exists()
    (tmp_path / "log-1").unlink()
    with pytest.raises(JournalError, match="log-1 is missing"):
        opened(tmp_path)


_WRITER = """
import asyncio, sys
from pathlib import Path
from koord.localcluster.api.builtin import PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.deleteoptions import DeleteOptions
from koord.localcluster.api.deletion import delete
from koord.localcluster.api.journal import Journal
from tests.localcluster.api.rig import pod

async def main():
    cluster = Cluster(journal=Journal(Path(sys.argv[1]), sync_s=0.002, min_log_bytes=30_000, growth=1))
    cluster.store.journal.start(cluster.store.state, lambda: cluster.store.version)
    number = int(sys.argv[2])
    while True:
        cluster.create(PODS, "default", pod(f"p-{number}"))
        print(number, cluster.store.version, flush=True)
        if number >= 50:
            delete(cluster, PODS, "default", f"p-{number - 50}", DeleteOptions())
        number += 1
        await asyncio.sleep(0)

asyncio.run(main())
"""


def test_kills_while_it_compacts_lose_nothing(tmp_path: Path) -> None:
    number, version = 0, 0
    generations: set[str] = set()
    # Each time killed after so many more writes, wherever it is then; where others take the CPU it takes more of them
    # until it has been at different places.
    for kills, written in enumerate((60, 90, 130, 170, 230, *range(250, 850, 50)), 1):
        if kills > 5 and len(generations) > 2:
            break
        command = [sys.executable, "-c", _WRITER, str(tmp_path), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(written):
                number, now = map(int, process.stdout.readline().split())
                assert now > version
                version = now
            process.kill()
            for line in process.stdout:  # acknowledged before it was killed; the last line may be cut short
                if line.endswith("\n"):
                    number, version = map(int, line.split())
        cluster = opened(tmp_path)
        names = {entry.name for entry in cluster.collection(PODS).entries()}
        # The change after the last acknowledged one may have been written as well.
        assert {f"p-{i}" for i in range(max(0, number - 48), number + 1)} <= names
        # Each kill may come between a creation and the deletion that belongs to it.
        assert len(names) <= 51 + kills
        generations.add(log_of(tmp_path).name)
        number += 1
        if f"p-{number}" in names:
            number += 1
    assert len(generations) > 2


def test_a_torn_tail_is_cut_off_wherever_it_is_torn(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.create(PODS, "default", pod("a"))
    log = log_of(tmp_path)
    before, whole = state(first), log.stat().st_size
    first.create(PODS, "default", pod("b"))
    data = log.read_bytes()
    for cut in (whole + 1, whole + 11, whole + 40, len(data) - 1):
        log.write_bytes(data[:cut])
        again = opened(tmp_path)
        assert state(again) == before
        again.create(PODS, "default", pod("c"))
        assert ("pods", "default", "c") in state(opened(tmp_path))
    # Power failed: the length had reached the disk and the bytes had not.
    log.write_bytes(data[:whole] + bytes(len(data) - whole))
    assert state(opened(tmp_path)) == before


async def test_damage_in_the_middle_is_refused_by_name(tmp_path: Path) -> None:
    first = opened(tmp_path, sync_s=0.001)
    journal = start(first)
    first.create(PODS, "default", pod("a"))
    log = log_of(tmp_path)
    at = log.stat().st_size + 60
    first.create(PODS, "default", pod("b"))
    first.create(PODS, "default", pod("c"))
    await journal.stop()
    data = bytearray(log.read_bytes())
    data[at] ^= 1
    log.write_bytes(data)
    with pytest.raises(JournalError, match=rf"{log.name}: record \d+ is damaged at byte \d+: the checksum"):
        opened(tmp_path)
    assert log.read_bytes() == data


async def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    first = opened(tmp_path, sync_s=0.001, min_log_bytes=1)
    journal = start(first)
    await compact(first)
    await journal.stop()
    snapshot = files(tmp_path)[-1]
    data = snapshot.read_bytes()
    snapshot.write_bytes(data[: len(data) // 2])
    with pytest.raises(JournalError, match="is damaged"):
        opened(tmp_path)
    ends = [end for _, end in read(data)]
    snapshot.write_bytes(data[: ends[-2]])
    with pytest.raises(JournalError, match="before its end"):
        opened(tmp_path)


async def test_a_sync_that_failed_is_never_believed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(tmp_path, sync_s=0.001)
    real, bad = os.fdatasync, True

    def sync(descriptor: int) -> None:
        if bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    full = tmp_path / "snapshot-2.part"
    full.mkdir()  # no snapshot can be written either
    journal = start(first)
    first.create(PODS, "default", pod("a"))
    deadline = time.monotonic() + 60
    while True:
        try:
            first.create(PODS, "default", pod(f"b-{time.monotonic_ns()}"))
        except ApiError as error:
            assert error.code == 507 and "Input/output error" in error.message
            break
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    before = state(first)
    full.rmdir()
    await compact(first)
    bad = False
    assert state(first) == before
    deadline = time.monotonic() + 60
    while True:
        try:
            first.create(PODS, "default", pod("c"))
            break
        except ApiError:  # the new log's first sync was quicker than the end of the trouble: the next snapshot mends it
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    await journal.stop()
    assert state(opened(tmp_path)) == state(first)


async def test_an_interrupted_namespace_deletion_goes_on(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.create(NAMESPACES, None, {"metadata": {"name": "team"}})
    body = pod("a")
    body["metadata"]["finalizers"] = ["example.com/wait"]
    first.create(PODS, "team", body)
    delete(first, NAMESPACES, None, "team", DeleteOptions())
    again = opened(tmp_path)
    with pytest.raises(ApiError, match="being terminated"):
        again.create(PODS, "team", pod("b"))
    controllers = Controllers(again)
    controllers.listen()
    await controllers.settle()
    again.patch(
        PODS,
        "team",
        "a",
        lambda obj: {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "finalizers"}},
    )
    await controllers.settle()
    assert again.collection(NAMESPACES).get("", "team") is None
    assert again.terminating == set()


def test_objects_that_nothing_defines_are_refused_by_name(tmp_path: Path) -> None:
    opened(tmp_path)
    with log_of(tmp_path).open("ab") as log:
        log.write(pack(Kind.PUT, 2**60, "gadgets.example.com", "default", "g", b'{"metadata":{"name":"g","uid":"u"}}'))
    with pytest.raises(JournalError, match=r"gadgets\.example\.com default/g.*no such resource"):
        opened(tmp_path)


texts = st.text(max_size=20)
# JSON has no byte 0: what follows one are the writers.
raws = st.binary(max_size=60).filter(lambda raw: b"\0" not in raw)
records = st.tuples(st.sampled_from(Kind), st.integers(0, 2**64 - 1), texts, texts, texts, raws, st.binary(max_size=20))


@given(st.lists(records, max_size=6))
def test_records_read_back(wanted: list[tuple[Any, ...]]) -> None:
    data = b"".join(pack(*record) for record in wanted)
    assert [tuple(record) for record, _ in read(data)] == wanted


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_a_changed_byte_never_passes(wanted: list[tuple[Any, ...]], draw: st.DataObject) -> None:
    data = bytearray(b"".join(pack(*record) for record in wanted))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    got: list[tuple[Any, ...]] = []
    with pytest.raises(BadRecord):
        got.extend(tuple(record) for record, _ in read(bytes(data)))
    assert got == wanted[: len(got)]


@given(st.binary(max_size=200))
def test_noise_is_refused_or_empty(data: bytes) -> None:
    if data:
        with pytest.raises(BadRecord):
            list(read(data))
    assert not synced_beyond(data, 0)
