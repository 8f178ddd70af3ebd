"""What the quotas in force are given: rows and totals of their trees for the filling (spec 20 sections 2.9, 3.7, 3.8).

The root, system and default quotas are outside the filling: their runtime is their max. What system and default use is
not there for the others.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Protocol

import numpy as np

from koord.accounting.quotas import MOST_RESOURCES, QuotaNode, QuotaTree
from koord.accounting.requests import amounts
from koord.kube.protocol import quota as keys
from koord.kube.quantity import QuantityError
from koord.quota.filling import Ints
from koord.quota.idle import IdleRoom
from koord.quota.runtime import RuntimeTree
from koord.quota.shape import QuotaRow
from koord.quota.standing import Order
from koord.quota.sums import ByQuota
from koord.quota.waiting import Lines

_ANY = Order()
_NONE: Mapping[str, int] = {}


class NodeTotal:
    """The sum of all nodes' allocatable, kept as nodes come, change and go."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, int]] = {}
        self.amounts: dict[str, int] = {}

    def put(self, name: str, allocatable: Mapping[str, str | int | float]) -> bool:
        """A node as it is now; True if the sum changed. QuantityError names the field, and what was known stays."""
        new = amounts(allocatable, f"Node {name}: status.allocatable")
        old = self._nodes.get(name)
        if new == old:
            return False
        self._add(old or {}, -1)
        self._nodes[name] = new
        self._add(new, 1)
        return True

    def drop(self, name: str) -> bool:
        """The node is gone; True if the sum changed."""
        old = self._nodes.pop(name, None)
        self._add(old or {}, -1)
        return bool(old)

    def _add(self, of_node: Mapping[str, int], sign: int) -> None:
        for name, amount in of_node.items():
            self.amounts[name] = self.amounts.get(name, 0) + sign * amount


class Books(Protocol):
    """What :class:`Distribution` reads of :class:`~koord.quota.usage.Usage`: each quota's own, not summed up a tree."""

    @property
    def lines(self) -> Lines:
        """Who waits."""

    @property
    def asked(self) -> ByQuota:
        """What its pods and units ask for."""

    @property
    def used(self) -> ByQuota:
        """What its pods use."""

    @property
    def occupied(self) -> ByQuota:
        """What its admitted units and other pods occupy."""


