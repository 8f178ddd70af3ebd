"""The quota service: changes of quotas, nodes, pods, QueueUnits and Queues in, limits and decisions out. Wiring only.

One instance leads: it alone writes limits to the ledger (fenced by its role's epoch there) and objects. What it writes
where goes on in tasks of its own, so that a slow bus does not hold up limits, nor a slow ledger the objects.
"""

import asyncio
import contextlib
import time
from typing import Any

from koord.bus.decisions import DecisionPublisher
from koord.bus.statecache import StateCache
from koord.quota import metrics
from koord.quota.chores import Chores
from koord.quota.inputs import Inputs
from koord.quota.keeper import Keeper
from koord.quota.limitwriter import LimitWriter
from koord.quota.profiles import Profiles
from koord.quota.publishing import Publishing
from koord.quota.settings import QuotaSettings
from koord.runtime.ending import cancelled, end
from koord.runtime.freshness import FreezeGuard
from koord.runtime.host import Host
from koord.runtime.service import ServiceSpec

FILL_S = 0.1
"""Runtimes are computed at most this often, and at once when nothing changed for so long before."""
REST = 3.0
"""After a computation that takes long, in a tree of thousands of contended quotas, so many times its time is rested."""
GATHER_S = 0.005
"""Changes come in bursts: so long is waited for the rest of one."""
PERIOD_S = 1.0
"""Objects are written at most this often."""
STANDBY_S = 10.0
"""A standby forgets so often what changed: whoever begins to lead looks at everything."""
PUBLISH_PER_QUOTA_S = 0.0001
"""Sums and messages cost time in proportion to the tree: a tree of 10,000 quotas is published once a second."""


class QuotaService:
    """Runs the :class:`Keeper` on the bus and the ledger."""

    def __init__(self, host: Host, settings: QuotaSettings) -> None:
        self._host = host
        self._settings = settings
        self._keeper = Keeper(settings.rules())
        self._keeper.tree.default = not host.common.disable_default_quota
        self._freeze = FreezeGuard(host.bus, settings.freeze_interval_s) if settings.revokes else None
        self._publisher = DecisionPublisher(host.bus, "quota")
        self._limits = LimitWriter(self._keeper, host.bus, host.ledger, host.log)
        self._changed = asyncio.Event()
        self._filled = asyncio.Event()
        profiles = Profiles()
        self._publishing = Publishing(self._keeper.showing, host.bus, host.log, self._filled.set)
        self._chores = Chores(host, settings, self._keeper, profiles, self._publisher)
        self._inputs = Inputs(
            host.bus,
            self._keeper,
            profiles,
            host.log,
            changed=self._changed.set,
            seen=self._chores.seen,
            bad_profile=self._chores.bad_profile,
        )

    @property
    def _caches(self) -> tuple[StateCache[Any], ...]:
        return self._inputs.caches

    async def start(self) -> None:
        """Read the state, then lead. Ready once the state is complete: a standby is ready, too."""
        self._host.ready.require("synced")
        await self._inputs.start()
        await self._host.bus.subscribe(self._host.bus.subjects.ledger("epoch"), self._on_epoch)
        self._host.spawn(self._run(), "quota")

    async def drain(self) -> None:
        """Nothing is in flight that would have to be finished: the next leader computes the same."""
        self._publisher.close()
        if self._freeze is not None:
            self._freeze.close()
        await self._inputs.close()

    async def _run(self) -> None:
        await self._inputs.synced()
        self._host.ready.open("synced")
        while not cancelled():
            standing_by = self._host.spawn(self._stand_by(), "quota-standby")
            leadership = await self._host.lead("quota")
            await end(standing_by)
            self._keeper.begin(time.monotonic())  # the first limits are those of the whole picture
            self._limits.wake()
            metrics.STATUS.source = lambda: self._keeper.showing.status(self._settings.status_metrics)
            beside = [
                self._host.spawn(self._limits.run(leadership.epoch), "quota-limits"),
                self._host.spawn(self._keep_filled(), "quota-runtime"),
                self._host.spawn(self._keep_published(), "quota-published"),
            ]
            while leadership.held and not cancelled():
                begun = time.monotonic()
                await self._tick()
                await asyncio.sleep(max(0.05, PERIOD_S - (time.monotonic() - begun)))
            await end(*beside)
            metrics.STATUS.source = None
            self._publishing.rest()
            self._host.log.warning("the lease was lost, standing by", role="quota")

    async def _stand_by(self) -> None:
        while not cancelled():
            self._keeper.rest()
            await asyncio.sleep(STANDBY_S)

    async def _keep_filled(self) -> None:
        """Compute, soon after anything changed, what every quota may use; have it written and published."""
        while not cancelled():
            due = self._keeper.due_s
            wait = PERIOD_S if due is None else max(0.0, min(PERIOD_S, due - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            self._changed.clear()
            begun = time.monotonic()
            self._fill()
            filled_s = time.monotonic() - begun
            self._filled.set()
            await asyncio.sleep(max(0.0, FILL_S - filled_s, REST * filled_s))

    def _fill(self) -> None:
        begun = time.perf_counter()
        if self._keeper.fill(time.monotonic()):
            metrics.FILL.observe(time.perf_counter() - begun)
        if self._keeper.limits_dirty or self._keeper.closed:
            self._limits.wake()

    async def _keep_published(self) -> None:
        """Sums and runtimes to whom it may concern."""
        while not cancelled():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):
                    await self._filled.wait()
            self._filled.clear()
            await self._publishing.due()
            self._publishing.look(pending=self._keeper.pending)
            await asyncio.sleep(max(GATHER_S, len(self._keeper.tree) * PUBLISH_PER_QUOTA_S))

    async def _tick(self) -> None:
        complete = self._freeze is not None and not self._freeze.frozen and self._inputs.complete
        await self._chores.do(self._inputs.namespaces.items, self._inputs.pods.items if complete else None)
        metrics.QUOTAS.set(len(self._keeper.tree))
        metrics.PODS.set(len(self._keeper.usage))

    async def _on_epoch(self, message: object) -> None:
        self._keeper.all_limits_dirty()
        self._limits.wake()


def _build(host: Host, settings: QuotaSettings) -> QuotaService:
    return QuotaService(host, settings)


SPEC = ServiceSpec(
    name="quota",
    summary="elastic quota trees: limits to the ledger, used and request back to the objects",
    settings=QuotaSettings,
    build=_build,
    needs=frozenset(("bus", "ledger")),
)
