"""The Deployment controller: one ReplicaSet per revision of the template, and rollouts from one to the next.

A revision is found again by its template, so undoing a rollout takes the old set into use once more. What it writes in
annotations and conditions is what `kubectl rollout` reads.
"""

import hashlib
import time
from typing import Any

import msgspec

from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.controllers.replicas import KEY as SETS
from koord.localcluster.api.controllers.replicas import Named, seconds_of
from koord.localcluster.api.controllers.rollouts import Share, Size, limits_of, new_size, old_sizes, spread
from koord.localcluster.api.controllers.workqueue import WorkQueue
from koord.localcluster.api.resources import Resource
from koord.localcluster.api.store import decode
from koord.localcluster.api.watchcache import Entry
from koord.localcluster.clusterapi import ClusterApi, Object, Objects
from koord.localcluster.operators.conditions import find, with_condition
from koord.localcluster.operators.templates import owner_reference
from koord.localcluster.recording import EventRecorder, Subject

KEY = "deployments.apps"
HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_HISTORY = "deployment.kubernetes.io/revision-history"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MAX = "deployment.kubernetes.io/max-replicas"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWN = (REVISION, _HISTORY, _DESIRED, _MAX, _LAST_APPLIED)
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

_sorted = msgspec.json.Encoder(order="sorted").encode
_copy = msgspec.json.Decoder(Object).decode


def template_hash(template: Object) -> str:
    """A name for a template, safe in the names of objects; the same for as long as the template is."""
    number = int.from_bytes(hashlib.blake2b(_sorted(template), digest_size=8).digest(), "big")
    text = ""
    while len(text) < 10:
        number, digit = divmod(number, len(_LETTERS))
        text += _LETTERS[digit]
    return text


def _plain(template: Object) -> bytes:
    """A template as its Deployment has it: without the label that its set adds."""
    metadata = dict(template.get("metadata") or {})
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH}
    return _sorted({**template, "metadata": {**metadata, "labels": labels}})


def revision_of(obj: Object) -> int:
    """The revision in an object's annotations, 0 when it has none."""
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else 0


