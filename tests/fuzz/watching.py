"""What became of bent objects that the API took: in force, or named where its owner looks. Nothing is passed over."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from koord.kube.protocol.quota import quota_label
from koord.kube.resources import (
    ELASTIC_QUOTAS,
    EVENTS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUE_UNITS,
    QUEUES,
)
from koord.localcluster.httpapi import HttpClusterApi
from tests.fuzz.sending import Accepted

Manifest = dict[str, Any]
OURS = frozenset(("koord-scheduler", "default-scheduler"))


class Cluster:
    """The cluster's objects as they are now, and its log."""

    def __init__(self, objects: Mapping[str, Mapping[str, Manifest]], log: str) -> None:
        self._objects = objects
        self._log = log
        self._told: set[str] = {event["involvedObject"].get("uid", "") for event in objects[EVENTS.plural].values()}
        self._told_keys = {
            (
                event["involvedObject"].get("kind"),
                event["involvedObject"].get("namespace"),
                event["involvedObject"]["name"],
            )
            for event in objects[EVENTS.plural].values()
        }
        self._units: dict[str, list[Manifest]] = defaultdict(list)
        for unit in objects[QUEUE_UNITS.plural].values():
            for owner in unit["metadata"].get("ownerReferences") or ():
                self._units[owner["uid"]].append(unit)

    @classmethod
    async def read(cls, api: HttpClusterApi, log: Callable[[], str]) -> "Cluster":
        names = {
            "pods": "pods", "nodes": "nodes", "events": "events", "queues": "queues.scheduling.x-k8s.io",
            "queueunits": "queueunits.scheduling.x-k8s.io", "elasticquotas": "elasticquotas.scheduling.sigs.k8s.io",
            "podgroups": "podgroups.scheduling.sigs.k8s.io", "jobs": "jobs.batch", "tfjobs": "tfjobs.kubeflow.org",
            "pytorchjobs": "pytorchjobs.kubeflow.org", "rayjobs": "rayjobs.ray.io",
        }  # fmt: skip
        objects: dict[str, dict[str, Manifest]] = {}
        for plural, resource in names.items():
            items, _ = await api.list(resource)
            objects[plural] = {item["metadata"]["uid"]: item for item in items}
        return cls(objects, log())

    def became(self, made: Accepted) -> str:
        """``gone``, ``named``, ``in force`` (or over, or nobody's of koord's); empty if nothing is to be seen of it."""
        now = self._objects[made.case.resource.plural].get(made.uid)
        if now is None:
            return "gone"
        if self._named(made):
            return "named"
        check = {
            PODS.plural: self._pod,
            NODES.plural: self._node,
            ELASTIC_QUOTAS.plural: self._quota,
            POD_GROUPS.plural: self._has_phase,
            QUEUES.plural: self._queue,
            QUEUE_UNITS.plural: self._has_phase,
        }.get(made.case.resource.plural, self._job)
        return "in force" if check(now) else ""

    def _named(self, made: Accepted) -> bool:
        kind = made.case.resource.kind
        if made.uid in self._told or (kind, made.namespace, made.name) in self._told_keys:
            return True
        return any(
            mark in self._log for mark in (f"key={made.key} ", f"{made.key}: ", f"={made.key} ", f" {made.key} ")
        )

    # Each kind's own signs ----------------------------------------------------------------------------------------

    def _pod(self, pod: Manifest) -> bool:
        spec, status = pod["spec"], pod.get("status") or {}
        told = any(entry.get("type") == "PodScheduled" for entry in status.get("conditions") or ())
        return bool(spec.get("nodeName") or told or spec.get("schedulerName") not in OURS)

    def _node(self, node: Manifest) -> bool:
        return node["metadata"]["name"] in self.known_nodes

    known_nodes: frozenset[str] = frozenset()
    """Nodes that the scheduler can say something of."""

    def _quota(self, quota: Manifest) -> bool:
        name = quota["metadata"]["name"]
        if (quota["metadata"].get("annotations") or {}).get("quota-koord-queue-enable") == "false":
            return True
        return any(queue["metadata"]["name"] == name for queue in self._objects["queues"].values())

    def _has_phase(self, item: Manifest) -> bool:
        return bool((item.get("status") or {}).get("phase"))

    def _queue(self, queue: Manifest) -> bool:
        return bool((queue.get("status") or {}).get("conditions"))

    def _job(self, job: Manifest) -> bool:
        meta, spec = job["metadata"], job["spec"]
        units = self._units.get(meta["uid"], [])
        if units:
            return all(self._has_phase(unit) for unit in units)
        suspended = spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")
        foreign = spec.get("managedBy") or (spec.get("runPolicy") or {}).get("managedBy") or spec.get("clusterSelector")
        owned = any(owner.get("controller") for owner in meta.get("ownerReferences") or ())
        over = bool((job.get("status") or {}).get("conditions"))
        return bool(foreign or owned or (suspended is not True and (over or not quota_label(meta.get("labels") or {}))))
