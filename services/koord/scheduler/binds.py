"""Accepted claims on their way to bound pods: publishing, results, what comes back, what is released."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.contracts.decisions import ObjectRef
from koord.contracts.gang import GangEvent
from koord.contracts.results import Result
from koord.kube.resources import POD_GROUPS
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable, Release
from koord.scheduler import metrics
from koord.scheduler.claiming import Claims
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.flights import Flight, Flights, open_members
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.jobs import metrics as jobs
from koord.scheduler.monitor import Monitor
from koord.scheduler.notices import Notices
from koord.scheduler.podview import PodView
from koord.scheduler.prebinding import Prebinding
from koord.scheduler.queueing.queue import SchedulingQueue
from koord.scheduler.world import World
from koord.telemetry.logs import Logger

LOST = ("claim gone", "epoch")
"""Reasons of results that say nothing about the pod: the claim ended before the gateway came to it."""


class Outside(Protocol):
    """Binds pods instead of the gateway."""

    def takes(self, flight: Flight) -> bool:
        """Whether it binds pods of the flight; then it says by itself what became of them."""
        ...

    def on_result(self, result: Result) -> bool:
        """A result; False if it is none of its decisions."""
        ...

    def settled(self, uid: str) -> None:
        """One of its pods is seen bound, or gone."""
        ...


class Binds:
    """Owns the flights. ``on_unavailable`` is told when the ledger cannot be reached; ``kick`` wakes the loop."""

    def __init__(
        self,
        world: World,
        queue: SchedulingQueue,
        claims: Claims,
        notices: Notices,
        *,
        ledger: Ledger,
        publisher: DecisionPublisher,
        log: Logger,
        scheduled_events: bool,
        kick: Callable[[], None],
        on_gang: Callable[[GangEvent, str, str], None],
        on_unavailable: Callable[[str], None],
        monitor: Monitor,
        expectation: bool = False,
    ) -> None:
        self.flights = Flights()
        self._prebinding = Prebinding(self.flights, publisher, log, expectation=expectation)
        self._world = world
        self._queue = queue
        self._claims = claims
        self._notices = notices
        self._ledger = ledger
        self._publisher = publisher
        self._log = log
        self._scheduled_events = scheduled_events
        self._kick = kick
        self._on_gang = on_gang
        self._on_unavailable = on_unavailable
        self._monitor = monitor
        self._deadlines: dict[str, float] = {}
        self._held_since: dict[str, float] = {}
        self._releases: list[Release] = []
        self.releasing = asyncio.Event()
        self._entered: dict[str, tuple[float, int]] = {}
        self._failures: Counter[str] = Counter()
        self.outside: Outside | None = None
        """Who binds pods that the gateway does not."""

    # Out ------------------------------------------------------------------------------------------------------------

    def hold(self, flight: Flight, since: float, attempts: int) -> None:
        """A claim was accepted: keep it until its pods are seen bound. ``since``, ``attempts``: of its unit."""
        for uid in flight.members:
            self._entered[uid] = (since, attempts)
        self.flights.add(flight)

    def entered(self, uids: Iterable[str], since: float, attempts: int) -> None:
        """Some members of a flight that is held came from another unit than the others."""
        for uid in uids:
            self._entered[uid] = (since, attempts)

    def wait_for_members(self, group: str, deadline: float) -> None:
        """A NonStrict gang group holds room; it gives up at ``deadline`` (the first one counts)."""
        self._deadlines.setdefault(group, deadline)
        self._held_since.setdefault(group, time.monotonic())

    def complete(self, group: str) -> list[Flight]:
        """The group has what it needs: its flights that are to be published now."""
        self._waited(group, "success")
        held = self.flights.held(group)
        for uid in next((flight.members for flight in held), ()):
            self._on_gang("satisfied", uid, "")
            break
        return held

    def publish(self, flight: Flight) -> None:
        """Publish (again) the bind of a flight; what JetStream does not acknowledge is published again later.

        A flight whose plugins want something in the API first is published when that is there.
        """
        if flight.bind is None:
            if flight.outside or not self._prebinding.ready(flight, time.monotonic()):
                return
            if self.outside is not None and self.outside.takes(flight):
                return
            flight.bind = self._claims.bind(flight)
            if flight.group:
                self._world.book.sent(flight.members)
        flight.published_s = time.monotonic()
        try:
            future = self._publisher.send(flight.bind, flight.trace)
        except BusError as error:
            self._unsent(flight, error)
        else:
            future.add_done_callback(lambda done: self._sent(flight, done))

    def waits_for(self, flight: Flight) -> str:
        """The plugin that has to have something in the API before the flight is published; empty: none."""
        return self._prebinding.waits_for(flight)

    def republish(self, now: float) -> int:
        """Publish again the decisions of which nothing was heard; answers how many."""
        overdue = self.flights.overdue(now)
        for flight in overdue:
            self.publish(flight)
        return len(overdue)

    def _sent(self, flight: Flight, future: "asyncio.Future[int]") -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._unsent(flight, error)

    def _unsent(self, flight: Flight, error: BaseException) -> None:
        """The stream does not have the decision for certain: it is published again with the next upkeep."""
        self._log.warning("a bind was not acknowledged by the stream", claim=flight.claim, error=str(error))
        flight.published_s = float("-inf")

    # Back -----------------------------------------------------------------------------------------------------------

    def on_result(self, result: Result) -> None:
        """The gateway's answer to a bind; the state stream tells the good news itself."""
        if self._prebinding.on_result(result) or (self.outside is not None and self.outside.on_result(result)):
            self._kick()
            return
        flight = self.flights.of_claim(result.id)
        if flight is None:
            return
        flight.result_seen = True
        outcomes = {member.uid: member for member in result.members}
        back: list[PodInfo] = []
        now = time.monotonic()
        for pod, _ in list(open_members(flight)):
            member = outcomes.get(pod.uid)
            outcome, reason = (result.outcome, result.reason) if member is None else (member.outcome, member.reason)
            if outcome == "done":
                continue
            self.flights.settle(pod.uid)
            self._world.engine.forget(pod.uid)
            back.append(pod)
            if pod.uid in self._world.pending and not reason.startswith(LOST):
                ref = pod.ref
                text = f"binding {outcome}: {reason}"
                self._notices.failed(ref.uid, ref.namespace, ref.name, text, now, error=True)
        if back:
            self._log.info("a bind was not done", claim=result.id, outcome=result.outcome, reason=result.reason)
            done = [member.uid for member in result.members if member.outcome == "done"]
            if flight.job:
                jobs.bound(len(done), len(back), result.outcome)
            self._tell_partly([pod.uid for pod in back], done, flight)
            self._return(back, now, f"binding {result.outcome}: {result.reason}")

    def _tell_partly(self, refused: list[str], bound: list[str], flight: Flight) -> None:
        """Bound members stay; the missing are planned again, and users are told."""
        for uid, gang, count in self._world.book.not_bound(refused, bound):
            ref = flight.members[uid][0].ref
            text = f"gang {gang.ref.id}: {count} of {gang.ref.min} bound, the missing are tried again"
            target = ObjectRef("pods_core", ref.namespace, ref.name, ref.uid)
            self._notices.warn(target, "Pod", "GangPartiallyBound", text)
            group_uid = self._world.book.pod_group_uids.get(gang.ref.id)
            if group_uid:
                group = ObjectRef(POD_GROUPS.token, gang.ref.namespace, gang.ref.name, group_uid)
                self._notices.warn(
                    group, POD_GROUPS.kind, "GangPartiallyBound", text, api_version=POD_GROUPS.api_version
                )

    def refused_outside(self, flight: Flight, pods: Sequence[PodInfo], why: str) -> None:
        """Whoever else was to bind ``pods`` has not: their room goes back, and they are tried again."""
        now = time.monotonic()
        back = [pod for pod in pods if self.flights.settle(pod.uid) is not None]
        if not back:
            return
        self.release(Release(flight.claim, flight.token, tuple(pod.uid for pod in back)))
        for pod in back:
            self._monitor.ended(pod, flight.began, now)
            self._world.engine.forget(pod.uid)
            if pod.uid in self._world.pending:
                self._notices.failed(pod.uid, pod.ref.namespace, pod.ref.name, why, now, error=True)
        self._log.info("a bind was not done", claim=flight.claim, reason=why)
        self._return(back, now, why)

    def on_bound(self, view: PodView) -> None:
        """The API shows a pod on a node."""
        uid = view.metadata.uid
        entered = self._entered.pop(uid, None)
        self._failures.pop(uid, None)
        flight = self.flights.settle(uid)
        if flight is None:
            return
        now = time.monotonic()
        self._monitor.ended(flight.members[uid][0], flight.began, now)
        if flight.outside and self.outside is not None:
            self.outside.settled(uid)
        if entered is not None:
            since, attempts = entered
            metrics.sli_seconds.labels(str(attempts) if attempts < 15 else "15+").observe(now - since)
        if self._scheduled_events:
            meta = view.metadata
            self._notices.scheduled(uid, meta.namespace, meta.name, view.spec.node_name)
        else:
            self._notices.forget(uid)

    def on_ended(self, uid: str) -> None:
        """A pod is gone: what is claimed for it is given back (refused by the ledger once it is being bound)."""
        self._notices.forget(uid)
        self._entered.pop(uid, None)
        self._failures.pop(uid, None)
        flight = self.flights.settle(uid)
        if flight is not None:
            self.release(Release(flight.claim, flight.token, (uid,)))
            if flight.outside and self.outside is not None:
                self.outside.settled(uid)

    def _return(self, pods: list[PodInfo], now: float, message: str, *, at_once: bool = False) -> None:
        """Members whose bind failed wait again, after backing off (not ``at_once``); their room is free for others."""
        self._world.events.add(ClusterEvent.POD_DELETE)
        self._world.put_back(pods, now)
        for pod in pods:
            self._entered.pop(pod.uid, None)
            if at_once:
                continue
            self._failures[pod.uid] += 1
            unit = self._world.unit_of(pod.uid)
            if unit is not None and unit.state == "active":
                unit.errors = self._failures[pod.uid] - 1
                self._queue.fail(unit, now, message)
        self._kick()

    # Giving up ------------------------------------------------------------------------------------------------------

    def give_up_due(self, now: float) -> None:
        """NonStrict gangs that waited long enough for their missing members give their room back; so does what waited
        for its volumes in vain. What has them by now is published."""
        for flight, failure in self._prebinding.look(now):
            if failure:
                self.release(Release(flight.claim, flight.token))
                if flight.job:
                    jobs.bind_failures.labels("failed", "PreBind").inc(len(flight.open))
                self._back(flight, now, failure, error=True)
            else:
                self.publish(flight)
        for group in [group for group, deadline in self._deadlines.items() if deadline <= now]:
            self.give_up(group, now, f"gang group {group} waited too long for its members")

    def give_up(self, group: str, now: float, why: str) -> None:
        """What is held for a gang group goes back; its members wait again."""
        self._waited(group, "unschedulable")
        for flight in self.flights.held(group):
            self.release(Release(flight.claim, flight.token))
            self._back(flight, now, why)

    def lost(
        self, claims: Iterable[str], now: float, *, uids: Collection[str] | None = None, at_once: bool = False
    ) -> None:
        """Claims that the ledger ended: what was only held under them is planned anew, ``at_once`` or after a wait.

        With ``uids`` only these members ended; a claim that is something in parts goes on without them.
        """
        for claim in claims:
            flight = self.flights.of_claim(claim)
            if flight is not None and flight.bind is None and not flight.outside:
                self._back(flight, now, "the claim ended before the gang was complete", uids=uids, at_once=at_once)
                if not self.flights.held(flight.group):
                    self._waited(flight.group, "unschedulable")

    def older_than(self, epoch: int, now: float) -> None:
        """The ledger is open under another epoch: claims of an older one are void."""
        self.lost([flight.claim for flight in self.flights if flight.epoch < epoch], now)

    def complete_waiting(self, touched: set[str]) -> None:
        """Gang groups that hold room and were ``touched``: publish those whose placed members are enough now."""
        for group in [group for group in self._deadlines if group in touched]:
            if self._world.book.complete(group.split(",")):
                for flight in self.complete(group):
                    self.publish(flight)

    def _back(
        self,
        flight: Flight,
        now: float,
        why: str,
        *,
        uids: Collection[str] | None = None,
        at_once: bool = False,
        error: bool = False,
    ) -> None:
        members = [pod for pod, _ in open_members(flight) if uids is None or pod.uid in uids]
        if not members:
            return
        for pod in members:
            self.flights.settle(pod.uid)
            self._monitor.ended(pod, flight.began, now)
            self._world.engine.forget(pod.uid)
        self._log.info("what was held goes back", group=flight.group, pods=len(members), reason=why)
        for pod in members[:1]:
            self._on_gang("rejected", pod.uid, why)
        for pod in members:
            if pod.uid in self._world.pending:
                self._notices.failed(pod.uid, pod.ref.namespace, pod.ref.name, why, now, error=error)
        self._return(members, now, why, at_once=at_once)

    def _waited(self, group: str, result: str) -> None:
        """A group holds room no longer, or waits no longer."""
        self._deadlines.pop(group, None)
        since = self._held_since.pop(group, None)
        if since is not None:
            metrics.permit_wait_seconds.labels(result).observe(time.monotonic() - since)

    @property
    def next_time(self) -> float | None:
        """When :meth:`give_up_due` has something to do."""
        return min(self._deadlines.values(), default=None)

    def holds(self, group: str) -> bool:
        """Whether room is held for a gang group that waits for members."""
        return group in self._deadlines

    @property
    def waiting_groups(self) -> int:
        """Gang groups that hold room and wait for members."""
        return len(self._deadlines)

    def release(self, item: Release) -> None:
        """Give back with the next :meth:`flush_releases`, which ``releasing`` asks for."""
        self._releases.append(item)
        self.releasing.set()

    def release_held(self) -> None:
        """The service ends: nobody would complete what is only held."""
        for flight in self.flights:
            if flight.bind is None and not flight.outside:
                self.release(Release(flight.claim, flight.token))

    async def flush_releases(self) -> list[str]:
        """Give back what was collected, answering the items that got room.

        A release that fails is made again; if that is not to be, the lease ends the claim.
        """
        self.releasing.clear()
        items, self._releases = self._releases, []
        if not items:
            return []
        try:
            answers = await self._ledger.release(items)
        except LedgerUnavailable as error:
            self._releases = items + self._releases
            self._on_unavailable(f"ledger unavailable: {error}")
            return []
        return sorted({item for answer in answers for item in answer.items})
