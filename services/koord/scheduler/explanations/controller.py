"""Fills the status of ScheduleExplanations and deletes those whose time is over (spec 10 sections 2.10 and 7).

Every replica reads them, the one that writes PodGroups answers. A new or changed question is answered within a second,
then looked at again every 15 s, and written when the verdict is another one, or after 45 s in any case. Nothing waits
for results: what was not written is still seen to differ at the next look. Not even the scheduler's start waits for
the kind, so a gateway that does not carry it does no harm.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from koord.bus.decisions import DecisionPublisher
from koord.bus.errors import BusError
from koord.bus.statecache import Change, StateCache
from koord.contracts.codec import ContractError
from koord.contracts.decisions import Decision, Delete, ObjectRef, Patch
from koord.kube.explanations import DEFAULT_TTL, ExplanationStatus, ScheduleExplanation
from koord.kube.meta import now_rfc3339, parse_time, split_key
from koord.kube.protocol.gotext import go_duration
from koord.kube.protocol.trace import TRACEPARENT
from koord.kube.resources import SCHEDULE_EXPLANATIONS
from koord.runtime.host import Host
from koord.scheduler.binds import Binds
from koord.scheduler.explanations.answer import Answers, nothing
from koord.scheduler.explanations.question import Search
from koord.scheduler.notices import Notices
from koord.scheduler.podview import PodView
from koord.scheduler.world import World
from koord.telemetry.context import TraceContext

EVERY_S = 0.5
AGAIN_S = 15.0
HEARTBEAT_S = 44.0
"""So that an unchanged answer is written at every third look, which is more than once a minute."""
MOST_AT_ONCE = 50
"""Questions that are answered in one round; the others wait for the next."""
_PODS_AT_ONCE = 5_000
_INVALID = "InvalidScheduleExplanation"


class ExplanationController:
    """``run`` it as a task once the state is complete; ``leading`` tells whether this replica writes, ``pods`` are all
    pods by ``ns/name``."""

    def __init__(
        self,
        host: Host,
        publisher: DecisionPublisher,
        world: World,
        binds: Binds,
        notices: Notices,
        pods: Mapping[str, PodView],
        leading: Callable[[], bool],
    ) -> None:
        self._host = host
        self._publisher = publisher
        self._gang_of = world.book.of
        self._answers = Answers(world, binds)
        self._notices = notices
        self._pods = pods
        self._leading = leading
        self._due: dict[str, float] = {}
        """When each object is looked at next, in monotonic seconds; the order is that of the looks."""
        self._numbers = 0
        self._cache = StateCache(
            host.bus, SCHEDULE_EXPLANATIONS, ScheduleExplanation, self._on_change, on_bad=self._on_bad
        )

    async def start(self) -> None:
        """Read the questions."""
        await self._cache.start()

    async def close(self) -> None:
        """Read no more."""
        await self._cache.close()

    async def run(self) -> None:
        """Answer whatever is due, for as long as this replica is the one that writes."""
        led = False
        while True:
            await asyncio.sleep(EVERY_S)
            leads = self._leading()
            if leads and not led:
                self._due = dict.fromkeys(self._due, 0.0)
            led = leads
            if leads:
                try:
                    await self._round(time.monotonic())
                except BusError as error:
                    self._host.log.warning("the bus does not take explanations, they wait", error=str(error))

    # In -------------------------------------------------------------------------------------------------------------

    def _on_change(self, change: Change[ScheduleExplanation]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._due.pop(change.key, None)
        elif old is None or (old.metadata.uid, old.spec) != (new.metadata.uid, new.spec):
            self._due.pop(change.key, None)
            self._due[change.key] = 0.0

    def _on_bad(self, key: str, error: ContractError) -> None:
        self._host.log.warning("a ScheduleExplanation does not decode, its last good version stays", key=key)
        namespace, name = split_key(key)
        self._warn(ObjectRef(SCHEDULE_EXPLANATIONS.token, namespace, name), str(error))

    def _warn(self, target: ObjectRef, text: str) -> None:
        if self._leading():
            kind, version = SCHEDULE_EXPLANATIONS.kind, SCHEDULE_EXPLANATIONS.api_version
            self._notices.warn(target, kind, _INVALID, text, api_version=version)

    # Out ------------------------------------------------------------------------------------------------------------

    async def _round(self, now: float) -> None:
        keys = [key for key, due in self._due.items() if due <= now][:MOST_AT_ONCE]
        if not keys:
            return
        decisions: list[tuple[Decision, TraceContext]] = []
        asked: dict[str, str] = {}
        fresh: set[str] = set()
        for key in keys:
            shown = self._cache.items.get(key)
            first = self._due.pop(key) == 0.0
            self._due[key] = now + AGAIN_S
            if shown is None or shown.metadata.deletion_timestamp is not None:
                continue
            if first:
                self._check(shown)
                fresh.add(key)
            if _over(shown, time.time()):
                decisions.append((Delete(self._id(), _target(shown)), _trace(shown)))
            else:
                asked[key] = shown.spec.question_object_key
        found = await self._find({question for question in asked.values() if question})
        for key, question in asked.items():
            await asyncio.sleep(0)
            shown = self._cache.items.get(key)
            if shown is None or shown.spec.question_object_key != question:
                continue
            answer = await self._answer(question, found.get(question, []))
            if answer is None or not (key in fresh or _news(shown, answer, time.time())):
                continue
            answer = msgspec.structs.replace(answer, last_update_time=now_rfc3339(time.time()))
            body = msgspec.json.encode({"status": answer})
            patch = Patch(self._id(), _target(shown), body, subresource="status", lane="event")
            decisions.append((patch, _trace(shown)))
        if decisions:
            await self._publisher.publish_many(decisions)

    async def _find(self, questions: set[str]) -> dict[str, list[PodView]]:
        found = {question: [pod] for question in questions if (pod := self._pods.get(question)) is not None}
        left = questions - found.keys()
        if left:
            search = Search(left, self._gang_of)
            pods = list(self._pods.values())
            for start in range(0, len(pods), _PODS_AT_ONCE):
                search.look(pods[start : start + _PODS_AT_ONCE])
                await asyncio.sleep(0)
            found |= {question: search.pods(question) for question in left}
        return found

    async def _answer(self, question: str, pods: list[PodView]) -> ExplanationStatus | None:
        """None: it cannot be answered; the log says why."""
        if not question:
            return nothing("spec.questionObjectKey: must be a pod's or job's namespace/name, or the id of a gang group")
        if not pods:
            return nothing(f'spec.questionObjectKey: no pod, job or gang group "{question}" is found')
        try:
            return await self._answers.about(pods)
        except Exception:
            self._host.log.exception("a question cannot be answered", question=question)
            return None

    def _check(self, shown: ScheduleExplanation) -> None:
        """Tell what its specification says badly."""
        spec = shown.spec
        if spec.question_object_template is not None:
            self._warn(_target(shown), "spec.questionObjectTemplate: not supported, must be left out")
        try:
            ttl_s(spec.ttl)
        except ValueError as error:
            self._warn(_target(shown), f"spec.ttl: {error}; {DEFAULT_TTL} is used")

    def _id(self) -> str:
        self._numbers += 1
        return f"{self._host.incarnation}-why{self._numbers}"


def ttl_s(text: str) -> float:
    """How long a question lives, in seconds; 0: for ever. ValueError names the rule."""
    nanoseconds = go_duration(text or DEFAULT_TTL)
    if nanoseconds < 0:
        raise ValueError(f'duration "{text}": must not be negative')
    return nanoseconds / 1e9


def _over(shown: ScheduleExplanation, now: float) -> bool:
    """Whether its time is over; ``now`` in seconds since the epoch."""
    try:
        lives_s = ttl_s(shown.spec.ttl)
    except ValueError:
        lives_s = ttl_s(DEFAULT_TTL)
    try:
        return lives_s > 0.0 and parse_time(shown.metadata.creation_timestamp or "") + lives_s <= now
    except ValueError:
        return False


def _news(shown: ScheduleExplanation, answer: ExplanationStatus, now: float) -> bool:
    """Whether the verdict differs from what is shown, or the answer is to be shown again, changed or not; ``now`` in
    seconds since the epoch. Counts of nodes change all the time: they are no reason to write more often."""
    status = shown.status
    written = status.last_update_time
    if not isinstance(written, str):
        return True
    if _verdict(status) != _verdict(answer):
        return True
    try:
        return not 0.0 <= now - parse_time(written) < HEARTBEAT_S
    except ValueError:
        return True


def _verdict(status: ExplanationStatus) -> tuple[object, ...]:
    domains = [
        (domain.topology_domain, domain.schedulable, domain.schedulable_after_preemption)
        for domain in status.detailed_explanation
    ]
    return status.schedulable, status.schedulable_after_preemption, domains


def _target(shown: ScheduleExplanation) -> ObjectRef:
    meta = shown.metadata
    return ObjectRef(SCHEDULE_EXPLANATIONS.token, meta.namespace, meta.name, meta.uid)


def _trace(shown: ScheduleExplanation) -> TraceContext:
    return TraceContext.parse(shown.metadata.annotations.get(TRACEPARENT)) or TraceContext.new(sampled=False)
