"""RayJob: a Ray cluster plus, by default, a pod that submits the job to it.

The worker groups are a list, so templates are annotated by a JSON patch, which also tests that each group is still the
one it was planned for.
"""

from collections.abc import Mapping
from typing import Any, Final

from koord.kube.jobs import ownership, reading, templates
from koord.kube.jobs.batchjob import JOB_NAME, LEGACY_JOB_NAME, template_priority
from koord.kube.jobs.kind import (
    MAX_POD_SETS,
    Job,
    JobError,
    JobPatch,
    JobStatus,
    PodSetSpec,
    PrioritySource,
    TemplateHints,
)
from koord.kube.jobs.raycluster import (
    CLUSTER,
    SUBMITTER,
    SUBMITTER_RESOURCES,
    cluster_pod_sets,
    group_of_pod,
    head_image,
    is_fault_tolerant,
)
from koord.kube.resources import RAYJOBS, Resource

OPERATOR: Final = "ray.io/kuberay-operator"
CLUSTER_SPEC: Final = ("spec", "rayClusterSpec")
SUBMITTER_TEMPLATE: Final = ("spec", "submitterPodTemplate")
ORIGINATED_FROM: Final = "ray.io/originated-from-crd"

K8S_JOB_MODE: Final = "K8sJobMode"
SIDECAR_MODE: Final = "SidecarMode"
MODES: Final = (K8S_JOB_MODE, "HTTPMode", "InteractiveMode", SIDECAR_MODE)


