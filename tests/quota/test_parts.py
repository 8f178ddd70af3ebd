"""A tree of 10,000 quotas is published in parts, and whoever reads them knows all of it."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from koord.bus.connection import MAX_PAYLOAD, Bus
from koord.bus.directread import read_last
from koord.bus.lastvalues import LastValues
from koord.bus.streams import ensure_streams
from koord.contracts.codec import ContractError, decode, encode
from koord.contracts.quota import QuotaRuntime, QuotaState, name_of_part
from koord.kube.quotas import ElasticQuota
from koord.quota import parts as quota_parts
from koord.quota.keeper import Keeper
from koord.quota.parts import PART_BYTES, split
from koord.quota.publishing import Publishing
from koord.scheduler.plugins.runtimes import Runtimes
from koord.telemetry.logs import get_logger
from tests.queue.harness import until
from tests.quota.test_keeper import PREFIX, labelled, messages, pod, quota

RESOURCES = ("cpu", "memory", *(f"example.com/device-of-some-kind-{i}" for i in range(6)))


def large(quotas: int) -> Keeper:
    """A tree of two levels and eight resources, filled."""
    keeper = Keeper()
    for i in range(quotas):
        parent = f"q{i // 100:05}" if i >= quotas // 100 else ""
        body = {
            "metadata": {
                "name": f"q{i:05}",
                "namespace": "quotas",
                "labels": {PREFIX + "parent": parent} if parent else {},
            },
            "spec": {key: dict.fromkeys(RESOURCES, str(i + 1)) for key in ("min", "max")},
        }
        keeper.put_quota(msgspec.convert(body, ElasticQuota))
    keeper.begin(0.0)
    return keeper


def of(*names: str, part: int = 0, parts: int = 1, cpu: int = 1, tree: str = "_") -> QuotaRuntime:
    states = [QuotaState(name, "quotas", runtime={"cpu": cpu}) for name in names]
    return QuotaRuntime(name_of_part(tree, part), 1, states, part=part, parts=parts)


class Reader:
    """What a scheduler makes of the stream."""

    def __init__(self, bus: Bus) -> None:
        self.runtimes = Runtimes()
        self.heard: list[QuotaRuntime] = []
        self.bad: list[ContractError] = []
        subjects = bus.subjects
        self.values = LastValues(
            bus, subjects.quota_stream, subjects.quota_runtime_all, QuotaRuntime, self.take, self.bad.append
        )
        self.values.start()

    def take(self, value: QuotaRuntime) -> None:
        self.heard.append(value)
        self.runtimes.take(value)


@pytest.fixture
async def bus(nats_url: str, cluster: str) -> AsyncIterator[Bus]:
    connected = await Bus.connect(nats_url, cluster, "test")
    await ensure_streams(connected)
    yield connected
    await connected.close()


async def published(publishing: Publishing) -> None:
    """Publish what is due, and wait until all of it is confirmed."""
    await until(lambda: not publishing._unconfirmed, "what was under way")
    await publishing.due()
    await until(lambda: not publishing._unconfirmed, "all of it")


async def test_ten_thousand_quotas_reach_whoever_reads_and_then_only_what_changed(bus: Bus) -> None:
    keeper = large(10_000)
    keeper.showing.compute()
    publishing = Publishing(keeper.showing, bus, get_logger("test"), lambda: None)
    early = Reader(bus)
    await published(publishing)
    assert keeper.showing.told("_")
    wanted = {name: dict(keeper.runtime_of(node)) for name in keeper.tree if (node := keeper.tree.get(name))}
    assert len(wanted) == 10_000
    late = Reader(bus)
    for reader in (early, late):
        await until(lambda reader=reader: reader.runtimes.of == wanted, "all runtimes")  # type: ignore[misc]
    parts = len(early.heard)
    assert sum(len(encode(message)) for message in early.heard) > MAX_PAYLOAD
    assert max(len(encode(message)) for message in early.heard) < 1 << 20
    assert {message.version for message in early.heard} == {1}
    assert {(message.part, message.parts) for message in early.heard} == {(part, parts) for part in range(parts)}

    keeper.put_pod("ns/p", pod("p", "q09999", "1", node="n"))  # it is used in the leaf and in its parent
    keeper.fill(1.0)
    await published(publishing)

    def changed() -> list[str]:
        return sorted(one.name for message in early.heard[parts:] for one in message.quotas if any(one.used.values()))

    await until(lambda: len(changed()) >= 2, "what changed")  # in one message or in two
    assert changed() == ["q00099", "q09999"]
    assert len(early.heard) <= parts + 2

    for name in list(keeper.tree)[5:]:
        keeper.drop_quota(quota(name, namespace="quotas"))
    keeper.fill(2.0)
    await published(publishing)
    last = Reader(bus)
    for reader in (early, late, last):
        await until(lambda reader=reader: len(reader.runtimes.of) == len(keeper.tree), "few")  # type: ignore[misc]
        assert not reader.bad
        await reader.values.close()
    assert {message.parts for message in last.heard} == {1}  # nothing of before stays in the stream
    assert [message.part for message in last.heard if message.quotas] == [0]


async def test_the_loop_runs_while_a_large_tree_is_encoded(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = large(1000)
    monkeypatch.setattr("koord.quota.publishing.SLICE_S", 0.0)
    publishing = Publishing(keeper.showing, bus, get_logger("test"), lambda: None)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await publishing.due()
    task.cancel()
    assert turns >= 1000 // 64
    await until(lambda: not publishing._unconfirmed, "all of it")


async def test_the_more_is_not_confirmed_the_longer_the_next_ones_wait(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a tree of many parts fills what may wait for a NATS that is away."""
    monkeypatch.setattr(quota_parts, "PART_BYTES", 200)
    monkeypatch.setattr("koord.quota.publishing.UNCONFIRMED_S", 1000.0)
    sent: list[asyncio.Future[int]] = []

    def publish(*_: object, **__: object) -> "asyncio.Future[int]":
        sent.append(asyncio.get_running_loop().create_future())
        return sent[-1]

    monkeypatch.setattr(bus, "publish_acked", publish)
    keeper = large(10)
    publishing = Publishing(keeper.showing, bus, get_logger("test"), lambda: None)
    await publishing.due()
    count = len(sent)
    assert count >= 4
    for i in range(10):
        keeper.put_pod(f"ns/{i}", pod(f"p{i}", f"q{i:05}", "1", node="n"))
    publishing._sent_s -= 2000
    await publishing.due()
    assert len(sent) == count
    for stored in sent[1:]:
        stored.set_result(1)
    await until(lambda: len(publishing._unconfirmed) == 1, "all but one")
    await publishing.due()
    assert len(sent) > count


