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
        self._under_way: dict[str, tuple[str, float]] = {}
        self._key_of: dict[str, str] = {}
        self._retry: dict[str, tuple[float, float]] = {}
        """By key: when a write that was not taken is made again, and how long it waited."""
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
        self._forget_write(key)
        if change.new is None:
            self._groups.pop(key, None)
            self._retry.pop(key, None)
            self._dirty.discard(key)
            return
        if change.old is None or change.old.status != change.new.status:
            self._retry.pop(key, None)
        self._groups[key] = change.new
        self._touch(key)

    def _touch(self, key: str) -> None:
        if key in self._groups:
            self._dirty.add(key)
            self._wake.set()

    def _on_result(self, result: Result) -> None:
        """The state stream tells the good news; the bad is tried again, later each time."""
        key = self._key_of.get(result.id)
        if key is None or result.outcome == "done":
            return
        self._forget_write(key)
        self._host.log.info("a PodGroup was not written", key=key, outcome=result.outcome, reason=result.reason)
        if key in self._groups and result.outcome != "gone":
            self._back_off(key)

    def _back_off(self, key: str) -> None:
        _, waited = self._retry.get(key, (0.0, 0.0))
        wait = min(max(FIRST_BACKOFF_S, waited * 2), LAST_BACKOFF_S)
        self._retry[key] = (time.monotonic() + wait, wait)
        self._touch(key)

    def _forget_write(self, key: str) -> None:
        held = self._under_way.pop(key, None)
        if held is not None:
            self._key_of.pop(held[0], None)

    # Out ------------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            lease = self._lease = self._host.lease(ROLE)
            await lease.acquire()
            for key in list(self._under_way):
                self._forget_write(key)
            self._dirty.update(self._groups)
            while lease.held:
                await self._write()
                await self._sleep()
            await lease.release()

    async def _sleep(self) -> None:
        """Until something changed or is due; changes come in bursts and are gathered."""
        now = time.monotonic()
        due = [at for key, (at, _) in self._retry.items() if key in self._dirty and key not in self._under_way]
        due += [at + PATIENCE_S for _, at in self._under_way.values()]
        wait = min([1.0, *(at - now for at in due)])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(wait, 0.01)):
                await self._wake.wait()
        self._wake.clear()
        await asyncio.sleep(GATHER_S)

    async def _write(self) -> None:
        now = time.monotonic()
        for key, (_, since) in list(self._under_way.items()):
            if now - since >= PATIENCE_S:  # its result is lost and nothing was seen of it
                self._forget_write(key)
                self._touch(key)
        patches: list[tuple[Patch, TraceContext]] = []
        for key in list(self._dirty):
            retry_at, _ = self._retry.get(key, (0.0, 0.0))
            if key in self._under_way or retry_at > now:
                continue
            self._dirty.discard(key)
            patch = self._patch(key)
            if patch is None:
                self._retry.pop(key, None)
                continue
            self._under_way[key] = (patch.id, now)
            self._key_of[patch.id] = key
            patches.append((patch, self._trace(key)))
        if not patches:
            return
        try:
            await self._publisher.publish_many(patches)
        except BusError as error:
            self._host.log.warning("the bus does not take PodGroup writes, they wait", error=str(error))
            for patch, _ in patches:
                unsent = self._key_of.get(patch.id)
                if unsent is not None:
                    self._forget_write(unsent)
                    self._back_off(unsent)
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
