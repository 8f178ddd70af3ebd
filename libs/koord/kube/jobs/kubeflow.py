"""The kinds of Kubeflow's training operator: roles in a map, ``runPolicy``, a suspend switch in two places.

A job is suspended if either ``spec.runPolicy.suspend`` (operators since 1.7) or the suspend annotation says so; letting
it go clears both and writes a condition ``Queuing``. Role keys are matched whatever their case, as operators do.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from koord.kube.jobs import ownership, reading, templates
from koord.kube.jobs.batchjob import template_priority
from koord.kube.jobs.kind import Job, JobError, JobPatch, JobStatus, PodSetSpec, PrioritySource, TemplateHints
from koord.kube.meta import now_rfc3339
from koord.kube.protocol import queue as keys
from koord.kube.resources import Resource

OPERATOR: Final = "kubeflow.org/training-operator"
JOB_NAME: Final = "training.kubeflow.org/job-name"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
LEGACY_ROLES: Final = ("job-role", "pytorch-replica-type", "tf-replica-type")

QUEUING: Final = "Queuing"


class KubeflowJob(msgspec.Struct, frozen=True):
    """One kind: where its roles are and in which order they count. ``elastic``: it knows ``spec.elasticPolicy``."""

    resource: Resource
    suffix: str
    roles_field: str
    roles: tuple[str, ...]
    elastic: bool = False

    def managed(self, job: Job, *, manage_all: bool = False) -> bool:
        """Suspended at first sight, or marked by the queue; never one that another operator or job manages."""
        if ownership.foreign(reading.text(self._run_policy(job), "managedBy", "spec.runPolicy"), OPERATOR):
            return False
        if ownership.owned_by_job(job):
            return False
        return manage_all or ownership.marked(job) or self.suspended(job)

    def suspended(self, job: Job) -> bool:
        """Whether the field or the annotation says so."""
        return reading.boolean(self._run_policy(job), "suspend", "spec.runPolicy") or ownership.annotated_suspended(job)

    def status(self, job: Job, *, children_alive: bool = False) -> JobStatus:
        """By the operator's conditions, of which only True ones count."""
        conditions = reading.conditions(job)
        if reading.condition_true(conditions, "Succeeded"):
            return JobStatus.SUCCEEDED
        if reading.condition_true(conditions, "Failed"):
            return JobStatus.FAILED
        if self.suspended(job):
            return JobStatus.QUEUING
        if reading.condition_true(conditions, "Running"):
            return JobStatus.RUNNING
        if reading.condition_true(conditions, "Created") or reading.condition_true(conditions, "Restarting"):
            return JobStatus.PENDING
        return JobStatus.CREATED

    def pod_sets(self, job: Job) -> list[PodSetSpec]:
        """One set per role present, named by the role in lower case; absent ``replicas`` is 1."""
        path = f"spec.{self.roles_field}"
        spec = reading.spec(job)
        present = self._present(reading.mapping(spec, self.roles_field, "spec"), path)
        sets = []
        for role in self.roles:
            key = present.get(role.lower())
            if key is None:
                continue
            replica = reading.mapping(spec[self.roles_field], key, path)
            count = reading.count(replica, "replicas", f"{path}.{key}")
            if replica.get("template") is None:
                raise JobError(f"{path}.{key}.template", "is required")
            sets.append(
                PodSetSpec(
                    name=role.lower(),
                    count=1 if count is None else count,
                    template=reading.mapping(replica, "template", f"{path}.{key}"),
                    template_path=("spec", self.roles_field, key, "template"),
                    min_count=self._elastic_minimum(job) if role == "Worker" else None,
                )
            )
        if not sets:
            raise JobError(path, f"must have at least one of the roles {', '.join(self.roles)}")
        return sets

    def priority_sources(self, job: Job) -> list[PrioritySource]:
        """The scheduling policy's class, then each role's template in order."""
        policy = reading.mapping(self._run_policy(job), "schedulingPolicy", "spec.runPolicy")
        path = "spec.runPolicy.schedulingPolicy"
        sources = [PrioritySource(f"{path}.priorityClass", reading.text(policy, "priorityClass", path))]
        sources += [
            template_priority(
                pod_set.template,
                f"spec.{self.roles_field}.{pod_set.template_path[2]}.template",
            )
            for pod_set in self.pod_sets(job)
        ]
        return sources

    def gang_minimum(self, job: Job) -> int | None:
        """``schedulingPolicy.minAvailable``, else every pod; of elastic workers the elastic minimum."""
        policy = reading.mapping(self._run_policy(job), "schedulingPolicy", "spec.runPolicy")
        minimum = reading.count(policy, "minAvailable", "spec.runPolicy.schedulingPolicy")
        if minimum is not None:
            return minimum
        return sum(
            pod_set.count if pod_set.min_count is None else min(pod_set.count, pod_set.min_count)
            for pod_set in self.pod_sets(job)
        )

    def resume_patch(self, job: Job) -> dict[str, Any]:
        """Clear the field and the annotation."""
        return self._switch(suspend=False)

    def suspend_patch(self, job: Job) -> dict[str, Any]:
        """Set the field and the annotation."""
        return self._switch(suspend=True)

    def status_patch(self, job: Job, *, queuing: bool, now: float) -> dict[str, Any] | None:
        """The condition Queuing, with all others as they are (a merge patch replaces lists); None if it stands."""
        conditions = [dict(item) for item in reading.objects(reading.status(job), "conditions", "status")]
        old = next((item for item in conditions if item.get("type") == QUEUING), None)
        status = "True" if queuing else "False"
        if old is not None and old.get("status") == status:
            return None
        text = now_rfc3339(now)
        new = {
            "type": QUEUING,
            "status": status,
            "reason": "JobEnqueued" if queuing else "JobDequeued",
            "message": "Job Enqueued" if queuing else "Job Dequeued",
            "lastUpdateTime": text,
            "lastTransitionTime": text,
        }
        if old is None:
            conditions.append(new)
        else:
            conditions[conditions.index(old)] = new
        return {"status": {"conditions": conditions}}

    def annotate_templates(self, job: Job, hints: Mapping[str, TemplateHints]) -> JobPatch | None:
        """A merge patch of the roles' templates."""
        patch = templates.merge_hints(self.pod_sets(job), hints)
        return JobPatch("merge", patch) if patch else None

    def start_patch(
        self, job: Job, hints: Mapping[str, TemplateHints], annotations: Mapping[str, str] | None = None
    ) -> JobPatch:
        """Hints and both switches in one merge patch."""
        patch = templates.merge_hints(self.pod_sets(job), hints)
        patch.setdefault("spec", {})["runPolicy"] = {"suspend": False}
        patch["metadata"] = {"annotations": {**(annotations or {}), keys.SUSPEND: "false"}}
        return JobPatch("merge", patch)

    def pod_set_of(self, pod_labels: Mapping[str, str]) -> str:
        """The replica type in lower case; legacy labels second."""
        for key in (REPLICA_TYPE, *LEGACY_ROLES):
            role = pod_labels.get(key)
            if role:
                return role.lower()
        return ""

    def pod_selector(self, job: Job) -> tuple[str, str] | None:
        """By job name."""
        return JOB_NAME, reading.text(reading.metadata(job), "name", "metadata")

    def _run_policy(self, job: Job) -> dict[str, Any]:
        return reading.mapping(reading.spec(job), "runPolicy", "spec")

    def _present(self, roles: dict[str, Any], path: str) -> dict[str, str]:
        """Lower-cased role to the key the job uses."""
        known = {role.lower() for role in self.roles}
        present: dict[str, str] = {}
        for key in roles:
            lowered = key.lower()
            if lowered not in known:
                raise JobError(f"{path}.{key}", f"unknown role, must be one of {', '.join(self.roles)}")
            if lowered in present:
                raise JobError(f"{path}.{key}", f"the same role as {present[lowered]}")
            present[lowered] = key
        return present

    def _elastic_minimum(self, job: Job) -> int | None:
        """The fewest workers of an elastic job; with only one bound set both are it; None if not elastic."""
        if not self.elastic:
            return None
        policy = reading.mapping(reading.spec(job), "elasticPolicy", "spec")
        minimum = reading.count(policy, "minReplicas", "spec.elasticPolicy")
        return reading.count(policy, "maxReplicas", "spec.elasticPolicy") if minimum is None else minimum

    @staticmethod
    def _switch(*, suspend: bool) -> dict[str, Any]:
        return {
            "metadata": {"annotations": {keys.SUSPEND: "true" if suspend else "false"}},
            "spec": {"runPolicy": {"suspend": suspend}},
        }
