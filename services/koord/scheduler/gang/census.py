"""Counts every gang's members as the API shows them, whoever schedules them: what a PodGroup's status tells."""

from typing import NamedTuple

from koord.kube.protocol.gang import gang_name
from koord.scheduler.gang.phases import Tally
from koord.scheduler.podview import PodView

RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"


class _Member(NamedTuple):
    name: str
    bound: bool
    phase: str
    owners: tuple[str, ...]


class Census:
    """Members by gang id. ``put`` and ``drop`` answer the gangs (``ns/name``) whose counts may have changed."""

    def __init__(self) -> None:
        self._gangs: dict[str, dict[str, _Member]] = {}
        self._gang_of: dict[str, str] = {}

    def put(self, pod: PodView) -> tuple[str, ...]:
        """A pod as it is now."""
        meta = pod.metadata
        uid = meta.uid
        before = self._gang_of.get(uid)
        name = gang_name(meta.labels, meta.annotations) if meta.labels or meta.annotations else ""
        if not name:
            return () if before is None else self.drop(uid)
        id_ = f"{meta.namespace}/{name}"
        moved = self.drop(uid) if before is not None and before != id_ else ()
        members = self._gangs.setdefault(id_, {})
        owners = tuple(owner.name for owner in meta.owner_references)
        member = _Member(meta.name, bool(pod.spec.node_name), pod.status.phase, owners)
        if members.get(uid) == member:
            return moved
        members[uid] = member
        self._gang_of[uid] = id_
        return (*moved, id_)

    def drop(self, uid: str) -> tuple[str, ...]:
        """A pod is gone."""
        id_ = self._gang_of.pop(uid, None)
        if id_ is None:
            return ()
        members = self._gangs[id_]
        del members[uid]
        if not members:
            del self._gangs[id_]
        return (id_,)

    def tally(self, id_: str) -> Tally:
        """How many members of a gang are where."""
        pods = scheduled = running = succeeded = failed = 0
        for member in self._gangs.get(id_, {}).values():
            pods += 1
            scheduled += member.bound
            running += member.phase == RUNNING
            succeeded += member.phase == SUCCEEDED
            failed += member.phase == FAILED
        return Tally(pods, scheduled, running, succeeded, failed)

    def on_nodes(self, id_: str) -> dict[str, str]:
        """Names by uid of the gang's members that have a node and have not ended."""
        members = self._gangs.get(id_, {}).items()
        return {uid: member.name for uid, member in members if member.bound and member.phase not in (SUCCEEDED, FAILED)}

    def owners(self, id_: str) -> str:
        """``ns/owner`` of each owner of the first member (by name), sorted and joined by ``,``."""
        members = self._gangs.get(id_)
        if not members:
            return ""
        namespace = id_.partition("/")[0]
        first = min(members.values(), key=lambda member: member.name)
        return ",".join(sorted(f"{namespace}/{owner}" for owner in first.owners))
