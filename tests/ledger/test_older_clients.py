"""Clients and data of before: what they send and what they stored still works beside the newest client."""

from typing import Any

import msgspec
import pytest

from koord.accounting.takes import Take
from koord.ledger import library
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Ended, NodeSeen, PodSeen
from koord.ledger.nominations import NominateRequest
from koord.localcluster.servers import RedisServer
from tests.ledger.world import World, connected, pod

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode
TAKES = pack(([{"cpu": 1000}], [("node/n1", 1, True)]))


async def call(world: World, function: str, *arguments: bytes) -> Any:
    return unpack(await world.raw.fcall(function, 1, world.key, *arguments))


async def old_claim(world: World, id_: str, *, priority: int = 0, ticket: int = 0) -> Any:
    """As before guards, groups and wound: nine fields."""
    members = [(f"uid-{id_}", "ns", id_, "n1", 2)]
    request: tuple[Any, ...] = (id_, members, [], [], priority, 0, "trace", True, ticket)
    [row] = await call(world, "claim_v1", pack((world.s1.epoch, "old", 30_000, [request])), TAKES)
    return row


async def test_an_older_claim(world: World) -> None:
    assert await old_claim(world, "a") == 1
    assert await old_claim(world, "a") == 1
    assert await old_claim(world, "b") == 2
    record = await world.r.record("uid-a")
    assert record is not None
    assert (record.state, record.owner, record.takes) == ("HELD", "old", (Take("node/n1", {"cpu": 1000}),))
    # It has the rank of its token.
    request = ClaimRequest("new", (pod("n", "n1", 3000),), group="g", wound=True)
    [answer] = await world.s2.claim([request])
    assert answer.status == "conflict"
    request = ClaimRequest("newer", (pod("n", "n1", 3000),), priority=1, wound=True)
    [answer] = await world.s2.claim([request])
    assert [one.claim for one in answer.wounded] == ["b"]


async def test_an_older_claim_is_refused_in_words_it_knows(world: World) -> None:
    await world.s1.nominate([NominateRequest("o", (pod("n", "n1", 3500),), 1)])
    status, rows = await old_claim(world, "a")
    assert (status, rows) == ("conflict", [["node/n1", "cpu", "nomination", 1000, 500, 0, "n"]])


async def test_older_observations(world: World) -> None:
    await world.see(NodeSeen("node/n1", {"cpu": 4000}, "2", 41))
    node = ("N", "node/n1", {"cpu": 5000}, "3")
    pod_ = ("P", "u", "ns", "p", "n1", 2, "7")
    head = ("reconciler", world.reconciler_epoch, world.r.incarnation, world.r.epoch, 600_000)
    answer = await call(world, "observe_v1", pack((*head, [node, pod_])), TAKES)
    assert answer[0] == "ok" and len(answer) == 9
    assert (await world.r.items("node/n1"))["node/n1"].version == 41
    assert await world.amounts("node/n1") == (1000, 0)


async def test_columns_of_names_that_nothing_limits(world: World) -> None:
    """As they were given to whatever a pod asked for: they stay, and there may be no room for another."""
    there = await world.raw.hlen(world.key + ":columns")
    old: dict[Any, Any] = {f"example.com/r{number}": str(there + number) for number in range(1, 1000 - there)}
    old["*"] = "1000"
    await world.raw.hset(world.key + ":columns", mapping=old)
    takes = (Take("node/n1", {"cpu": 1, "example.com/r1": 2, "example.com/r9999": 3}),)
    await world.see(PodSeen("p", "ns", "p", "n1", takes, "5"))
    item = (await world.r.items("node/n1"))["node/n1"]
    assert item.used == {"cpu": 1, "example.com/r1": 2, "*": 3}
    limits = {"cpu": 4000, "example.com/r1": 8, "example.com/r9999": 8}
    answer = await world.see(NodeSeen("node/n1", limits, "9"))
    assert [(one.item, one.name) for one in answer.nameless] == [("node/n1", "example.com/r9999")]
    assert (await world.r.items("node/n1"))["node/n1"].limits["example.com/r1"] == 8
    assert (await world.r.sums(["node/n1"]))["node/n1"].right


async def test_data_without_the_number_of_nominations(world: World) -> None:
    """As they were stored before there were any."""
    held = await world.claim(pod("p", "n1", 1000))
    await world.raw.hdel(world.key + ":meta", "nominated")
    await world.lapse(held)
    assert (await world.see()).expired == (Ended(held.request.id, ("p",), "expired"),)
    [answer] = await world.s1.nominate([NominateRequest("o", (pod("n", "n1", 4000),), 1)])
    assert answer.status == "ok"
    assert (await world.claim(pod("q", "n1", 1))).answer.status == "conflict"


@pytest.mark.parametrize(
    ("build", "loaded", "replaced"),
    [
        ("2-aa", "2-aa", False),
        ("2-aa", "2-bb", True),
        ("2-aa", "1-bb", True),
        ("2-aa", "0123456789abcdef", True),
        ("2-aa", "3-bb", False),
        ("10-aa", "9-bb", True),
    ],
)
def test_who_replaces_whom(build: str, loaded: str, replaced: bool) -> None:
    assert library.replaces(build, loaded) is replaced


async def test_a_later_library_stays(own_redis: RedisServer, cluster: str) -> None:
    async with connected(own_redis.url, cluster) as world:
        code, build = library.source()
        later = f"{library.REVISION + 1}-later"
        await world.raw.function_load(code.replace(build.encode(), later.encode()).decode(), replace=True)
        async with await Ledger.connect(own_redis.url, cluster, "another") as another:
            await another.status()
        assert (await call(world, "status_v1"))[0] == later