def test_a_part_is_bounded_and_a_quota_stays_in_its_own() -> None:
    states = {f"q{i}": bytes(900) for i in range(5000)}
    parts = split(states, 1)
    assert len(parts) == 8
    assert sum(map(len, parts)) == 5000
    assert max(sum(map(len, part)) for part in parts) <= PART_BYTES + 900
    named = {name: name.encode() * 100 for name in (f"q{i}" for i in range(5000))}
    before = split(named, 8)
    gone = named.pop("q77")
    after = split(named, 8)
    assert [part for part, other in zip(before, after, strict=True) if part != other] == [
        next(part for part in before if gone in part)
    ]


def test_the_number_of_parts_falls_only_when_most_of_the_room_is_free() -> None:
    def sized(total: int) -> dict[str, bytes]:
        return {f"q{i}": bytes(1000) for i in range(total // 1000)}

    assert len(split(sized(PART_BYTES * 3), 8)) == 8
    assert len(split(sized(PART_BYTES * 3 // 2), 8)) == 2
    assert len(split(sized(1000), 8)) == 1
    assert split({}, 8) == [[]]


def test_names_that_fall_into_one_part_make_no_more_than_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zlib.crc32", lambda name: 0)
    states = {f"q{i}": bytes(PART_BYTES // 4) for i in range(8)}
    assert len(split(states, 1)) == quota_parts.MOST_PARTS
    monkeypatch.undo()
    assert split({"giant": bytes(PART_BYTES * 3), "a": b"x"}, 1) != []


def test_what_did_not_go_out_is_due_again_alone_and_a_tree_that_is_gone_takes_its_parts_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quota_parts, "PART_BYTES", 200)
    keeper = Keeper()
    for i in range(20):
        keeper.put_quota(labelled(f"q{i}", "", "tree-id", "gpu"))
    keeper.begin(0.0)
    keeper.showing.compute()
    sent = [part for part in keeper.showing.runtimes() if part is not None]
    count = len(sent)
    assert count >= 4
    assert messages(keeper) == []
    keeper.showing.unpublished(sent[2])
    assert keeper.showing.news and not keeper.showing.told("gpu")
    (again,) = messages(keeper)
    assert (again.tree, again.whole, again.part, again.parts, again.version) == ("gpu/2", "gpu", 2, count, 2)
    assert [one.part for one in messages(keeper, every=True)] == list(range(count))
    for i in range(20):
        keeper.drop_quota(labelled(f"q{i}", "", "tree-id", "gpu"))
    keeper.fill(1.0)
    keeper.showing.compute()
    gone = messages(keeper)
    assert [(one.part, one.parts, one.quotas) for one in gone] == [(part, 1, []) for part in range(count)]
    assert list(keeper.showing.trees) == []
    assert messages(keeper) == []


def test_a_quota_is_known_throughout_while_the_number_of_parts_changes() -> None:
    runtimes = Runtimes()
    for part, names in enumerate((("a", "b"), ("c", "d"))):
        runtimes.take(of(*names, part=part, parts=2))
    assert runtimes.take(of("a", part=0, parts=4, cpu=2)) == {"a"}
    assert runtimes.take(of("c", part=1, parts=4)) == set()
    assert sorted(runtimes.of) == ["a", "b", "c", "d"]
    runtimes.take(of("b", part=2, parts=4))
    assert runtimes.take(of(part=3, parts=4)) == {"d"}  # all parts came, and it is in none
    assert runtimes.take(of(part=2, parts=4)) == {"b"}
    assert runtimes.of == {"a": {"cpu": 2}, "c": {"cpu": 1}}


def test_what_an_older_writer_published_stands_for_the_whole_tree() -> None:
    runtimes = Runtimes()
    for part, names in enumerate((("a", "b"), ("c", "d"))):
        runtimes.take(of(*names, part=part, parts=2))
    states = [{"name": name, "namespace": "quotas", "runtime": {"cpu": 7}} for name in ("a", "c")]
    old = decode(QuotaRuntime, msgspec.msgpack.encode({"tree": "_", "version": 1, "quotas": states, "v": 1}))
    assert (old.whole, old.part, old.parts) == ("_", 0, 1)
    assert runtimes.take(old) == {"a", "b", "c", "d"}
    assert runtimes.of == {"a": {"cpu": 7}, "c": {"cpu": 7}}


def test_a_part_of_before_that_nobody_removed_is_outlived_by_what_came_after() -> None:
    """The stream tells in order: what another leader left of sixteen parts comes before the two of this one."""
    runtimes = Runtimes()
    runtimes.take(of("gone", "a", part=9, parts=16, cpu=9))
    runtimes.take(of("a", part=0, parts=2))
    assert "gone" in runtimes.of  # who knows; it hurts nobody
    runtimes.take(of("b", part=1, parts=2))
    assert runtimes.of == {"a": {"cpu": 1}, "b": {"cpu": 1}}
    runtimes.take(of(part=9, parts=2))
    assert runtimes.of == {"a": {"cpu": 1}, "b": {"cpu": 1}}


class OlderQuotaRuntime(msgspec.Struct, frozen=True):
    """The message as readers before parts know it."""

    tree: str
    version: int
    quotas: list[QuotaState]
    ceiling: str = "1"


def test_an_older_reader_takes_parts_for_trees() -> None:
    told = [decode(OlderQuotaRuntime, encode(of(name, part=part, parts=2))) for part, name in enumerate("ab")]
    assert [one.tree for one in told] == ["_", "_/1"]


@pytest.mark.parametrize(("field", "value"), [("part", -1), ("parts", 0)])
def test_numbers_that_no_part_has_are_refused(field: str, value: int) -> None:
    with pytest.raises(ContractError, match=field):
        decode(QuotaRuntime, msgspec.msgpack.encode({"tree": "_", "version": 1, "quotas": [], field: value}))


async def test_what_was_stored_last_is_read_alone(bus: Bus) -> None:
    subjects = bus.subjects
    assert await read_last(bus, subjects.quota_stream, subjects.quota_runtime_all) is None
    for tree in ("b", "a"):
        await bus.publish_acked(subjects.quota_runtime(tree), encode(of(tree=tree)))
    last = await read_last(bus, subjects.quota_stream, subjects.quota_runtime_all)
    assert last is not None
    assert decode(QuotaRuntime, last.body).tree == "a"
    assert last.subject.decode() == subjects.quota_runtime("a")
