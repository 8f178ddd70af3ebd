"""Pods that are particular: they prefer nodes, are given things, or must leave room to who is nominated."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from koord.scheduler.engine.advice import ASKER, Advice, advised, withheld
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.cluster import TIE_BITS
from koord.scheduler.engine.diagnosis import Diagnosis, diagnose
from koord.scheduler.engine.evaluation import INFEASIBLE
from koord.scheduler.engine.fewrows import rank_few, rows_of
from koord.scheduler.engine.nominated import Competitors, beside, first_reasons, fits
from koord.scheduler.engine.pods import NOTHING, Outcome, Placed, PodInfo
from koord.scheduler.engine.reserving import NONE_GIVEN, Refusal, ReserveStep
from koord.scheduler.engine.resizing import resized
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import AssignedPod, PluginError

if TYPE_CHECKING:
    from koord.scheduler.engine.placement import Engine


def place_choosy(
    engine: "Engine",
    pod: PodInfo,
    program: Program,
    steps: Sequence[ReserveStep],
    now: float,
    advice: Advice | None = None,
) -> Outcome:
    """Place a pod that prefers nodes, is to get things, or was advised: the next best row is tried while plugins
    refuse, or where others who are nominated there would have no room beside it."""
    if advice is not None and advice.error:
        return Diagnosis(advice.error, frozenset((ASKER,)), (), len(engine.cluster), 0, True)
    refused: list[Refusal] = []
    rivals = engine.nominated.rivals(pod.uid, pod.priority) if engine.nominated else {}
    choices, alone = _choices(engine, pod, program, advice), not engine.nominated.only_beside
    if rivals and not alone and advice is None:
        choices = chain(choices, _only_beside(engine, program, rivals))
    for row, key in choices:
        if row in rivals and not fits(engine, program, pod.class_.template.footprint, row, rivals[row], alone=alone):
            refused += _kept_for(engine, program, row, rivals[row])
            continue
        footprint = None
        if program.resizes:
            other = resized(program.resizes, engine.cluster, pod.ref, pod.class_.template, row)
            if isinstance(other, Refusal):
                refused.append(other)
                continue
            footprint = other
        given = engine.reservations.give(steps, pod.ref, row) if steps else NONE_GIVEN
        if isinstance(given, Refusal):
            refused.append(given)
            continue
        node = engine.cluster.index.name(row)
        assert node is not None, "only live rows are feasible"
        engine.assume(pod, node, now, footprint)
        request = footprint.request if footprint is not None else None
        return Placed(node, key >> TIE_BITS, given.annotations or NOTHING, given.takes, given.slots, request)
    if advice is None:
        return diagnose(program, engine.cluster, refused) if refused else engine.kept.diagnosis(pod.class_, program)
    held_back, unasked = withheld(engine.cluster, *engine.rows_and_keys(pod.class_, program), advice)
    found = diagnose(program, engine.cluster, [*refused, *held_back])
    return replace(found, again=True) if unasked else found


def _kept_for(engine: "Engine", program: Program, row: int, rivals: Sequence[AssignedPod]) -> list[Refusal]:
    """Why the pod does not fit on a row beside those who are nominated there."""
    with beside(engine, rivals):
        [found] = first_reasons(program, Window.some(engine.cluster, np.array([row])))
    return [Refusal(plugin.name, text, row) for plugin, text in found]


def _only_beside(engine: "Engine", program: Program, rivals: Competitors) -> Iterator[tuple[int, int]]:
    """Rows that take the pod because of who is nominated there, and would not as they are: after all others."""
    for row, pods in rivals.items():
        one = np.array([row])
        if program.names is not None and row not in rows_of(engine.cluster, program.names):
            continue
        if rank_few(program, engine.cluster, one)[0] >= 0:
            continue
        with beside(engine, pods):
            key = int(rank_few(program, engine.cluster, one)[0])
        if key >= 0:
            yield row, key


def _choices(engine: "Engine", pod: PodInfo, program: Program, advice: Advice | None) -> Iterator[tuple[int, int]]:
    """Feasible rows with their keys: the node that the pod waits for, preferred ones in their order, then all by
    rank."""
    tried: list[int] = []
    own = engine.nominated.node_of(pod.uid) if engine.nominated else ""
    preferred: list[tuple[str, ...]] = [(own,)] if own else []
    timing = engine.cluster.timing
    for plugin, terms in program.prefers:
        begun = timing.begun() if timing.on else 0.0
        try:
            preferred.append(plugin.preferred_nodes(terms))
            if begun:
                timing.took(plugin.name, "PreferNodesPlugin", begun)
        except Exception as error:
            raise PluginError(plugin.name, "PreFilter", error) from error
    for names in preferred:
        some = rows_of(engine.cluster, names if program.names is None else (n for n in names if n in program.names))
        if not len(some):
            continue
        for row, key in zip(some.tolist(), rank_few(program, engine.cluster, some).tolist(), strict=True):
            if key >= 0 and row not in tried and (advice is None or engine.cluster.index.name(row) in advice.passed):
                tried.append(row)
                yield row, key
    if advice is not None:
        yield from (choice for choice in advised(engine.cluster, program, advice) if choice[0] not in tried)
        return
    rows, keys = engine.rows_and_keys(pod.class_, program)
    if timing.on:
        timing.looked(len(engine.cluster) if rows is None else len(rows), int((keys >= 0).sum()))
    own_copy = False
    if tried:
        keys, own_copy = keys.copy(), True
        keys[tried if rows is None else [row in tried for row in rows.tolist()]] = INFEASIBLE
    while len(keys):
        best = int(keys.argmax())
        key = int(keys[best])
        if key < 0:
            return
        yield best if rows is None else int(rows[best]), key
        if not own_copy:
            # Whoever asks for another one has not changed what the class keeps: nothing was placed.
            keys, own_copy = keys.copy(), True
        keys[best] = INFEASIBLE
