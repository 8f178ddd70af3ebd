"""Pods that wait for room on a certain node: who may not take it meanwhile (spec 10 section 3.5).

A pod is judged on a row twice where pods of its priority or more are nominated: with them there, and without. Both must
pass. Where nobody is nominated this costs nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from koord.columns.matrix import Floats, Ints
from koord.scheduler.engine.books import Books
from koord.scheduler.engine.classes import Program
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.resources import Footprint
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    PluginError,
    Reason,
    ReservePlugin,
    Terms,
)

Competitors = dict[int, list[AssignedPod]]
"""Nominated pods by row."""


class Nominated:
    """Who is nominated to which node, which may be unknown. ``foreign``: by another scheduler."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._cluster = books.cluster
        self._by_node: dict[str, dict[str, AssignedPod]] = {}
        self._node_of: dict[str, str] = {}
        self._foreign: set[str] = set()
        self.version = 0
        """Another number whenever somebody waits, or waits no longer."""
        self.only_beside = False
        """A pod need not fit on a row without those who are nominated there (gate SkipFilterWithNominatedPods)."""

    def set(self, pod: AssignedPod, *, foreign: bool = False) -> None:
        """``pod`` waits for room on ``pod.node``, and nowhere else any more."""
        uid = pod.ref.uid
        before = self._by_node.get(pod.node, {}).get(uid)
        if before is not pod:
            self.clear(uid)
            self._books.expect(pod)
        self.version += 1
        self._node_of[uid] = pod.node
        self._by_node.setdefault(pod.node, {})[uid] = pod
        if foreign:
            self._foreign.add(uid)

    def clear(self, uid: str) -> AssignedPod | None:
        """The pod waits for no node any more; answers what it waited as, None if it did not."""
        node = self._node_of.pop(uid, None)
        if node is None:
            return None
        of_node = self._by_node[node]
        pod = of_node.pop(uid)
        if not of_node:
            del self._by_node[node]
        self._foreign.discard(uid)
        self.version += 1
        self._books.expect(pod, ended=True)
        return pod

    def node_of(self, uid: str) -> str:
        """Where a pod waits, or empty."""
        return self._node_of.get(uid, "")

    def on(self, node: str) -> list[AssignedPod]:
        """The pods nominated to a node."""
        return list(self._by_node.get(node, {}).values())

    def rivals(self, uid: str, priority: int) -> Competitors:
        """By row, those that a pod must leave room to: of its priority or more; by others of more alone, for two
        schedulers that waited for each other's equals would wait for ever. Who has a node by now counts there."""
        found: Competitors = {}
        for node, pods in self._by_node.items():
            row = self._cluster.index.find(node)
            if row is None:
                continue
            some = [
                pod
                for other, pod in pods.items()
                if other != uid and self._yields(other, pod, priority) and other not in self._cluster.pods
            ]
            if some:
                found[row] = some
        return found

    def _yields(self, uid: str, pod: AssignedPod, priority: int) -> bool:
        return pod.priority > priority or (pod.priority == priority and uid not in self._foreign)

    def __len__(self) -> int:
        return len(self._node_of)


def keeps_books(plugin: FilterPlugin) -> bool:
    """Whether a filter knows more of the pods on a row than the amounts they take."""
    return plugin.filter_locality == "cluster" or isinstance(plugin, AssignPlugin | ReservePlugin)


def amounts_only(program: Program, footprint: Footprint) -> bool:
    """Whether node objects and amounts that have a column alone decide where a pod of the class may go."""
    return not footprint.unlisted and not any(keeps_books(plugin) for plugin, _ in program.steps)


def taken(cluster: Cluster, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Floats:
    """What ``pods[i]`` take together on ``rows[i]``, in the layout of the usage."""
    amounts: Floats = np.zeros((len(cluster.usage), len(rows)))
    for index, some in enumerate(pods):
        for pod in some:
            vector = pod.footprint.vector
            amounts[: len(vector), index] += vector
    return amounts


def window_with(cluster: Cluster, rows: Ints, change: Floats) -> Window:
    """``rows`` as they would be with ``change`` more free."""
    usage = cluster.usage.take(rows, axis=1) + change
    return Window(cluster, rows, len(rows), usage, cluster.allocatable.take(rows, axis=1))


@contextmanager
def beside(books: Books, rivals: Sequence[AssignedPod]) -> Iterator[None]:
    """``rivals`` count on their node meanwhile."""
    counted = [pod for pod in rivals if books.counted(pod.ref.uid) is None]
    try:
        for pod in counted:
            books.count(pod)
        yield
    finally:
        for pod in counted:
            books.uncount(pod.ref.uid)


def fits(
    books: Books,
    program: Program,
    footprint: Footprint,
    row: int,
    rivals: Sequence[AssignedPod] = (),
    *,
    alone: bool = True,
) -> bool:
    """Whether a pod of the class passes all filters on a row, also beside its ``rivals``; ``alone``: and without them.
    PluginError: one raised."""
    if (alone or not rivals) and not _passes(program, Window.some(books.cluster, np.array([row]))):
        return False
    if not rivals:
        return True
    if amounts_only(program, footprint):
        rows = np.array([row])
        change = -taken(books.cluster, rows, [[pod for pod in rivals if books.counted(pod.ref.uid) is None]])
        return _passes(program, window_with(books.cluster, rows, change))
    with beside(books, rivals):
        return _passes(program, Window.some(books.cluster, np.array([row])))


def first_reasons(program: Program, window: Window) -> list[list[tuple[FilterPlugin, str]]]:
    """Per row of the window, what the first filter that refuses it says; nothing where none does. PluginError."""
    found: list[list[tuple[FilterPlugin, str]]] = [[] for _ in range(window.size)]
    left = np.ones(window.size, dtype=np.bool_)
    for plugin, terms in program.steps:
        gone = np.zeros(window.size, dtype=np.bool_)
        for reason in reasons(plugin, terms, window):
            for index in np.flatnonzero(reason.rows & left).tolist():
                found[index].append((plugin, reason.text))
            gone |= reason.rows
        left &= ~gone
    return found


def reasons(plugin: FilterPlugin, terms: Terms, window: Window) -> Sequence[Reason]:
    """What a filter says. PluginError: it raised."""
    try:
        return plugin.reasons(terms, window)
    except Exception as error:
        raise PluginError(plugin.name, "Filter", error) from error


def _passes(program: Program, window: Window) -> bool:
    for plugin, terms in program.steps:
        try:
            if not plugin.filter(terms, window)[0]:
                return False
        except Exception as error:
            raise PluginError(plugin.name, "Filter", error) from error
    return True
