"""Whose job is it: the rules by which the queue leaves a job alone (spec 70 sections 2.10 and 3.2)."""

from typing import Final

from koord.kube.jobs import reading
from koord.kube.jobs.kind import Job
from koord.kube.protocol import queue as keys

MANAGED_KINDS: Final = frozenset(
    (
        "TFJob",
        "PyTorchJob",
        "XGBoostJob",
        "PaddleJob",
        "JAXJob",
        "MPIJob",
        "RayJob",
        "RayCluster",
        "RayService",
        "JobSet",
        "TrainJob",
        "SparkApplication",
        "Workflow",
    )
)
"""Kinds whose controller makes jobs of other kinds; those are held with their owner, not by themselves."""


def owned_by_job(job: Job) -> bool:
    """Whether the job's controller owner is a job the queue manages itself."""
    for owner in reading.objects(reading.metadata(job), "ownerReferences", "metadata"):
        if owner.get("controller") is True:
            return owner.get("kind") in MANAGED_KINDS
    return False


def foreign(managed_by: str, own: str) -> bool:
    """Whether ``managedBy`` hands the job to somebody else than its usual operator."""
    return managed_by not in ("", own)


def marked(job: Job) -> bool:
    """Whether the queue has had this job before."""
    found = reading.annotations(job)
    return found.get(keys.JOB_HAS_ENQUEUED) == "true" or keys.JOB_ENQUEUE_TIMESTAMP in found


def annotated_suspended(job: Job) -> bool:
    """Whether the suspend annotation holds the job."""
    return reading.annotations(job).get(keys.SUSPEND) == "true"
