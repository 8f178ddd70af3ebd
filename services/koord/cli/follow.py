"""Following submitted jobs: their stage, their pods, and why they wait."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from koord.cli.progress import DONE, stage_of
from koord.kube import resources
from koord.kube.jobs.registry import JOB_KINDS
from koord.kube.queues import FAILED, SUCCEED
from koord.kube.resources import Resource
from koord.localcluster.clusterapi import ApiError, ClusterApi, Object
from koord.localcluster.httpapi import ResourcePath

REFRESH_S = 0.5


class _Followed:
    __slots__ = ("kind", "message", "name", "namespace", "pods", "resource", "stage")

    def __init__(self, resource: Resource, namespace: str, name: str) -> None:
        self.resource = resource
        self.kind = resource.kind
        self.namespace = namespace
        self.name = name
        self.stage = "waiting"
        self.pods = ""
        self.message = ""


class Follower:
    """Asks the API server twice a second how the jobs are; objects that are no jobs are not followed."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._jobs: list[_Followed] = []

    def add(self, place: ResourcePath, namespace: str, name: str) -> None:
        """Follow an object if it is of a job kind."""
        group = place.prefix.removeprefix("/apis/").partition("/")[0] if place.prefix.startswith("/apis/") else ""
        for token in JOB_KINDS:
            resource = resources.BY_TOKEN[token]
            if (resource.plural, resource.group) == (place.plural, group):
                self._jobs.append(_Followed(resource, namespace, name))

    def rows(self) -> list[dict[str, Any]]:
        """The jobs as rows of a table."""
        return [
            {
                "job": f"{job.namespace}/{job.name}",
                "kind": job.kind,
                "stage": job.stage,
                "pods": job.pods,
                "message": job.message,
            }
            for job in self._jobs
        ]

    async def follow(self, until: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Rows again and again until every job is where ``until`` asks it to be, or finished."""
        goal = DONE if until == "finished" else DONE | {"running"}
        while True:
            await self._refresh()
            yield self.rows()
            if all(job.stage in goal for job in self._jobs):
                return
            await asyncio.sleep(REFRESH_S)

    async def _refresh(self) -> None:
        units: dict[tuple[str, str, str], Object] = {}
        for namespace in {job.namespace for job in self._jobs}:
            for unit in (await self._api.list("queueunits.scheduling.x-k8s.io", namespace))[0]:
                reference = unit.get("spec", {}).get("consumerRef") or {}
                units[(namespace, reference.get("kind", ""), reference.get("name", ""))] = unit
        await asyncio.gather(*(self._one(job, units) for job in self._jobs if job.stage not in DONE))

    async def _one(self, job: _Followed, units: dict[tuple[str, str, str], Object]) -> None:
        name = f"{job.resource.plural}.{job.resource.group}"
        try:
            seen = await self._api.get(name, job.namespace, job.name)
        except ApiError as error:
            if error.code == 404:
                job.stage, job.message = "failed", "the job was deleted"
                return
            job.message = error.message
            return
        job.stage = stage_of(job.resource.token, seen)
        unit = units.get((job.namespace, job.kind, job.name))
        status = (unit or {}).get("status") or {}
        job.pods = ""
        if job.stage in DONE and status.get("phase") not in (SUCCEED, FAILED):
            # The unit tells the end a moment after the job: what it says now is of before.
            job.message = _last_words(seen)
        else:
            job.message = str(status.get("message") or "")
        admissions = status.get("admissions") or ()
        if admissions and job.stage not in DONE:
            running = sum(int(entry.get("running") or 0) for entry in admissions)
            job.pods = f"{running}/{sum(int(entry.get('replicas') or 0) for entry in admissions)}"


def _last_words(job: Object) -> str:
    """What a job that is over says itself: the message of its latest true condition, else of its status."""
    status = job.get("status") or {}
    true = [condition for condition in status.get("conditions") or () if condition.get("status") == "True"]
    return str((true[-1].get("message") if true else "") or status.get("message") or "")
