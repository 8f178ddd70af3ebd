"""Which server of a NATS cluster leads a stream: for benchmarks and tests that kill it, and for people who look."""

import nats.errors
import nats.js.errors

from koord.bus.connection import Bus
from koord.bus.errors import BusUnavailable


async def stream_leader(bus: Bus | str, stream: str) -> str:
    """The name of the server that leads ``stream`` (as in ``NatsCluster.pids`` and the ready file's pids).

    Empty for a single server, which leads everything, and while the stream has no leader. ``bus`` may be a URL.
    BusUnavailable when nobody answers or the stream does not exist.
    """
    if isinstance(bus, str):
        async with await Bus.connect(bus, "leaders", "stream-leader") as own:
            return await stream_leader(own, stream)
    try:
        info = await bus.js.stream_info(stream)
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"stream {stream}: {error or 'no answer'}") from error
    # A single server names itself as the leader, but of no cluster.
    return (info.cluster.leader or "") if info.cluster is not None and info.cluster.name else ""


async def consumer_leader(bus: Bus | str, stream: str, consumer: str) -> str:
    """As :func:`stream_leader`, of a durable consumer: a raft group of its own with the stream's replicas."""
    if isinstance(bus, str):
        async with await Bus.connect(bus, "leaders", "consumer-leader") as own:
            return await consumer_leader(own, stream, consumer)
    try:
        info = await bus.js.consumer_info(stream, consumer)
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
        raise BusUnavailable(f"consumer {consumer} of {stream}: {error or 'no answer'}") from error
    return (info.cluster.leader or "") if info.cluster is not None and info.cluster.name else ""
