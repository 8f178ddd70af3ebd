"""The ReplicaSet controller: as many pods of a template as are asked for, no more.

It sees a set's pods through the index of owners; a pod that merely matches the selector is nobody's to it.
"""

import asyncio
import time
from datetime import datetime
from typing import NamedTuple

import msgspec

from koord.kube.conditions import Condition
from koord.kube.meta import ObjectMeta, View
from koord.localcluster.api.builtin import PODS
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.workqueue import WorkQueue
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ApiError, ClusterApi, Object
from koord.localcluster.operators.templates import pod_of
from koord.localcluster.recording import EventRecorder, Subject

KEY = "replicasets.apps"
KIND = "ReplicaSet"
BURST = 500
"""At most so many pods are made or deleted in one go."""
_GIVE_WAY = 25


class Named(NamedTuple):
    """An object of a known kind."""

    namespace: str
    name: str


class _Status(View, frozen=True):
    phase: str = ""
    conditions: list[Condition] = msgspec.field(default_factory=list)


class _Spec(View, frozen=True):
    node_name: str = ""


class _Pod(View, frozen=True):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decode_pod = msgspec.json.Decoder(_Pod).decode
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class Member(NamedTuple):
    """A pod of a set; `ready_s` is when it became ready (0: it is not)."""

    name: str
    uid: str
    labels: dict[str, str]
    bound: bool
    phase: str
    ready_s: float
    created: str
    deleting: bool

    @property
    def active(self) -> bool:
        """It runs, or may still come to run."""
        return not self.deleting and self.phase not in ("Succeeded", "Failed")

    def available(self, min_ready_s: float, now: float) -> bool:
        """It has been ready for long enough."""
        return self.ready_s > 0 and (min_ready_s == 0 or self.ready_s + min_ready_s <= now)


