# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""NodeMetric: what a node and its pods really use, as its agent measured it; spec 10 section 2.8.

A report is read once and then kept by whoever watches, for every node and with every pod on it. So its status is kept
as the bytes that came and decoded when it is asked for: a quarter of the memory of the decoded one.
"""

import msgspec

from koord.kube.meta import ResourceList, TypedObject, View, decode

_EMPTY = msgspec.Raw(b"{}")


class Usage(View, frozen=True):
    """Amounts by resource."""

    resources: ResourceList = {}


class AggregatedUsage(View, frozen=True):
    """Usage over a window (a Go duration), by avg, p50, p90, p95 and p99."""

    duration: str = ""
    usage: dict[str, Usage] = {}


class NodeUsage(View, frozen=True):
    """Usage of the whole node, of the system's own processes, and over windows."""

    node_usage: Usage = msgspec.field(default_factory=Usage)
    system_usage: Usage = msgspec.field(default_factory=Usage)
    aggregated_node_usages: list[AggregatedUsage] = []


class PodUsage(View, frozen=True):
    """Usage of one pod; ``priority`` is its priority class as the agent sees it."""

    namespace: str = ""
    name: str = ""
    priority: str = ""
    pod_usage: Usage = msgspec.field(default_factory=Usage)


class PredictedUsage(View, frozen=True):
    """What the agent expects for the time to come, of what it saw for hours."""

    resource: Usage = msgspec.field(default_factory=Usage)


class MetricCollectPolicy(View, frozen=True):
    """How often the agent reports."""

    report_interval_seconds: int | None = None


class NodeMetricSpec(View, frozen=True):
    """What the agent of the node is to do."""

    metric_collect_policy: MetricCollectPolicy | None = None


class NodeMetricStatus(View, frozen=True):
    """The last report; no ``update_time``: there has been none. ``prod_peak_metric``: what the pods of class prod or
    none are going to use at their peak; agents of old do not say it."""

    update_time: str | None = None
    node_metric: NodeUsage | None = None
    pods_metric: list[PodUsage] = []
    prod_peak_metric: PredictedUsage | None = None


class NodeMetric(TypedObject, frozen=True):
    """The report of one node, whose name it has."""

    spec: NodeMetricSpec = msgspec.field(default_factory=NodeMetricSpec)
    status_body: msgspec.Raw = msgspec.field(name="status", default=_EMPTY)

    def __post_init__(self) -> None:
        body = bytes(self.status_body)
        # A copy, which does not keep the message that it was a part of.
        msgspec.structs.force_setattr(self, "status_body", _EMPTY if body in (b"{}", b"null") else msgspec.Raw(body))

    @property
    def status(self) -> NodeMetricStatus:
        """Decoded anew each time. msgspec.ValidationError names a field that cannot be read."""
        return decode(NodeMetricStatus, bytes(self.status_body))
