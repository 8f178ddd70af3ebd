"""Gangs that a bind left in part and that stay so: their bound members are evicted, where the settings ask for it.

Spec 20 section 3.12, row "gang partly bound": ``partialGangAction: evict``. Whether a gang is in part is derived from
its bound members' annotations (:data:`koord.scheduler.gang.book.BOUND_WITH`), so a restart or another replica knows it,
too; the wait time then begins anew. An eviction names the pod's uid: executed twice it evicts once.
"""

from collections.abc import Callable, Mapping

from koord.contracts.decisions import Evict, ObjectRef
from koord.kube.resources import POD_GROUPS, PODS
from koord.scheduler.gang.book import Gang, GangBook
from koord.scheduler.notices import Notices

REASON = "GangPartiallyBound"
AGAIN_S = 10.0
"""A disruption budget may refuse: members that are still there are evicted again after this long."""


class PartialGangs:
    """``members`` answers names by uid of a gang's (``ns/name``) members that have a node and have not ended."""

    def __init__(self, book: GangBook, members: Callable[[str], Mapping[str, str]], notices: Notices) -> None:
        self._book = book
        self._members = members
        self._notices = notices
        self._since: dict[str, float] = {}
        self._asked: dict[str, tuple[float, int]] = {}
        """By pod uid: when it was last evicted, and how often."""

    def due(self, now: float, *, sure: bool) -> list[Evict]:
        """The evictions to ask for now; call it about once a second.

        Not ``sure`` (the bus is away, or what it missed is being read): the waits begin anew, for no news is not bad
        news.
        """
        if not self._book.evicts:
            return []
        if not sure:
            self._since.clear()
            return []
        partial = {id_: gang for id_, gang in self._book.gangs.items() if self._book.in_part(gang)}
        self._since = {id_: self._since.get(id_, now) for id_ in partial}
        found: list[Evict] = []
        present: set[str] = set()
        for id_, gang in partial.items():
            if now - self._since[id_] < self._book.wait_s(gang):
                continue
            members = self._members(id_)
            present.update(members)
            asked = [self._ask(gang, uid, name, now) for uid, name in members.items()]
            evictions = [one for one in asked if one is not None]
            if any(self._asked[one.target.uid][1] == 1 for one in evictions):
                self._tell(gang, len(members))
            found += evictions
        self._asked = {uid: asked for uid, asked in self._asked.items() if uid in present}
        return found

    def _ask(self, gang: Gang, uid: str, name: str, now: float) -> Evict | None:
        at, times = self._asked.get(uid, (float("-inf"), 0))
        if now - at < AGAIN_S:
            return None
        self._asked[uid] = (now, times + 1)
        target = ObjectRef(PODS.token, gang.ref.namespace, name, uid)
        return Evict(f"partial-gang-{uid}-{times + 1}", target, REASON)

    def _tell(self, gang: Gang, bound: int) -> None:
        text = (
            f"gang {gang.ref.id}: {bound} of {gang.ref.min} bound for {self._book.wait_s(gang):g} s, "
            "the bound are evicted (coscheduling.partial_gang_action)"
        )
        uid = self._book.pod_group_uids.get(gang.ref.id)
        if uid:
            target = ObjectRef(POD_GROUPS.token, gang.ref.namespace, gang.ref.name, uid)
            self._notices.warn(target, POD_GROUPS.kind, REASON, text, api_version=POD_GROUPS.api_version)
        for member, name in self._members(gang.ref.id).items():
            self._notices.warn(ObjectRef(PODS.token, gang.ref.namespace, name, member), PODS.kind, REASON, text)
