"""Gangs of pods that belong to no QueueUnit stand in line as a whole: room for less than a gang's minimum is no help.

Of a gang that has no room yet its first pods, as many as its minimum, are one entry in the line, and the others none;
gangs of one group are one entry together. While pods are missing, or the minimum is not known, nobody stands in line:
the scheduler would not try it. A gang that is complete has pods like any other. Whose pods use different quotas has an
entry in the line of each.
"""

from collections.abc import Mapping
from typing import NamedTuple

from koord.kube.protocol.gang import ONCE_SATISFIED, ONLY_WAITING, GangRef, governed_by
from koord.quota.waiting import Amounts, Lines, Rank, Waiting


class PodGroupRule(NamedTuple):
    """What a PodGroup says of its gang."""

    minimum: int
    timeout_s: int | None
    annotations: Mapping[str, str]


class _Member(NamedTuple):
    rank: Rank
    key: str
    quota: str
    request: Amounts
    assigned: bool


class _Gang:
    def __init__(self, own: GangRef) -> None:
        self.own = self.ref = own
        self.governed = False
        self.members: dict[str, _Member] = {}

    @property
    def known(self) -> bool:
        return self.ref.min is not None and (self.governed or not self.ref.waits_for_pod_group)

    def missing(self) -> int:
        """How many more pods it needs at once (spec 20 section 3.1); 0: each may come by itself."""
        least, assigned = self.ref.min or 0, sum(member.assigned for member in self.members.values())
        policy = self.ref.match_policy or ONCE_SATISFIED
        if policy == ONCE_SATISFIED and assigned:
            return 0
        return max(0, least - (0 if policy == ONLY_WAITING else assigned))

    def waiting(self) -> list[_Member]:
        return sorted(member for member in self.members.values() if not member.assigned)


class Gangs:
    """Members in, entries in :class:`~koord.quota.waiting.Lines` out, at the next :meth:`flush`."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._gangs: dict[str, _Gang] = {}
        self._rules: dict[str, PodGroupRule] = {}
        self._named_by: dict[str, set[str]] = {}
        """Gangs by each gang that their group names."""
        self._stale: set[str] = set()
        self._entries: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._gangs) + len(self._named_by) + len(self._entries) + len(self._stale)

    def shared(self, ref: GangRef) -> GangRef:
        """An equal one that is kept already: a gang's pods mostly say the same."""
        gang = self._gangs.get(ref.id)
        return gang.own if gang is not None and gang.own == ref else ref

    def put(self, ref: GangRef, key: str, quota: str, rank: Rank, request: Amounts, *, assigned: bool) -> None:
        """A live member. What its first member says of the gang holds, or the PodGroup of its id."""
        gang = self._gangs.get(ref.id)
        if gang is None:
            gang = self._gangs[ref.id] = _Gang(ref)
            self._govern(gang)
        gang.members[key] = _Member(rank, key, quota, request, assigned)
        self._stir(gang)

    def drop(self, ref: GangRef, key: str) -> None:
        """The member ended, or stands for itself no more."""
        gang = self._gangs.get(ref.id)
        if gang is None or gang.members.pop(key, None) is None:
            return
        # At once: before the next flush it may stand in a line for itself, or for another gang, under the same key.
        mine = self._entries.get(ref.id, set())
        if (own := f"pod {key}") in mine:
            mine.discard(own)
            self._lines.drop(own)
        self._stir(gang)
        if not gang.members:
            self._unname(gang)
            del self._gangs[ref.id]

    def put_group(self, id_: str, rule: PodGroupRule | None) -> bool:
        """The PodGroup of a gang, or None if it is gone; True if that changed anything."""
        if self._rules.get(id_) == rule:
            return False
        if rule is None:
            del self._rules[id_]
        else:
            self._rules[id_] = rule
        gang = self._gangs.get(id_)
        if gang is not None:
            self._unname(gang)
            self._govern(gang)
            self._stir(gang)
        return gang is not None

    def flush(self) -> None:
        """Bring the lines up to date."""
        stale, self._stale = self._stale, set()
        for id_ in stale:
            found = self._entries_of(id_)
            for key in self._entries.pop(id_, set()) - found.keys():
                self._lines.drop(key)
            for quota, one in found.values():
                self._lines.put(quota, one)
            if found:
                self._entries[id_] = set(found)

    def _entries_of(self, id_: str) -> dict[str, tuple[str, Waiting]]:
        """By key: what stands in the lines for one gang."""
        gang = self._gangs.get(id_)
        if gang is None:
            return {}
        waiting, missing = gang.waiting(), gang.missing()
        if not missing and gang.known:
            return {f"pod {one.key}": (one.quota, Waiting(one.rank, f"pod {one.key}", one.request)) for one in waiting}
        # The whole group has one entry, that of its first gang which is not complete.
        group = [self._gangs.get(other) for other in gang.ref.groups]
        if id_ != next((other.ref.id for other in group if other is not None and other.missing()), id_):
            return {}
        whole: list[_Member] = []
        for other in (gang, *(other for other in group if other is not gang)):
            if other is None or not other.known or len(other.waiting()) < other.missing():
                return {}
            whole += other.waiting()[: other.missing()]
        found: dict[str, tuple[str, Waiting]] = {}
        for quota in sorted({one.quota for one in whole}):
            mine = [one for one in whole if one.quota == quota]
            total: dict[str, int] = {}
            for one in mine:
                for name, amount in one.request:
                    total[name] = total.get(name, 0) + amount
            key = f"gang {id_} {quota}"
            found[key] = quota, Waiting(min(mine).rank, key, tuple(sorted(total.items())))
        return found

    def _govern(self, gang: _Gang) -> None:
        rule = self._rules.get(gang.own.id)
        gang.governed = rule is not None
        gang.ref = gang.own if rule is None else governed_by(gang.own, *rule)
        for other in gang.ref.groups:
            self._named_by.setdefault(other, set()).add(gang.own.id)

    def _unname(self, gang: _Gang) -> None:
        for other in gang.ref.groups:
            names = self._named_by[other]
            names.discard(gang.own.id)
            if not names:
                del self._named_by[other]

    def _stir(self, gang: _Gang) -> None:
        self._stale.add(gang.own.id)
        self._stale.update(self._named_by.get(gang.own.id, ()))
