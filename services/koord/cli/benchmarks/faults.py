"""What a recovery benchmark kills, and how long binding may pause for it.

Every fault is a SIGKILL of one process, as a crash. ``koord up`` starts it again; where standbys run, one of them
takes over first.
"""

import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from koord.bus.errors import BusUnavailable
from koord.bus.leaders import consumer_leader, stream_leader
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

NATS_ROLES = ("decisions", "state", "consumer", "meta")
"""What a NATS server that is killed leads: the stream of decisions, that of the state, the gateway's consumer, or
JetStream's own bookkeeping."""
_META = re.compile(
    r"\] (\S+ \S+) \[INF\] (?:Self is new JetStream cluster|JetStream cluster new) metadata leader(?:: (\S+?)/)?"
)


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


async def target(up: UpProcess, kind: str, turn: int) -> tuple[str, str]:
    """The process to kill, and what it leads: a service's leader, Redis, or a NATS server that leads something."""
    if kind == "redis":
        return "redis-server", ""
    if kind == "nats":
        return await _nats_leader(up, turn)
    return await up.leader(kind, turn), ""


def kill(up: UpProcess, name: str) -> int:
    """SIGKILL that process; its id."""
    pid = up.file().pids.get(name)
    if pid is None:
        raise CommandError(f"{name}: no such process in the ready file")
    os.kill(pid, signal.SIGKILL)
    return pid


async def _nats_leader(up: UpProcess, turn: int) -> tuple[str, str]:
    """Of a single server itself; of several that which leads one of four groups, another one each time."""
    file = up.file()
    if "nats-server" in file.pids:
        return "nats-server", ""
    role = NATS_ROLES[turn % len(NATS_ROLES)]
    subjects = Subjects(file.cluster)
    try:
        if role == "meta":
            leader = meta_leader(pid for name, pid in file.pids.items() if name.startswith("nats-"))
        elif role == "consumer":
            leader = await consumer_leader(file.nats, subjects.decisions_stream, "gateway")
        else:
            stream = subjects.decisions_stream if role == "decisions" else subjects.state_stream
            leader = await stream_leader(file.nats, stream)
    except BusUnavailable as error:
        raise CommandError(str(error)) from error
    if not leader:
        raise CommandError(f"{role}: no leader")
    return leader, role


def meta_leader(pids: Iterable[int]) -> str:
    """The server that leads JetStream's bookkeeping, by the servers' own logs: clients cannot ask. Empty: not told."""
    told: list[tuple[str, str]] = []
    for pid in pids:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        directory = Path(command[command.index(b"-c") + 1].decode()).parent
        log = (directory / f"{directory.name}.log").read_text(errors="replace")
        told += [(at, name or directory.name) for at, name in _META.findall(log)]
    return max(told)[1] if told else ""