def seconds_of(text: str | None) -> float:
    """A time of the API as seconds since 1970; 1 when it cannot be read (it was, at some time)."""
    try:
        return datetime.fromisoformat((text or "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 1.0


def member(entry: Entry) -> Member:
    """What counts of a pod."""
    pod = _decode_pod(entry.raw)
    ready = next((item for item in pod.status.conditions if item.type == "Ready" and item.status == "True"), None)
    return Member(
        entry.name,
        entry.uid,
        entry.labels or {},
        bool(pod.spec.node_name),
        pod.status.phase,
        0.0 if ready is None else seconds_of(ready.last_transition_time),
        pod.metadata.creation_timestamp or "",
        entry.deleting,
    )


def _victims_first(pod: Member) -> tuple[bool, int, bool, float, str]:
    """Who goes first: what is not placed, has not begun, is not ready, has been so for the shortest time."""
    return (pod.bound, _PHASES.get(pod.phase, 0), pod.ready_s > 0, -pod.ready_s, "" if not pod.created else pod.created)


class ReplicaSetController:
    """The controller of one cluster; `queue` does its work."""

    def __init__(self, cluster: Cluster, api: ClusterApi) -> None:
        self._cluster = cluster
        self._api = api
        self._recorder = EventRecorder(api, "replicaset-controller")
        self.queue: WorkQueue[Named] = WorkQueue("replica sets", self._handle)

    def start(self) -> None:
        """Hear of writes from now on, and look at every set once."""
        self._cluster.store.listen(self.on_write, lambda resource: resource is PODS or resource.key == KEY)
        for entry in self._cluster.collection(self._cluster.resource(KEY)).entries():
            self.queue.add(Named(entry.namespace, entry.name))

    def on_write(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        """Take note of a set, or of a pod of one, that changed."""
        now = entry or old
        if now is None:
            return
        if resource is PODS:
            for owner in now.owners or ():
                if owner.kind == KIND:
                    self.queue.add(Named(now.namespace, owner.name))
        elif resource.key == KEY:
            self.queue.add(Named(now.namespace, now.name))

    def pods_of(self, entry: Entry) -> list[Member]:
        """The pods of a set."""
        pods = self._cluster.collection(PODS)
        found = (pods.get(at.namespace, at.name) for at in self._cluster.store.owners.dependents(entry.uid))
        return [member(pod) for pod in found if pod is not None]

    async def _handle(self, key: Named) -> None:
        entry = self._cluster.collection(self._cluster.resource(KEY)).get(key.namespace, key.name)
        if entry is None:
            return
        replica_set = decode(entry)
        replica_set.setdefault("kind", KIND)
        spec = replica_set["spec"]
        pods = [pod for pod in self.pods_of(entry) if pod.active]
        failure: ApiError | None = None
        if not entry.deleting:
            wanted = spec.get("replicas", 1)
            try:
                await self._make(replica_set, min(wanted - len(pods), BURST))
                await self._delete(replica_set, pods, min(len(pods) - wanted, BURST))
            except ApiError as error:
                failure = error
        await self._tell(entry, replica_set, failure)
        if failure is not None:
            raise failure

    async def _make(self, replica_set: Object, count: int) -> None:
        metadata = replica_set["metadata"]
        for made_before in range(count):
            if made_before % _GIVE_WAY == _GIVE_WAY - 1 and not await self._lives(metadata):
                return
            body = pod_of(replica_set, replica_set["spec"]["template"], name_prefix=f"{metadata['name']}-", labels={})
            try:
                raw = await self._api.create("pods", metadata["namespace"], body)
            except ApiError as error:
                await self._say(replica_set, "Warning", "FailedCreate", f"Error creating: {error.message}")
                raise
            made = _decode_pod(raw).metadata.name
            await self._say(replica_set, "Normal", "SuccessfulCreate", f"Created pod: {made}")

    async def _delete(self, replica_set: Object, pods: list[Member], count: int) -> None:
        if count <= 0:
            return
        namespace = replica_set["metadata"]["namespace"]
        victims = sorted(sorted(pods, key=lambda pod: pod.created, reverse=True), key=_victims_first)[:count]
        for gone_before, pod in enumerate(victims):
            if gone_before % _GIVE_WAY == _GIVE_WAY - 1 and not await self._lives(replica_set["metadata"]):
                return
            await self._api.delete("pods", namespace, pod.name, uid=pod.uid)
            await self._say(replica_set, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.name}")

    async def _lives(self, metadata: Object) -> bool:
        """Give way to requests; whether the set still wants the same after that (if not, it is in the queue again)."""
        await asyncio.sleep(0)
        entry = self._cluster.collection(self._cluster.resource(KEY)).get(metadata["namespace"], metadata["name"])
        if entry is None or entry.uid != metadata["uid"] or entry.deleting:
            return False
        return bool(decode(entry)["metadata"].get("generation") == metadata.get("generation"))

    async def _tell(self, entry: Entry, replica_set: Object, failure: ApiError | None) -> None:
        """Write the status, if it is another one now."""
        spec, now = replica_set["spec"], time.time()
        every = self.pods_of(entry)
        pods = [pod for pod in every if pod.active]
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        min_ready_s = spec.get("minReadySeconds", 0)
        ready = [pod for pod in pods if pod.ready_s]
        available = [pod for pod in ready if pod.available(min_ready_s, now)]
        status: Object = {
            "replicas": len(pods),
            "observedGeneration": replica_set["metadata"].get("generation", 1),
            "terminatingReplicas": sum(pod.deleting and pod.phase not in ("Succeeded", "Failed") for pod in every),
        }
        counts = {
            "fullyLabeledReplicas": sum(labels.items() <= pod.labels.items() for pod in pods),
            "readyReplicas": len(ready),
            "availableReplicas": len(available),
        }
        status.update({name: count for name, count in counts.items() if count})
        before = replica_set.get("status") or {}
        conditions = [item for item in before.get("conditions") or [] if item.get("type") != "ReplicaFailure"]
        if failure is not None:
            known = [item for item in before.get("conditions") or [] if item.get("type") == "ReplicaFailure"]
            conditions += known or [
                {
                    "type": "ReplicaFailure",
                    "status": "True",
                    "reason": "FailedCreate",
                    "message": failure.message,
                    "lastTransitionTime": self._cluster.clock.now(),
                }
            ]
        if conditions:
            status["conditions"] = conditions
        waits = [pod.ready_s + min_ready_s - now for pod in ready if pod not in available]
        if waits:
            self.queue.add_after(Named(entry.namespace, entry.name), max(0.1, min(waits)))
        if status != before:
            body = {**replica_set, "status": status}
            body["metadata"] = {**replica_set["metadata"]}
            await self._api.replace(KEY, entry.namespace, entry.name, body, subresource="status")

    async def _say(self, replica_set: Object, type_: str, reason: str, message: str) -> None:
        metadata = replica_set["metadata"]
        subject = Subject("apps/v1", KIND, metadata["namespace"], metadata["name"], metadata["uid"])
        await self._recorder.record(subject, "Warning" if type_ == "Warning" else "Normal", reason, message)
