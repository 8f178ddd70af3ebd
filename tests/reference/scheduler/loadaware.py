"""LoadAwareScheduling, node by node and pod by pod, straight from spec 10 section 3.11. Slow on purpose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any

RESOURCES = ("cpu", "memory")
FLOOR = {"cpu": 250, "memory": 200 << 20}
Amounts = dict[str, int]


@dataclass
class Args:
    """Fields of LoadAwareSchedulingArgs, completed. ``policy`` is Block, Ignore or UseStale."""

    thresholds: Mapping[str, int]
    prod: Mapping[str, int] = field(default_factory=dict)
    aggregated: tuple[Mapping[str, int], str, int] | None = None
    score_aggregated: tuple[str, int] | None = None
    weights: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    dominant: int = 0
    factors: Mapping[str, int] = field(default_factory=lambda: {"cpu": 85, "memory": 70})
    expiration: int = 180
    policy: str = "Block"
    prod_with_system: bool = False
    score_by_prod: bool = False
    both: bool = False
    after_scheduled: int = 0
    after_initialized: int = 0
    by_peak: bool = False


@dataclass
class Pod:
    """A pod: whole requests and limits in milli-cores and bytes, class and times."""

    name: str
    requests: Amounts
    limits: Amounts
    prod: bool
    daemon: bool = False
    since: float = 0.0
    initialized: float = 0.0


@dataclass
class Metric:
    """A report. ``pods``: usage and whether the agent takes the pod for prod."""

    updated: float | None
    interval: int
    usage: Amounts | None
    system: Amounts
    aggregates: dict[tuple[str, int], Amounts]
    pods: dict[str, tuple[Amounts, bool]]
    peak: Amounts | None = None
    """What prod pods are predicted to use."""


@dataclass
class Node:
    """A node: what it can give, what its annotation says, its report, and who is on it."""

    capacity: Amounts
    own: Mapping[str, Any] = field(default_factory=dict)
    metric: Metric | None = None
    pods: list[Pod] = field(default_factory=list)


def estimate(pod: Pod, args: Args) -> Amounts:
    """What the pod will use."""
    found = {}
    for name in RESOURCES:
        limit, request = pod.limits.get(name, 0), pod.requests.get(name, 0)
        amount = max(limit, request)
        if not amount:
            found[name] = FLOOR[name]
            continue
        scaled = floor(amount * args.factors[name] / 100 + 0.5)
        found[name] = min(scaled, limit) if limit else scaled
    return found


def sums(node: Node, args: Args) -> tuple[Amounts, Amounts, Amounts]:
    """nodeDelta, nodeEstimated, and what prod pods use: reported and expected."""
    metric = node.metric
    assert metric is not None
    updated = metric.updated or 0.0
    delta, estimated, prod = (dict.fromkeys(RESOURCES, 0) for _ in range(3))
    for pod in node.pods:
        expected = estimate(pod, args)
        used, called_prod = metric.pods.get(pod.name, (None, False))
        deadline = 0.0
        if args.after_initialized and pod.initialized:
            deadline = pod.initialized + args.after_initialized
        elif args.after_scheduled:
            deadline = pod.since + args.after_scheduled
        should = used is None or pod.since > updated - metric.interval or deadline > updated
        for name in RESOURCES:
            estimated[name] += expected[name]
            if should:
                delta[name] += max(0, expected[name] - (used or {}).get(name, 0))
            if not pod.prod:
                continue
            if used is None or not called_prod:
                prod[name] += expected[name]
            else:
                prod[name] += used.get(name, 0)
                if should:
                    prod[name] += max(0, expected[name] - used.get(name, 0))
    reported = dict.fromkeys(RESOURCES, 0)
    for pod in node.pods:
        used, called_prod = metric.pods.get(pod.name, ({}, False))
        if pod.prod and called_prod:
            for name in RESOURCES:
                reported[name] += used.get(name, 0)
    for name in RESOURCES:
        base = reported[name] + (metric.system.get(name, 0) if args.prod_with_system else 0)
        if args.by_peak and metric.peak is not None:
            base = max(base, metric.peak.get(name, 0))
        prod[name] += base - reported[name]
    return delta, estimated, prod


def whole_node(node: Node, args: Args, aggregate: tuple[str, int] | None) -> Amounts:
    """The load of the node by its last report, or by an aggregate."""
    metric = node.metric
    assert metric is not None
    delta, estimated, _ = sums(node, args)
    base = metric.usage or {}
    if aggregate is not None:
        kind, window = aggregate
        if window:
            if aggregate not in metric.aggregates:
                return estimated
            base = metric.aggregates[aggregate]
        else:
            windows = [of for one, of in metric.aggregates if one == kind]
            if windows:
                base = metric.aggregates[kind, max(windows)]
    peak = dict.fromkeys(RESOURCES, 0)
    if args.by_peak and metric.peak is not None:
        for name in RESOURCES:
            others = sum(used.get(name, 0) for used, prod in metric.pods.values() if not prod)
            peak[name] = metric.peak.get(name, 0) + others
    return {name: max(base.get(name, 0), peak[name]) + delta[name] for name in RESOURCES}


def expired(metric: Metric, args: Args, now: float) -> bool:
    """Whether a report is too old."""
    return metric.updated is None or now - metric.updated >= args.expiration


def refusal(pod: Pod, node: Node, args: Args, now: float) -> str | None:
    """Why the node cannot take the pod."""
    if pod.daemon:
        return None
    usage = node.own.get("usage") or args.thresholds
    prod = node.own.get("prod") or args.prod
    aggregated = node.own.get("aggregated") or args.aggregated
    checks: list[tuple[Mapping[str, int], str, tuple[str, int] | None]] = []
    if pod.prod and any(prod.get(name) for name in RESOURCES):
        checks.append((prod, "prod", None))
    if not checks or args.both:
        if aggregated is not None:
            checks.append((aggregated[0], "node", (aggregated[1], aggregated[2])))
        else:
            checks.append((usage, "node", None))
    checks = [check for check in checks if any(check[0].get(name) for name in RESOURCES)]
    metric = node.metric
    if not checks or metric is None:
        return None
    if expired(metric, args, now):
        if args.policy == "Block":
            return "node(s) nodeMetric expired"
        if args.policy == "Ignore":
            return None
    if metric.usage is None:
        return None
    expected = estimate(pod, args)
    for name in RESOURCES:
        texts = []
        for thresholds, which, aggregate in checks:
            threshold, capacity = thresholds.get(name, 0), node.capacity.get(name, 0)
            if not threshold or not capacity:
                continue
            existing = sums(node, args)[2] if which == "prod" else whole_node(node, args, aggregate)
            percent = (existing[name] + expected[name]) / capacity * 100
            if floor(percent + 0.5) > threshold:
                kind = "aggregated usage" if which == "node" and aggregated is not None else "usage"
                texts.append(f"node(s) {name} {kind} exceed threshold")
        if texts:
            return texts[-1]
    return None


def score(pod: Pod, node: Node, args: Args, now: float) -> int:
    """How much of the node would be left."""
    metric = node.metric
    if metric is None or metric.usage is None or expired(metric, args, now):
        return 0
    expected = estimate(pod, args)
    by_prod = args.score_by_prod and pod.prod
    existing = sums(node, args)[2] if by_prod else whole_node(node, args, args.score_aggregated)
    points = {}
    for name in RESOURCES:
        capacity, used = node.capacity.get(name, 0), existing[name] + expected[name]
        points[name] = 0 if not capacity or used > capacity else (capacity - used) * 100 // capacity
    weighed = [name for name in RESOURCES if args.weights.get(name)] or list(RESOURCES)
    there = [points[name] for name in weighed if node.capacity.get(name, 0)]
    total = sum(weight * points[name] for name, weight in args.weights.items())
    total += args.dominant * min(there, default=0)
    weights = sum(args.weights.values()) + args.dominant
    return total // weights if weights else 0
