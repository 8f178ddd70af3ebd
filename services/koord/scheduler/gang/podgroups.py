"""The PodGroup controller (spec 20 section 3.3): writes what became of each gang into its PodGroup's status.

Every replica counts; the one that holds the lease ``podgroups`` writes. A write names the version it was computed from,
so a former leader's is refused by the API server. Phases are derived again on every change.
"""

import asyncio
import contextlib
import time

import msgspec

from koord.bus.decisions import DecisionPublisher
from koord.bus.ending import end
from koord.bus.errors import BusError
from koord.bus.leases import KvLease
from koord.bus.statecache import Change
from koord.contracts.decisions import ObjectRef, Patch
from koord.contracts.results import Result
from koord.kube.groups import PodGroup
from koord.kube.meta import now_rfc3339, parse_time
from koord.kube.protocol.trace import TRACEPARENT
from koord.kube.resources import POD_GROUPS
from koord.runtime.host import Host
from koord.runtime.underway import Pauses, UnderWay, Write
from koord.scheduler import metrics
from koord.scheduler.gang.census import Census
from koord.scheduler.gang.phases import TERMINAL, changes, stale, step
from koord.scheduler.podview import PodView
from koord.telemetry.context import TraceContext

ROLE = "podgroups"
GATHER_S = 0.1
PATIENCE_S = 30.0
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.2, 10.0


class PodGroupController:
    """``run`` it as a task; feed it every change of pods and PodGroups. ``stale_after_s``: see :func:`stale`."""

    def __init__(self, host: Host, publisher: DecisionPublisher, stale_after_s: float = 0.0) -> None:
        self._host = host
        self._publisher = publisher
        self._stale_after_s = stale_after_s
        self._census = Census()
        self._groups: dict[str, PodGroup] = {}
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._writes: UnderWay[Write] = UnderWay(PATIENCE_S)
        self._pauses = Pauses(FIRST_BACKOFF_S, LAST_BACKOFF_S)
        self._numbers = 0
        self._lease: KvLease | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Stand by, and write once this replica leads."""
        self._publisher.on_result(self._on_result)
        self._task = self._host.spawn(self._run(), ROLE)

    async def stop(self) -> None:
        """Write nothing any more and give the lease back."""
        await end(self._task)
        if self._lease is not None:
            await self._lease.release()

    @property
    def leading(self) -> bool:
        """Whether this replica writes."""
        return self._lease is not None and self._lease.held

    def on_nodes(self, id_: str) -> dict[str, str]:
        """Names by uid of a gang's members that have a node and have not ended."""
        return self._census.on_nodes(id_)

    # In -------------------------------------------------------------------------------------------------------------

    def on_pod(self, change: Change[PodView]) -> None:
        """A pod came, changed or went."""
        old, new = change.old, change.new
        touched: tuple[str, ...] = ()
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            touched = self._census.drop(old.metadata.uid)
        if new is not None:
            touched += self._census.put(new)
        for id_ in touched:
            self._touch(id_)

    def on_pod_group(self, change: Change[PodGroup]) -> None:
        """A PodGroup came, changed or went."""
        key = change.key
        self._writes.end(key)
        if change.new is None:
            self._groups.pop(key, None)
            self._pauses.over(key)
            self._dirty.discard(key)
            return
        if change.old is None or change.old.status != change.new.status:
            self._pauses.over(key)
        self._groups[key] = change.new
        self._touch(key)

    def _touch(self, key: str) -> None:
        if key in self._groups:
            self._dirty.add(key)
            self._wake.set()

    def _on_result(self, result: Result) -> None:
        """The state stream tells the good news; the bad is tried again, later each time."""
        write = self._writes.unheard(result.id)
        if write is None or result.outcome == "done":
            return
        self._host.log.info("a PodGroup was not written", key=write.key, outcome=result.outcome, reason=result.reason)
        self._failed(write, again=result.outcome != "gone")

    def _failed(self, write: Write, *, again: bool = True) -> None:
        self._writes.end(write.key)
        if again and write.key in self._groups:
            self._pauses.failed(write.key, time.monotonic())
            self._touch(write.key)

    # Out ------------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            lease = self._lease = self._host.lease(ROLE)
            await lease.acquire()
            self._writes.clear()
            self._dirty.update(self._groups)
            while lease.held:
                await self._write()
                await self._sleep()
            await lease.release()

    async def _sleep(self) -> None:
        """Until something changed or is due; changes come in bursts and are gathered."""
        now = time.monotonic()
        waits = [self._pauses.left_s(key, now) for key in self._dirty if key not in self._writes]
        overdue = self._writes.next_overdue_s()
        wait = min([1.0, *waits, *(() if overdue is None else (overdue - now,))])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(wait, 0.01)):
                await self._wake.wait()
        self._wake.clear()
        await asyncio.sleep(GATHER_S)

    async def _write(self) -> None:
        now = time.monotonic()
        for write in self._writes.overdue(now):  # its result is lost and nothing was seen of it
            self._writes.end(write.key)
            self._touch(write.key)
        patches: list[tuple[Patch, TraceContext]] = []
        for key in list(self._dirty):
            if key in self._writes or self._pauses.left_s(key, now):
                continue
            self._dirty.discard(key)
            patch = self._patch(key)
            if patch is None:
                self._pauses.over(key)
                continue
            self._writes.begin(Write(key, patch.id, now))
            patches.append((patch, self._trace(key)))
        if not patches:
            return
        try:
            await self._publisher.publish_many(patches)
        except BusError as error:
            self._host.log.warning("the bus does not take PodGroup writes, they wait", error=str(error))
            for patch, _ in patches:
                unsent = self._writes.unheard(patch.id)
                if unsent is not None:
                    self._failed(unsent)
        else:
            metrics.pod_group_writes.inc(len(patches))

    def _patch(self, key: str) -> Patch | None:
        group = self._groups.get(key)
        if group is None or group.metadata.deletion_timestamp is not None:
            return None
        status, minimum = group.status, group.spec.min_member
        if status.phase in TERMINAL or stale(minimum, status, _start_after_s(group), self._stale_after_s):
            return None
        wanted = step(minimum, status, self._census.tally(key), self._census.owners(key), now_rfc3339(time.time()))
        body = changes(status, wanted)
        if not body:
            return None
        meta = group.metadata
        target = ObjectRef(POD_GROUPS.token, meta.namespace, meta.name, meta.uid, meta.resource_version)
        self._numbers += 1
        # PodGroup has no status sub-resource: its status is written with the object.
        return Patch(f"{self._host.incarnation}-pg{self._numbers}", target, msgspec.json.encode({"status": body}))

    def _trace(self, key: str) -> TraceContext:
        group = self._groups[key]
        return TraceContext.parse(group.metadata.annotations.get(TRACEPARENT)) or TraceContext.new(sampled=False)


def _start_after_s(group: PodGroup) -> float | None:
    """How long after its creation the PodGroup's scheduling began; None: not known."""
    created, started = group.metadata.creation_timestamp, group.status.schedule_start_time
    if not created or not started:
        return None
    try:
        return parse_time(started) - parse_time(created)
    except ValueError:
        return None
