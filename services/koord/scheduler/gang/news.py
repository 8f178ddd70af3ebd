"""What is told about gangs: hints on the bus, and Events for those that are gated and may never start.

Upstream is silent about a gang whose group never comes together (its issue 2480). Here members and the PodGroup say
after a while what is missing.
"""

from koord.contracts.decisions import ObjectRef
from koord.contracts.gang import GangEvent, GangHint
from koord.kube.resources import POD_GROUPS
from koord.scheduler.gang.book import Gang, GangBook
from koord.scheduler.notices import Notices
from koord.scheduler.queueing.queue import SchedulingQueue

REASON_LENGTH = 1024


class GangNews:
    """Collects; ``take`` hands out the hints that are to be published. ``after_s``: see ``GangSettings``."""

    def __init__(self, book: GangBook, queue: SchedulingQueue, notices: Notices, after_s: float) -> None:
        self._book = book
        self._queue = queue
        self._notices = notices
        self._after_s = after_s
        self._hints: list[GangHint] = []
        self._last: dict[str, tuple[GangEvent, str]] = {}
        self._gated: dict[str, float] = {}
        self._told: dict[str, str] = {}

    # Hints ----------------------------------------------------------------------------------------------------------

    def tell(self, event: GangEvent, uid: str, reason: str = "") -> None:
        """The gang group of a pod moved; the same is not told twice in a row."""
        first = self._book.of(uid)
        if first is None:
            return
        for gang in self._book.group(first):
            id_ = gang.ref.id
            if self._last.get(id_) != (event, reason):
                self._last[id_] = (event, reason)
                ref = gang.ref
                text = reason[:REASON_LENGTH]
                hint = GangHint(event, ref.namespace, ref.name, ref.group_id, gang.members, ref.min or 0, text)
                self._hints.append(hint)

    def take(self) -> list[GangHint]:
        """The hints since the last call."""
        hints, self._hints = self._hints, []
        if len(self._last) > 2 * len(self._book.gangs) + 64:
            self._last = {id_: last for id_, last in self._last.items() if id_ in self._book.gangs}
        return hints

    @property
    def waiting(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._hints)

    # Gated gangs ----------------------------------------------------------------------------------------------------

    def gated(self, key: str, now: float) -> None:
        """A unit of the queue is held back."""
        self._gated.setdefault(key, now)

    def let_go(self, key: str, uid: str) -> None:
        """A unit may be tried; ``uid`` is one of its pods."""
        self._gated.pop(key, None)
        gang = self._book.of(uid)
        if gang is not None and not self._book.alone(gang):
            self.tell("ready", uid)

    def tell_gated(self, now: float, uid_of: dict[str, str]) -> None:
        """Events for members of gangs that have been gated too long; ``uid_of``: PodGroups that exist, with uid."""
        for key, since in list(self._gated.items()):
            unit = self._queue.units.get(key)
            if unit is None or unit.state != "gated":
                del self._gated[key]
            elif now - since >= self._after_s:
                gangs: dict[str, tuple[Gang, str]] = {}
                for pod in list(unit.pods.values()):
                    gang, why = self._book.of(pod.uid), self._book.hold(pod.ref)
                    if gang is not None and why is not None:
                        self._notices.failed(pod.uid, pod.ref.namespace, pod.ref.name, why, now)
                        gangs.setdefault(gang.ref.id, (gang, why))
                for gang, why in gangs.values():
                    self._tell_pod_group(gang, why, uid_of.get(gang.ref.id, ""))
        if len(self._told) > 2 * len(self._book.gangs) + 64:
            self._told = {id_: text for id_, text in self._told.items() if id_ in self._book.gangs}

    def _tell_pod_group(self, gang: Gang, why: str, uid: str) -> None:
        why = why.partition(", podName: ")[0]
        if uid and self._told.get(gang.ref.id) != why:
            self._told[gang.ref.id] = why
            target = ObjectRef(POD_GROUPS.token, gang.ref.namespace, gang.ref.name, uid)
            self._notices.warn(target, POD_GROUPS.kind, "GangNotReady", why, api_version=POD_GROUPS.api_version)
