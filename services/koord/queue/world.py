"""All that the queue knows: what the caches show, indexed by what the controllers ask, and the queues' waiting units.

Nothing here is truth: a restarted queue builds it again from the API objects.
"""

import heapq

import msgspec

from koord.accounting.quotas import QuotaTree
from koord.kube.jobs.kind import Job, JobKind
from koord.kube.meta import ObjectMeta
from koord.kube.priorities import PriorityClass
from koord.kube.protocol.queue import MAX_DEPTH, QUEUE_NAME, integer, lookup
from koord.kube.queues import Queue, QueueUnit
from koord.kube.quotas import ElasticQuota
from koord.queue.headroom import Refusal
from koord.queue.phases import JobFacts
from koord.queue.policy import Policy
from koord.queue.waiting import WaitingUnits


class JobEntry(msgspec.Struct):
    """One job. ``facts`` None: the object broke a rule, ``problem`` says which; the last good facts are not kept."""

    kind: JobKind
    meta: ObjectMeta
    object: Job
    facts: JobFacts | None
    first_seen_ns: int
    problem: str = ""


class UnitEntry(msgspec.Struct):
    """One QueueUnit with what is computed of it once per version.

    ``total`` in the ledger's integers; ``problem``: a quantity that does not parse. ``queued``: where it waits now.
    """

    view: QueueUnit
    total: dict[str, int]
    problem: str = ""
    queued: str = ""
    refusal: Refusal | None = None
    failed_tries: int = 0
    waiting_since_ns: int = 0
    text_written_s: float = -1e9
    look_at_s: float = 0.0
    templates: tuple[tuple[str, bytes], ...] = ()
    requests: dict[str, dict[str, int]] = {}


class QueueEntry:
    """One queue: its object once it exists, its policy if that is built, and who waits."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.view: Queue | None = None
        self.policy: Policy | None = None
        self.problem = ""
        self.waiting = WaitingUnits()
        self.blocked_told_s: dict[str, float] = {}
        self.details_dirty = True
        self.details_due_s = 0.0

    @property
    def max_depth(self) -> int:
        """How many units from the head may be considered; -1: all."""
        return integer(self.view.metadata.annotations, MAX_DEPTH, -1) if self.view is not None else -1


class World:
    """The objects and their indexes."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobEntry] = {}
        self.clusters: dict[str, str] = {}
        self.clusters_of: dict[str, set[str]] = {}
        self.job_uids: dict[tuple[str, str], str] = {}
        self.units: dict[str, UnitEntry] = {}
        self.unit_keys: dict[str, str] = {}
        self.units_of_job: dict[str, str] = {}
        self.units_naming: dict[tuple[str, str], set[str]] = {}
        """Units without an owner, by the job that they name (token, ``ns/name``)."""
        self.queues: dict[str, QueueEntry] = {}
        self.quotas: dict[str, ElasticQuota] = {}
        self.tree = QuotaTree()
        self.priority_classes: dict[str, PriorityClass] = {}
        self.namespaces: dict[str, str] = {}
        """Name to resourceVersion."""
        self.dirty_jobs: set[str] = set()
        self.dirty_units: set[str] = set()
        self.dirty_queues: set[str] = set()
        self.texts_wanted: set[str] = set()
        self.quotas_changed = False
        self.admission_wanted = False
        self._timers: list[tuple[float, str]] = []
        self._text_timers: list[tuple[float, str]] = []

    def queue(self, name: str) -> QueueEntry:
        """The entry of a queue, made where it is new."""
        entry = self.queues.get(name)
        if entry is None:
            entry = self.queues[name] = QueueEntry(name)
        return entry

    def queue_of(self, meta: ObjectMeta) -> str:
        """The queue of a job or unit: the one its annotation names, else that of its quota."""
        return lookup(meta.annotations, QUEUE_NAME) or self.tree.quota_of_unit(meta.labels, meta.namespace)

    def job_of(self, unit: QueueUnit) -> JobEntry | None:
        """The job that owns the unit, if it exists."""
        owner = unit.metadata.controller
        if owner is not None:
            return self.jobs.get(owner.uid)
        return None

    def look_again(self, unit_key: str, at_s: float) -> None:
        """Look at a unit at ``at_s`` even if nothing changes."""
        heapq.heappush(self._timers, (at_s, unit_key))

    def later_texts(self, unit_key: str, at_s: float) -> None:
        """See to a waiting unit's text at ``at_s``."""
        heapq.heappush(self._text_timers, (at_s, unit_key))

    def due(self, now_s: float) -> None:
        """Mark the units whose time has come."""
        while self._timers and self._timers[0][0] <= now_s:
            self.dirty_units.add(heapq.heappop(self._timers)[1])
        while self._text_timers and self._text_timers[0][0] <= now_s:
            self.texts_wanted.add(heapq.heappop(self._text_timers)[1])

    def drop_marks(self) -> set[str]:
        """Forget the marks of jobs and units that are gone; answers which jobs those were."""
        gone = self.dirty_jobs - self.jobs.keys()
        self.dirty_jobs -= gone
        self.dirty_units &= self.units.keys()
        self.texts_wanted &= self.units.keys()
        return gone

    def next_timer_s(self) -> float | None:
        """When the next unit's time comes."""
        return min((timers[0][0] for timers in (self._timers, self._text_timers) if timers), default=None)

    def leave_queue(self, entry: UnitEntry) -> None:
        """The unit waits nowhere."""
        if entry.queued:
            queue = self.queues[entry.queued]
            if queue.waiting.drop(entry.view.metadata.uid):
                queue.details_dirty = True
            entry.queued = ""
