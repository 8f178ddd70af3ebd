"""How far a job is, read from the job itself in the words of its own operator."""

from typing import Any, Literal

from koord.kube.jobs.registry import JOB_KINDS

Stage = Literal["waiting", "starting", "running", "succeeded", "failed"]

_STAGES: dict[str, Stage] = {
    "Created": "starting",
    "Queuing": "waiting",
    "Pending": "starting",
    "Running": "running",
    "Succeeded": "succeeded",
    "Failed": "failed",
}
DONE: frozenset[Stage] = frozenset(("succeeded", "failed"))


def stage_of(token: str, job: dict[str, Any]) -> Stage:
    """The stage of a job of the resource ``token`` (``tfjobs_kubeflow_org``)."""
    return _STAGES[JOB_KINDS[token].status(job)]
