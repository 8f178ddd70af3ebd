"""A gang group is planned whole: every member is placed on the columns, and taken back unless enough of them fit.

The columns are the scratch pad: taking a planned pod back restores them bit for bit. Any subset of at least the minimum
per gang is accepted; under Strict nothing else is held, so gangs cannot deadlock each other with halves.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

import msgspec

from koord.kube.protocol import gang as keys
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Engine, Outcome, Placed, PodInfo
from koord.scheduler.gang.book import Gang, GangBook

PLUGIN = "Coscheduling"
LARGEST = 4096


class GroupPlan(msgspec.Struct, frozen=True):
    """What planning a gang group came to.

    ``placed`` is assumed in the engine and is what to claim; ``complete``: every gang of the group has what it needs
    and may be bound (else the claim only holds room for a NonStrict gang). ``failed`` are members that found no place,
    each with what to tell about it. ``rejecters`` are the plugins whose events may help.
    """

    placed: list[tuple[PodInfo, Placed]]
    failed: list[tuple[PodInfo, Diagnosis]]
    complete: bool
    rejecters: frozenset[str]


def member_order(pod: PodInfo) -> tuple[int, int, str]:
    """Priority first, then the member's index, then its name."""
    text = pod.ref.annotations.get(keys.NETWORK_TOPOLOGY_INDEX, "")
    index = int(text) if text.isascii() and text.isdecimal() else 1 << 31
    return (-pod.priority, index, pod.ref.name)


class GroupPlanning:
    """Planning the pending members ``pods`` of the group of ``gang``: ``step`` until True, then ``result``.

    ``one``: places a member at a time, where it is not for the engine alone to say where.
    """

    def __init__(
        self,
        engine: Engine,
        book: GangBook,
        gang: Gang,
        pods: Sequence[PodInfo],
        one: Callable[[PodInfo, float], Outcome] | None = None,
    ) -> None:
        self._one = one
        self._engine = engine
        self._book = book
        self._group = book.group(gang)
        self._group_id = gang.ref.group_id
        self._pods = sorted(pods, key=member_order)
        self._outcomes: list[Outcome] = []
        self._too_many = len(pods) > LARGEST

    def step(self, until: float = float("inf"), now: float = 0.0) -> bool:
        """Place members until all were tried (True) or ``perf_counter()`` passes ``until``.

        ``now`` (epoch seconds): when they count as planned.
        """
        if self._too_many:
            return True
        done = len(self._outcomes)
        if self._one is not None:
            for pod in self._pods[done:]:
                self._outcomes.append(self._one(pod, now))
                if perf_counter() >= until:
                    break
        elif done < len(self._pods):
            self._engine.place(self._pods[done:], self._outcomes, until=until, now=now)
        return len(self._outcomes) == len(self._pods)

    def result(self) -> GroupPlan:
        """Accept or take back."""
        if self._too_many:
            text = (
                f"GangGroup {self._group_id!r} has {len(self._pods)} pending members, one claim holds at most {LARGEST}"
            )
            told = Diagnosis(text, frozenset((PLUGIN,)), (), len(self._engine.cluster))
            return GroupPlan([], [(pod, told) for pod in self._pods], False, told.plugins)
        both = list(zip(self._pods, self._outcomes, strict=True))
        placed = [(pod, outcome) for pod, outcome in both if isinstance(outcome, Placed)]
        failed = [(pod, outcome) for pod, outcome in both if isinstance(outcome, Diagnosis)]
        waiting = {gang.ref.id: self._waiting(gang, placed) for gang in self._group}
        complete = all(self._book.valid(gang, waiting[gang.ref.id]) for gang in self._group)
        rejecters = frozenset((PLUGIN,)).union(*(diagnosis.plugins for _, diagnosis in failed))
        if complete:
            return GroupPlan(placed, failed, True, rejecters)
        if placed and all(gang.ref.mode == keys.NON_STRICT for gang in self._group):
            return GroupPlan(placed, self._texts(failed, len(placed)), False, rejecters)
        for pod, _ in placed:
            self._engine.forget(pod.uid)
        if not failed:
            return GroupPlan([], self._too_few(waiting, rejecters), False, rejecters)
        root, rest = failed[0], [pod for pod in self._pods if pod is not failed[0][0]]
        told_all = self._texts([root], len(placed)) + self._followers(root, rest, len(placed))
        return GroupPlan([], told_all, False, rejecters)

    def _waiting(self, gang: Gang, placed: list[tuple[PodInfo, Placed]]) -> int:
        """Members placed now plus those placed before and not yet bound."""
        return self._book.waiting(gang) + sum(pod.uid in gang.pending for pod, _ in placed)

    def _too_few(self, waiting: dict[str, int], rejecters: frozenset[str]) -> list[tuple[PodInfo, Diagnosis]]:
        """Everybody found a place and it is still too few: members are missing under the match policy."""
        missing = ", ".join(
            f"{gang.ref.id} has {waiting[gang.ref.id]} of {gang.ref.min}"
            for gang in self._group
            if not self._book.valid(gang, waiting[gang.ref.id])
        )
        text = f"gang group {self._group_id}: too few members: {missing}"
        told = Diagnosis(text, rejecters, (), len(self._engine.cluster))
        return [(pod, told) for pod in self._pods]

    def _rejection(self, pod: PodInfo) -> str:
        gang = self._book.of(pod.uid)
        return f'Gang "{gang.ref.id if gang else ""}" gets rejected due to pod is unschedulable'

    def _texts(self, failed: list[tuple[PodInfo, Diagnosis]], waiting: int) -> list[tuple[PodInfo, Diagnosis]]:
        """The root cause keeps its own reasons, the gang's rejection is added; later ones only follow it."""
        if not failed:
            return []
        pod, diagnosis = failed[0]
        root = msgspec.structs.replace(
            diagnosis,
            message=f"{diagnosis.message} {self._rejection(pod)}",
            plugins=diagnosis.plugins | {PLUGIN},
        )
        return [(pod, root), *self._followers(failed[0], [pod for pod, _ in failed[1:]], waiting)]

    def _followers(
        self, root: tuple[PodInfo, Diagnosis], pods: list[PodInfo], waiting: int
    ) -> list[tuple[PodInfo, Diagnosis]]:
        """Members that are not the root cause are told who is."""
        pod, diagnosis = root
        failure = (
            f'GangGroup "{self._group_id}" gets rejected due to member Pod "{pod.ref.namespace}/{pod.ref.name}" is '
            f'unschedulable with reason "{diagnosis.message}", alreadyWaitForBound: {waiting}'
        )
        total = len(self._engine.cluster)
        told: dict[str, Diagnosis] = {}
        found: list[tuple[PodInfo, Diagnosis]] = []
        for follower in pods:
            rejection = self._rejection(follower)
            if rejection not in told:
                message = f"0/{total} nodes are available: {failure}. {rejection}"
                told[rejection] = Diagnosis(message, diagnosis.plugins | {PLUGIN}, diagnosis.reasons, total)
            found.append((follower, told[rejection]))
        return found
