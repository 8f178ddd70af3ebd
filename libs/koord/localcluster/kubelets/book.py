"""Which pods are on our nodes and where each one is: watch events in, stages and due times out.

Times are passed in (seconds since the epoch); nothing here waits or writes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from koord.accounting.requests import pod_request
from koord.kube import meta
from koord.kube.pods import FAILED, RUNNING, SUCCEEDED, Pod
from koord.kube.quantity import QuantityError
from koord.localcluster.clusterapi import WatchEvent, WatchEvents
from koord.localcluster.following import Key
from koord.localcluster.kubelets.machine import Containers, Plan, containers_of, plan_of
from koord.localcluster.kubelets.options import KubeletOptions
from koord.localcluster.kubelets.state import Kubelet, Run, Stage
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

_DELETION_MARK = b'"deletionTimestamp"'
_SHARED = 1_024

K = TypeVar("K")
V = TypeVar("V")


class Bound(NamedTuple):
    """A pod that has a node; `ended`: Succeeded or Failed."""

    namespace: str
    name: str
    uid: str
    node: str
    ended: bool


class PodBook:
    """The pods of all our nodes.

    `at` is called with a run and the time of its next write; `tell` with a run and what is wrong with its annotations.
    """

    def __init__(
        self,
        kubelets: Mapping[str, Kubelet],
        options: KubeletOptions,
        at: Callable[[Run, float], None],
        tell: Callable[[Run, tuple[str, ...]], None],
    ) -> None:
        self.runs: dict[Key, Run] = {}
        self._kubelets = kubelets
        self._options = options
        self._at = at
        self._tell = tell
        self._orphans: dict[Key, Pod] = {}
        # Until all pods are known, new ones wait: those that run already hold their room first.
        self._backlog: dict[Key, Pod] | None = {}
        self._plans: dict[Plan, Plan] = {}
        self._shapes: dict[Containers, Containers] = {}
        self._requests: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}

    def on_events(self, events: WatchEvents, now: float) -> None:
        """Take in changes, as they come from a watch of bound pods."""
        for event in events:
            if event.type != "BOOKMARK":
                try:
                    self._on_event(event, now)
                except msgspec.ValidationError as error:
                    _log.warning("pod not understood", pod=f"{event.namespace}/{event.name}", error=str(error))

    def _on_event(self, event: WatchEvent, now: float) -> None:
        key = (event.namespace, event.name)
        run = self.runs.get(key)
        if event.type == "DELETED":
            if run is not None:
                self._drop(key, run)
            self._orphans.pop(key, None)
            if self._backlog is not None:
                self._backlog.pop(key, None)
        elif run is None or event.type == "ADDED":
            self._on_new(key, event.raw, now)
        elif run.stage is not Stage.STOPPING and _DELETION_MARK in event.raw:
            # Most changes are echoes of our own writes: only a deletion can be news about a pod that we know.
            self._on_deletion(run, event.raw, now)

    def _on_new(self, key: Key, raw: bytes, now: float) -> None:
        pod = meta.decode(Pod, raw)
        run = self.runs.get(key)
        if run is not None:
            if run.uid == pod.metadata.uid:
                if pod.metadata.deletion_timestamp is not None and run.stage is not Stage.STOPPING:
                    self._stop_run(run, pod, now)
                return
            self._drop(key, run)
        if self._backlog is not None:
            self._backlog[key] = pod
        else:
            self._take_in(key, pod, now)

    def on_complete(self, seen: set[Key], now: float) -> None:
        """All bound pods have been delivered: forget the others, and judge those that a start found waiting."""
        for key in [key for key in self.runs if key not in seen]:
            self._drop(key, self.runs[key])
        for key in [key for key in self._orphans if key not in seen]:
            del self._orphans[key]
        backlog, self._backlog = self._backlog, None
        for key, pod in sorted((backlog or {}).items(), key=lambda item: item[1].status.phase != RUNNING):
            if key in seen:
                self._take_in(key, pod, now)

    def without_node(self) -> Iterator[Bound]:
        """Pods whose node is deleted, or was never one of ours."""
        dead = {kubelet.name for kubelet in self._kubelets.values() if not kubelet.alive}
        if dead:
            for run in self.runs.values():
                if run.kubelet.name in dead:
                    yield Bound(run.namespace, run.name, run.uid, run.kubelet.name, run.stage is Stage.ENDED)
        for (namespace, name), pod in self._orphans.items():
            ended = pod.status.phase in (SUCCEEDED, FAILED)
            yield Bound(namespace, name, pod.metadata.uid, pod.spec.node_name, ended)

    def _take_in(self, key: Key, pod: Pod, now: float) -> None:
        kubelet = self._kubelets.get(pod.spec.node_name)
        if kubelet is not None and kubelet.alive:
            self._adopt(key, pod, kubelet, now)
        else:
            # Bound to a node that is not ours, or that we have not seen yet.
            self._orphans[key] = pod

    def take_orphans(self, kubelet: Kubelet, now: float) -> None:
        """A node has come alive: its pods are no orphans any more."""
        for key, pod in list(self._orphans.items()):
            if pod.spec.node_name == kubelet.name:
                del self._orphans[key]
                self._adopt(key, pod, kubelet, now)

    def _adopt(self, key: Key, pod: Pod, kubelet: Kubelet, now: float) -> None:
        try:
            request = pod_request(pod.spec)
        except QuantityError as error:
            _log.warning("pod has an impossible request", pod="/".join(key), error=str(error))
            request = {}
        plan = plan_of(pod.metadata.annotations, pod.spec.restart_policy, self._options.start_s, self._options.run_s)
        plan = _shared(self._plans, plan, plan)
        shape = containers_of(pod)
        request = _shared(self._requests, tuple(request.items()), request)
        run = Run(pod, kubelet, plan, _shared(self._shapes, shape, shape), request)
        self.runs[key] = run
        if plan.problems:
            self._tell(run, plan.problems)
        phase = pod.status.phase
        if phase in (SUCCEEDED, FAILED):
            run.stage = Stage.ENDED
        elif phase == RUNNING:
            run.hold()
            run.stage = Stage.RUNNING
            run.started_s = _time(pod.status.start_time, now) + plan.start_s
        else:
            run.shortage = kubelet.room.shortage(request)
            if run.shortage is not None:
                run.stage = Stage.REJECTED
            else:
                run.hold()
                run.started_s = now
        if pod.metadata.deletion_timestamp is not None:
            self._stop_run(run, pod, now)
        elif run.stage is Stage.STARTING:
            self._at(run, now + plan.start_s)
        elif run.stage is Stage.REJECTED:
            self._at(run, now)
        elif run.stage is Stage.RUNNING and plan.run_s is not None:
            self._at(run, run.started_s + plan.run_s)

    def _on_deletion(self, run: Run, raw: bytes, now: float) -> None:
        pod = meta.decode(Pod, raw)
        if pod.metadata.deletion_timestamp is not None and pod.metadata.uid == run.uid:
            self._stop_run(run, pod, now)

    def _stop_run(self, run: Run, pod: Pod, now: float) -> None:
        alive = run.stage is Stage.RUNNING
        run.stage = Stage.STOPPING
        grace = pod.metadata.deletion_grace_period_seconds
        wait = self._options.stop_s if alive else 0.0
        self._at(run, now + (wait if grace is None else min(wait, grace)))

    def _drop(self, key: Key, run: Run) -> None:
        run.release()
        del self.runs[key]


def _shared(known: dict[K, V], key: K, value: V) -> V:
    """The same value for pods that are equal in it; where all are different nothing piles up."""
    if len(known) >= _SHARED and key not in known:
        known.clear()
    return known.setdefault(key, value)


def _time(text: str | None, otherwise: float) -> float:
    try:
        return meta.parse_time(text) if text else otherwise
    except ValueError:
        return otherwise