class RayJob:
    """The rules of ray.io/v1 RayJob."""

    resource: Resource = RAYJOBS
    suffix = "-ray-qu"

    def managed(self, job: Job, *, manage_all: bool = False) -> bool:
        """Suspended before its first start, or marked; never one that runs on a cluster it did not make."""
        spec = reading.spec(job)
        if ownership.foreign(reading.text(spec, "managedBy", "spec"), OPERATOR) or ownership.owned_by_job(job):
            return False
        if reading.mapping(spec, "clusterSelector", "spec"):
            return False
        started = reading.status(job).get("startTime") is not None
        return manage_all or ownership.marked(job) or (self.suspended(job) and not started)

    def suspended(self, job: Job) -> bool:
        """``spec.suspend``."""
        return reading.boolean(reading.spec(job), "suspend", "spec")

    def status(self, job: Job, *, children_alive: bool = False) -> JobStatus:
        """By ``jobDeploymentStatus``; a finished job whose cluster is alive still runs, for its pods hold room."""
        status = reading.status(job)
        deployment = reading.text(status, "jobDeploymentStatus", "status")
        if deployment in ("Complete", "Failed", "ValidationFailed"):
            if children_alive:
                return JobStatus.RUNNING
            outcome = reading.text(status, "jobStatus", "status")
            succeeded = deployment == "Complete" and outcome not in ("FAILED", "STOPPED")
            return JobStatus.SUCCEEDED if succeeded else JobStatus.FAILED
        if self.suspended(job):
            return JobStatus.QUEUING
        if deployment == "Running":
            return JobStatus.RUNNING
        return JobStatus.PENDING if deployment else JobStatus.CREATED

    def pod_sets(self, job: Job, *, live: Job | None = None) -> list[PodSetSpec]:
        """Head, worker groups, submitter. ``live``: the job's RayCluster, whose replicas count if autoscaled."""
        spec = reading.spec(job)
        if spec.get("rayClusterSpec") is None:
            if reading.mapping(spec, "clusterSelector", "spec"):
                return []  # it runs on a cluster that it did not make
            raise JobError("spec.rayClusterSpec", "is required")
        cluster = reading.mapping(spec, "rayClusterSpec", "spec")
        mode = _mode(spec)
        sidecar = [_submitter_container(cluster)] if mode == SIDECAR_MODE else []
        sets = cluster_pod_sets(
            cluster,
            CLUSTER_SPEC,
            head_extras=sidecar,
            fault_tolerant=is_fault_tolerant(cluster, "spec.rayClusterSpec", reading.annotations(job)),
            live=live,
        )
        if mode == K8S_JOB_MODE:
            own = reading.mapping(spec, "submitterPodTemplate", "spec")
            template = own or _default_submitter(cluster)
            sets.append(PodSetSpec(SUBMITTER, 1, template, SUBMITTER_TEMPLATE if own else (), gang=False))
        if len(sets) > MAX_POD_SETS:
            rule = f"must not make more than {MAX_POD_SETS} pod sets, got {len(sets)}"
            raise JobError("spec.rayClusterSpec.workerGroupSpecs", rule)
        return sets

    def priority_sources(self, job: Job) -> list[PrioritySource]:
        """The head's template."""
        cluster = reading.mapping(reading.spec(job), "rayClusterSpec", "spec")
        head = reading.mapping(cluster, "headGroupSpec", "spec.rayClusterSpec")
        template = reading.mapping(head, "template", "spec.rayClusterSpec.headGroupSpec")
        return [template_priority(template, "spec.rayClusterSpec.headGroupSpec.template")]

    def gang_minimum(self, job: Job) -> int | None:
        """Head and workers, autoscaled groups with their fewest; not the submitter, which follows a ready cluster."""
        return sum(
            pod_set.count if pod_set.gang_count is None else pod_set.gang_count
            for pod_set in self.pod_sets(job)
            if pod_set.gang
        )

    def resume_patch(self, job: Job) -> dict[str, Any]:
        """Clear ``spec.suspend``."""
        return {"spec": {"suspend": False}}

    def suspend_patch(self, job: Job) -> dict[str, Any]:
        """Set ``spec.suspend``."""
        return {"spec": {"suspend": True}}

    def status_patch(self, job: Job, *, queuing: bool, now: float) -> dict[str, Any] | None:
        """None: KubeRay writes ``jobDeploymentStatus`` itself."""
        return None

    def annotate_templates(self, job: Job, hints: Mapping[str, TemplateHints]) -> JobPatch | None:
        """A JSON patch of the templates."""
        operations = self._operations(job, hints)
        return JobPatch("json", operations) if operations else None

    def start_patch(
        self, job: Job, hints: Mapping[str, TemplateHints], annotations: Mapping[str, str] | None = None
    ) -> JobPatch:
        """Hints and resume in one JSON patch."""
        operations = self._operations(job, hints)
        if annotations:
            present = isinstance(reading.metadata(job).get("annotations"), dict)
            where = ("metadata", "annotations")
            if present:
                operations += [templates.operation("add", (*where, key), value) for key, value in annotations.items()]
            else:
                operations.append(templates.operation("add", where, dict(annotations)))
        operations.append(templates.operation("add", ("spec", "suspend"), False))
        return JobPatch("json", operations)

    def pod_set_of(self, pod_labels: Mapping[str, str]) -> str:
        """By Ray group; a pod without one that stems from a RayJob is the submitter."""
        name = group_of_pod(pod_labels)
        # The prefixed label is there since Kubernetes 1.27.
        of_a_job = JOB_NAME in pod_labels or LEGACY_JOB_NAME in pod_labels
        return SUBMITTER if not name and (of_a_job or pod_labels.get(ORIGINATED_FROM) == "RayJob") else name

    def pod_selector(self, job: Job) -> tuple[str, str] | None:
        """By the cluster's name, once KubeRay has chosen it; the submitter is not among them."""
        name = reading.text(reading.status(job), "rayClusterName", "status")
        return (CLUSTER, name) if name else None

    def _operations(self, job: Job, hints: Mapping[str, TemplateHints]) -> list[dict[str, Any]]:
        operations: list[dict[str, Any]] = []
        for pod_set in self.pod_sets(job):
            parts = templates.missing(pod_set, hints.get(pod_set.name))
            if not parts:
                continue
            path = pod_set.template_path
            if not path:
                # KubeRay would make this very template; written out, it can carry the hints.
                whole = {**pod_set.template, "metadata": parts}
                operations.append(templates.operation("add", SUBMITTER_TEMPLATE, whole))
                continue
            if path[:3] == (*CLUSTER_SPEC, "workerGroupSpecs"):
                group = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][path[3]]
                if "groupName" in group:
                    operations.append(templates.operation("test", (*path[:4], "groupName"), group["groupName"]))
            operations += templates.add_operations(job, path, parts)
        return operations


def _mode(spec: dict[str, Any]) -> str:
    mode = reading.text(spec, "submissionMode", "spec") or K8S_JOB_MODE
    if mode not in MODES:
        raise JobError("spec.submissionMode", f"must be one of {', '.join(MODES)}, got {reading.shown(mode)}")
    return mode


def _submitter_container(cluster: dict[str, Any]) -> dict[str, Any]:
    return {"name": "ray-job-submitter", "image": head_image(cluster), "resources": SUBMITTER_RESOURCES}


def _default_submitter(cluster: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [_submitter_container(cluster)], "restartPolicy": "Never"}}
