"""A gang group is planned whole: every member is placed on the columns, and taken back unless enough of them fit.

The columns are the scratch pad: taking a planned pod back restores them bit for bit. Any subset of at least the minimum
per gang is accepted; under Strict nothing else is held, so gangs cannot deadlock each other with halves.
"""

from collections.abc import Sequence

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


def plan_group(engine: Engine, book: GangBook, gang: Gang, pods: Sequence[PodInfo]) -> GroupPlan:
    """Place the pending members ``pods`` of the group of ``gang``; what is not accepted is taken back."""
    group_id = gang.ref.group_id
    if len(pods) > LARGEST:
        text = f"GangGroup {group_id!r} has {len(pods)} pending members, one claim holds at most {LARGEST}"
        told = Diagnosis(text, frozenset((PLUGIN,)), (), len(engine.cluster))
        return GroupPlan([], [(pod, told) for pod in pods], False, told.plugins)
    ordered = sorted(pods, key=member_order)
    outcomes: list[Outcome] = []
    done = 0
    while done < len(ordered):
        done += engine.place(ordered[done:], outcomes)
    placed = [(pod, outcome) for pod, outcome in zip(ordered, outcomes, strict=True) if isinstance(outcome, Placed)]
    failed = [(pod, outcome) for pod, outcome in zip(ordered, outcomes, strict=True) if isinstance(outcome, Diagnosis)]
    group = book.group(gang)
    complete = all(book.valid(each, _waiting(book, each, placed)) for each in group)
    rejecters = frozenset((PLUGIN,)).union(*(diagnosis.plugins for _, diagnosis in failed))
    if complete:
        return GroupPlan(placed, failed, True, rejecters)
    if placed and all(each.ref.mode == keys.NON_STRICT for each in group):
        return GroupPlan(placed, _gang_texts(engine, book, group_id, failed, len(placed)), False, rejecters)
    for pod, _ in placed:
        engine.forget(pod.uid)
    if not failed:
        # Everybody found a place and it is still too few: members are missing under the match policy.
        missing = ", ".join(
            f"{each.ref.id} has {_waiting(book, each, placed)} of {each.ref.min}"
            for each in group
            if not book.valid(each, _waiting(book, each, placed))
        )
        told = Diagnosis(f"gang group {group_id}: too few members: {missing}", rejecters, (), len(engine.cluster))
        return GroupPlan([], [(pod, told) for pod in ordered], False, rejecters)
    told_all = _gang_texts(engine, book, group_id, failed[:1], len(placed))
    others = [pod for pod in ordered if pod is not failed[0][0]]
    return GroupPlan(
        [], told_all + _followers(engine, book, group_id, failed[0], others, len(placed)), False, rejecters
    )


def _waiting(book: GangBook, gang: Gang, placed: list[tuple[PodInfo, Placed]]) -> int:
    """Members placed now plus those placed before and not yet bound."""
    return len(gang.planned) + sum(1 for pod, _ in placed if book.of(pod.uid) is gang and pod.uid in gang.pending)


def _failure(group_id: str, root: tuple[PodInfo, Diagnosis], waiting: int) -> str:
    pod, diagnosis = root
    return (
        f'GangGroup "{group_id}" gets rejected due to member Pod "{pod.ref.namespace}/{pod.ref.name}" is unschedulable '
        f'with reason "{diagnosis.message}", alreadyWaitForBound: {waiting}'
    )


def _rejection(book: GangBook, pod: PodInfo) -> str:
    gang = book.of(pod.uid)
    return f'Gang "{gang.ref.id if gang else ""}" gets rejected due to pod is unschedulable'


def _gang_texts(
    engine: Engine, book: GangBook, group_id: str, failed: list[tuple[PodInfo, Diagnosis]], waiting: int
) -> list[tuple[PodInfo, Diagnosis]]:
    """The root cause keeps its own reasons, the gang's rejection is added; later ones only follow it."""
    if not failed:
        return []
    pod, diagnosis = failed[0]
    root = msgspec.structs.replace(
        diagnosis, message=f"{diagnosis.message} {_rejection(book, pod)}", plugins=diagnosis.plugins | {PLUGIN}
    )
    rest = _followers(engine, book, group_id, failed[0], [pod for pod, _ in failed[1:]], waiting)
    return [(pod, root), *rest]


def _followers(
    engine: Engine,
    book: GangBook,
    group_id: str,
    root: tuple[PodInfo, Diagnosis],
    pods: list[PodInfo],
    waiting: int,
) -> list[tuple[PodInfo, Diagnosis]]:
    """Members that are not the root cause are told who is."""
    failure = _failure(group_id, root, waiting)
    total = len(engine.cluster)
    told: dict[str, Diagnosis] = {}
    found: list[tuple[PodInfo, Diagnosis]] = []
    for pod in pods:
        rejection = _rejection(book, pod)
        diagnosis = told.get(rejection)
        if diagnosis is None:
            message = f"0/{total} nodes are available: {failure}. {rejection}"
            diagnosis = told[rejection] = Diagnosis(message, root[1].plugins | {PLUGIN}, root[1].reasons, total)
        found.append((pod, diagnosis))
    return found
