"""CPUs and NUMA nodes without some pods of each row, for preemption: the books of a node are copied, never changed."""

from collections.abc import Sequence

import numpy as np

from koord.columns.matrix import Bools, Ints
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import AssignedPod, Reason, Without
from koord.scheduler.numa.merge import UNSATISFIED
from koord.scheduler.numa.placing import align, needs
from koord.scheduler.numa.state import NodeState
from koord.scheduler.plugins.nodenumaresource.books import Books
from koord.scheduler.plugins.nodenumaresource.onerow import answer
from koord.scheduler.plugins.nodenumaresource.rows import INSUFFICIENT_AMPLIFIED
from koord.scheduler.plugins.nodenumaresource.settings import NUMASettings
from koord.scheduler.plugins.nodenumaresource.terms import NUMATerms
from koord.scheduler.plugins.nodenumaresource.working import Working


class NUMAWithout(Without):
    """One copy of the books per row, from which pods are taken, and to which they come back, as they are asked for."""

    def __init__(
        self,
        books: Books,
        terms: NUMATerms,
        rows: Ints,
        pods: Sequence[Sequence[AssignedPod]],
        settings: NUMASettings,
        working: Working,
    ) -> None:
        self._terms = terms
        self._settings = settings
        self._working = working
        names = [books.cluster.index.name(row) or "" for row in rows.tolist()]
        self._states = [NodeState() if not name else books.state(name).copy() for name in names]
        self._has = [
            [(place, pod.ref.uid, found) for place, pod in enumerate(some) if (found := state.pods.get(pod.ref.uid))]
            for state, some in zip(self._states, pods, strict=True)
        ]

    def passes(self, gone: Bools, window: Window) -> Bools:
        """Every check of the filter, node by node; what was worked out of a like state before is not again."""
        self._bring(gone)
        return np.array(
            [
                answer(state, self._terms, window, at, self._settings, self._working).fits
                for at, state in enumerate(self._states)
            ],
            dtype=np.bool_,
        )

    def reasons(self, gone: Bools, window: Window) -> list[Reason]:
        """Why a node gives nothing."""
        self._bring(gone)
        found: dict[str, Bools] = {}
        for at, state in enumerate(self._states):
            if answer(state, self._terms, window, at, self._settings, self._working).fits:
                continue
            for text in self._texts(state):
                found.setdefault(text, np.zeros(len(gone), dtype=np.bool_))[at] = True
        return [Reason(text, rows) for text, rows in found.items()]

    def _texts(self, state: NodeState) -> tuple[str, ...]:
        worked = self._working.out(state, self._terms)
        if not isinstance(worked.found, str):
            return (INSUFFICIENT_AMPLIFIED,)
        if worked.found.startswith(UNSATISFIED):  # the first of several
            return align(state, worked.wish, needs(state, worked.wish)).reasons
        return (worked.found,)

    def _bring(self, gone: Bools) -> None:
        """Make the copies what they are without those who are gone."""
        for at, (state, has) in enumerate(zip(self._states, self._has, strict=True)):
            for place, uid, allocation in has:
                if gone[at, place]:
                    state.remove(uid)
                elif uid not in state.pods:
                    state.add(uid, allocation)
