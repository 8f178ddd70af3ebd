"""What the scheduler says and nobody waits for: notices as decisions, hints as core messages.

What a connection that is away did not take waits here and goes with the next try, decisions under their own ids. There
is an end to that: of several conditions of one pod only the last stays, then the oldest events go, and a pod whose
condition had to go is told anew with its next attempt. Evictions stay: they are asked for only while the bus is there.
"""

from collections import deque
from collections.abc import Iterable

from koord.bus.connection import Bus
from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.contracts.codec import encode
from koord.contracts.decisions import Decision, Patch, RecordEvents
from koord.contracts.ledger import LedgerHint
from koord.scheduler import metrics
from koord.scheduler.gang.news import GangNews
from koord.scheduler.notices import Notices
from koord.telemetry.logs import Logger
from koord.telemetry.spans import Spans

MOST_DECISIONS = 4096
MOST_HINTS = 4096


class Outgoing:
    """``await send()`` often while ``waiting``."""

    def __init__(
        self, bus: Bus, publisher: DecisionPublisher, notices: Notices, news: GangNews, spans: Spans, log: Logger
    ) -> None:
        self._bus = bus
        self._publisher = publisher
        self._notices = notices
        self._news = news
        self._spans = spans
        self._log = log
        self._decisions: list[Decision] = []
        self._hints: deque[tuple[str, bytes]] = deque(maxlen=MOST_HINTS)

    @property
    def waiting(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._decisions or self._hints or self._notices.waiting or self._news.waiting)

    def add(self, decisions: Iterable[Decision]) -> None:
        """Send these with the next :meth:`send`."""
        self._decisions += decisions

    async def hint(self, hint: LedgerHint) -> None:
        """Tell the others what moved in the ledger, now or as soon as the bus takes it."""
        self._hints.append((self._bus.subjects.ledger(f"claim.{hint.event}"), encode(hint)))
        try:
            await self._send_hints()
        except BusError as error:
            self._log.warning("a ledger hint waits for the bus", error=str(error))

    async def send(self) -> None:
        """Publish what waits. BusError: some of it waits on."""
        for hint in self._news.take():
            self._hints.append((self._bus.subjects.gang(hint.event, hint.namespace, hint.name), encode(hint)))
        await self._send_hints()
        self._decisions += self._notices.take()
        self._bound()
        trace = self._spans.pod_root()
        sending, self._decisions = self._decisions, []
        try:
            await self._publisher.publish_many([(decision, trace) for decision in sending])
        except BusError:
            self._decisions = sending + self._decisions  # evictions may have joined meanwhile
            raise

    async def _send_hints(self) -> None:
        while self._hints:
            subject, body = self._hints.popleft()
            try:
                await self._bus.publish(subject, body)
            except BusError:
                if len(self._hints) < MOST_HINTS:
                    self._hints.appendleft((subject, body))
                raise

    def _bound(self) -> None:
        if len(self._decisions) <= MOST_DECISIONS:
            return
        self._decisions, dropped = bounded(self._decisions, MOST_DECISIONS)
        for decision in dropped:
            metrics.dropped.inc(len(decision.events) if isinstance(decision, RecordEvents) else 1)
            if isinstance(decision, Patch):
                self._notices.forget(decision.target.uid)
        self._log.warning("the bus takes nothing, old notices are dropped", dropped=len(dropped))


def bounded(decisions: list[Decision], most: int) -> tuple[list[Decision], list[Decision]]:
    """What to keep of too many notices, in order, and what went for good.

    Patches of an object that a later one is there for go silently: the later one says it.
    """
    last = {decision.target.uid: decision.id for decision in decisions if isinstance(decision, Patch)}
    kept = [one for one in decisions if not isinstance(one, Patch) or last[one.target.uid] == one.id]
    excess = len(kept) - most
    gone: set[str] = set()
    for expendable in (RecordEvents, Patch):
        for decision in kept:
            if excess > 0 and isinstance(decision, expendable):
                gone.add(decision.id)
                excess -= 1
    return [one for one in kept if one.id not in gone], [one for one in kept if one.id in gone]
