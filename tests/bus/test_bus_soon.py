"""Messages that have time go along with others: in order, soon, and not without being asked for."""

import asyncio

from koord.bus.client import SOON_S
from koord.bus.connection import Bus
from tests.bus.conftest import Connect, until


async def test_what_has_time_goes_out_by_itself(bus: Bus, connect: Connect) -> None:
    came: list[bytes] = []
    hearer = await connect("hearer")
    hearer.subscribe_raw("koord.test.soon", lambda subject, reply, headers, body: came.append(body))
    await hearer.barrier()
    bus.nc.send("koord.test.soon", "", b"", b"late", now=False)
    await until(lambda: came == [b"late"])


async def test_the_order_stays_and_one_write_takes_all(bus: Bus, connect: Connect) -> None:
    came: list[bytes] = []
    hearer = await connect("hearer")
    hearer.subscribe_raw("koord.test.soon", lambda subject, reply, headers, body: came.append(body))
    await hearer.barrier()
    bus.nc.send("koord.test.soon", "", b"", b"1", now=False)
    bus.nc.send("koord.test.soon", "", b"", b"2", now=False)
    assert bus.nc._pending  # nobody was woken to write it
    bus.nc.send("koord.test.soon", "", b"", b"3")
    bus.nc.send("koord.test.soon", "", b"", b"4", now=False)
    await until(lambda: len(came) == 4)
    assert came == [b"1", b"2", b"3", b"4"]


async def test_nothing_is_sent_twice_by_the_timer(bus: Bus, connect: Connect) -> None:
    came: list[bytes] = []
    hearer = await connect("hearer")
    hearer.subscribe_raw("koord.test.soon", lambda subject, reply, headers, body: came.append(body))
    await hearer.barrier()
    for number in range(50):
        bus.nc.send("koord.test.soon", "", b"", b"%d" % number, now=bool(number % 3))
        if not number % 7:
            await asyncio.sleep(SOON_S / 5)
    await until(lambda: len(came) == 50)
    await bus.barrier()
    assert came == [b"%d" % number for number in range(50)]
