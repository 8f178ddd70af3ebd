"""The load of a node for people: the answer of ``LoadAwareScheduling/node/{node}`` (spec 10 section 2.11)."""

from collections.abc import Iterable, Sequence
from typing import Any

from koord.accounting.requests import resource_list
from koord.kube.meta import now_rfc3339
from koord.scheduler.plugins.loadaware.load import Expected, NodeLoad

MOST_PODS = 1000
"""Pods that are shown in each list."""


def shown(load: NodeLoad, names: tuple[str, ...]) -> dict[str, Any]:
    """The pods with the time since which they count, the sums, and which pods add to each; what is empty is left out.

    ``nodeDelta`` and ``prodDelta`` come on top of what was reported, ``nodeEstimated`` stands in for it.
    """
    pods = sorted(load.pods.items(), key=lambda item: (item[1][0].namespace, item[1][0].name))
    report = load.report
    answer: dict[str, Any] = {
        "pods": [_pod(uid, pod) for uid, (pod, _) in pods[:MOST_PODS]],
        "prodUsage": _amounts(load.prod_used, names),
        "nodeDelta": _amounts(load.delta, names),
        "prodDelta": _amounts(load.prod_delta, names),
        "nodeEstimated": _amounts(load.estimated, names),
        "nodeDeltaPods": _names(pod for _, (pod, share) in pods if any(share.delta)),
        "prodDeltaPods": _names(pod for _, (pod, share) in pods if pod.prod and any(share.prod_delta)),
        "nodeEstimatedPods": _names(pod for _, (pod, _) in pods if any(pod.estimate)),
        "updateTime": now_rfc3339(report.updated) if report is not None and report.updated is not None else "",
        "predictedPeak": _amounts(report.predicted or (), names) if report is not None else {},
        "nodeUsage": _amounts(report.usage or (), names) if report is not None else {},
    }
    return {key: value for key, value in answer.items() if value}


def _pod(uid: str, pod: Expected) -> dict[str, Any]:
    return {
        "timestamp": now_rfc3339(pod.since),
        "pod": {"metadata": {"namespace": pod.namespace, "name": pod.name, "uid": uid}},
    }


def _amounts(amounts: Sequence[float], names: tuple[str, ...]) -> dict[str, str]:
    return resource_list({name: int(amount) for name, amount in zip(names, amounts, strict=False) if amount})


def _names(pods: Iterable[Expected]) -> list[str]:
    return [f"{pod.namespace}/{pod.name}" for pod in pods][:MOST_PODS]
