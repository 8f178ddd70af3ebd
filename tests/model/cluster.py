"""What users and the cluster's own controllers do: they ask the API for something, and it is done at once."""

import itertools
from collections.abc import Iterator

from koord.gateway.ledgerlease import LEASE
from koord.kube.resources import (
    ELASTIC_QUOTAS,
    JOBS,
    LEASES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    QUEUE_UNITS,
)
from tests.model.apiserver import ApiServer
from tests.model.objects import (
    BUDGET,
    GANG_MODE,
    NAMESPACE,
    NODE_CPU,
    PRIORITY,
    PRIORITY_CLASS,
    QUOTA,
    QUOTA_NAME,
    Object,
    live,
    owner_of,
    pod_spec,
    quota_spec,
)

MERGE = "application/merge-patch+json"
READY = [{"type": "Ready", "status": "True"}]


class Cluster:
    """All writes but koord's."""

    def __init__(self, api: ApiServer) -> None:
        self.names = itertools.count(1)
        self._api = api

    # Objects --------------------------------------------------------------------------------------------------------

    async def node(self) -> None:
        allocatable = {"cpu": str(NODE_CPU // 1000), "memory": "64Gi", "pods": "110"}
        status = {"allocatable": allocatable, "conditions": READY}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{next(self.names)}"}, "status": status}
        await self._api.do("POST", NODES.path(), body)

    async def priority_class(self) -> None:
        body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "value": PRIORITY}
        await self._api.do("POST", PRIORITY_CLASSES.path(), {**body, "metadata": {"name": PRIORITY_CLASS}})

    async def budget(self) -> None:
        """A disruption budget that lets one pod go."""
        selector = {"selector": {"matchLabels": {QUOTA_NAME: QUOTA}}, "maxUnavailable": 1}
        body = _object(POD_DISRUPTION_BUDGETS.api_version, "PodDisruptionBudget", {"name": BUDGET}, selector)
        made = await self._api.do("POST", POD_DISRUPTION_BUDGETS.path(NAMESPACE), body)
        status = {"disruptionsAllowed": 1, "observedGeneration": made["metadata"].get("generation", 1)}
        path = POD_DISRUPTION_BUDGETS.path(NAMESPACE, BUDGET, "status")
        await self._api.do("PATCH", path, {"status": status}, MERGE)

    async def quota(self, cpu: int) -> None:
        body = {"kind": "ElasticQuota", "metadata": {"name": QUOTA}, "spec": quota_spec(cpu)}
        body["apiVersion"] = ELASTIC_QUOTAS.api_version
        await self._api.do("POST", ELASTIC_QUOTAS.path(NAMESPACE), body)

    async def quota_changes(self, cpu: int) -> None:
        await self._api.do("PATCH", ELASTIC_QUOTAS.path(NAMESPACE, QUOTA), {"spec": quota_spec(cpu)}, MERGE)

    async def lease_deleted(self) -> None:
        """By hand, with all that is noted there; maybe it is not there yet."""
        await self._api.request("DELETE", LEASES.path("koord-system", LEASE))

    async def pod(
        self, cpu: int, labels: Object, annotations: Object, *, priority: int = 0, owner: Object | None = None
    ) -> None:
        meta: Object = {"name": f"p{next(self.names)}", "labels": labels, "annotations": annotations}
        if owner is not None:
            meta["ownerReferences"] = [owner]
        await self._api.do("POST", PODS.path(NAMESPACE), _object("v1", "Pod", meta, pod_spec(cpu, priority)))

    async def unit(self, cpu: int) -> None:
        """A QueueUnit of nobody's."""
        meta = {"name": f"u{next(self.names)}", "labels": {QUOTA_NAME: QUOTA}}
        body = _object(QUEUE_UNITS.api_version, "QueueUnit", meta, {"resource": {"cpu": str(cpu)}})
        await self._api.do("POST", QUEUE_UNITS.path(NAMESPACE), body)

    async def job(self, size: int, *, suspended: bool) -> None:
        """A batch Job of so many pods of one cpu."""
        meta = {"name": f"j{next(self.names)}", "labels": {QUOTA_NAME: QUOTA}}
        template = {"metadata": {"labels": {QUOTA_NAME: QUOTA}}, "spec": pod_spec(1, 0)}
        template["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": size, "completions": size, "suspend": suspended, "template": template}
        await self._api.do("POST", JOBS.path(NAMESPACE), _object("batch/v1", "Job", meta, spec))

    async def deleted(self, item: Object, path: str) -> None:
        await self._api.do("DELETE", path, {"gracePeriodSeconds": 0})

    async def ended(self, name: str) -> None:
        await self._api.do("PATCH", PODS.path(NAMESPACE, name, "status"), {"status": {"phase": "Succeeded"}}, MERGE)

    async def bound_by_others(self, name: str, node: str) -> None:
        target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        await self._api.do("POST", PODS.path(NAMESPACE, name, "binding"), target)

    async def switched(self, job: str, *, suspended: bool) -> None:
        """A user's hand on a Job's switch."""
        await self._api.do("PATCH", JOBS.path(NAMESPACE, job), {"spec": {"suspend": suspended}}, MERGE)

    async def unit_switched(self, unit: str, *, active: bool) -> None:
        """A user's hand on a unit's switch: a Job of one that is not active is suspended."""
        await self._api.do("PATCH", QUEUE_UNITS.path(NAMESPACE, unit), {"spec": {"active": active}}, MERGE)

    async def node_shrinks(self, node: str) -> None:
        await self._api.do("PATCH", NODES.path("", node, "status"), {"status": {"allocatable": {"cpu": "2"}}}, MERGE)

    async def loose_gangs_end(self) -> None:
        """NonStrict gangs that wait are given up: without room they would hold a part of it again and again."""
        for pod in list(self._api.objects(PODS).values()):
            loose = pod["metadata"].get("annotations", {}).get(GANG_MODE) == "NonStrict"
            if loose and not pod["spec"].get("nodeName"):
                await self.deleted(pod, PODS.path(NAMESPACE, pod["metadata"]["name"]))

    # Controllers ----------------------------------------------------------------------------------------------------

    def jobs_to_look_at(self) -> Iterator[Object]:
        """Jobs whose pods or status are not what the Job controller wants, and what became of Jobs that are gone."""
        pods = self.pods_of_jobs()
        for job in self._api.objects(JOBS).values():
            pods_here = pods.get(job["metadata"]["uid"], [])
            if not _over(job) and (_missing(job, pods_here) or _surplus(job, pods_here) or _status(job, pods_here)):
                yield job

    def pods_of_jobs(self) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for pod in self._api.objects(PODS).values():
            if owner := owner_of(pod):
                found.setdefault(owner, []).append(pod)
        return found

    async def look_at_job(self, job: Object) -> None:
        """The Job controller: as many pods as it wants, and its status."""
        meta, template = job["metadata"], job["spec"]["template"]
        pods = self.pods_of_jobs().get(meta["uid"], [])
        for _ in range(_missing(job, pods)):
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
            made = template.get("metadata", {})
            labels, annotations = dict(made.get("labels", {})), dict(made.get("annotations", {}))
            await self.pod(1, labels, annotations, owner={**owner, "controller": True})
        for pod in _surplus(job, pods):
            await self.deleted(pod, PODS.path(NAMESPACE, pod["metadata"]["name"]))
        fresh = self._api.objects(JOBS).get(f"{NAMESPACE}/{meta['name']}")
        if fresh is not None and (status := _status(fresh, self.pods_of_jobs().get(meta["uid"], []))):
            await self._api.do("PATCH", JOBS.path(NAMESPACE, meta["name"], "status"), {"status": status}, MERGE)

    async def collect_garbage(self) -> None:
        """What belonged to Jobs that are gone goes, too."""
        jobs = {job["metadata"]["uid"] for job in self._api.objects(JOBS).values()}
        for resource in (PODS, QUEUE_UNITS):
            for item in list(self._api.objects(resource).values()):
                if (owner := owner_of(item)) and owner not in jobs:
                    await self.deleted(item, resource.path(NAMESPACE, item["metadata"]["name"]))

    @property
    def garbage(self) -> bool:
        jobs = {job["metadata"]["uid"] for job in self._api.objects(JOBS).values()}
        items = (*self._api.objects(PODS).values(), *self._api.objects(QUEUE_UNITS).values())
        return any((owner := owner_of(item)) and owner not in jobs for item in items)


def _object(version: str, kind: str, meta: Object, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def _over(job: Object) -> bool:
    return any(one["type"] == "Complete" for one in job.get("status", {}).get("conditions", ()))


def _succeeded(pods: list[Object]) -> int:
    return sum(not live(pod) for pod in pods)


def _missing(job: Object, pods: list[Object]) -> int:
    return 0 if job["spec"].get("suspend") else max(0, job["spec"]["completions"] - len(pods))


def _surplus(job: Object, pods: list[Object]) -> list[Object]:
    return [pod for pod in pods if live(pod)] if job["spec"].get("suspend") else []


def _status(job: Object, pods: list[Object]) -> Object:
    """What of its status is to be written."""
    shown, suspended, ended = job.get("status", {}), job["spec"].get("suspend"), _succeeded(pods)
    ready = 0 if suspended else sum(live(pod) and bool(pod["spec"].get("nodeName")) for pod in pods)
    wanted: Object = {"ready": ready, "succeeded": ended}
    if not suspended and not shown.get("startTime"):
        wanted["startTime"] = "2026-01-01T00:00:00Z"
    if suspended and shown.get("startTime"):
        wanted["startTime"] = None
    if ended >= job["spec"]["completions"]:
        wanted["conditions"] = [{"type": "Complete", "status": "True"}]
    return {
        key: value
        for key, value in wanted.items()
        if shown.get(key, 0 if key in ("ready", "succeeded") else None) != value
    }