class Distribution:
    """Runtime of every quota. ``guarantee`` and ``scale`` as of :class:`~koord.quota.runtime.RuntimeTree`.

    ``idle`` hands on what lies idle after the filling; None: it stays where it is.
    """

    def __init__(self, *, guarantee: bool = False, scale: bool = True, idle: IdleRoom | None = None) -> None:
        self._guarantee, self._scale = guarantee, scale
        self.idle = idle
        self._filled = RuntimeTree(())
        self._runtimes: Ints = self._filled.runtimes
        self._limits: Ints = self._filled.runtimes
        self._admission: Ints = self._filled.runtimes
        self._rebuilt = True
        self._outside: dict[str, dict[str, int]] = {}
        self._tree_totals: dict[str, dict[str, int]] = {}
        self._apart: set[str] = set()
        self.problems: dict[str, str] = {}

    def rebuild(self, tree: QuotaTree) -> None:
        """The quotas in force changed. ``problems`` then says, by quota, which annotation was passed over and why."""
        nodes = [node for name in tree if (node := tree.get(name)) is not None]
        self.problems = {}
        self._outside = {node.name: node.max for node in nodes if node.name in keys.SPECIAL_QUOTAS}
        inside = [node for node in nodes if node.name not in keys.SPECIAL_QUOTAS]
        weights = self._weights(inside)
        self._filled = RuntimeTree(
            [
                QuotaRow(
                    node.name, node.parent, node.min, node.max, weights[node.name],
                    keys.allows_lending(node.labels), node.tree,
                )
                for node in inside
            ],
            guarantee=self._guarantee,
            scale=self._scale,
        )  # fmt: skip
        self._rebuilt = True
        self._totals_of(inside)

    def update(
        self,
        books: Books,
        nodes: Mapping[str, int],
        names: Set[str] | None = None,
        order_of: Callable[[str, str], Order] = lambda queue, quota: _ANY,
        now_s: float = 0.0,
    ) -> tuple[set[str], set[str]]:
        """Take in what quotas ask for, use and occupy, and the nodes' sum; whose request, runtime or limit changed by
        that, and whose runtime or limit.

        ``names``: only their books changed since the last call (after :meth:`rebuild` all are read). ``order_of`` and
        ``now_s`` as of :meth:`koord.quota.idle.IdleRoom.share`.
        """
        filled = self._filled
        if self._rebuilt or names is None:
            filled.set_all_own(books.asked, books.used)
            filled.set_all_occupied(books.occupied)
        else:
            for name in filled.row.keys() & names:
                filled.set_own(name, books.asked.get(name, _NONE), books.used.get(name, _NONE))
                filled.set_occupied(name, books.occupied.get(name, _NONE))
        rebuilt, self._rebuilt = self._rebuilt, False
        default = dict(nodes)
        for tree, total in self._tree_totals.items():
            filled.set_total(tree, total)
            if tree not in self._apart:
                _subtract(default, total)
        for name in (keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA):
            _subtract(default, books.used.get(name, _NONE))
        filled.set_total("", default)
        changed = {filled.names[at] for at in filled.compute()}
        before = self._runtimes, self._limits, self._admission
        below, _ = filled.up(filled.occupied, np.zeros_like(filled.occupied))
        shares = filled.runtimes, filled.runtimes
        if self.idle is not None:
            shares = self.idle.share(filled, below, books.lines, order_of, now_s)
        self._runtimes, self._admission = shares[0].copy(), shares[1].copy()
        self._limits = np.minimum(np.maximum(np.maximum(self._runtimes, below), filled.assured()), filled.most)
        if rebuilt:
            every = set(filled.names) | set(self._outside)
            return every, every
        now = self._runtimes, self._limits, self._admission
        differs = np.any([was != new for was, new in zip(before, now, strict=True)], axis=0)
        moved = {filled.names[at] for at in np.flatnonzero(differs.any(axis=0)).tolist()}
        return changed | moved, moved

    def runtime(self, name: str) -> dict[str, int]:
        """What a quota may use now, by the resources of its max. KeyError when it was not in the tree."""
        outside = self._outside.get(name)
        return dict(outside) if outside is not None else self._filled.runtime(self._filled.row[name], self._runtimes)

    def admission(self, name: str) -> dict[str, int]:
        """How far QueueUnits may be admitted: the runtime, less what only stays with those that have it already."""
        outside = self._outside.get(name)
        return dict(outside) if outside is not None else self._filled.runtime(self._filled.row[name], self._admission)

    def limit(self, name: str) -> dict[str, int]:
        """What a quota's pods may use now, by the resources of its max. KeyError when it was not in the tree.

        It is the runtime, or more: what was admitted before that fell, so that jobs that were let in can be completed,
        and the min, which the quota would get as soon as it asks, so that its first pod need not wait for that.
        """
        outside = self._outside.get(name)
        return dict(outside) if outside is not None else self._filled.runtime(self._filled.row[name], self._limits)

    def guarantee(self, name: str) -> tuple[dict[str, int], dict[str, int]]:
        """With the guarantee: what a quota has given away and what it keeps; both empty without, or outside."""
        at = self._filled.row.get(name)
        if at is None or not self._guarantee:
            return {}, {}
        return self._filled.allocated(at), self._filled.guaranteed(at)

    def weight(self, name: str) -> dict[str, int]:
        """What a quota shares its parent's rest by; empty outside."""
        at = self._filled.row.get(name)
        return (
            {} if at is None else dict(zip(self._filled.resources, self._filled.weights[:, at].tolist(), strict=True))
        )

    def _totals_of(self, nodes: Iterable[QuotaNode]) -> None:
        """A tree of its own has what its roots' annotation says."""
        self._tree_totals, self._apart = {}, set()
        names = self._filled.row.keys()
        for node in nodes:
            said = self._annotated(node, keys.TOTAL_RESOURCE)  # a bad one is told of wherever it stands
            if not node.tree or node.parent in names:
                continue
            total = self._tree_totals.setdefault(node.tree, {})
            for name, amount in (said or {}).items():
                total[name] = total.get(name, 0) + amount
            if node.labels.get(keys.IGNORE_DEFAULT_TREE) == "true":
                self._apart.add(node.tree)

    def _weights(self, nodes: Iterable[QuotaNode]) -> dict[str, dict[str, int]]:
        """The shared-weight; missing, bad or all zero: max.

        A parent whose max does not name a resource limits nothing there, so its children are to get what they would
        without it: it weighs what they weigh together.
        """
        every = {node.name: node for node in nodes}
        weights: dict[str, dict[str, int]] = {}
        given: set[str] = set()
        for node in every.values():
            own = self._annotated(node, keys.SHARED_WEIGHT)
            if own and any(own.values()):
                given.add(node.name)
                weights[node.name] = own
            else:
                weights[node.name] = dict(node.max)
        for node in every.values():
            for resource, weight in list(weights[node.name].items()):
                parent = every.get(node.parent)
                seen = {node.name}
                while (
                    parent is not None
                    and parent.name not in seen
                    and parent.name not in given
                    and resource not in parent.max
                    and resource in node.max
                ):
                    seen.add(parent.name)
                    above = weights[parent.name]
                    above[resource] = above.get(resource, 0) + weight
                    parent = every.get(parent.parent)
        return weights

    def _annotated(self, node: QuotaNode, key: str) -> dict[str, int] | None:
        try:
            values = keys.resource_list(node.annotations, key)
            if values is not None and len(values) > MOST_RESOURCES:
                raise QuantityError(f"annotation {key}: names {len(values)} resources, at most {MOST_RESOURCES} can be")
            return None if values is None else amounts(values, f"annotation {key}")
        except (keys.AnnotationError, QuantityError) as error:
            before = self.problems.get(node.name)
            self.problems[node.name] = f"{before}; {error}" if before else f"ElasticQuota {node.key}: {error}"
            return None


def _subtract(total: dict[str, int], less: Mapping[str, int]) -> None:
    """Only of what the total names: what is used of nothing does not make it a resource to share."""
    for name, amount in less.items():
        if name in total:
            total[name] -= amount
