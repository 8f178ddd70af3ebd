"""Roles change hands: proven deaths, and what ``/readyz`` says about who leads."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from koord.bus.connection import Bus
from koord.bus.leases import KvLease
from koord.bus.presence import Presence
from koord.bus.streams import ensure_streams
from koord.runtime import lifelock
from koord.runtime.lifelock import LifeLock

HOLD = """
import sys, time
from koord.runtime.lifelock import LifeLock
LifeLock(sys.argv[1], sys.argv[2]).hold()
print("held", flush=True)
time.sleep(600)
"""


class Other:
    """Another process that holds its lock."""

    def __init__(self, directory: Path, incarnation: str) -> None:
        argv = [sys.executable, "-c", HOLD, str(directory), incarnation]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
async def bus(nats_url: str, cluster: str) -> AsyncIterator[Bus]:
    async with await Bus.connect(nats_url, cluster, "test") as made:
        await ensure_streams(made)
        yield made


def test_a_lock_proves_a_death_and_nothing_else(tmp_path: Path) -> None:
    mine = LifeLock(str(tmp_path), "mine")
    mine.hold()
    other = Other(tmp_path, "other")
    try:
        assert not mine.is_dead("other")
        assert not mine.is_dead("mine")
        assert not mine.is_dead("never seen"), "unknown is not dead"
        for nobody in ("../other", "", ".", "..", "other\0", "o" * 5000):
            assert not mine.is_dead(nobody)
        assert not LifeLock("", "x").is_dead("other"), "without a directory nothing is known"
    finally:
        other.kill()
    assert mine.is_dead("other")
    mine.let_go()
    assert not (tmp_path / "mine").exists()


def test_files_of_the_long_dead_are_removed_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever starts: not while somebody may still need the proof, and never one that is locked."""
    living, dead = Other(tmp_path, "living"), Other(tmp_path, "dead")
    try:
        dead.kill()
        locks = [LifeLock(str(tmp_path), f"mine-{number}") for number in range(3)]
        locks[0].hold()  # marks it
        assert locks[0].is_dead("dead") and (tmp_path / "dead").read_bytes() == b"dead"
        locks[1].hold()
        assert locks[1].is_dead("dead"), "the proof is kept for a while"
        monkeypatch.setattr(lifelock, "KEEP_S", -1.0)
        locks[2].hold()
        assert {path.name for path in tmp_path.iterdir()} == {"living", "mine-0", "mine-1", "mine-2"}
        assert not locks[2].is_dead("living") and not locks[2].is_dead("dead"), "what is not there is not known"
        assert (tmp_path / "living").read_bytes() == b""
    finally:
        living.kill()
        for lock in locks:
            lock.let_go()


async def test_a_dead_holders_role_is_taken_at_once(bus: Bus, tmp_path: Path) -> None:
    life = LifeLock(str(tmp_path), "b")
    asked: list[bool] = []

    def is_dead(incarnation: str) -> bool:
        asked.append(life.is_dead(incarnation))
        return asked[-1]

    other = Other(tmp_path, "a")
    try:
        first = KvLease(bus, "queue", "a", renew=0.2)  # a busy machine does not end it
        await first.acquire()
        second = KvLease(bus, "queue", "b", is_dead=is_dead)
        waiting = asyncio.create_task(second.acquire())
        await until_equal(lambda: len(asked) >= 2, True)
        assert not any(asked) and not waiting.done(), "the holder lives"
    finally:
        other.kill()
    # The first goes on renewing: its process is dead only by the lock. So no lease runs out here.
    await asyncio.wait_for(waiting, 60)
    assert second.held
    await asyncio.wait_for(first.lost.wait(), 60)
    await first.release()
    assert second.held, "what is no longer ours is not given back"
    await second.release()


async def test_presence_tells_who_lives(nats_url: str, bus: Bus, cluster: str) -> None:
    dead: set[str] = set()
    changes: list[tuple[str, ...]] = []
    first = Presence(
        bus, "sample", "one.host", on_change=lambda: changes.append(first.members), is_dead=dead.__contains__
    )
    await first.start()
    assert first.members == ("one.host",)
    async with await Bus.connect(nats_url, cluster, "two") as other:
        second = Presence(other, "sample", "two", on_change=lambda: None)
        third = Presence(other, "sample", "three", on_change=lambda: None)
        for each in (second, third):
            await each.start()
        everybody = ("one.host", "three", "two")
        await until_equal(lambda: (first.members, second.members, third.members), (everybody,) * 3)
        await third.stop()
        await until_equal(lambda: (first.members, second.members), (("one.host", "two"),) * 2)
        dead.add("two")
        await until_equal(lambda: first.members, ("one.host",))
        assert changes[-1] == ("one.host",)
        await second.stop()
    await first.stop()


async def test_a_replica_that_is_not_heard_is_gone(nats_url: str, bus: Bus, cluster: str) -> None:
    first = Presence(bus, "silent", "one", on_change=lambda: None, gone_s=1.5)
    await first.start()
    other = await Bus.connect(nats_url, cluster, "two")
    second = Presence(other, "silent", "two", on_change=lambda: None)
    await second.start()
    await until_equal(lambda: first.members, ("one", "two"))
    assert second._task is not None
    second._task.cancel()  # as when its process is stopped
    await until_equal(lambda: first.members, ("one",))
    await first.stop()
    await other.close()


async def test_words_of_presence_that_are_nobodys_do_no_harm(
    nats_url: str, bus: Bus, cluster: str, tmp_path: Path
) -> None:
    """A replica that stays in the list without living would keep its share of the pods for ever."""
    life = LifeLock(str(tmp_path), "one")
    first = Presence(bus, "bent", "one", on_change=lambda: None, is_dead=life.is_dead, gone_s=1.5)
    await first.start()
    async with await Bus.connect(nats_url, cluster, "two") as other:
        place = f"$KV.{bus.subjects.leases_bucket}.presence.bent."
        for name, word in (("x", b""), ("x", b"y"), ("x", b"\0\xff"), ("\u2603", "\u2603".encode())):
            other.nc.send(place + name, "", b"", word)
        second = Presence(other, "bent", "two", on_change=lambda: None)
        await second.start()
        await until_equal(lambda: "two" in first.members, True)
        assert {"x", "y", ""}.isdisjoint(first.members)
        await until_equal(lambda: first.members, ("one", "two"))
        await second.stop()
    await until_equal(lambda: first.members, ("one",))
    await first.stop()


async def until_equal(value: Callable[[], object], wanted: object, timeout: float = 60.0) -> None:
    deadline = asyncio.get_running_loop().time() + timeout
    while value() != wanted:
        assert asyncio.get_running_loop().time() < deadline, (value(), wanted)
        await asyncio.sleep(0.02)
