"""What became of bent objects that the API took: in force, or named where its owner looks. Nothing is passed over."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
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


RULE = re.compile(r"\bmust\b|\bExpected\b|not found|does not exist|no quota|didn't match|is unknown")
"""Words of which each sentence about a broken rule has one."""


def _says_what(made: Accepted, text: str) -> bool:
    return bool(RULE.search(text)) or not made.case.keys or any(key in text for key in made.case.keys)


class Cluster:
    """The cluster's objects as they are now, and its log."""

    def __init__(self, objects: Mapping[str, Mapping[str, Manifest]], log: str) -> None:
        self._objects = objects
        self._log = log
        self._told: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        """What events say of each object."""
        for event in objects[EVENTS.plural].values():
            about = event["involvedObject"]
            key = (about.get("kind", ""), about.get("namespace", ""), about["name"])
            self._told[key].append(event.get("message") or "")
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
        """``gone``, ``named``, ``in force`` (or over, or nobody's of koord's); empty if nothing is to be seen of it.

        One that is known to be bad counts only as ``named for what is wrong``.
        """
        now = self._objects[made.case.resource.plural].get(made.uid)
        if now is None:
            return "gone"
        if made.case.wrong:
            return "named for what is wrong" if self._names(made, now) else ""
        check = {
            PODS.plural: self._pod,
            NODES.plural: self._node,
            ELASTIC_QUOTAS.plural: self._quota,
            POD_GROUPS.plural: self._has_phase,
            QUEUES.plural: self._queue,
            QUEUE_UNITS.plural: self._has_phase,
        }.get(made.case.resource.plural, self._job)
        return "in force" if check(now) else "named" if self._named(made) else ""

    def said_of(self, made: Accepted) -> str:
        """What a failure shows: the events about the object, and its status."""
        told = self._told.get((made.case.resource.kind, made.namespace, made.name), [])
        now = self._objects[made.case.resource.plural].get(made.uid, {})
        return f"events {told}, status {json.dumps(now.get('status'))}"

    def _names(self, made: Accepted, now: Manifest) -> bool:
        """Whether an event or a condition, of the object or of its unit, names what is known to be wrong."""
        items = [(made.case.resource.kind, now), *((QUEUE_UNITS.kind, unit) for unit in self._units[made.uid])]
        for kind, item in items:
            meta = item["metadata"]
            told = self._told.get((kind, meta.get("namespace", ""), meta["name"]), [])
            shown = [str(condition.get("message")) for condition in _conditions(item)]
            if any(made.case.wrong in text for text in (*told, *shown)):
                return True
        return False

    def _named(self, made: Accepted) -> bool:
        """Whether an event or a line of the log is about the object, and about what was bent or a rule."""
        told = self._told.get((made.case.resource.kind, made.namespace, made.name), [])
        return any(_says_what(made, text) for text in told) or any(_says_what(made, text) for text in self._lines(made))

    def _lines(self, made: Accepted) -> Iterator[str]:
        for mark in (f"key={made.key} ", f"{made.key}: ", f"={made.key} ", f" {made.key} "):
            at = self._log.find(mark)
            while at >= 0:
                end = self._log.find("\n", at)
                yield self._log[self._log.rfind("\n", 0, at) + 1 : end if end >= 0 else None]
                at = self._log.find(mark, at + 1)

    # Each kind's own signs ----------------------------------------------------------------------------------------

    def _pod(self, pod: Manifest) -> bool:
        spec = pod["spec"]
        told = any(entry.get("type") == "PodScheduled" for entry in _conditions(pod))
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
        return bool(_status(item).get("phase"))

    def _queue(self, queue: Manifest) -> bool:
        return bool(_conditions(queue))

    def _job(self, job: Manifest) -> bool:
        meta, spec = job["metadata"], job.get("spec")
        units = self._units.get(meta["uid"], [])
        if units:
            return all(self._has_phase(unit) for unit in units)
        if not isinstance(spec, dict) or not isinstance(spec.get("runPolicy") or {}, dict):
            return False
        suspended = spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")
        foreign = spec.get("managedBy") or (spec.get("runPolicy") or {}).get("managedBy") or spec.get("clusterSelector")
        owned = any(owner.get("controller") for owner in meta.get("ownerReferences") or ())
        over = bool(_conditions(job))
        return bool(foreign or owned or (suspended is not True and (over or not quota_label(meta.get("labels") or {}))))


def _status(item: Manifest) -> Manifest:
    """Empty if a bend left nothing of it that can be read."""
    status = item.get("status")
    return status if isinstance(status, dict) else {}


def _conditions(item: Manifest) -> list[Manifest]:
    conditions = _status(item).get("conditions")
    return [entry for entry in conditions if isinstance(entry, dict)] if isinstance(conditions, list) else []
