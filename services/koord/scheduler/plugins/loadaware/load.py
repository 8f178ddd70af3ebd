"""The load of one node: what it reported, and what is expected of pods that the report does not cover yet.

Spec 10 section 3.11, "Assign cache". Every pod adds to three sums: ``delta`` (on top of what the node reported),
``prod_delta`` (on top of what its prod pods reported), ``estimated`` (in place of a report). A pod that came after the
report adds its whole estimate to all of them, which is what a filter looking ahead counts on.
"""

import msgspec

from koord.scheduler.plugins.loadaware.report import Report
from koord.scheduler.plugins.loadaware.thresholds import Aggregate
from koord.scheduler.plugins.loadaware.vectors import Vector


class Expected(msgspec.Struct, frozen=True, gc=False):
    """A pod on a node: ``prod`` by its priority class; until ``deadline`` (0: none) its estimate counts anyway.

    ``planned``: it is not bound yet, so no report can be about it, whoever had its name before.
    """

    namespace: str
    name: str
    estimate: tuple[float, ...]
    prod: bool
    since: float
    deadline: float = 0.0
    planned: bool = False


class Share(msgspec.Struct, frozen=True, gc=False):
    """What one pod adds to the sums; ``prod_used`` is what it was reported to use, if it counts as a prod pod."""

    delta: tuple[float, ...]
    prod_delta: tuple[float, ...]
    prod_used: tuple[float, ...]


class NodeLoad:
    """Pods and report of one node, known or not, and the sums over the pods."""

    __slots__ = ("_zero", "delta", "estimated", "pods", "prod_delta", "prod_used", "report")

    def __init__(self, size: int) -> None:
        self._zero = (0.0,) * size
        self.report: Report | None = None
        self.pods: dict[str, tuple[Expected, Share]] = {}
        self.delta: Vector = [0.0] * size
        self.prod_delta: Vector = [0.0] * size
        self.prod_used: Vector = [0.0] * size
        self.estimated: Vector = [0.0] * size

    @property
    def empty(self) -> bool:
        """Nothing is known of the node."""
        return self.report is None and not self.pods

    def add(self, uid: str, pod: Expected) -> bool:
        """Count a pod. True: it is new and adds exactly its estimate (the report does not know it)."""
        known = uid in self.pods
        if known:
            self.remove(uid)
        share = self._share(pod)
        self.pods[uid] = (pod, share)
        self._apply(pod, share, 1.0)
        return not known and share.delta is pod.estimate

    def remove(self, uid: str) -> tuple[Expected, bool] | None:
        """Forget a pod; None if it was not counted. True: it had added exactly its estimate."""
        counted = self.pods.pop(uid, None)
        if counted is None:
            return None
        pod, share = counted
        self._apply(pod, share, -1.0)
        return pod, share.delta is pod.estimate

    def reported(self, report: Report | None) -> None:
        """Another report (None: the object is gone): every pod's share is judged anew."""
        self.report = report
        for total in (self.delta, self.prod_delta, self.prod_used, self.estimated):
            total[:] = self._zero
        for uid, (pod, _) in self.pods.items():
            share = self._share(pod)
            self.pods[uid] = (pod, share)
            self._apply(pod, share, 1.0)

    def used(self, aggregate: Aggregate | None = None) -> Vector:
        """The load that is there: of the last report, or of an aggregate of it, with what is expected on top.

        Where a peak is predicted that is higher, it stands in for what was reported. An aggregate whose window was
        asked for and not reported: what is expected of the pods alone.
        """
        base = self.report.usage if self.report is not None else None
        if aggregate is not None and self.report is not None:
            found = self.report.aggregates.get(aggregate)
            if found is None and aggregate[1]:
                return list(self.estimated)
            base = found if found is not None else base
        if base is not None and self.report is not None and self.report.predicted is not None:
            base = [max(pair) for pair in zip(base, self.report.predicted, strict=True)]
        return list(self.delta) if base is None else [used + more for used, more in zip(base, self.delta, strict=True)]

    def used_by_prod(self, *, with_system: bool) -> Vector:
        """The load of prod pods, with what is expected on top; ``with_system``: the system's own is theirs, too."""
        total, report = list(self.prod_used), self.report
        if with_system and report is not None:
            total = [used + more for used, more in zip(total, report.system, strict=True)]
        if report is not None and report.peak is not None:
            total = [max(pair) for pair in zip(total, report.peak, strict=True)]
        return [used + more for used, more in zip(total, self.prod_delta, strict=True)]

    def _share(self, pod: Expected) -> Share:
        report, zero = self.report, self._zero
        known = None if report is None or pod.planned else report.pods.get(pod.namespace, pod.name)
        if report is None or known is None:
            return Share(pod.estimate, pod.estimate if pod.prod else zero, zero)
        usage, called_prod = known
        updated = report.updated or 0.0
        rest = zero
        if pod.since > updated - report.interval or pod.deadline > updated:
            rest = tuple([max(0.0, expected - used) for expected, used in zip(pod.estimate, usage, strict=True)])
        if not pod.prod:
            return Share(rest, zero, zero)
        return Share(rest, rest, tuple(usage)) if called_prod else Share(rest, pod.estimate, zero)

    def _apply(self, pod: Expected, share: Share, sign: float) -> None:
        delta, estimated = self.delta, self.estimated
        for index, amount in enumerate(pod.estimate):
            estimated[index] += sign * amount
            delta[index] += sign * share.delta[index]
        if pod.prod:
            prod_delta, prod_used = self.prod_delta, self.prod_used
            for index, amount in enumerate(share.prod_delta):
                prod_delta[index] += sign * amount
                prod_used[index] += sign * share.prod_used[index]
