"""A cluster with LoadAwareScheduling on it, and reports for its nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.kube.nodemetrics import NodeMetric
from koord.kube.resources import NODE_METRICS
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
from koord.scheduler.engine.cluster import NodeInfo
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import AssignedPod
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.loadaware.plugin import LoadAwareScheduling
from tests.scheduler.clusters import GIB, Bed, requests

NOW = 1_780_000_000.0
UPDATED = "2026-05-28T20:26:40Z"
"""``NOW`` as the API writes it."""


class LoadBed(Bed):
    """``args`` are fields of LoadAwareSchedulingArgs; the time is ``NOW``, and some node has a report."""

    def __init__(self, **args: Any) -> None:
        self.load = LoadAwareScheduling(LoadAwareSchedulingArgs(**args))
        super().__init__(extra=[self.load])
        self.engine.tick(NOW)
        self.report("elsewhere")

    def machine(self, name: str = "n", *, annotations: Mapping[str, str] | None = None, **more: int) -> tuple[str, ...]:
        """A node of 32 cpu and 128 GiB; what was not valid about it."""
        amounts = {"cpu": 32_000, "memory": 128 * GIB, "pods": 1000, **more}
        return self.engine.set_node(NodeInfo(name, amounts, annotations=annotations or {})).problems

    def report(self, name: str = "n", *, cpu: str = "14", memory: str = "40Gi", **more: Any) -> list[ClusterEvent]:
        """A report of the node; ``more`` as :func:`metric` has it."""
        return list(self.load.changed(NODE_METRICS, name, None, metric(name, cpu=cpu, memory=memory, **more)))

    def unreport(self, name: str = "n") -> None:
        """The node's NodeMetric is gone."""
        list(self.load.changed(NODE_METRICS, name, metric(name), None))

    def assign(self, pod: PodInfo, node: str = "n", **fields: Any) -> None:
        """The pod is seen on the node; it was bound at ``NOW`` unless ``since`` says otherwise."""
        self.engine.count(assigned(pod, node, **fields))

    def passes(self, pod: PodInfo) -> list[bool]:
        """What the filter says of each row."""
        terms = self.load.filter_terms(pod.class_.template, self.cluster)
        if terms is None:
            return [True] * self.cluster.high
        return [bool(ok) for ok in self.load.filter(terms, Window.full(self.cluster))]

    def texts(self, pod: PodInfo) -> list[str]:
        """Why rows are refused."""
        terms = self.load.filter_terms(pod.class_.template, self.cluster)
        return [reason.text for reason in self.load.reasons(terms, Window.full(self.cluster)) if reason.rows.any()]

    def scores(self, pod: PodInfo) -> list[int]:
        """The score of each row."""
        terms = self.load.score_terms(pod.class_.template, self.cluster)
        return [int(score) for score in self.load.score(terms, Window.full(self.cluster))]

    def message(self, pod: PodInfo) -> str:
        """Why the engine finds no place for the pod; "" if it does."""
        outcome = self.engine.explain(pod.class_)
        assert isinstance(outcome, Diagnosis)
        return "" if outcome.feasible else outcome.message


def assigned(pod: PodInfo, node: str, **fields: Any) -> AssignedPod:
    """The pod on the node."""
    template = pod.class_.template
    given = {"since": NOW, "priority": pod.priority, **fields}
    return AssignedPod(pod.ref, template.spec, template.footprint, node, **given)


def metric(
    name: str = "n",
    *,
    cpu: str = "14",
    memory: str = "40Gi",
    updated: str | None = UPDATED,
    pods: Sequence[Mapping[str, Any]] = (),
    interval: int | None = 60,
    aggregated: Sequence[Mapping[str, Any]] = (),
    system: Mapping[str, str] | None = None,
    numbers: bool = True,
    peak: Mapping[str, str] | None = None,
) -> NodeMetric:
    """A NodeMetric as its agent writes it. ``numbers``: it has any of the node; ``peak``: what prod pods are going to
    use."""
    body: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": interval}} if interval else {},
        "status": {"updateTime": updated, "podsMetric": list(pods)},
    }
    if numbers:
        body["status"]["nodeMetric"] = {
            "nodeUsage": {"resources": {"cpu": cpu, "memory": memory}},
            "systemUsage": {"resources": dict(system or {})},
            "aggregatedNodeUsages": list(aggregated),
        }
    if peak is not None:
        body["status"]["prodPeakMetric"] = {"resource": {"resources": dict(peak)}}
    return msgspec.json.decode(msgspec.json.encode(body), type=NodeMetric)


def pod_metric(name: str, cpu: str, memory: str = "0", *, priority: str = "koord-prod") -> dict[str, Any]:
    """What is reported of one pod of namespace ``default``."""
    usage = {"resources": {"cpu": cpu, "memory": memory}}
    return {"namespace": "default", "name": name, "priority": priority, "podUsage": usage}


def limited(cpu: str, memory: str, *, cpu_limit: str = "", memory_limit: str = "", **more: Any) -> dict[str, Any]:
    """A spec with requests and limits."""
    spec = requests(cpu, memory, **more)
    limits = {name: text for name, text in (("cpu", cpu_limit), ("memory", memory_limit)) if text}
    spec["containers"][0]["resources"]["limits"] = limits
    return spec
