"""No news is not bad news: the guard that freezes controllers while what they know of the nodes is stale.

Rule 6 of the design (section 1). A bus that is away looks exactly like a cluster whose nodes have all died, and a
controller that acts on it evicts pods of a healthy cluster. So whoever takes something away from a workload (quota
revocation, descheduler, overcommit controller) asks the guard first, and while ``frozen`` holds keeps what it published
last, deschedules and evicts nothing. A value that is missing never evicts, frozen or not: ``fresh(node)`` must be true
before a node's values may be used against anybody.

:class:`Freshness` is the pure core: it is told of reports and of the bus and has no clock of its own. It holds one
float per node in NumPy; a report costs one store, a judgement one comparison over all nodes and is made at most ten
times per report interval. :class:`FreezeGuard` ties it to a bus, the clock, the log and the metrics.

Promised: frozen while the bus is away; for two report intervals after it came back or after the guard was made (until
then nobody knows which nodes still live); and while more than 20 % of the known nodes' reports are stale, that is older
than ``stale_after`` report intervals. Not promised: that a single dead node is noticed here (that is the API's node
condition), or that an unfrozen guard means every value is fresh.
"""

import time
from collections.abc import Callable
from typing import Literal

import numpy as np

from koord.bus.connection import Bus
from koord.telemetry.logs import get_logger
from koord.telemetry.metrics import gauge

log = get_logger("koord.runtime")

Reason = Literal["", "bus", "recovering", "stale"]
REASONS: tuple[Reason, ...] = ("bus", "recovering", "stale")

STALE_SHARE = 0.2
SETTLE_INTERVALS = 2.0
# A report that is late by less than this many intervals is no sign of anything: koordlets report with jitter.
STALE_AFTER = 2.0
_JUDGEMENTS_PER_INTERVAL = 10.0
_FIRST_ROWS = 1024

_frozen = gauge("koord_frozen", "1 while controllers are frozen for this reason", ("reason",))
_stale = gauge("koord_stale_nodes_ratio", "Share of the known nodes whose reports are stale")


class Freshness:
    """Which nodes' reports are fresh, and whether to freeze. Times are seconds of one clock, passed in, never falling.

    ``interval_s`` is the report interval. ``stale_after`` in intervals says when a report is stale, ``share`` which
    part of the nodes may be. ValueError for an interval that is not positive or a share outside 0..1.
    """

    def __init__(
        self, interval_s: float, now: float, *, share: float = STALE_SHARE, stale_after: float = STALE_AFTER
    ) -> None:
        if not interval_s > 0:
            raise ValueError(f"report interval {interval_s!r}: must be more than 0 seconds")
        if not 0 <= share <= 1:
            raise ValueError(f"share of stale nodes {share!r}: must be between 0 and 1")
        self.interval_s = interval_s
        self._share = share
        self._stale_s = stale_after * interval_s
        self._settled_at = now + SETTLE_INTERVALS * interval_s
        self._away = False
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        # When each row's node reported last; NaN where no node lives, which no comparison counts.
        self._at = np.full(_FIRST_ROWS, np.nan)
        self._judged_at = -np.inf
        self._ratio = 0.0

    def __len__(self) -> int:
        return len(self._rows)

    def known(self, node: str, now: float) -> None:
        """The node exists. Its first report is due as if it had reported now."""
        if node not in self._rows:
            row = self._row(node)
            self._at[row] = now

    def report(self, node: str, at: float) -> None:
        """The node reported at ``at`` (by this process' clock); an older report than the last changes nothing."""
        row = self._rows.get(node)
        if row is None:
            row = self._row(node)
            self._at[row] = at
        elif at > self._at[row]:
            self._at[row] = at

    def forget(self, node: str) -> None:
        """The node is gone from the cluster (the API says so): it does not count as stale any more."""
        row = self._rows.pop(node, None)
        if row is not None:
            self._at[row] = np.nan
            self._free.append(row)
            self._judged_at = -np.inf

    def bus_lost(self) -> None:
        """No reports can arrive from now on."""
        self._away = True

    def bus_recovered(self, now: float) -> None:
        """Reports arrive again: two intervals until each node had its chance."""
        self._away = False
        self._settled_at = now + SETTLE_INTERVALS * self.interval_s

    def fresh(self, node: str, now: float) -> bool:
        """Whether the node's last report may be believed. False for a node that never reported: a missing value."""
        row = self._rows.get(node)
        return row is not None and bool(now - self._at[row] <= self._stale_s)

    def stale_ratio(self, now: float) -> float:
        """The share of the known nodes whose reports are stale, judged at most ten times per interval; 0 of none."""
        if now - self._judged_at >= self.interval_s / _JUDGEMENTS_PER_INTERVAL:
            self._judged_at = now
            stale = np.count_nonzero(self._at < now - self._stale_s)
            self._ratio = float(stale) / len(self._rows) if self._rows else 0.0
        return self._ratio

    def reason(self, now: float) -> Reason:
        """Why to freeze: the bus is away; it (or we) came back less than two intervals ago; too much is stale; ""."""
        if self._away:
            return "bus"
        if now < self._settled_at:
            return "recovering"
        return "stale" if self.stale_ratio(now) > self._share else ""

    def _row(self, node: str) -> int:
        """A row for a new node; may replace the array, so ask before indexing it."""
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._rows)
            if row == len(self._at):
                self._at = np.concatenate((self._at, np.full(row, np.nan)))
        self._rows[node] = row
        return row


