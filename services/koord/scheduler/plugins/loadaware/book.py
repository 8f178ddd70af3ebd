"""The load of all nodes, in columns that filter and score compare with.

Everything that depends on one node alone is worked out when something of that node changes (its report, its pods, its
annotations): how much more usage the thresholds allow (*room*), how much of the capacity is *left*. A filter over all
nodes is then one comparison per resource, a score a few operations. A node without thresholds, or without a report, has
endless room; one that cannot be rated has less than nothing left.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal, cast

import numpy as np

from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
from koord.scheduler.engine.cluster import Cluster, RowColumn
from koord.scheduler.framework.contract import AssignedPod
from koord.scheduler.plugins.loadaware.cooling import CoolDowns
from koord.scheduler.plugins.loadaware.load import Expected, NodeLoad
from koord.scheduler.plugins.loadaware.report import Report
from koord.scheduler.plugins.loadaware.score import Columns
from koord.scheduler.plugins.loadaware.thresholds import Aggregate, Thresholds, limits
from koord.scheduler.plugins.loadaware.vectors import Vector

ExpiredPolicy = Literal["Block", "Ignore", "UseStale"]


class _Node:
    """One node: its row (-1: there is none), its load, and what its thresholds amount to.

    ``waiting`` are pods that came while there was no report: nothing of the node depends on them until there is one.
    """

    __slots__ = ("aggregate", "capacity", "limits", "load", "prod_limits", "row", "waiting")

    def __init__(self, size: int) -> None:
        self.row = -1
        self.load = NodeLoad(size)
        self.waiting: dict[str, AssignedPod] = {}
        self.capacity: Vector = []
        self.aggregate: Aggregate | None = None
        self.limits: Vector | None = None
        self.prod_limits: Vector | None = None


class LoadBook:
    """Loads by node name, and the columns. ``expect`` says what a pod counts for; ``policy`` what becomes of nodes
    whose report is too old."""

    def __init__(
        self,
        cluster: Cluster,
        args: LoadAwareSchedulingArgs,
        resources: tuple[str, ...],
        expect: Callable[[AssignedPod], Expected],
    ) -> None:
        self._cluster = cluster
        self._expect = expect
        self._args = args
        self._resources = resources
        self.policy = _policy(args)
        aggregated = args.aggregated
        self._rated: Aggregate | None = None
        if aggregated is not None and aggregated.score_aggregation_type:
            window = round(aggregated.score_aggregated_duration * 10**9)
            self._rated = (aggregated.score_aggregation_type, window)
        self._nodes: dict[str, _Node] = {}
        self._now = 0.0
        self.reports = 0
        """How many nodes have one."""
        self._nothing: Vector = [inf] * len(resources)
        self._never: Vector = [-inf] * len(resources)
        self._room = [cluster.column(default=inf) for _ in resources]
        self._prod_room = [cluster.column(default=inf) for _ in resources]
        self._left = [cluster.column(default=-inf) for _ in resources]
        by_prod = args.score_according_prod_usage
        self._prod_left = [cluster.column(default=-inf) for _ in resources] if by_prod else self._left
        self.capacity = [cluster.column(default=1.0) for _ in resources]
        """Of each resource; inf where the node has none."""
        self._expires = cluster.column(default=inf)
        self.expired = cluster.column(np.bool_)
        self.aggregated = cluster.column(np.bool_)
        """Whether the thresholds of the node are compared with an aggregate."""
        self.own_prod = cluster.column(np.bool_)
        """Whether prod pods are checked against thresholds of their own."""
        self.cooling = CoolDowns(cluster)

    # Columns --------------------------------------------------------------------------------------------------------

    def room_of(self, *, prod: bool) -> Columns:
        """The usage of each resource that must stay below this, for prod pods or for all others."""
        return self._prod_room if prod else self._room

    def left_of(self, *, prod: bool) -> Columns:
        """A hundred times what is left of each resource, as prod pods or all others are rated; −inf: unknown."""
        return self._prod_left if prod else self._left

    def per_pod(self, estimate: tuple[float, ...], *, prod: bool) -> dict[RowColumn, float]:
        """What a pod adds to the columns that pods like it look at."""
        moved = {column: -amount for column, amount in zip(self.room_of(prod=prod), estimate, strict=True)}
        left = {column: -100.0 * amount for column, amount in zip(self.left_of(prod=prod), estimate, strict=True)}
        return moved | left

    # Pods -----------------------------------------------------------------------------------------------------------

    def assigned(self, pod: AssignedPod) -> None:
        """A pod has a node, which may be unknown yet."""
        node = self._of(pod.node)
        if node.load.report is None:
            node.waiting[pod.ref.uid] = pod
            return
        expected = self._expect(pod)
        if node.load.add(pod.ref.uid, expected):
            self._shift(node, expected, -1.0)
        else:
            self._write(node)

    def assigned_run(self, pods: Sequence[AssignedPod]) -> None:
        """Equal pods have been planned, each on its node: as :meth:`assigned`, with one change of each column."""
        first = self._expect(pods[0])
        rows: list[int] = []
        for pod in pods:
            node, ref = self._of(pod.node), pod.ref
            if node.load.report is None:
                node.waiting[ref.uid] = pod
                continue
            expected = Expected(
                ref.namespace, ref.name, first.estimate, first.prod, first.since, first.deadline, first.planned
            )
            if not node.load.add(ref.uid, expected) or self._narrower(node, first):
                self._write(node)
            elif node.row >= 0:
                rows.append(node.row)
        if rows:
            self._shift_many(rows, first)

    def unassigned(self, pod: AssignedPod) -> None:
        """It has its node no longer."""
        name, uid = pod.node, pod.ref.uid
        node = self._nodes.get(name)
        if node is None:
            return
        if node.waiting.pop(uid, None) is None:
            removed = node.load.remove(uid)
            if removed is None:
                return
            expected, plain = removed
            if plain:
                self._shift(node, expected, 1.0)
            else:
                self._write(node)
        self._drop(name, node)

    def reassigned(self, pod: AssignedPod) -> int | None:
        """It changed on its node; the row whose columns moved by that, if any did."""
        node, uid = self._of(pod.node), pod.ref.uid
        counted = node.load.pods.get(uid)
        if counted is None:
            self.assigned(pod)
            return node.row if node.load.report is not None and node.row >= 0 else None
        expected = self._expect(pod)
        if counted[0] == expected:
            return None
        node.load.add(uid, expected)
        if counted[0].estimate == expected.estimate and counted[1] == node.load.pods[uid][1]:
            return None
        self._write(node)
        return node.row if node.row >= 0 else None

    # Nodes ----------------------------------------------------------------------------------------------------------

    def node_set(self, name: str, row: int, capacity: Vector, thresholds: Thresholds) -> None:
        """A node is on ``row``, or it changed there."""
        node = self._of(name)
        node.row, node.capacity, node.aggregate = row, capacity, thresholds.aggregate
        node.limits = limits(thresholds.node, capacity, self._resources)
        node.prod_limits = limits(thresholds.prod, capacity, self._resources)
        self._write(node)

    def node_removed(self, name: str) -> None:
        """A node is gone; its pods and its report wait in case it comes back."""
        node = self._of(name)
        node.row = -1
        self._drop(name, node)

    def reported(self, name: str, report: Report | None) -> int | None:
        """The report of a node (None: there is none any more); its row, if it has one."""
        node = self._of(name)
        self.reports += (report is not None) - (node.load.report is not None)
        node.load.reported(report)
        if report is not None and node.waiting:
            for uid, pod in node.waiting.items():
                node.load.add(uid, self._expect(pod))
            node.waiting.clear()
        self._write(node)
        self._drop(name, node)
        return node.row if node.row >= 0 else None

    def tick(self, now: float) -> list[int]:
        """It is ``now``: rows whose report became too old."""
        self._now = now
        high = self._cluster.high
        rows = np.flatnonzero((self._expires.data[:high] <= now) != self.expired.data[:high]).tolist()
        for row in rows:
            name = self._cluster.index.name(row)
            if name is not None:
                self._write(self._of(name))
        return rows

    def load_of(self, name: str) -> NodeLoad:
        """The load of a node with all of its pods, to look at; of a node that nothing is known of, an empty one."""
        node = self._nodes.get(name)
        if node is not None and not node.waiting:
            return node.load
        load = NodeLoad(len(self._resources))
        if node is not None:
            load.reported(node.load.report)
            for uid, (expected, _) in node.load.pods.items():
                load.add(uid, expected)
            for uid, pod in node.waiting.items():
                load.add(uid, self._expect(pod))
        return load

    # Inside ---------------------------------------------------------------------------------------------------------

    def _of(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node(len(self._resources))
        return node

    def _drop(self, name: str, node: _Node) -> None:
        if node.row < 0 and node.load.empty and not node.waiting:
            self._nodes.pop(name, None)

    def _narrower(self, node: _Node, pod: Expected) -> bool:
        """The room of prod pods is the narrower of two, of which only one moves by this pod."""
        return node.prod_limits is not None and self._args.check_node_and_prod and not pod.prod

    def _shift(self, node: _Node, pod: Expected, sign: float) -> None:
        """A pod came or went that adds exactly its estimate: move the columns by it, as ``_write`` would."""
        row, prod = node.row, pod.prod
        if row < 0:
            return
        if self._narrower(node, pod):
            self._write(node)
            return
        with_prod = prod or node.prod_limits is None
        by_prod = prod and self._prod_left is not self._left
        for index, amount in enumerate(pod.estimate):
            change = sign * amount
            self._room[index].data[row] += change
            self._left[index].data[row] += 100.0 * change
            if with_prod:
                self._prod_room[index].data[row] += change
            if by_prod:
                self._prod_left[index].data[row] += 100.0 * change

    def _shift_many(self, rows: list[int], pod: Expected) -> None:
        """As :meth:`_shift` of one pod after the other, a row as often as there are pods on it."""
        numbers, counts = np.unique(np.array(rows, dtype=np.int64), return_counts=True)
        of_all = np.ones(len(numbers), dtype=np.bool_) if pod.prod else ~self.own_prod.data[numbers]
        for index, amount in enumerate(pod.estimate):
            taken = counts * amount
            self._room[index].data[numbers] -= taken
            self._left[index].data[numbers] -= 100.0 * taken
            self._prod_room[index].data[numbers[of_all]] -= taken[of_all]
            if pod.prod and self._prod_left is not self._left:
                self._prod_left[index].data[numbers] -= 100.0 * taken

    def _write(self, node: _Node) -> None:
        """Work out the columns of a node."""
        row, load = node.row, node.load
        if row < 0:
            return
        report = load.report
        expires = inf
        if report is not None:
            expires = -inf if report.updated is None else report.updated + self._args.node_metric_expiration_seconds
        expired = expires <= self._now
        self._expires.data[row], self.expired.data[row] = expires, expired
        self.aggregated.data[row] = node.aggregate is not None
        self.own_prod.data[row] = node.prod_limits is not None
        room, prod_room = self._rooms(node, report, expired=expired)
        _fill(self._room, row, room)
        _fill(self._prod_room, row, prod_room)
        _fill(self.capacity, row, [amount if amount > 0 else inf for amount in node.capacity])
        rated = report is not None and report.usage is not None and not expired
        _fill(self._left, row, _left(node.capacity, load.used(self._rated)) if rated else self._never)
        if self._prod_left is not self._left:
            _fill(self._prod_left, row, _left(node.capacity, self._used_by_prod(load)) if rated else self._never)

    def _rooms(self, node: _Node, report: Report | None, *, expired: bool) -> tuple[Vector, Vector]:
        """How much more usage the thresholds allow: for pods in general, and for prod pods."""
        nothing = self._nothing
        if report is None:
            return nothing, nothing
        if expired and self.policy == "Block":
            room = nothing if node.limits is None else self._never
            return room, room if node.prod_limits is None else self._never
        if report.usage is None or (expired and self.policy == "Ignore"):
            return nothing, nothing
        room = nothing if node.limits is None else _less(node.limits, node.load.used(node.aggregate))
        if node.prod_limits is None:
            return room, room
        prod_room = _less(node.prod_limits, self._used_by_prod(node.load))
        if self._args.check_node_and_prod:
            prod_room = [min(pair) for pair in zip(room, prod_room, strict=True)]
        return room, prod_room

    def _used_by_prod(self, load: NodeLoad) -> Vector:
        return load.used_by_prod(with_system=self._args.prod_usage_include_sys)


def _fill(columns: Columns, row: int, amounts: Vector) -> None:
    for column, amount in zip(columns, amounts, strict=True):
        column.data[row] = amount


def _less(amounts: Vector, taken: Vector) -> Vector:
    return [amount - less for amount, less in zip(amounts, taken, strict=True)]


def _left(capacity: Vector, used: Vector) -> Vector:
    return [100.0 * (room - taken) if room > 0 else -inf for room, taken in zip(capacity, used, strict=True)]


def _policy(args: LoadAwareSchedulingArgs) -> ExpiredPolicy:
    if args.expired_policy:
        return cast(ExpiredPolicy, args.expired_policy)
    if not args.filter_expired_node_metrics:
        return "UseStale"
    return "Ignore" if args.enable_schedule_when_node_metrics_expired else "Block"
