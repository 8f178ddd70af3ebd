"""batch/v1 Job: one pod set, ``spec.suspend``, a template that can be changed only before a start."""

from collections.abc import Mapping
from typing import Any, Final

from koord.kube.jobs import ownership, reading, templates
from koord.kube.jobs.indexes import count_indexes
from koord.kube.jobs.kind import Job, JobPatch, JobStatus, PodSetSpec, PrioritySource, TemplateHints
from koord.kube.jobs.naming import pod_set_name
from koord.kube.resources import JOBS, Resource

CONTROLLER: Final = "kubernetes.io/job-controller"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
LEGACY_JOB_NAME: Final = "job-name"
TEMPLATE: Final = ("spec", "template")


class BatchJob:
    """The rules of batch/v1 Job."""

    resource: Resource = JOBS
    suffix = ""

    def managed(self, job: Job, *, manage_all: bool = False) -> bool:
        """Suspended before its first start, or marked by the queue; never one that another job made."""
        if ownership.foreign(reading.text(reading.spec(job), "managedBy", "spec"), CONTROLLER):
            return False
        if ownership.owned_by_job(job):
            return False
        return manage_all or ownership.marked(job) or (self.suspended(job) and not _started(job))

    def suspended(self, job: Job) -> bool:
        """``spec.suspend``."""
        return reading.boolean(reading.spec(job), "suspend", "spec")

    def status(self, job: Job, *, children_alive: bool = False) -> JobStatus:
        """By conditions, then by counters: ready pods run, and a job that has finished pods has run."""
        conditions = reading.conditions(job)
        if reading.condition_true(conditions, "Complete"):
            return JobStatus.SUCCEEDED
        if reading.condition_true(conditions, "Failed"):
            return JobStatus.FAILED
        if self.suspended(job):
            return JobStatus.QUEUING
        status = reading.status(job)
        if any(reading.count(status, counter, "status") for counter in ("ready", "succeeded", "failed")):
            return JobStatus.RUNNING
        return JobStatus.PENDING if _started(job) else JobStatus.CREATED

    def pod_sets(self, job: Job) -> list[PodSetSpec]:
        """One set, named like the job: as many pods as will run at once (spec 70 section 3.3)."""
        spec = reading.spec(job)
        name = reading.text(reading.metadata(job), "name", "metadata")
        template = reading.mapping(spec, "template", "spec")
        return [PodSetSpec(pod_set_name(name), _at_once(job), template, TEMPLATE)]

    def priority_sources(self, job: Job) -> list[PrioritySource]:
        """The template's class and integer."""
        return [template_priority(reading.mapping(reading.spec(job), "template", "spec"), "spec.template")]

    def gang_minimum(self, job: Job) -> int | None:
        """All pods that run at once; None for a job in waves.

        A job with more completions than parallelism ends with fewer pods than it began with, which a gang of that
        many would hold back for ever.
        """
        parallelism, completions = _shape(job)
        return _at_once(job) if completions <= parallelism else None

    def resume_patch(self, job: Job) -> dict[str, Any]:
        """Clear ``spec.suspend``."""
        return {"spec": {"suspend": False}}

    def suspend_patch(self, job: Job) -> dict[str, Any]:
        """Set ``spec.suspend``."""
        return {"spec": {"suspend": True}}

    def status_patch(self, job: Job, *, queuing: bool, now: float) -> dict[str, Any] | None:
        """Take the start off a job that waits again, or else None: the job controller writes the conditions itself.

        A template may be changed before the first start alone, and the next attempt has hints of its own. Kubernetes'
        controller takes it off since 1.36; before, it does not mind who does once it has stopped the pods.
        """
        stopped = self.suspended(job) and reading.condition_true(reading.conditions(job), "Suspended")
        return {"status": {"startTime": None}} if queuing and stopped and _started(job) else None

    def annotate_templates(self, job: Job, hints: Mapping[str, TemplateHints]) -> JobPatch | None:
        """A merge patch while the job is suspended and not started; after that the template is immutable."""
        if not self.suspended(job) or _started(job):
            return None
        patch = templates.merge_hints(self.pod_sets(job), hints)
        return JobPatch("merge", patch) if patch else None

    def start_patch(
        self, job: Job, hints: Mapping[str, TemplateHints], annotations: Mapping[str, str] | None = None
    ) -> JobPatch:
        """One merge patch: the API server judges the template by the old, still suspended job."""
        annotated = self.annotate_templates(job, hints)
        patch = dict(annotated.body) if annotated is not None and isinstance(annotated.body, dict) else {}
        patch.setdefault("spec", {})["suspend"] = False
        if annotations:
            patch["metadata"] = {"annotations": dict(annotations)}
        return JobPatch("merge", patch)

    def pod_set_of(self, pod_labels: Mapping[str, str]) -> str:
        """The job's name as a pod set."""
        name = pod_labels.get(JOB_NAME) or pod_labels.get(LEGACY_JOB_NAME, "")
        return pod_set_name(name) if name else ""

    def pod_selector(self, job: Job) -> tuple[str, str] | None:
        """By job name."""
        return JOB_NAME, reading.text(reading.metadata(job), "name", "metadata")


def template_priority(template: dict[str, Any], path: str) -> PrioritySource:
    """The priority a pod template sets."""
    spec = reading.mapping(template, "spec", path)
    return PrioritySource(
        f"{path}.spec.priorityClassName",
        reading.text(spec, "priorityClassName", f"{path}.spec"),
        reading.integer(spec, "priority", f"{path}.spec"),
    )


def _started(job: Job) -> bool:
    return reading.status(job).get("startTime") is not None


def _shape(job: Job) -> tuple[int, int]:
    """Parallelism and completions, with their defaults."""
    spec = reading.spec(job)
    parallelism = reading.count(spec, "parallelism", "spec")
    completions = reading.count(spec, "completions", "spec")
    if parallelism is None:
        parallelism = 1
    return parallelism, parallelism if completions is None else completions


def _at_once(job: Job) -> int:
    """How many pods run at once: parallelism, or what is left to complete if that is less."""
    parallelism, completions = _shape(job)
    status = reading.status(job)
    terminal = reading.count(status, "succeeded", "status") or 0
    if reading.text(reading.spec(job), "completionMode", "spec") == "Indexed":
        failed = reading.text(status, "failedIndexes", "status")
        completed = status.get("completedIndexes")
        if isinstance(completed, str) and completed:
            terminal = count_indexes(f"{completed},{failed}", completions)
        else:
            terminal += count_indexes(failed, completions)
    return min(parallelism, max(0, completions - terminal))
