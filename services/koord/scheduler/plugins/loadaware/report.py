"""A NodeMetric as numbers. Spec 10 sections 2.8 and 3.11."""

from typing import NamedTuple

from koord.kube.meta import parse_time
from koord.kube.nodemetrics import AggregatedUsage, NodeMetric
from koord.kube.protocol import qos
from koord.kube.protocol.gotext import go_duration
from koord.scheduler.plugins.loadaware.thresholds import Aggregate
from koord.scheduler.plugins.loadaware.vectors import Vector, vector

INTERVAL_S = 60.0
"""How often agents report unless the object says otherwise."""


class Report(NamedTuple):
    """``updated``: seconds since the epoch, None if nothing was ever reported. ``usage`` None: it has no numbers.

    ``pods`` are by namespace and name: usage, and whether the agent takes the pod for a prod one.
    """

    updated: float | None
    interval: float
    usage: Vector | None
    system: Vector
    aggregates: dict[Aggregate, Vector]
    pods: dict[tuple[str, str], tuple[Vector, bool]]


def read(metric: NodeMetric, names: tuple[str, ...]) -> Report:
    """The report in the order of ``names``. ValueError names the object, the field and the rule."""
    status, policy = metric.status, metric.spec.metric_collect_policy
    interval = policy.report_interval_seconds if policy is not None else None
    try:
        pods = {
            (pod.namespace, pod.name): (
                vector(pod.pod_usage.resources, names, f"podsMetric[{pod.namespace}/{pod.name}].podUsage.resources"),
                pod.priority == qos.PROD,
            )
            for pod in status.pods_metric
        }
        usage, system, aggregates = None, [0.0] * len(names), {}
        if status.node_metric is not None:
            usage = vector(status.node_metric.node_usage.resources, names, "nodeMetric.nodeUsage.resources")
            system = vector(status.node_metric.system_usage.resources, names, "nodeMetric.systemUsage.resources")
            aggregates = _aggregates(status.node_metric.aggregated_node_usages, names)
        updated = None if status.update_time is None else parse_time(status.update_time)
    except ValueError as error:
        raise ValueError(f"NodeMetric {metric.metadata.name}: status: {error}") from None
    return Report(updated, INTERVAL_S if interval is None else float(interval), usage, system, aggregates, pods)


def _aggregates(reported: list[AggregatedUsage], names: tuple[str, ...]) -> dict[Aggregate, Vector]:
    """By type and window, and by type with window 0: the longest window that has the type."""
    found: dict[Aggregate, Vector] = {}
    longest: dict[str, int] = {}
    for aggregated in reported:
        window = go_duration(aggregated.duration or "0")
        for type_, usage in aggregated.usage.items():
            amounts = vector(usage.resources, names, f"nodeMetric.aggregatedNodeUsages[{aggregated.duration}].{type_}")
            found[type_, window] = amounts
            if window >= longest.get(type_, 0):
                longest[type_] = window
                found[type_, 0] = amounts
    return found
