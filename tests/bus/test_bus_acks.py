"""Acknowledged publishing: order, errors, bounds, time-outs, duplicates after a reconnect."""

import asyncio
import time

import pytest

from koord.bus.connection import Bus
from koord.bus.errors import BusError, BusOverflow, BusTimeout, BusUnavailable, PublishRefused, TooLarge
from koord.bus.flights import Flight
from koord.localcluster.servers import NatsServer
from tests.bus.conftest import Connect, until


async def test_each_future_resolves_to_its_sequence(bus: Bus) -> None:
    subject = bus.subjects.decision("test", "bind")
    futures = [bus.publish_acked(subject, b"%d" % number) for number in range(500)]
    assert await asyncio.gather(*futures) == list(range(1, 501))
    info = await bus.js.stream_info(bus.subjects.decisions_stream)
    assert info.state.messages == 500
    assert bus.acks.in_flight == 0


async def test_a_subject_no_stream_captures_times_out_with_its_name(bus: Bus) -> None:
    with pytest.raises(BusTimeout, match="nobody"):
        await bus.publish_acked("nobody.captures.this", b"x", timeout=0.4)


async def test_a_jetstream_error_is_typed(bus: Bus) -> None:
    subject = bus.subjects.decision("test", "bind")
    with pytest.raises(PublishRefused) as caught:
        await bus.publish_acked(subject, b"x", ("Nats-Expected-Last-Sequence", "77"))
    assert caught.value.code == 400
    assert caught.value.err_code == 10070 or caught.value.err_code == 10071
    assert subject in str(caught.value)


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB x 0\r\n", "a\tb"])
async def test_a_bad_subject_is_refused_and_sends_nothing(bus: Bus, subject: str) -> None:
    with pytest.raises(BusError, match="subject"):
        bus.publish_acked(subject, b"x")
    assert bus.acks.in_flight == 0


async def test_a_payload_beyond_the_servers_limit_is_refused(bus: Bus) -> None:
    with pytest.raises(BusError, match="more than the server takes"):
        bus.publish_acked(bus.subjects.decision("test", "bind"), bytes(bus.nc.max_payload + 1))
    assert bus.acks.in_flight == 0


async def test_what_is_too_large_is_refused_also_while_nothing_is_sent_and_holds_up_nothing(bus: Bus) -> None:
    """It would have failed when the connection is back, and ended what happens then."""
    again: list[str] = []

    async def hook() -> None:
        again.append("again")

    bus.on_reconnect(hook)
    bus.acks.pause()
    with pytest.raises(TooLarge, match=r"state\S+: \d+ bytes are more than the server takes"):
        bus.publish_acked(bus.subjects.state("pods_core", "a", "b"), bytes(bus.nc.max_payload + 1), timeout=None)
    assert bus.acks.in_flight == 0
    # The next server takes less than the one before.
    large = bus.publish_acked(bus.subjects.state("pods_core", "a", "c"), bytes(4096), timeout=None, live=True)
    small = bus.publish_acked(bus.subjects.state("pods_core", "a", "d"), b"x", timeout=None)
    taken, bus.nc._max_payload = bus.nc.max_payload, 1024
    bus.clustered = True
    await bus._recover()
    bus.nc._max_payload = taken
    assert await small == 1
    with pytest.raises(TooLarge):
        await large
    await until(lambda: again, what="the hooks of a reconnect ran")
    assert bus.acks.in_flight == 0


async def test_what_was_sent_and_is_too_large_for_the_next_server_fails(bus: Bus) -> None:
    sent = bus.publish_acked(bus.subjects.state("pods_core", "a", "c"), bytes(4096), timeout=None)
    bus.acks.pause()
    taken, bus.nc._max_payload = bus.nc.max_payload, 1024
    bus.acks.resume()
    bus.nc._max_payload = taken
    with pytest.raises(TooLarge):
        await sent
    assert await bus.publish_acked(bus.subjects.state("pods_core", "a", "d"), b"x") == 2


async def test_eight_mebibytes_pass(bus: Bus) -> None:
    assert await bus.publish_acked(bus.subjects.decision("test", "create"), bytes((8 << 20) - 200)) == 1


async def test_the_bounds_hold_and_room_waits(connect: Connect) -> None:
    bus = await connect("bounded", limit=10)
    subject = bus.subjects.decision("test", "bind")
    futures = []
    for number in range(300):
        await bus.room()
        futures.append(bus.publish_acked(subject, b"%d" % number))
        assert bus.acks.in_flight <= 10
    assert await asyncio.gather(*futures) == list(range(1, 301))


async def test_a_version_that_is_published_again_needs_no_room(connect: Connect) -> None:
    bus = await connect("haunted", limit=1)
    acks, subject = bus.acks, bus.subjects.state("pods", "ns", "a")
    newest = acks.publish(subject, b"newest", latest=True)
    (flight,) = acks._flight.values()
    old = Flight(asyncio.get_running_loop().create_future(), subject, b"", b"old", 0.0, True, False, -1, None)
    acks._ghosts.suspect(old, flight, time.monotonic())
    acks._ghosts.late(-1, 2)  # an old copy came behind the newest one, which will be number 1
    other = acks.publish(bus.subjects.state("pods", "ns", "b"), b"waits", latest=True)
    acks._backlog_limit = 0
    assert await asyncio.wait_for(newest, 60) == 1
    await other
    await acks.flush()
    held = await bus.js.get_last_msg(bus.subjects.state_stream, subject)
    assert (held.data, held.seq) == (b"newest", 3)


