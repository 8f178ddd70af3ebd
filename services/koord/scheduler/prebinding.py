"""Between claim and Binding: what plugins want in the API first is written, and waited for (spec 10 3.3, PreBind).

A flight whose pods have nothing to wait for goes at once. The others stay held, as those of a gang that waits for
members; their leases are renewed as long as this replica lives. When all is there they are published, when something
fails their room goes back.

While pods wait so, ``status.nominatedNodeName`` says where they will be (upstream's NominatedNodeNameForExpectation):
whoever adds nodes sees that this one is not needed for others, and a scheduler that takes over tries that node first.
Pods that need not wait are bound at once and nothing is written for them: the ledger has their room.
"""

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator

import msgspec

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.contracts.decisions import ObjectRef, Patch
from koord.contracts.results import Result
from koord.kube.resources import PODS
from koord.scheduler.flights import Flight, Flights, open_members
from koord.scheduler.framework.contract import PluginError, PreBind, PreBindPlugin, Write
from koord.scheduler.framework.profile import Profile
from koord.telemetry.logs import Logger

LOOK_EVERY_S = 0.05
REPUBLISH_S = 30.0


class _Entry(msgspec.Struct, eq=False):
    """A flight that waits. ``writes``: decisions without a result, with when they were published last."""

    flight: Flight
    waiting: list[tuple[PreBindPlugin, str]]
    writes: dict[str, Patch]
    deadline: float
    published: float
    culprit: str
    failure: str = ""
    written: int = 0
    expected: frozenset[str] = frozenset()


