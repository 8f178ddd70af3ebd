"""Where many things are, each told by a node selector, matched with all rows at once.

There is a volume or a capacity object for every node of a large cluster, and testing each one's selector on all rows
would take seconds. Nearly all of them say ``one label In some values``, so these are indexed by the label's code: a
row finds its things by one look-up. The others are tested one by one, once per distinct selector.
"""

from collections.abc import Sequence

import numpy as np

from koord.columns.matrix import Bools, Ints
from koord.kube.pods import NodeSelector
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.nodeterms import NodeTerm, node_term, node_terms, terms_mask
from koord.scheduler.engine.window import Window

Places = tuple[NodeTerm, ...] | None
"""One of the terms must hold; None: everywhere; empty: nowhere."""

NOTHING = np.iinfo(np.int64).max
"""In place of a position: none."""


def places(selector: NodeSelector | None) -> Places:
    """Where a volume with this node affinity can be reached.

    As in Kubernetes it is tested on labels alone: a test of ``metadata.name`` sees an empty name. A term that cannot be
    read matches no node; SelectorError names what is wrong if there is no other.
    """
    if selector is None:
        return None
    found = []
    terms = node_terms(selector)
    if terms and all(term.broken for term in terms):
        node_term(selector.node_selector_terms[0])
    for term in terms:
        if term.broken or any(operator == "In" for _, operator, _ in term.names):
            continue
        if term.names and not term.labels:
            return None
        found.append(NodeTerm(term.labels))
    return tuple(found)


class PlaceIndex:
    """Things by position, in the order of ``where``."""

    def __init__(self, where: Sequence[Places], cluster: Cluster) -> None:
        everywhere: list[int] = []
        keyed: dict[str, tuple[list[int], list[int]]] = {}
        others: dict[tuple[NodeTerm, ...], list[int]] = {}
        for position, terms in enumerate(where):
            if terms is None:
                everywhere.append(position)
            elif (simple := _simple(terms)) is not None:
                key, values = simple
                positions, codes = keyed.setdefault(key, ([], []))
                column = cluster.labels.column(key)
                for value in sorted(set(values)):
                    positions.append(position)
                    codes.append(column.code(value))
            elif terms:
                others.setdefault(terms, []).append(position)
        self._everywhere = np.array(everywhere, dtype=np.int64)
        self._keyed = {key: (np.array(at, dtype=np.int64), np.array(codes)) for key, (at, codes) in keyed.items()}
        self._others = {terms: np.array(positions, dtype=np.int64) for terms, positions in others.items()}

    def any_of(self, chosen: Bools, window: Window) -> Bools:
        """True where one of the ``chosen`` things is."""
        found: Bools = self.first(chosen, window, 1)[0] != NOTHING
        return found

    def first(self, chosen: Bools, window: Window, count: int) -> Ints:
        """The first ``count`` positions of ``chosen`` things that are on each row, [count][row]; else ``NOTHING``."""
        best: Ints = np.full((count, window.size), NOTHING, dtype=np.int64)
        found = self._everywhere[chosen[self._everywhere]][:count]
        best[: len(found)] = found[:, None]
        labels = window.cluster.labels
        for key, (positions, codes) in self._keyed.items():
            kept = chosen[positions]
            if not kept.any():
                continue
            column = labels.column(key)
            table = _table(positions[kept], codes[kept], len(column.values), count)
            best = _merged(best, table[:, column.codes[window.rows]])
        for terms, positions in self._others.items():
            found = positions[chosen[positions]][:count]
            if len(found):
                best = _merged(best, np.where(terms_mask(terms, window), found[:, None], NOTHING))
        return best


def _simple(terms: tuple[NodeTerm, ...]) -> tuple[str, tuple[str, ...]] | None:
    if len(terms) != 1 or len(terms[0].labels) != 1 or terms[0].names:
        return None
    key, operator, values = terms[0].labels[0]
    return (key, values) if operator == "In" else None


def _table(positions: Ints, codes: Ints, high: int, count: int) -> Ints:
    """The first ``count`` positions of each code, [count][code]; positions ascend."""
    table: Ints = np.full((count, high), NOTHING, dtype=np.int64)
    if count == 1:
        table[0, codes[::-1]] = positions[::-1]
        return table
    order = np.argsort(codes, kind="stable")
    codes, positions = codes[order], positions[order]
    rank = np.arange(len(codes)) - np.searchsorted(codes, codes)
    low = rank < count
    table[rank[low], codes[low]] = positions[low]
    return table


def _merged(one: Ints, other: Ints) -> Ints:
    """The first positions of both."""
    if len(one) == 1:
        return np.minimum(one, other[:1])
    both: Ints = np.sort(np.concatenate((one, other)), axis=0)
    return both[: len(one)]