async def test_past_the_backlog_is_an_overflow_that_harms_nobody_else(own_nats: NatsServer, connect: Connect) -> None:
    bus = await connect("overflow", url=own_nats.url, limit=4)
    bus.acks._backlog_limit = 100_000
    await own_nats.kill()
    await until(lambda: not bus.connected)
    subject = bus.subjects.decision("test", "bind")
    futures: list[asyncio.Future[int]] = []
    with pytest.raises(BusOverflow, match="room"):
        while len(futures) < 1000:
            futures.append(bus.publish_acked(subject, bytes(1000)))
    assert 90 <= len(futures) < 110
    await own_nats.restart(empty=False)
    assert sorted(await asyncio.gather(*futures)) == list(range(1, len(futures) + 1))


async def test_a_cancelled_future_does_not_disturb(bus: Bus) -> None:
    subject = bus.subjects.decision("test", "bind")
    first = bus.publish_acked(subject, b"1")
    first.cancel()
    assert await bus.publish_acked(subject, b"2") == 2
    assert bus.acks.in_flight == 0


async def test_while_disconnected_the_deadline_counts(own_nats: NatsServer, connect: Connect) -> None:
    bus = await connect("deadline", url=own_nats.url)
    await own_nats.kill()
    await until(lambda: not bus.connected)
    with pytest.raises(BusTimeout):  # its own, not that of the whole
        await asyncio.wait_for(bus.publish_acked(bus.subjects.decision("test", "bind"), b"x", timeout=0.3), 60)
    assert bus.acks.in_flight == 0


@pytest.mark.parametrize("empty", [False, True])
async def test_what_was_in_flight_when_the_server_died_arrives(
    own_nats: NatsServer, connect: Connect, empty: bool
) -> None:
    bus = await connect("crash", url=own_nats.url, limit=256)
    subject = bus.subjects.decision("test", "bind")
    futures: list[asyncio.Future[int]] = []
    stop = asyncio.Event()

    async def publish() -> None:
        while not stop.is_set():
            await bus.room()
            futures.append(bus.publish_acked(subject, b"%d" % len(futures)))

    task = asyncio.create_task(publish())
    await until(lambda: len(futures) > 2000)
    await own_nats.kill()
    await until(lambda: not bus.connected)
    confirmed = sum(future.done() for future in futures)
    await own_nats.restart(empty=empty)
    await until(lambda: bus.connected and len(futures) > 4000)
    stop.set()
    await task
    await asyncio.gather(*futures)
    held = await read_all(bus, bus.subjects.decisions_stream)
    wanted = {b"%d" % number for number in range(confirmed if empty else 0, len(futures))}
    assert wanted <= set(held), sorted(int(x) for x in wanted - set(held))[:10]
    # At least once: what was resent may be there twice, but only what was in flight.
    assert len(held) - len(set(held)) <= 256


async def test_the_newest_of_several_on_one_subject_is_what_stays(own_nats: NatsServer, connect: Connect) -> None:
    bus = await connect("latest", url=own_nats.url, limit=64)
    subject = bus.subjects.state("pods_core", "default", "a")
    for attempt in range(3):
        await own_nats.kill()
        await until(lambda: not bus.connected)
        futures = [bus.publish_acked(subject, b"%d-%d" % (attempt, n), timeout=None, latest=True) for n in range(200)]
        await own_nats.restart(empty=False)
        await asyncio.gather(*futures)
        last = await bus.js.get_last_msg(bus.subjects.state_stream, subject)
        assert last.data == b"%d-199" % attempt


async def test_closing_fails_what_waits(own_nats: NatsServer, connect: Connect) -> None:
    bus = await connect("closing", url=own_nats.url)
    await own_nats.kill()
    await until(lambda: not bus.connected)
    future = bus.publish_acked(bus.subjects.decision("test", "bind"), b"x", timeout=None)
    await bus.close()
    with pytest.raises(BusUnavailable, match="closed"):
        await future
    with pytest.raises(BusUnavailable, match="closed"):
        bus.publish_acked(bus.subjects.decision("test", "bind"), b"x")


async def test_nobody_listening_is_an_error_that_names_the_address(cluster: str) -> None:
    with pytest.raises(BusUnavailable, match=r"nats://127\.0\.0\.1:1\b"):
        await Bus.connect("nats://127.0.0.1:1", cluster, "test", timeout=0.5)


async def test_ten_thousand_publishes_with_headers_within_the_bounds(bus: Bus) -> None:
    """How many a second is what `koord bench bus` says."""
    subject = bus.subjects.decision("test", "bind")
    futures = []
    for _ in range(10_000):
        await bus.room()
        futures.append(bus.publish_acked(subject, bytes(256), ("traceparent", f"00-{1:032x}-{1:016x}-01")))
    assert await asyncio.gather(*futures) == list(range(1, 10_001))


async def read_all(bus: Bus, stream: str) -> list[bytes]:
    """Every body of a stream, in order."""
    info = await bus.js.stream_info(stream)
    bodies = []
    for sequence in range(info.state.first_seq, info.state.last_seq + 1):
        message = await bus.js.get_msg(stream, seq=sequence, direct=True)
        bodies.append(message.data or b"")
    return bodies
