"""The disruption controller: keeps the numbers of PodDisruptionBudgets that evictions are judged by.

For every budget it holds the pods that it selects, as far as they count (ready, being deleted, controlled by whom); a
write of a pod touches only the budgets that select it, and only the pods of that budget are counted again. How many
pods there should be is the scale of their controllers: Deployments, ReplicaSets, StatefulSets, ReplicationControllers,
and custom resources with a scale sub-resource.
"""

import math
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from koord.localcluster.api import budgets
from koord.localcluster.api.builtin import PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.workqueue import WorkQueue
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.scale import to_scale
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ClusterApi, Object
from koord.localcluster.recording import EventRecorder, Subject

DELETION_TIMEOUT_S = 120.0
_UNMANAGED = (
    "were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in"
    ' undefined behavior. To account for these pods please set ".spec.minAvailable" field of the PDB to an integer'
    " value."
)


class _Controller(msgspec.Struct, rename="camel", frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Meta(msgspec.Struct, rename="camel"):
    owner_references: list[_Controller] = []


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


_decode_pod = msgspec.json.Decoder(_Pod).decode


class BudgetKey(NamedTuple):
    """Which budget."""

    namespace: str
    name: str


class _Member(NamedTuple):
    """What counts of a pod."""

    ready: bool
    deleting: bool
    controller: _Controller | None


class _Known(NamedTuple):
    """A budget as its pods were looked up: they are looked up again when its selector changes."""

    selector: Any
    pods: dict[str, Entry | _Member]


class _Unclear(NamedTuple):
    """A pod that several budgets select, and the one that is taken."""

    namespace: str
    name: str
    uid: str
    budget: str


class SyncError(Exception):
    """Why a budget's numbers cannot be known."""


class DisruptionController:
    """The controller of one cluster; `queue` does its work."""

    def __init__(self, cluster: Cluster, api: ClusterApi) -> None:
        self._cluster = cluster
        self._api = api
        self.queue: WorkQueue[BudgetKey | _Unclear] = WorkQueue("disruption", self._handle)
        self._recorder = EventRecorder(api, "controllermanager")
        self._known: dict[BudgetKey, _Known] = {}
        self._by_namespace: dict[str, set[str]] = {}

    def start(self) -> None:
        """Hear of writes from now on, and look at every budget once."""
        self._cluster.store.listen(self.on_write, lambda resource: resource is PODS or resource.key == budgets.KEY)
        for entry in self._cluster.collection(self._cluster.resource(budgets.KEY)).entries():
            self._on_budget(entry)

    def on_write(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        """Take note of a pod or a budget that changed."""
        if resource is PODS:
            pod = entry or old
            if pod is not None and pod.namespace in self._by_namespace:
                self._on_pod(pod, gone=entry is None)
        elif resource.key == budgets.KEY:
            if entry is not None:
                self._on_budget(entry)
            elif old is not None:
                self._forget(BudgetKey(old.namespace, old.name))

    def _on_pod(self, pod: Entry, *, gone: bool) -> None:
        if not gone and len(self._by_namespace[pod.namespace]) > 1:
            several = budgets.selecting(self._cluster, pod.namespace, pod.labels)
            if len(several) > 1:
                self.queue.add(_Unclear(pod.namespace, pod.name, pod.uid, several[0].name))
        for name in self._by_namespace[pod.namespace]:
            key = BudgetKey(pod.namespace, name)
            known = self._known[key]
            if not gone and known.selector is not None and known.selector.matches(pod.labels or {}):
                known.pods[pod.name] = pod
                self.queue.add(key)
            elif known.pods.pop(pod.name, None) is not None:
                self.queue.add(key)

    def _on_budget(self, entry: Entry) -> None:
        key = BudgetKey(entry.namespace, entry.name)
        selector = budgets.selector_of(entry)
        known = self._known.get(key)
        if known is None or known.selector != selector:
            pods: dict[str, Entry | _Member] = {}
            if selector is not None:
                names = self._cluster.collection(PODS).objects.get(entry.namespace, {})
                pods = {name: pod for name, pod in names.items() if selector.matches(pod.labels or {})}
            self._known[key] = _Known(selector, pods)
            self._by_namespace.setdefault(entry.namespace, set()).add(entry.name)
        self.queue.add(key)

    async def _tell_of_several(self, pod: _Unclear) -> None:
        subject = Subject("v1", "Pod", pod.namespace, pod.name, pod.uid)
        which = f'Pod "{pod.namespace}"/"{pod.name}"'
        words = f'{which} matches multiple PodDisruptionBudgets.  Chose "{pod.budget}" arbitrarily.'
        await self._recorder.record(subject, "Warning", "MultiplePodDisruptionBudgets", words)

    def _forget(self, key: BudgetKey) -> None:
        self._known.pop(key, None)
        names = self._by_namespace.get(key.namespace)
        if names is not None:
            names.discard(key.name)
            if not names:
                del self._by_namespace[key.namespace]

    # Counting -----------------------------------------------------------------------------------------------------

    async def _handle(self, key: BudgetKey | _Unclear) -> None:
        if isinstance(key, _Unclear):
            await self._tell_of_several(key)
        else:
            await self._count(key)

    async def _count(self, key: BudgetKey) -> None:
        known = self._known.get(key)
        collection = self._cluster.collection(self._cluster.resource(budgets.KEY))
        entry = collection.get(key.namespace, key.name)
        if known is None or entry is None:
            return
        budget = decode(entry)
        status: Object = dict(budget.get("status") or {})
        members = _members(known.pods)
        now = time.time()
        subject = Subject("policy/v1", "PodDisruptionBudget", key.namespace, key.name, entry.uid)
        if not members:
            await self._recorder.record(subject, "Normal", "NoPods", "No matching pods found")
        try:
            expected, desired, unmanaged = self._expected(budget, members, key.namespace)
        except SyncError as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            await self._recorder.record(subject, "Warning", "CalculateExpectedPodCountFailed", message)
            await self._fail(entry, budget, status, str(error))
            return
        if unmanaged:
            shown = (budget.get("spec") or {}).get("selector")
            message = f"Pods selected by this PodDisruptionBudget (selector: {shown}) {_UNMANAGED}"
            await self._recorder.record(subject, "Warning", "UnmanagedPods", message)
        disrupted, again = _still_disrupted(status.get("disruptedPods") or {}, members, now)
        healthy = sum(1 for name, pod in members.items() if pod.ready and not pod.deleting and name not in disrupted)
        allowed = healthy - desired if expected > 0 else 0
        new: Object = {
            "observedGeneration": budget["metadata"].get("generation", 0),
            "disruptionsAllowed": max(0, allowed),
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": status.get("conditions") or [],
        }
        if disrupted:
            new["disruptedPods"] = disrupted
        budgets.set_condition(new, self._cluster.clock.now())
        await self._write(entry, budget, status, new)
        if again is not None:
            self.queue.add_after(key, max(0.0, again - now))

    async def _fail(self, entry: Entry, budget: Object, status: Object, why: str) -> None:
        """Let nothing be evicted while the numbers are unknown."""
        new: Object = {**status, "disruptionsAllowed": 0}
        budgets.set_condition(new, self._cluster.clock.now(), failure=why)
        await self._write(entry, budget, status, new)

    async def _write(self, entry: Entry, budget: Object, status: Object, new: Object) -> None:
        if new != status:
            body = {**budget, "status": new}
            await self._api.replace(budgets.KEY, entry.namespace, entry.name, body, subresource="status")

    def _expected(self, budget: Object, members: dict[str, _Member], namespace: str) -> tuple[int, int, bool]:
        """How many pods there should be, how many of them healthy, and whether some have no controller."""
        spec: Object = budget.get("spec") or {}
        most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
        if most is not None:
            expected, unmanaged = self._scale(members, namespace)
            return expected, max(0, expected - _amount(most, expected)), unmanaged
        if isinstance(least, str):
            expected, unmanaged = self._scale(members, namespace)
            return expected, _amount(least, expected), unmanaged
        if least is not None:
            return len(members), int(least), False
        return 0, 0, False

    def _scale(self, members: dict[str, _Member], namespace: str) -> tuple[int, bool]:
        scales: dict[str, int] = {}
        seen: set[str] = set()
        unmanaged = False
        for name, pod in members.items():
            controller = pod.controller
            if controller is None:
                unmanaged = True
            elif controller.uid not in seen:
                seen.add(controller.uid)
                found = self._scale_of(controller, namespace)
                if found is None:
                    raise SyncError(f'found no controllers for pod "{name}"')
                scales[found[0]] = found[1]
        return sum(scales.values()), unmanaged

    def _scale_of(self, owner: _Controller, namespace: str) -> tuple[str, int] | None:
        """The uid and the scale of what controls a pod; of a ReplicaSet's Deployment if it has one."""
        group = owner.api_version.rpartition("/")[0]
        resource = self._resource(owner.api_version, owner.kind)
        if resource is None:
            raise SyncError(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
        if resource.scale is None:
            raise SyncError(f"{resource.key} does not implement the scale subresource")
        entry = self._cluster.collection(resource).get(namespace if resource.namespaced else "", owner.name)
        if entry is None or entry.uid != owner.uid:
            return None
        obj = decode(entry)
        if (group, owner.kind) == ("apps", "ReplicaSet"):
            above = _controller_of(obj)
            if above is not None and above.kind == "Deployment":
                return self._scale_of(above, namespace)
        return entry.uid, int(to_scale(resource, obj)["spec"]["replicas"])

    def _resource(self, api_version: str, kind: str) -> Resource | None:
        for route in self._cluster.registry.routes.values():
            if route.resource.kind == kind and route.api_version == api_version:
                return route.resource
        return None


def _members(pods: dict[str, Entry | _Member]) -> dict[str, _Member]:
    """The pods, read where they were not yet."""
    members: dict[str, _Member] = {}
    for name, pod in pods.items():
        if isinstance(pod, _Member):
            members[name] = pod
        else:
            members[name] = pods[name] = _read(pod)
    return members


def _read(entry: Entry) -> _Member:
    try:
        pod = _decode_pod(entry.raw)
    except msgspec.ValidationError:
        return _Member(False, entry.deleting, None)
    ready = any(item.type == "Ready" and item.status == "True" for item in pod.status.conditions or ())
    return _Member(ready, entry.deleting, _controlling(pod.metadata.owner_references))


def _controlling(references: Iterable[_Controller]) -> _Controller | None:
    return next((reference for reference in references if reference.controller), None)


def _controller_of(obj: Object) -> _Controller | None:
    return _controlling(msgspec.convert(obj["metadata"].get("ownerReferences") or [], list[_Controller]))


def _amount(value: int | str, of: int) -> int:
    """A number, or a percentage of `of`, rounded up."""
    if isinstance(value, int):
        return value
    if not value.endswith("%") or not value[:-1].isdecimal():
        raise SyncError("invalid value for IntOrString: invalid type: string is not a percentage")
    return math.ceil(int(value[:-1]) * of / 100)


def _still_disrupted(
    disrupted: dict[str, str], members: dict[str, _Member], now: float
) -> tuple[dict[str, str], float | None]:
    """The pods whose eviction was allowed but has not begun, and when the first of them is taken for staying."""
    kept: dict[str, str] = {}
    again: float | None = None
    for name, stamp in disrupted.items():
        pod = members.get(name)
        if pod is None or pod.deleting:
            continue
        until = datetime.fromisoformat(stamp).timestamp() + DELETION_TIMEOUT_S
        if until >= now:
            kept[name] = stamp
            again = until if again is None else min(again, until)
    return kept, again