class Prebinding:
    """``ready`` is asked before a flight is published; ``look`` tells flights that became ready, or failed."""

    def __init__(
        self, flights: Flights, publisher: DecisionPublisher, log: Logger, *, expectation: bool = False
    ) -> None:
        self._flights = flights
        self._publisher = publisher
        self._log = log
        self._expectation = expectation
        self._entries: dict[str, _Entry] = {}
        self._of_decision: dict[str, _Entry] = {}
        self._done: set[str] = set()
        self._plugins: dict[int, tuple[Profile, tuple[PreBindPlugin, ...]]] = {}
        self._looked = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def waits_for(self, flight: Flight) -> str:
        """The plugin that the flight waits for; empty: none."""
        entry = self._entries.get(flight.claim)
        return "" if entry is None else entry.culprit

    def ready(self, flight: Flight, now: float) -> bool:
        """Whether the flight can be published now; if not, what it needs is under way from here on.

        One whose plugins refuse at once is told as failed by the next :meth:`look`.
        """
        if flight.claim in self._entries:
            return False
        if flight.claim in self._done:
            self._done.discard(flight.claim)
            return True
        waiting: list[tuple[PreBindPlugin, str]] = []
        writes: list[Write] = []
        deadline, culprit, failure = now, "", ""
        for pod, placed in open_members(flight):
            for plugin in self._of(pod.class_.profile):
                try:
                    wanted = plugin.prebind(pod.ref, placed.node)
                except Exception as error:
                    wanted = str(PluginError(plugin.name, "PreBind", error))
                if wanted is None:
                    continue
                culprit = plugin.name
                if isinstance(wanted, str):
                    failure = failure or _text(plugin.name, wanted)
                    continue
                waiting.append((plugin, pod.uid))
                writes += wanted.writes
                deadline = max(deadline, now + wanted.timeout_s)
        if not waiting and not failure:
            return True
        entry = _Entry(flight, waiting, {}, deadline, now, culprit, failure)
        self._entries[flight.claim] = entry
        if not failure:
            self._expect(entry, {uid for _, uid in waiting})
            self._write(entry, writes, now)
        return False

    def look(self, now: float) -> Iterator[tuple[Flight, str]]:
        """Flights that need not wait any longer, with why they failed (empty: they can be published). Seldom, cheap."""
        if not self._entries or now - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        for claim, entry in list(self._entries.items()):
            if self._flights.of_claim(claim) is not entry.flight or entry.flight.bind is not None:
                self._drop(entry)
                continue
            failure = entry.failure or self._judge(entry, now)
            if not failure and entry.waiting:
                if now >= entry.deadline:
                    failure = _text(entry.culprit, "not done in time")
                elif entry.writes and now - entry.published >= REPUBLISH_S:
                    self._publish(entry, entry.writes.values(), now)
                    continue
                else:
                    continue
            self._drop(entry)
            if not failure:
                self._done.add(claim)
            else:
                self._expect(entry, entry.expected, ended=True)
            yield entry.flight, failure

    def on_result(self, result: Result) -> bool:
        """What became of a write; False if it is none of ours."""
        entry = self._of_decision.pop(result.id, None)
        if entry is None:
            return False
        entry.writes.pop(result.id, None)
        if result.outcome != "done" and not entry.failure:
            entry.failure = _text(entry.culprit, f"{result.outcome}: {result.reason}")
        return True

    def _expect(self, entry: _Entry, uids: Collection[str], *, ended: bool = False) -> None:
        """Say where pods will be, or (``ended``) that they will not. Nothing waits for it or fails by it."""
        if not self._expectation:
            return
        for pod, placed in open_members(entry.flight):
            if pod.uid not in uids:
                continue
            body = json.dumps({"status": {"nominatedNodeName": None if ended else placed.node}}).encode()
            target = ObjectRef(PODS.token, pod.ref.namespace, pod.ref.name, pod.uid)
            what = "unexpected" if ended else "expected"
            decision = Patch(f"{entry.flight.claim}-{what}-{pod.uid}", target, body, subresource="status")
            try:
                future = self._publisher.send(decision, entry.flight.trace)
            except BusError as error:
                self._log.warning("where a pod will be is not told", pod=pod.uid, error=str(error))
            else:
                future.add_done_callback(_heard)
        if not ended:
            entry.expected = frozenset(uids)

    def _write(self, entry: _Entry, writes: Iterable[Write], now: float) -> None:
        made: list[Patch] = []
        for write in writes:
            decision = patch_of(f"{entry.flight.claim}-prebind-{entry.written}", write)
            entry.written += 1
            entry.writes[decision.id] = decision
            self._of_decision[decision.id] = entry
            made.append(decision)
        self._publish(entry, made, now)

    def _judge(self, entry: _Entry, now: float) -> str:
        """Ask about those that wait; members that went in the meantime need nothing any more."""
        left: list[tuple[PreBindPlugin, str]] = []
        for plugin, uid in entry.waiting:
            if uid not in entry.flight.open:
                continue
            try:
                answer = plugin.prebound(uid)
            except Exception as error:
                return str(PluginError(plugin.name, "PreBind", error))
            if isinstance(answer, str):
                return _text(plugin.name, answer)
            if isinstance(answer, PreBind):
                self._write(entry, answer.writes, now)
                entry.deadline = max(entry.deadline, now + answer.timeout_s)
            if answer is not True:
                left.append((plugin, uid))
        entry.waiting = left
        return ""

    def _publish(self, entry: _Entry, decisions: Iterable[Patch], now: float) -> None:
        """Again is no harm: each write carries its preconditions, and counts as done if it is there."""
        entry.published = now
        for decision in decisions:
            try:
                future = self._publisher.send(decision, entry.flight.trace)
            except BusError as error:
                self._unsent(entry, error)
            else:
                future.add_done_callback(lambda done: self._sent(entry, done))

    def _sent(self, entry: _Entry, future: "asyncio.Future[int]") -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._unsent(entry, error)

    def _unsent(self, entry: _Entry, error: BaseException) -> None:
        self._log.warning("a write before a bind waits for the bus", claim=entry.flight.claim, error=str(error))
        entry.published = float("-inf")

    def _drop(self, entry: _Entry) -> None:
        self._entries.pop(entry.flight.claim, None)
        for id_ in entry.writes:
            self._of_decision.pop(id_, None)

    def _of(self, profile: Profile) -> tuple[PreBindPlugin, ...]:
        found = self._plugins.get(id(profile))
        if found is None:
            plugins = tuple(plugin for plugin in profile.plugins if isinstance(plugin, PreBindPlugin))
            found = self._plugins[id(profile)] = (profile, plugins)
        return found[1]


def patch_of(id_: str, write: Write) -> Patch:
    """The decision that asks for a write of a plugin."""
    target = ObjectRef(write.resource.token, write.namespace, write.name, write.uid, write.resource_version)
    return Patch(id_, target, write.body, subresource=write.subresource, lane="bind")


def _heard(future: "asyncio.Future[int]") -> None:
    """Whatever came of it."""
    if not future.cancelled():
        future.exception()


def _text(plugin: str, why: str) -> str:
    return f'running PreBind plugin "{plugin}": {why}'
