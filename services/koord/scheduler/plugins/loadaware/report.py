"""A NodeMetric as numbers. Spec 10 sections 2.8 and 3.11.

There is one per node with all its pods, so what is looked at rarely is kept in plain arrays.
"""

from array import array
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import msgspec

from koord.kube.meta import parse_time
from koord.kube.nodemetrics import AggregatedUsage, NodeMetric, PodUsage
from koord.kube.protocol import qos
from koord.kube.protocol.gotext import go_duration
from koord.scheduler.plugins.loadaware.thresholds import Aggregate
from koord.scheduler.plugins.loadaware.vectors import Vector, vector

LOWER = frozenset((qos.MID, qos.BATCH, qos.FREE))
INTERVAL_S = 60.0
"""How often agents report unless the object says otherwise."""


class PodUsages:
    """What pods were reported to use, and which of them the agent takes for prod ones."""

    __slots__ = ("_amounts", "_index", "_prod", "_size")

    def __init__(self, pods: Iterable[PodUsage], names: tuple[str, ...]) -> None:
        self._size = len(names)
        self._index: dict[str, int] = {}
        self._amounts = array("d")
        self._prod = 0
        for pod in pods:
            key = f"{pod.namespace}/{pod.name}"
            amounts = vector(pod.pod_usage.resources, names, f"podsMetric[{key}].podUsage.resources")
            number = len(self._amounts) // self._size
            self._index[key] = number
            self._amounts.extend(amounts)
            self._prod |= (pod.priority == qos.PROD) << number

    def get(self, namespace: str, name: str) -> tuple[Vector, bool] | None:
        """Usage, and whether it is a prod pod; None if it is not in the report."""
        number = self._index.get(f"{namespace}/{name}")
        if number is None:
            return None
        first = number * self._size
        return self._amounts[first : first + self._size].tolist(), bool(self._prod >> number & 1)


class Aggregates:
    """Usage by type and window."""

    __slots__ = ("_amounts", "_keys", "_size")

    def __init__(self, reported: Iterable[AggregatedUsage], names: tuple[str, ...]) -> None:
        self._size = len(names)
        self._amounts = array("d")
        keys: list[Aggregate] = []
        for aggregated in reported:
            window = go_duration(aggregated.duration or "0")
            for type_, usage in aggregated.usage.items():
                field = f"nodeMetric.aggregatedNodeUsages[{aggregated.duration}].{type_}"
                keys.append((type_, window))
                self._amounts.extend(vector(usage.resources, names, field))
        self._keys = _shared(tuple(keys))

    def get(self, aggregate: Aggregate) -> Vector | None:
        """Of a window of 0: the longest one that has the type."""
        type_, window = aggregate
        number = max(
            (number for number, key in enumerate(self._keys) if key[0] == type_ and window in (0, key[1])),
            key=lambda number: self._keys[number][1],
            default=None,
        )
        if number is None:
            return None
        first = number * self._size
        return self._amounts[first : first + self._size].tolist()


class Report(NamedTuple):
    """``updated``: seconds since the epoch, None if nothing was ever reported. ``usage`` None: it has no numbers.

    ``peak``: what prod pods are predicted to use; ``predicted``: that, and what all other pods use now. None: nothing
    is predicted, or nobody asked.
    """

    updated: float | None
    interval: float
    usage: Vector | None
    system: Vector
    aggregates: Aggregates
    pods: PodUsages
    peak: Vector | None = None
    predicted: Vector | None = None


def read(metric: NodeMetric, names: tuple[str, ...], *, predicted: bool = False) -> Report:
    """The report in the order of ``names``, what is ``predicted`` if that is asked for. ValueError names the object,
    the field and the rule."""
    policy = metric.spec.metric_collect_policy
    interval = policy.report_interval_seconds if policy is not None else None
    try:
        status = metric.status
        pods = PodUsages(status.pods_metric, names)
        node, usage, system = status.node_metric, None, [0.0] * len(names)
        if node is not None:
            usage = vector(node.node_usage.resources, names, "nodeMetric.nodeUsage.resources")
            system = vector(node.system_usage.resources, names, "nodeMetric.systemUsage.resources")
        aggregates = Aggregates(node.aggregated_node_usages if node is not None else (), names)
        peak = whole = None
        if predicted and status.prod_peak_metric is not None:
            peak = vector(status.prod_peak_metric.resource.resources, names, "prodPeakMetric.resource.resources")
            whole = _with_lower(peak, status.pods_metric, pods)
        updated = None if status.update_time is None else parse_time(status.update_time)
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(f"NodeMetric {metric.metadata.name}: status: {error}") from None
    seconds = INTERVAL_S if interval is None else float(interval)
    return Report(updated, seconds, usage, system, aggregates, pods, peak, whole)


def _with_lower(peak: Vector, reported: Iterable[PodUsage], pods: PodUsages) -> Vector:
    """``peak``, which is about pods of class prod or none, with what is used by the others."""
    total = list(peak)
    for pod in reported:
        found = pods.get(pod.namespace, pod.name) if pod.priority in LOWER else None
        if found is not None:
            total = [amount + used for amount, used in zip(total, found[0], strict=True)]
    return total


@lru_cache(maxsize=256)
def _shared(keys: tuple[Aggregate, ...]) -> tuple[Aggregate, ...]:
    """Agents report the same windows everywhere: one tuple for all of them."""
    return keys
