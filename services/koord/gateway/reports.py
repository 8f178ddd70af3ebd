"""Reports: patches of which only the newest of an object counts, such as the usage of nodes (lane ``metric``).

Thousands of nodes report each minute. In the lanes such patches would fill the backlog while a server throttles, and
binds could not be pulled from the queue any more. So they wait here, one per object: a newer one takes the place of the
one that waits. They are written while the API server keeps up with binds and status writes, or when they have waited
long enough; what does not fit or cannot be written is dropped and told, the next report comes soon.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from koord.contracts.decisions import Patch
from koord.contracts.results import Result
from koord.gateway import metrics
from koord.gateway.allow import Rejected, describe
from koord.gateway.api import ApiUnavailable
from koord.gateway.lanes import Key
from koord.gateway.leanclient import RequestFailed
from koord.telemetry.context import TraceContext
from koord.telemetry.logs import get_logger

YIELD_S = 2.0
"""A report gives way so long to what is more urgent; then connections and 429s alone bound it."""
WRITERS = 16
PER_S = 300.0
"""Reports begun each second at most: a cluster whose nodes all report at once is spread."""
_LOOK_S = 0.025

log = get_logger("koord.gateway.reports")


class Report:
    """One patch that waits, and what is needed to answer for it. ``ended`` is called once, with its result."""

    __slots__ = ("decision", "ended", "service", "since_ns", "since_s", "trace")

    def __init__(
        self,
        decision: Patch,
        service: str,
        trace: TraceContext | None,
        ended: "Callable[[Report, Result], None]",
    ) -> None:
        self.decision = decision
        self.service = service
        self.trace = trace
        self.ended = ended
        self.since_s = time.monotonic()
        self.since_ns = time.time_ns()


class ReportWriter:
    """Writes reports by ``write``, of at most ``backlog`` objects. ``busy`` says whether others need the API."""

    def __init__(
        self,
        write: Callable[[Patch, str], Awaitable[Result]],
        busy: Callable[[], bool],
        *,
        backlog: int = 20_000,
        per_s: float = PER_S,
    ) -> None:
        self._write = write
        self._busy = busy
        self._backlog = backlog
        self._pause_s = 1.0 / per_s
        self._pending: OrderedDict[Key, Report] = OrderedDict()
        self._writing: set[Key] = set()
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()

    @property
    def depth(self) -> int:
        """Objects of which a report waits."""
        return len(self._pending)

    def add(self, report: Report) -> None:
        """Take one report. The object keeps its place in the line, so that one that reports often is written, too."""
        target = report.decision.target
        # Parts of one object are told apart: a patch of the status does not replace one of the spec.
        key = (target.resource, target.namespace, f"{target.name}/{report.decision.subresource}")
        older = self._pending.get(key)
        if older is None and len(self._pending) >= self._backlog:
            self._drop(report, "backlog", f"{len(self._pending)} reports wait already")
            return
        self._pending[key] = report
        self._wake.set()
        if older is None:
            return
        if older.decision.id == report.decision.id:
            return  # the same once more
        report.since_s = older.since_s  # it has given way long enough for both
        self._drop(older, "superseded", f"superseded by {report.decision.id}")

    async def run(self) -> None:
        """Write until cancelled; several at a time, for one that a throttled server puts off takes seconds."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._writer())

    async def _writer(self) -> None:
        while True:
            async with self._turn:
                key, report = await self._next()
                self._writing.add(key)
                await asyncio.sleep(self._pause_s)
            try:
                await self._one(report)
            finally:
                self._writing.discard(key)
                self._wake.set()

    async def _one(self, report: Report) -> None:
        decision = report.decision
        try:
            result = await self._write(decision, report.service)
        except Rejected as error:
            metrics.REJECTED.labels(error.rule).inc()
            result = Result(decision.id, "rejected", str(error))
        except (ApiUnavailable, RequestFailed) as error:
            self._drop(report, "unavailable", str(error))
            return
        except Exception as error:
            log.exception("a report failed", decision=decision.id)
            result = Result(decision.id, "rejected", f"internal error: {type(error).__name__}: {error}")
        report.ended(report, result)

    async def _next(self) -> tuple[Key, Report]:
        """The report that waits longest and whose object is not being written, when its turn has come."""
        while True:
            self._wake.clear()
            key = next((key for key in self._pending if key not in self._writing), None)
            if key is None:
                await self._wake.wait()
            elif self._busy() and time.monotonic() - self._pending[key].since_s < YIELD_S:
                await asyncio.sleep(_LOOK_S)
            else:
                return key, self._pending.pop(key)

    def _drop(self, report: Report, reason: str, why: str) -> None:
        metrics.REPORTS_DROPPED.labels(reason).inc()
        text = f"{describe(report.decision.target)}: not written: {why}"
        report.ended(report, Result(report.decision.id, "conflict", text))
