"""Jobs and their pods in memory, fed by watches and by the answers to our own writes.

An operator reads its own writes: what a create or a patch answered is taken in at once, by resource version, so that
the next decision does not repeat it before the watch has told.
"""

import time
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from koord.kube import meta
from koord.localcluster.operators.observed import Observed, PodObject, PodSeen, seen

_REMEMBERED_DEATHS = 200_000


class JobKey(NamedTuple):
    """Which job: the operator's resource, namespace, name."""

    resource: str
    namespace: str
    name: str


class JobRecord:
    """One job: its raw JSON (None while it does not exist) and its pods by uid."""

    __slots__ = ("busy", "due_s", "failures", "gone", "key", "last_s", "pods", "raw", "uid", "version")

    def __init__(self, key: JobKey) -> None:
        self.key = key
        self.raw: bytes | None = None
        self.uid = ""
        self.version = 0
        self.pods: dict[str, PodSeen] = {}
        self.gone: dict[str, PodSeen] = {}
        self.last_s = 0.0
        self.due_s = 0.0
        self.failures = 0
        self.busy = False

    @property
    def observed(self) -> Observed:
        """The pods of the job as it is now."""
        uid = self.uid
        return Observed(
            [pod for pod in self.pods.values() if pod.owner_uid == uid],
            [pod for pod in self.gone.values() if pod.owner_uid == uid],
        )


class _Head(msgspec.Struct):
    metadata: meta.ObjectMeta


class Jobs:
    """All jobs of all operators."""

    def __init__(self, kinds: dict[tuple[str, str], str]) -> None:
        """`kinds`: (apiVersion, kind) of an owner reference to the operator's resource."""
        self.records: dict[JobKey, JobRecord] = {}
        self._kinds = kinds
        self._owner: dict[tuple[str, str], tuple[JobKey, str]] = {}
        self._dead: OrderedDict[str, None] = OrderedDict()

    def record(self, key: JobKey) -> JobRecord:
        """The record of a job, made if it is not there."""
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = JobRecord(key)
        return record

    def put_job(self, key: JobKey, raw: bytes, version: int) -> JobRecord | None:
        """Take in a job's state; its record if that is news."""
        record = self.record(key)
        if version <= record.version:
            return None
        uid = msgspec.json.decode(raw, type=_Head).metadata.uid
        if uid != record.uid:
            record.gone = {}
        record.raw, record.uid, record.version = raw, uid, version
        return record

    def drop_job(self, key: JobKey, version: int) -> JobRecord | None:
        """A job is gone."""
        record = self.records.get(key)
        if record is None or version < record.version:
            return None
        record.raw, record.version = None, version
        record.gone = {}
        record.failures = 0
        return record

    def put_pod(self, namespace: str, raw: bytes, version: int) -> JobRecord | None:
        """Take in a pod's state; the record of its job if that is news to an operator."""
        pod = meta.decode(PodObject, raw)
        owner = pod.metadata.controller
        if owner is None or pod.metadata.uid in self._dead:
            return None
        resource = self._kinds.get((owner.api_version, owner.kind))
        if resource is None:
            return None
        key = JobKey(resource, namespace, owner.name)
        record = self.record(key)
        new = seen(pod, owner.uid, version)
        old = record.pods.get(new.uid)
        if old is not None:
            if version <= old.version:
                return None
            if old.ours or old.ended_s:
                new = new._replace(ours=old.ours, ended_s=old.ended_s)
        if not new.ended_s and (new.terminal or new.deleting):
            new = new._replace(ended_s=time.time())
        record.pods[new.uid] = new
        self._owner[namespace, new.name] = (key, new.uid)
        same = old is not None and (old.phase, old.ready, old.deleting) == (new.phase, new.ready, new.deleting)
        return None if same else record

    def drop_pod(self, namespace: str, name: str, uid: str | None = None) -> JobRecord | None:
        """A pod is gone (only the one with this uid, if given)."""
        known = self._owner.get((namespace, name))
        if known is None or (uid is not None and uid != known[1]):
            return None
        del self._owner[namespace, name]
        key, pod_uid = known
        self._dead[pod_uid] = None
        if len(self._dead) > _REMEMBERED_DEATHS:
            self._dead.popitem(last=False)
        record = self.records[key]
        pod = record.pods.pop(pod_uid, None)
        if pod is not None and record.raw is not None and pod.owner_uid == record.uid:
            record.gone[pod_uid] = pod if pod.ended_s else pod._replace(ended_s=time.time())
        return record

    def pod_names(self) -> list[tuple[str, str]]:
        """Namespace and name of all pods that belong to jobs."""
        return list(self._owner)

    def forget(self, record: JobRecord) -> None:
        """Drop the record of a job that is gone, if nothing of it is left."""
        if record.raw is None and not record.pods:
            self.records.pop(record.key, None)
