"""Finds a nats-server of a cluster that cannot catch up with the others, and starts it again without what keeps it.

A server that led a stream while it was parted has entries in its raft log that nobody confirmed. When it is back it
takes them off one by one, about 1.5 s each (nats-server 2.15.1, which logs ``Expected first catchup entry to be a
snapshot``), until it is through or the leader has made a snapshot, which takes about two minutes. All that time the
stream has one replica less than it seems to have, and a second loss stops it. A restart does not help, for the log is
on disk. A server that starts with that one log empty is filled by the leader within seconds; the term, the vote and
the messages that it holds stay.

That is safe only while the leader and every other replica have everything, so it is done only then, to one server at a
time, and ever more rarely.
"""

import asyncio
import time
from collections.abc import Sequence

import msgspec

from koord.localcluster.natscluster import NatsCluster
from koord.localcluster.process import LineSink
from koord.localcluster.supervisor import Backoff

BEHIND_S = 20.0
EVERY_S = 5.0
_ANSWER_S = 6.0


class Replica(msgspec.Struct, frozen=True):
    """A replica that does not lead, as its leader sees it; ``lag`` in entries of the raft log."""

    name: str
    current: bool = False
    offline: bool = False
    lag: int = 0


class Group(msgspec.Struct, frozen=True):
    """The raft group of one stream or consumer; ``leader`` empty while it has none."""

    raft_group: str = ""
    leader: str = ""
    replicas: tuple[Replica, ...] = ()


class _StreamName(msgspec.Struct):
    name: str


class _Stream(msgspec.Struct):
    config: _StreamName
    cluster: Group | None = None


class _Consumer(msgspec.Struct):
    cluster: Group | None = None


class _Page(msgspec.Struct):
    """An answer of ``$JS.API.STREAM.LIST`` or ``CONSUMER.LIST``; ``missing`` names those whose leader said nothing."""

    total: int
    streams: tuple[_Stream, ...] = ()
    consumers: tuple[_Consumer, ...] = ()
    missing: tuple[str, ...] = ()


class Standstill:
    """Which servers are behind in which raft groups without coming nearer. Time is passed in, in seconds."""

    def __init__(self, after_s: float = BEHIND_S) -> None:
        self._after_s = after_s
        # By (server, raft group): the lowest lag so far and since when it has not become lower.
        self._behind: dict[tuple[str, str], tuple[int, float]] = {}

    def look(self, now: float, groups: Sequence[Group]) -> dict[str, list[str]]:
        """Take in what the leaders say; the raft groups that stand still, by server.

        A replica that is offline is none of them, and one that is filled comes nearer.
        """
        behind: dict[tuple[str, str], tuple[int, float]] = {}
        for group in groups:
            for replica in group.replicas:
                if replica.current or replica.offline or not replica.lag:
                    continue
                key = (replica.name, group.raft_group)
                lowest, since = self._behind.get(key, (replica.lag, now))
                behind[key] = (replica.lag, now) if replica.lag < lowest else (lowest, since)
        self._behind = behind
        still: dict[str, list[str]] = {}
        for (server, name), (_, since) in behind.items():
            if now - since >= self._after_s:
                still.setdefault(server, []).append(name)
        return still

    def forget(self) -> None:
        """Nothing is known of the time that passed."""
        self._behind.clear()


def can_do_without(server: str, groups: Sequence[Group]) -> bool:
    """Whether of every raft group that ``server`` has a part in all others have everything, and are two at least.

    What it leads it hands over when it ends.
    """
    for group in groups:
        members = {replica.name: replica for replica in group.replicas}
        if server not in members and group.leader != server:
            continue
        others = [replica for name, replica in members.items() if name != server]
        if not group.leader or len(members) < 2 or not all(each.current and not each.offline for each in others):
            return False
    return True


class ReplicaWatch:
    """Looks after a cluster whose servers somebody starts again when they end (a Supervisor)."""

    def __init__(
        self, cluster: NatsCluster, sink: LineSink, *, behind_s: float = BEHIND_S, every_s: float = EVERY_S
    ) -> None:
        self.mended = 0
        self._cluster = cluster
        self._sink = sink
        self._every_s = every_s
        self._behind_s = behind_s
        self._still = Standstill(behind_s)
        self._backoff = Backoff(first_s=6 * every_s, limit_s=600.0, healthy_s=600.0)
        self._not_before = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            groups = await self._groups()
            if groups is None:
                self._still.forget()
                continue
            now = time.monotonic()
            for server, names in self._still.look(now, groups).items():
                if now >= self._not_before and can_do_without(server, groups):
                    await self._mend(server, names, now)
                    break  # the others are judged anew, when this one is back

    async def _mend(self, server: str, names: list[str], now: float) -> None:
        self._sink(
            f"[{server}] has not come nearer to the other NATS servers for {self._behind_s:g} s; it starts again with"
            f" an empty log of {', '.join(names)} and is filled by them"
        )
        self._not_before = now + self._backoff.after(now - self._not_before)
        self._still.forget()
        self.mended += 1
        member = self._cluster.server(server)
        member.forget_logs(names)
        await member.end()

    async def _groups(self) -> list[Group] | None:
        """The raft groups of all replicated streams and consumers; None when not everybody answers."""
        running = [server for server in self._cluster.servers if server.pid is not None]
        if len(running) < self._cluster.size:
            return None
        groups: list[Group] = []
        streams: list[str] = []
        while True:
            page = await self._page("$JS.API.STREAM.LIST", len(streams))
            if page is None:
                return None
            streams += [stream.config.name for stream in page.streams]
            groups += [stream.cluster for stream in page.streams if stream.cluster is not None]
            if len(streams) >= page.total or not page.streams:
                break
        for stream in streams:
            seen = 0
            while True:
                page = await self._page(f"$JS.API.CONSUMER.LIST.{stream}", seen)
                if page is None:
                    return None
                seen += len(page.consumers)
                groups += [consumer.cluster for consumer in page.consumers if consumer.cluster is not None]
                if seen >= page.total or not page.consumers:
                    break
        return [group for group in groups if group.replicas]

    async def _page(self, subject: str, offset: int) -> _Page | None:
        answer = await self._cluster.ask(subject, {"offset": offset}, timeout_s=_ANSWER_S)
        try:
            page = msgspec.convert(answer, _Page)
        except msgspec.ValidationError:  # an error, or a stream that is gone meanwhile
            return None
        return None if page.missing else page
