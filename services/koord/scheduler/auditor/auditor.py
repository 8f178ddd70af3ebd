"""The records of all workloads that wait, fed by queue, planner, preemption and binds (spec 10 section 3.9).

A workload is a pod, or a gang group. Its record begins with its first event here and ends when it is scheduled or
deleted, so there are no more records than pods that wait. A replica knows only of its share; what it takes over from
another one begins anew. While the auditor is off there is none, and nobody is asked.
"""

import time
from collections.abc import Iterable

from koord.scheduler.auditor.measures import Measures
from koord.scheduler.auditor.record import Event, Record
from koord.scheduler.auditor.settings import AuditorSettings
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.gang.book import GangBook
from koord.telemetry.logs import Logger

ADMISSION = "ScheduleAdmission"
"""The plugin whose gate is the queue's admission."""


class Auditor:
    """Times are monotonic seconds."""

    def __init__(self, settings: AuditorSettings, book: GangBook, log: Logger) -> None:
        self._settings = settings
        self._book = book
        self._log = log
        self._measures = Measures(tuple(settings.metric_labels))
        self._keys = tuple(settings.metric_labels.values())
        self.records: dict[str, Record] = {}
        self._key_of: dict[str, str] = {}
        self._members: dict[str, set[str]] = {}
        self._gated: set[str] = set()
        self._ready: set[str] = set()
        """Gang groups that are together."""
        self._diagnosed: set[str] = set()
        """Keys of workloads of whose attempt the preemption said what became of it."""
        self._victims: dict[str, set[str]] = {}
        """Victims that are not gone, by the key of the workload that they go for."""
        self._goes_for: dict[str, set[str]] = {}

    # What happens ---------------------------------------------------------------------------------------------------

    def queued(self, pod: PodInfo, held_by: str, now: float) -> None:
        """A pod was put into the queue of this replica, or stays held there by a plugin."""
        key = self._know(pod)
        record = self.records.get(key)
        if record is None:
            record = self._record(key, pod)
            self._add(record, Event.CREATE, now)
        if held_by == ADMISSION:
            if key not in self._gated:
                self._gated.add(key)
                self._add(record, Event.GATED, now)
        elif not held_by and key in self._gated:
            self._gated.discard(key)
            self._add(record, Event.ADMITTED, now)

    def gang_ready(self, pod: PodInfo, now: float) -> None:
        """The gang group of a pod is together."""
        key = self._know(pod)
        if key not in self._ready:
            self._ready.add(key)
            self._add(self._record(key, pod), Event.GANG_SATISFIED, now)

    def gang_apart(self, pod: PodInfo) -> None:
        """It is not together any more."""
        self._ready.discard(self._know(pod))

    def preempted(self, pod: PodInfo, victims: Iterable[str], now: float) -> None:
        """Victims (uids) are to go for a pod."""
        key = self._diagnose(pod)
        waited = self._victims.setdefault(key, set())
        for uid in waited:
            self._goes_for[uid].discard(key)
        self._victims[key] = set(victims)
        for uid in self._victims[key]:
            self._goes_for.setdefault(uid, set()).add(key)
        self._add(self._record(key, pod), Event.NOMINATED, now)
        if not self._victims[key]:
            self._cleared(key, now)

    def victims_going(self, pod: PodInfo, now: float) -> None:
        """A pod was tried while its victims are going."""
        self._add(self._record(self._diagnose(pod), pod), Event.VICTIM_DELETING, now)

    def preemption_failed(self, pod: PodInfo, now: float) -> None:
        """Nobody can go for a pod."""
        self._add(self._record(self._diagnose(pod), pod), Event.PREEMPT_FAILURE, now)

    def refused(self, pods: Iterable[tuple[PodInfo, Diagnosis]], now: float, *, gang: bool) -> None:
        """Pods of one unit found no place; of a ``gang`` group all that wait were tried."""
        first = next((pod for pod, _ in pods), None)
        if first is None:
            return
        key = self._know(first)
        record = self._record(key, first)
        if gang:
            self._add(record, Event.GANG_ATTEMPTED, now)
        if key in self._diagnosed:
            self._diagnosed.discard(key)
        else:
            self._add(record, Event.FAILURE, now)

    def bound(self, uid: str, now: float) -> None:
        """A pod has its node. A gang group is scheduled when no member is left that waits."""
        key = self._forget(uid)
        record = self.records.get(key)
        if record is not None and not self._members.get(key):
            self._add(record, Event.SCHEDULED, now)
            self._end(key, "scheduled")

    def ended(self, uid: str, now: float) -> None:
        """A pod is gone."""
        self._gone(uid, now)
        key = self._forget(uid)
        if key in self.records and not self._members.get(key):
            self._end(key, "deleted")

    # Inside ---------------------------------------------------------------------------------------------------------

    def _know(self, pod: PodInfo) -> str:
        """The key of a pod's workload; it may have another one since its gang is in another group."""
        ref = pod.ref
        gang = self._book.of(ref.uid)
        key = gang.ref.group_id if gang is not None else f"{ref.namespace}/{ref.name}/{ref.uid}"
        before = self._key_of.get(ref.uid)
        if before != key:
            if before is not None:
                self._forget(ref.uid)
                if not self._members.get(before):
                    self._end(before, "deleted")
            self._key_of[ref.uid] = key
            self._members.setdefault(key, set()).add(ref.uid)
        return key

    def _forget(self, uid: str) -> str:
        key = self._key_of.pop(uid, "")
        members = self._members.get(key)
        if members is not None:
            members.discard(uid)
            if not members:
                del self._members[key]
        return key

    def _record(self, key: str, pod: PodInfo) -> Record:
        found = self.records.get(key)
        if found is None:
            labels = pod.ref.labels
            values = tuple([labels.get(name, "") for name in self._keys])
            found = self.records[key] = Record(key, pod.priority, values)
        return found

    def _diagnose(self, pod: PodInfo) -> str:
        key = self._know(pod)
        self._diagnosed.add(key)
        return key

    def _gone(self, uid: str, now: float) -> None:
        """Whoever this pod went for may have all its room now."""
        for key in self._goes_for.pop(uid, ()):
            victims = self._victims.get(key)
            if victims is not None:
                victims.discard(uid)
                if not victims:
                    self._cleared(key, now)

    def _cleared(self, key: str, now: float) -> None:
        self._victims.pop(key, None)
        record = self.records.get(key)
        if record is not None:
            self._add(record, Event.VICTIMS_DELETED, now)

    def _end(self, key: str, outcome: str) -> None:
        record = self.records.pop(key, None)
        for uid in self._victims.pop(key, ()):
            self._goes_for.get(uid, set()).discard(key)
        for known in (self._gated, self._ready, self._diagnosed):
            known.discard(key)
        if record is not None:
            self._measures.ended(record, outcome)

    def _add(self, record: Record, event: Event, now: float) -> None:
        begun = time.perf_counter()
        for finding in record.add(event, now, self._settings):
            self._measures.found(record, finding)
            if finding.alert:
                self._log.warning(
                    f"ALERT: workload {record.key}: {finding.alert}", rule=finding.kind, priority=record.priority
                )
        self._measures.took(record, event, time.perf_counter() - begun)
