"""A stand-in for the manager: the usage of every node, sent as decisions over the bus, as the real one will.

Nobody collects these figures: what is measured is how such writes pass the gateway beside others.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from koord.bus.connection import Bus
from koord.bus.decisions import DecisionPublisher
from koord.cli.errors import CommandError
from koord.contracts.decisions import Create, ObjectRef, Patch
from koord.contracts.results import Result
from koord.kube.meta import now_rfc3339
from koord.kube.resources import NODE_METRICS
from koord.localcluster.httpapi import HttpClusterApi
from koord.runtime.ending import end
from koord.telemetry.context import TraceContext

_NAME = f"{NODE_METRICS.plural}.{NODE_METRICS.group}"
_PODS = 20
_READY_S = 60.0


class _Metadata(msgspec.Struct):
    name: str


class _Usage(msgspec.Struct):
    resources: dict[str, str] = {}


class _Node(msgspec.Struct, rename="camel"):
    node_usage: _Usage = msgspec.field(default_factory=_Usage)


class _Status(msgspec.Struct, rename="camel"):
    node_metric: _Node = msgspec.field(default_factory=_Node)


class _NodeMetric(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


_seen = msgspec.json.Decoder(_NodeMetric)


class NodeReports:
    """The reports of ``nodes``. ``bus`` is that of the cluster, ``api`` a way to its server past the weather."""

    def __init__(self, bus: Bus, api: HttpClusterApi, nodes: Sequence[str]) -> None:
        self._publisher = DecisionPublisher(bus, "manager")
        self._api = api
        self._nodes = nodes
        self._number = 0
        self._sent: dict[str, float] = {}
        self._lags: list[float] = []
        self._outcomes: Counter[str] = Counter()
        self._watching: asyncio.Task[None] | None = None
        self._publisher.on_result(self._on_result)

    async def start(self) -> None:
        """Have the gateway create a NodeMetric of each node, and watch them. CommandError."""
        trace = TraceContext.new()
        creates = [(self._create(node), trace) for node in self._nodes]
        await self._publisher.publish_many(creates)
        deadline = time.monotonic() + _READY_S
        while self._outcomes.total() < len(creates):
            if time.monotonic() > deadline:
                raise CommandError(f"{len(creates) - self._outcomes.total()} NodeMetrics were not created in time")
            await asyncio.sleep(0.05)
        if set(self._outcomes) != {"done"}:
            raise CommandError(f"NodeMetrics were not created: {dict(self._outcomes)}")
        self._watching = asyncio.create_task(self._watch(), name="bench NodeMetrics")

    def begin(self) -> None:
        """Count anew."""
        self._outcomes.clear()
        self._sent.clear()
        self._lags.clear()

    async def send(self, per_s: float, seconds: float) -> None:
        """Send reports in turn of all nodes, each when its moment has come, whatever became of the earlier ones."""
        started = time.monotonic()
        for turn in range(int(per_s * seconds)):
            await asyncio.sleep(max(0.0, started + turn / per_s - time.monotonic()))
            self._number += 1
            self._sent[_cpu(self._number)] = time.monotonic()
            await self._publisher.publish(self._patch(self._nodes[self._number % len(self._nodes)]), TraceContext.new())

    @property
    def open(self) -> int:
        """Reports of which it is not known yet what became of them."""
        return len(self._sent) - self._outcomes.total()

    def figures(self) -> dict[str, float]:
        """``metrics`` sent, ``metrics_left_out`` by the gateway, and the seconds from sent to seen in a watch."""
        found = {"metrics": float(len(self._sent)), "metrics_left_out": float(self._outcomes["conflict"])}
        if self._lags:
            ordered = sorted(self._lags)
            found["metric_lag_p50_s"] = ordered[len(ordered) // 2]
            found["metric_lag_p99_s"] = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        return found

    async def stop(self) -> None:
        """Watch no more."""
        self._publisher.close()
        await end(self._watching)

    async def _watch(self) -> None:
        while True:
            async for events in self._api.watch(_NAME):
                now = time.monotonic()
                for event in events:
                    if event.type == "MODIFIED":
                        sent = self._sent.get(
                            _seen.decode(event.raw).status.node_metric.node_usage.resources.get("cpu", "")
                        )
                        if sent is not None:
                            self._lags.append(now - sent)

    def _on_result(self, result: Result) -> None:
        self._outcomes[result.outcome] += 1

    def _create(self, node: str) -> Create:
        body = {"apiVersion": NODE_METRICS.api_version, "kind": NODE_METRICS.kind, "metadata": {"name": node}}
        return Create(f"metric-{node}", NODE_METRICS.token, "", node, msgspec.json.encode(body))

    def _patch(self, node: str) -> Patch:
        target = ObjectRef(NODE_METRICS.token, "", node)
        body = msgspec.json.encode({"status": report_status(self._number)})
        return Patch(f"metric-{self._number}", target, body, subresource="status", lane="metric")


def _cpu(number: int) -> str:
    """By its amount a report is known in the watch."""
    return f"{number}m"


def report_status(number: int) -> dict[str, Any]:
    """What a node with some twenty pods reports, about 4 kB."""
    used = {"resources": {"cpu": _cpu(number), "memory": "10Gi"}}
    kinds = ("avg", "p50", "p90", "p95", "p99")
    return {
        "updateTime": now_rfc3339(time.time()),
        "nodeMetric": {
            "nodeUsage": used,
            "systemUsage": {"resources": {"cpu": "300m", "memory": "1Gi"}},
            "aggregatedNodeUsages": [
                {"duration": duration, "usage": dict.fromkeys(kinds, used)} for duration in ("5m0s", "10m0s", "30m0s")
            ],
        },
        "podsMetric": [
            {
                "namespace": "load",
                "name": f"pod-{pod:05d}",
                "priority": "koord-prod",
                "qos": "LS",
                "podUsage": {"resources": {"cpu": "100m", "memory": "256Mi"}},
            }
            for pod in range(_PODS)
        ],
    }
