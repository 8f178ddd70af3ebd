"""A nats-server that stays behind after a partition is found and filled, and only when the others can do without it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.js.api import StreamConfig, StreamInfo

from koord.bus.ending import end
from koord.localcluster.natscluster import NatsCluster
from koord.localcluster.natswatch import Group, Replica, ReplicaWatch, Standstill, can_do_without
from koord.localcluster.supervisor import Supervisor

DEADLINE_S = 60.0
# nats-server alone would need two minutes for them.
UNCONFIRMED = 120


def group(*replicas: Replica, leader: str = "nats-1", name: str = "S-R3F-a") -> Group:
    return Group(raft_group=name, leader=leader, replicas=replicas)


def behind(lag: int, name: str = "nats-3") -> Replica:
    return Replica(name, lag=lag)


CURRENT = Replica("nats-2", current=True)


def test_a_replica_that_does_not_come_nearer_stands_still() -> None:
    still = Standstill(20.0)
    assert not still.look(0, [group(CURRENT, behind(300))])
    assert not still.look(10, [group(CURRENT, behind(310))])
    assert still.look(20, [group(CURRENT, behind(300))]) == {"nats-3": ["S-R3F-a"]}


def test_a_replica_that_is_filled_does_not_stand_still() -> None:
    still = Standstill(20.0)
    for second in range(0, 100, 10):
        assert not still.look(second, [group(CURRENT, behind(1000 - second))])


@pytest.mark.parametrize("break_", [Replica("nats-3", current=True), Replica("nats-3", offline=True, lag=9)])
def test_a_replica_that_was_current_or_away_begins_anew(break_: Replica) -> None:
    still = Standstill(20.0)
    assert not still.look(0, [group(CURRENT, behind(300))])
    assert not still.look(19, [group(CURRENT, break_)])
    assert not still.look(38, [group(CURRENT, behind(300))])
    assert not still.look(57, [group(CURRENT, behind(300))])
    assert still.look(58, [group(CURRENT, behind(300))])


def test_what_was_not_seen_is_no_standstill() -> None:
    still = Standstill(20.0)
    still.look(0, [group(CURRENT, behind(300))])
    still.forget()
    assert not still.look(30, [group(CURRENT, behind(300))])


def test_the_others_must_have_everything() -> None:
    stuck = group(CURRENT, behind(9))
    assert can_do_without("nats-3", [stuck])
    assert can_do_without("nats-3", [stuck, group(CURRENT, Replica("nats-1", current=True), leader="nats-3")])
    assert not can_do_without("nats-3", [stuck, group(CURRENT, Replica("nats-1", lag=1), leader="nats-3")])
    assert not can_do_without("nats-3", [group(behind(1, "nats-2"), behind(9))])
    assert not can_do_without("nats-3", [group(Replica("nats-2", current=True, offline=True), behind(9))])
    assert not can_do_without("nats-3", [group(CURRENT, behind(9), leader="")])
    assert not can_do_without("nats-3", [group(behind(9))]), "of two replicas none can be spared"


@pytest.fixture
async def three() -> AsyncIterator[NatsCluster]:
    """Under a supervisor, as ``koord up`` has them."""
    cluster = NatsCluster(3, weather=True)
    supervisor = Supervisor(sink=lambda line: None)
    try:
        await asyncio.gather(*(supervisor.add(server) for server in await cluster.prepare()))
        await cluster.ready()
        yield cluster
    finally:
        cluster.weather.clear()
        await supervisor.stop()
        await cluster.stop()


async def information(client: Client) -> StreamInfo | None:
    with contextlib.suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError):
        found: StreamInfo = await client.jetstream(timeout=1).stream_info("S")
        return found
    return None


async def store(client: Client, body: bytes) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            await client.jetstream(timeout=1).publish("s.x", body)
            return
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


async def part_and_write(three: NatsCluster, parted: str, author: Client, witness: Client) -> None:
    """The parted leader gets a log that the others do not have, and theirs becomes longer."""
    three.weather.part([parted], [server.name for server in three.servers if server.name != parted], silent=True)
    for _ in range(UNCONFIRMED):
        await author.publish("s.lost", b"")
        await author.flush()
        await asyncio.sleep(0.005)  # an entry of the log each, not all in one
    for _ in range(2 * UNCONFIRMED):
        await store(witness, b"meanwhile")
    three.weather.clear()


async def test_a_leader_that_was_parted_is_filled_and_a_second_loss_stops_nothing(three: NatsCluster) -> None:
    lines: list[str] = []
    watch = ReplicaWatch(three, lines.append, behind_s=3.0, every_s=0.5)
    watching = asyncio.create_task(watch.run())
    clients: list[Client] = []

    async def connect(server: str) -> Client:
        clients.append(await nats.connect(three.server(server).url, allow_reconnect=False))
        return clients[-1]

    try:
        first = await connect("nats-1")
        await first.jetstream(timeout=10).add_stream(StreamConfig(name="S", subjects=["s.>"], num_replicas=3))
        await store(first, b"before")
        found = await information(first)
        assert found is not None and found.cluster is not None and found.cluster.leader
        parted = found.cluster.leader
        others = [server.name for server in three.servers if server.name != parted]

        author, witness = await connect(parted), await connect(others[0])
        pid = three.pids[parted]
        await part_and_write(three, parted, author, witness)
        deadline = time.monotonic() + DEADLINE_S

        async def state_of_the_parted() -> str:
            info = await information(witness)
            if info is None or info.cluster is None:
                return "no leader"
            peer = next((each for each in info.cluster.replicas or [] if each.name == parted), None)
            return "" if peer is not None and peer.current and not peer.offline else f"{peer}"

        current = 0
        while (state := await state_of_the_parted()) or not watch.mended:
            current = 0 if state else current + 1
            if current > 50:
                pytest.skip(
                    "nats-server filled the replica by itself: on a slow machine it may write many entries as one"
                )
            assert time.monotonic() < deadline, (state, lines)
            await store(witness, b"more")  # a leader learns only so how far a replica is
            await asyncio.sleep(0.2)
        assert three.pids[parted] != pid
        assert parted in lines[0] and "S-R3F" in lines[0]

        await end(watching)
        stored = await witness.jetstream().stream_info("S")
        three.server(others[1]).pause()
        await store(witness, b"after the second loss")
        last = await information(witness)
        assert last is not None and last.state.messages > stored.state.messages
        bodies = [(await witness.jetstream().get_msg("S", number)).data for number in (1, last.state.last_seq)]
        assert bodies == [b"before", b"after the second loss"]
    finally:
        for server in three.servers:
            server.resume()
        await end(watching)
        for client in clients:
            await client.close()
