"""Whether pods that wait fit together, in the cluster or in one topology domain: placed for a moment, and taken back.

Filters, scores and what PreFilter judges are asked as for placing, with the pods before counted on their nodes. What
plugins give on a node (cpus, devices) is not tried. Nothing awaits in between, so nobody sees the books meanwhile.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from koord.columns.matrix import Ints
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.inspecting import Refused, refusals
from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.framework.contract import PluginError

MOST_PODS = 200
MOST_PLACED = 1000
"""Pods that are placed for a moment for one answer, over all domains."""
MOST_DOMAINS = 16


class Together(NamedTuple):
    """Where the pods would be, in their order; the first that finds no place, why, and who refuses which nodes."""

    placed: tuple[tuple[PodInfo, str], ...]
    failed: PodInfo | None = None
    message: str = ""
    refused: tuple[Refused, ...] = ()


class Domain(NamedTuple):
    """One value of a node label, and the rows of the nodes that have it."""

    name: str
    rows: Ints


def fit(engine: Engine, pods: Sequence[PodInfo], names: int, among: Ints | None = None) -> Together:
    """Place ``pods``, none of which has a node, one after the other until one finds no place; then take all back.

    ``among``: on nodes on these rows only. ``names``: how many nodes are named for each reason.
    """
    placed: list[tuple[PodInfo, str]] = []
    try:
        for pod in pods:
            try:
                node, why = _place(engine, pod, among)
                if not node:
                    refused = () if why else tuple(refusals(engine, pod.class_, names, among))
                    return Together(tuple(placed), pod, why or _message(engine, refused, among), refused)
            except PluginError as error:
                return Together(tuple(placed), pod, str(error))
            placed.append((pod, node))
        return Together(tuple(placed))
    finally:
        for pod, _ in reversed(placed):
            engine.forget(pod.uid)


def domains(cluster: Cluster, key: str, pods: int) -> tuple[list[Domain], int]:
    """The domains of a node label by name, as many as ``pods`` pods may be tried in, and how many there are besides."""
    column = cluster.labels.column(key)
    rows = np.flatnonzero(cluster.alive[: cluster.high])
    codes = column.codes[rows]
    numbers = [int(code) for code in np.unique(codes) if code]
    found = sorted((column.values[number], number) for number in numbers)
    most = min(MOST_DOMAINS, max(1, MOST_PLACED // max(1, pods)))
    return [Domain(name, rows[codes == number]) for name, number in found[:most]], max(0, len(found) - most)


def _place(engine: Engine, pod: PodInfo, among: Ints | None) -> tuple[str, str]:
    """The node, where the pod counts then; or nothing, and what PreFilter says if it is that."""
    class_ = pod.class_
    refusal = engine.prefiltered(class_.compiled(engine.cluster, engine.verdicts))
    if refusal is not None:
        return "", refusal.message
    rows, keys = engine.ranked(class_)
    if rows is None:
        rows = np.arange(len(keys)) if among is None else among
        keys = keys if among is None else keys[among]
    elif among is not None:
        inside = np.isin(rows, among)
        rows, keys = rows[inside], keys[inside]
    if not len(keys):
        return "", ""
    best = int(keys.argmax())
    if keys[best] < 0:
        return "", ""
    node = engine.cluster.index.name(int(rows[best])) or ""
    engine.assume(pod, node)
    return node, ""


def _message(engine: Engine, refused: Sequence[Refused], among: Ints | None) -> str:
    nodes = len(engine.cluster) if among is None else len(among)
    reasons = ", ".join(sorted(f"{one.nodes} {one.reason}" for one in refused))
    return f"0/{nodes} nodes are available: {reasons}."
