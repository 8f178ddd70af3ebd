"""Metrics of the quota service. Those that begin with ``scheduler_`` have the original's names (spec 20 section 5)."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from koord.telemetry.metrics import REGISTRY, counter, gauge, histogram

QUOTAS = gauge("koord_quota_quotas", "Quotas in force")
PODS = gauge("koord_quota_pods", "Live pods counted")
WRITTEN = counter("koord_quota_writebacks", "ElasticQuota objects patched")
REVOKED = counter("koord_quota_pods_revoked", "Pods whose eviction was decided because their quota is overused")
FILL = histogram("koord_quota_fill_seconds", "Computing runtimes and limits anew")
RUNTIME_AGE = gauge(
    "koord_quota_runtime_age_seconds", "How long ago what schedulers were told of a tree was current", ("tree",)
)
UPDATE = histogram(
    "scheduler_update_elastic_quota_status_duration_seconds",
    "Finding out which ElasticQuota objects do not show what they should",
    buckets=[0.001 * 2**k for k in range(15)],
)

StatusRow = tuple[tuple[str, str, str, str], Mapping[str, Mapping[str, int]]]
"""(name, tree, is_parent, parent) of a quota, and by field its amounts by resource."""


class StatusCollector(Collector):
    """``scheduler_elastic_quota_status``, made when it is asked for: nothing is kept between two scrapes."""

    def __init__(self) -> None:
        self.source: Callable[[], Iterable[StatusRow]] | None = None

    def collect(self) -> Iterator[Metric]:
        """One series per quota, resource and field; cpu in milli-cores."""
        found = GaugeMetricFamily(
            "scheduler_elastic_quota_status",
            "What an ElasticQuota shows",
            labels=("name", "resource", "tree", "is_parent", "parent", "field"),
        )
        for (name, tree, is_parent, parent), fields in self.source() if self.source is not None else ():
            for field, amounts in fields.items():
                for resource, amount in amounts.items():
                    found.add_metric((name, resource, tree, is_parent, parent, field), amount)
        yield found


STATUS = StatusCollector()
REGISTRY.register(STATUS)
