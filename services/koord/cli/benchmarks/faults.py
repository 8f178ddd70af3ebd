"""What a recovery benchmark kills, and how long binding may pause for it.

Every fault is a SIGKILL of one process, as a crash. ``koord up`` starts it again; where standbys run, one of them
takes over first.
"""

import os
import signal
from typing import NamedTuple

from koord.bus.errors import BusUnavailable
from koord.bus.leaders import stream_leader
from koord.cli.benchmarks.upprocess import UpProcess
from koord.cli.errors import CommandError
from koord.contracts.subjects import Subjects


class Fault(NamedTuple):
    """A kind of fault; ``limit_s`` is the most that its p99 pause in binding may be, 0 where none is set."""

    kind: str
    limit_s: float


FAULTS = {
    fault.kind: fault
    for fault in (
        Fault("gateway", 5.0),
        Fault("scheduler", 5.0),
        Fault("nats", 3.0),
        Fault("redis", 15.0),
        Fault("reconciler", 0.0),
        Fault("queue", 0.0),
        Fault("quota", 0.0),
    )
}


def parse(text: str) -> list[Fault]:
    """The faults named, comma-separated. ValueError names one that is unknown."""
    found: list[Fault] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name not in FAULTS:
            raise ValueError(f"faults: {name!r} is unknown; there are {', '.join(FAULTS)}")
        found.append(FAULTS[name])
    if not found:
        raise ValueError(f"faults: none named; there are {', '.join(FAULTS)}")
    return found


async def target(up: UpProcess, kind: str, turn: int) -> str:
    """The process to kill: a service's leader, Redis, or the NATS server that leads a stream of koord's."""
    if kind == "redis":
        return "redis-server"
    if kind == "nats":
        return await _nats_leader(up, turn)
    return await up.leader(kind, turn)


def kill(up: UpProcess, name: str) -> int:
    """SIGKILL that process; its id."""
    pid = up.file().pids.get(name)
    if pid is None:
        raise CommandError(f"{name}: no such process in the ready file")
    os.kill(pid, signal.SIGKILL)
    return pid


async def _nats_leader(up: UpProcess, turn: int) -> str:
    """Of a single server itself; of several that which leads the decisions, the next time the state."""
    file = up.file()
    if "nats-server" in file.pids:
        return "nats-server"
    subjects = Subjects(file.cluster)
    stream = (subjects.decisions_stream, subjects.state_stream)[turn % 2]
    try:
        leader = await stream_leader(file.nats, stream)
    except BusUnavailable as error:
        raise CommandError(str(error)) from error
    if not leader:
        raise CommandError(f"stream {stream} has no leader")
    return leader