class DeploymentController:
    """The controller of one cluster; `queue` does its work."""

    def __init__(self, cluster: Cluster, api: ClusterApi) -> None:
        self._cluster = cluster
        self._api = api
        self._recorder = EventRecorder(api, "deployment-controller")
        self.queue: WorkQueue[Named] = WorkQueue("deployments", self._handle)

    def start(self) -> None:
        """Hear of writes from now on, and look at every Deployment once."""
        self._cluster.store.listen(self.on_write, lambda resource: resource.key in (KEY, SETS))
        for entry in self._cluster.collection(self._cluster.resource(KEY)).entries():
            self.queue.add(Named(entry.namespace, entry.name))

    def on_write(self, resource: Resource, entry: Entry | None, old: Entry | None) -> None:
        """Take note of a Deployment, or of a set of one, that changed."""
        now = entry or old
        if now is None:
            return
        if resource.key == SETS:
            for owner in now.owners or ():
                if owner.kind == "Deployment":
                    self.queue.add(Named(now.namespace, owner.name))
        elif resource.key == KEY:
            self.queue.add(Named(now.namespace, now.name))

    def _sets_of(self, entry: Entry) -> Objects:
        """The sets of a Deployment, oldest revision first."""
        sets = self._cluster.collection(self._cluster.resource(SETS))
        places = [at for at in self._cluster.store.owners.dependents(entry.uid) if at.key == SETS]
        found = [sets.get(at.namespace, at.name) for at in places]
        objects = [decode(one) for one in found if one is not None and not one.deleting]
        return sorted(objects, key=lambda obj: (revision_of(obj), obj["metadata"]["name"]))

    async def _handle(self, key: Named) -> None:
        entry = self._cluster.collection(self._cluster.resource(KEY)).get(key.namespace, key.name)
        if entry is None:
            return
        deployment = decode(entry)
        deployment.setdefault("kind", "Deployment")
        deployment.setdefault("apiVersion", "apps/v1")
        sets = self._sets_of(entry)
        if entry.deleting:
            await self._tell(deployment, sets, None)
            return
        spec = deployment["spec"]
        template = _plain(spec["template"])
        new = next((one for one in reversed(sets) if _plain(one["spec"]["template"]) == template), None)
        old = [one for one in sets if one is not new]
        if spec.get("paused") or _was_scaled(sets, spec.get("replicas", 1)):
            await self._spread(deployment, new, old)
        else:
            new = await self._revision(deployment, new, old)
            await self._roll(deployment, new, old)
            await self._forget(deployment, old)
        await self._tell(deployment, self._sets_of(entry), new)

    # --- revisions

    async def _revision(self, deployment: Object, new: Object | None, old: Objects) -> Object:
        """The set of the present template, made if need be, with the newest revision."""
        revision = str(max(map(revision_of, old), default=0) + 1)
        if new is None:
            new = await self._make(deployment, old, revision)
        else:
            new = await self._annotate(deployment, new, revision)
        shown = (new["metadata"].get("annotations") or {}).get(REVISION)
        if (deployment["metadata"].get("annotations") or {}).get(REVISION) != shown:
            change = {"metadata": {"annotations": {REVISION: shown}}}
            metadata = deployment["metadata"]
            # By way of the status: as a plain write it would count as a change of what is wanted.
            raw = await self._api.patch(KEY, metadata["namespace"], metadata["name"], change, subresource="status")
            deployment["metadata"] = _copy(raw)["metadata"]
        return new

    async def _make(self, deployment: Object, old: Objects, revision: str) -> Object:
        metadata, spec = deployment["metadata"], deployment["spec"]
        name = template_hash(spec["template"])
        template = _copy(_sorted(spec["template"]))
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[HASH] = name
        selector = _copy(_sorted(spec["selector"]))
        selector.setdefault("matchLabels", {})[HASH] = name
        body: Object = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{metadata['name']}-{name}",
                "namespace": metadata["namespace"],
                "labels": dict(labels),
                "annotations": {**_kept(deployment), REVISION: revision, **self._sizes(spec)},
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {"replicas": 0, "selector": selector, "template": template},
        }
        if spec.get("minReadySeconds"):
            body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        sizes = [_size(one) for one in old]
        body["spec"]["replicas"] = (
            0
            if _recreates(spec) and any(size.desired or size.replicas for size in sizes)
            else (new_size(Size("", 0, 0, 0), sizes, spec.get("replicas", 1), self._limits(spec)))
        )
        count = body["spec"]["replicas"]
        made = _copy(await self._api.create(SETS, metadata["namespace"], body))
        if count:
            await self._say(deployment, f"Scaled up replica set {made['metadata']['name']} from 0 to {count}")
        return made

    async def _annotate(self, deployment: Object, new: Object, revision: str) -> Object:
        """Bring the annotations of the newest set up to date; one that was old before remembers its revisions."""
        annotations = new["metadata"].get("annotations") or {}
        wanted: dict[str, Any] = {**_kept(deployment), **self._sizes(deployment["spec"])}
        before = annotations.get(REVISION, "")
        if revision_of(new) < int(revision):
            wanted[REVISION] = revision
            if before:
                history = annotations.get(_HISTORY, "")
                wanted[_HISTORY] = f"{history},{before}" if history else before
        change: Object = {"metadata": {"annotations": wanted}}
        seconds = deployment["spec"].get("minReadySeconds", 0)
        if seconds != new["spec"].get("minReadySeconds", 0):
            change["spec"] = {"minReadySeconds": seconds}
        if change.keys() == {"metadata"} and wanted.items() <= annotations.items():
            return new
        metadata = new["metadata"]
        return _copy(await self._api.patch(SETS, metadata["namespace"], metadata["name"], change))

    @staticmethod
    def _sizes(spec: Object) -> dict[str, str]:
        wanted = spec.get("replicas", 1)
        surge = 0 if _recreates(spec) else limits_of(spec.get("strategy") or {}, wanted).surge
        return {_DESIRED: str(wanted), _MAX: str(wanted + surge)}

    # --- sizes

    @staticmethod
    def _limits(spec: Object) -> Any:
        return limits_of(spec.get("strategy") or {}, spec.get("replicas", 1))

    async def _roll(self, deployment: Object, new: Object, old: Objects) -> None:
        """One step from the old sets to the new one."""
        spec = deployment["spec"]
        wanted = spec.get("replicas", 1)
        if _recreates(spec):
            for one in old:
                await self._scale(deployment, one, 0)
            if not any((one.get("status") or {}).get("replicas") or _size(one).desired for one in old):
                await self._scale(deployment, new, wanted)
            return
        limits, sizes = self._limits(spec), [_size(one) for one in old]
        target = new_size(_size(new), sizes, wanted, limits)
        if target != _size(new).desired:
            await self._scale(deployment, new, target)
            return
        for name, count in old_sizes(_size(new), sizes, wanted, limits).items():
            await self._scale(deployment, next(one for one in old if one["metadata"]["name"] == name), count)

    async def _spread(self, deployment: Object, new: Object | None, old: Objects) -> None:
        """Paused or scaled: no step of a rollout, but the sets that have pods follow the wanted number."""
        sets = [*old, *([new] if new is not None else [])]
        spec = deployment["spec"]
        wanted = spec.get("replicas", 1)
        active = [one for one in sets if _size(one).desired]
        if len(active) <= 1:
            for one in active or sets[-1:]:
                await self._scale(deployment, one, wanted, always=True)
        elif new is not None and _size(new).desired == wanted == _size(new).available:
            for one in active:
                await self._scale(deployment, one, wanted if one is new else 0, always=True)
        else:
            sizes = {one["metadata"]["name"]: _size(one).desired for one in active}
            if not _recreates(spec):
                present = (deployment.get("status") or {}).get("replicas", 0)
                sizes = spread([_share(one) for one in active], wanted, self._limits(spec), present)
            for one in active:
                await self._scale(deployment, one, sizes[one["metadata"]["name"]], always=True)

    async def _scale(self, deployment: Object, replica_set: Object, count: int, *, always: bool = False) -> None:
        """Ask for another number of pods; `always`: note down what is wanted of all sets though it stays."""
        before, metadata = _size(replica_set).desired, replica_set["metadata"]
        noted = self._sizes(deployment["spec"])
        known = noted.items() <= (metadata.get("annotations") or {}).items()
        if before == count and (known or not always):
            return
        change = {"spec": {"replicas": count}, "metadata": {"annotations": noted}}
        raw = await self._api.patch(SETS, metadata["namespace"], metadata["name"], change)
        replica_set.update(_copy(raw))
        if before == count:
            return
        word = "up" if count > before else "down"
        await self._say(deployment, f"Scaled {word} replica set {metadata['name']} from {before} to {count}")

    async def _forget(self, deployment: Object, old: Objects) -> None:
        """Delete the oldest sets beyond the history that is to be kept, once nothing of them runs."""
        idle = [one for one in old if not _size(one).desired and not _size(one).replicas]
        for one in idle[: max(0, len(old) - deployment["spec"].get("revisionHistoryLimit", 10))]:
            await self._api.delete(
                SETS, one["metadata"]["namespace"], one["metadata"]["name"], propagation_policy="Background"
            )

    # --- status

    async def _tell(self, deployment: Object, sets: Objects, new: Object | None) -> None:
        """Write the status, if it is another one now."""
        spec, metadata = deployment["spec"], deployment["metadata"]
        wanted = spec.get("replicas", 1)
        every = [_size(one) for one in sets]
        newest = next((one for one in sets if new and one["metadata"]["name"] == new["metadata"]["name"]), None)
        total, available = sum(size.replicas for size in every), sum(size.available for size in every)
        updated = _size(newest).replicas if newest is not None else 0
        status: Object = {
            "observedGeneration": metadata.get("generation", 1),
            "terminatingReplicas": sum((one.get("status") or {}).get("terminatingReplicas", 0) for one in sets),
        }
        counts = {
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum((one.get("status") or {}).get("readyReplicas", 0) for one in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, max(total, wanted) - available),
        }
        status.update({name: count for name, count in counts.items() if count})
        before = deployment.get("status") or {}
        conditions = self._conditions(deployment, before, status, newest)
        if conditions:
            status["conditions"] = conditions
        if status != before:
            namespace, name = metadata["namespace"], metadata["name"]
            await self._api.replace(KEY, namespace, name, {**deployment, "status": status}, subresource="status")

    def _conditions(self, deployment: Object, before: Object, status: Object, newest: Object | None) -> Objects:
        spec, now = deployment["spec"], time.time()
        wanted = spec.get("replicas", 1)
        enough = status.get("availableReplicas", 0) >= wanted - self._unavailable(spec)
        conditions: Objects = before.get("conditions") or []
        reason, words = (
            ("MinimumReplicasAvailable", "Deployment has minimum availability.")
            if enough
            else ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        )
        if spec.get("paused"):
            said = "DeploymentPaused", "Deployment is paused"
            conditions = with_condition(conditions, "Progressing", None, *said, now)
            return with_condition(conditions, "Available", enough, reason, words, now)
        conditions = with_condition(conditions, "Available", enough, reason, words, now)
        progressing = find(conditions, "Progressing")
        if progressing is not None and progressing.get("reason") == "DeploymentPaused":
            words = "Deployment is resumed"
            conditions = with_condition(conditions, "Progressing", None, "DeploymentResumed", words, now)
            progressing = find(conditions, "Progressing")
        if newest is None:
            return conditions
        name = newest["metadata"]["name"]
        done = (
            status.get("updatedReplicas", 0) == wanted
            and status.get("replicas", 0) == wanted
            and status.get("availableReplicas", 0) == wanted
        )
        if done:
            words = f'ReplicaSet "{name}" has successfully progressed.'
            return with_condition(conditions, "Progressing", True, "NewReplicaSetAvailable", words, now)
        moved = any(status.get(field, 0) != before.get(field, 0) for field in ("updatedReplicas", "readyReplicas"))
        moved = moved or status.get("availableReplicas", 0) > before.get("availableReplicas", 0)
        words = f'ReplicaSet "{name}" is progressing.'
        if progressing is None or (moved and progressing.get("reason") != "ReplicaSetUpdated"):
            return with_condition(conditions, "Progressing", True, "ReplicaSetUpdated", words, now)
        if progressing.get("reason") == "NewReplicaSetAvailable" and name not in progressing.get("message", ""):
            return with_condition(conditions, "Progressing", True, "ReplicaSetUpdated", words, now)
        if moved:
            stamped = {**progressing, "message": words, "lastUpdateTime": self._cluster.clock.now()}
            conditions = [stamped if one is progressing else one for one in conditions]
            progressing = stamped
        return self._overdue(deployment, conditions, progressing, name, now)

    def _overdue(self, deployment: Object, conditions: Objects, progressing: Object, name: str, now: float) -> Objects:
        """Say that a rollout has not moved for longer than it may; look again when it will have been so long."""
        if progressing.get("reason") in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
            return conditions
        metadata = deployment["metadata"]
        left = (
            seconds_of(progressing.get("lastUpdateTime")) + deployment["spec"].get("progressDeadlineSeconds", 600) - now
        )
        if left > 0:
            self.queue.add_after(Named(metadata["namespace"], metadata["name"]), left + 0.1)
            return conditions
        words = f'ReplicaSet "{name}" has timed out progressing.'
        return with_condition(conditions, "Progressing", False, "ProgressDeadlineExceeded", words, now)

    def _unavailable(self, spec: Object) -> int:
        return 0 if _recreates(spec) else int(self._limits(spec).unavailable)

    async def _say(self, deployment: Object, message: str) -> None:
        metadata = deployment["metadata"]
        subject = Subject("apps/v1", "Deployment", metadata["namespace"], metadata["name"], metadata["uid"])
        await self._recorder.record(subject, "Normal", "ScalingReplicaSet", message)


def _recreates(spec: Object) -> bool:
    return (spec.get("strategy") or {}).get("type") == "Recreate"


def _was_scaled(sets: Objects, wanted: int) -> bool:
    """Whether a set that has pods was last told of another wanted number."""
    told = ((one["metadata"].get("annotations") or {}).get(_DESIRED) for one in sets if _size(one).desired)
    return any(number is not None and number != str(wanted) for number in told)


def _share(replica_set: Object) -> Share:
    metadata, said = replica_set["metadata"], (replica_set["metadata"].get("annotations") or {}).get(_MAX, "")
    most = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0
    return Share(metadata["name"], _size(replica_set).desired, most, metadata["creationTimestamp"])


def _kept(deployment: Object) -> dict[str, str]:
    """The annotations of a Deployment that its set has too."""
    annotations = deployment["metadata"].get("annotations") or {}
    return {name: value for name, value in annotations.items() if name not in _OWN}


def _size(replica_set: Object) -> Size:
    status = replica_set.get("status") or {}
    return Size(
        replica_set["metadata"]["name"],
        replica_set["spec"].get("replicas", 1),
        status.get("replicas", 0),
        status.get("availableReplicas", 0),
    )