class FreezeGuard:
    """The guard of one process: ``freshness`` on the bus' hooks and the clock, told to log, metrics and ``on_change``.

    Whoever consumes reports calls ``reported`` for each and ``forget`` for a node that left. ``reason`` judges; call
    it (or ``frozen``) before each act and once per round at the least, for the log tells a change when it is judged.
    """

    def __init__(
        self,
        bus: Bus,
        interval_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[Reason], None] | None = None,
    ) -> None:
        self._clock = clock
        self._on_change = on_change
        self._told: Reason = ""
        self._since = clock()
        self._open = True
        self._starting = bus.connected
        self.freshness = Freshness(interval_s, clock())
        if not bus.connected:
            self.freshness.bus_lost()
        bus.on_disconnect(self._lost)
        self._off = bus.on_reconnect(self._recovered)
        self._judge()

    @property
    def frozen(self) -> bool:
        """Whether to keep what was published last and to take nothing from anybody."""
        return self._judge() != ""

    @property
    def reason(self) -> Reason:
        """Why, or ""."""
        return self._judge()

    def known(self, node: str) -> None:
        """A node that exists, report or not."""
        self.freshness.known(node, self._clock())

    def reported(self, node: str, age_s: float = 0.0) -> None:
        """A node's report arrived; ``age_s`` is how old it was then (a stored one that a replay brought)."""
        self.freshness.report(node, self._clock() - max(0.0, age_s))

    def forget(self, node: str) -> None:
        """A node that the API no longer has."""
        self.freshness.forget(node)

    def fresh(self, node: str) -> bool:
        """Whether the node's values may be used against its pods."""
        return self.freshness.fresh(node, self._clock())

    def close(self) -> None:
        """Judge no more."""
        self._open = False
        self._off()
        for name in REASONS:
            _frozen.labels(name).set(0)

    def _lost(self) -> None:
        self._starting = False
        self.freshness.bus_lost()
        self._judge()

    async def _recovered(self) -> None:
        self.freshness.bus_recovered(self._clock())
        self._judge()

    def _judge(self) -> Reason:
        now = self._clock()
        reason = self.freshness.reason(now)
        _stale.set(self.freshness.stale_ratio(now))
        if reason != self._told and self._open:
            self._tell(reason, now)
        return reason

    def _tell(self, reason: Reason, now: float) -> None:
        before, self._told = self._told, reason
        for name in REASONS:
            _frozen.labels(name).set(name == reason)
        # A guard that has just been made is no alarm; everything else that freezes the cluster is.
        tell = log.info if self._starting else log.error
        facts = {"nodes": len(self.freshness), "stale_ratio": round(self.freshness.stale_ratio(now), 3)}
        if reason:
            tell("controllers are frozen", reason=reason, before=before or "not frozen", **facts)
        else:
            tell("controllers go on", before=before, frozen_s=round(now - self._since, 1), **facts)
            self._starting = False
        if not before:
            self._since = now
        if self._on_change is not None:
            self._on_change(reason)
