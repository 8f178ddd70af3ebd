"""What the queue needs to know about a job kind, whatever the kind: the protocol and its data types.

Jobs are plain decoded JSON: every kind has its own shape, most of which koord never looks at. What a user wrote wrongly
surfaces as JobError with the field and the rule, never as a TypeError.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, Protocol

import msgspec

from koord.kube.resources import Resource

Job = dict[str, Any]
"""A job as decoded JSON."""

Path = tuple[str | int, ...]
"""Where something sits in a job: field names and list indexes."""

MAX_POD_SETS: Final = 18
"""As many pod sets as a QueueUnit may have."""


class JobError(ValueError):
    """A job that breaks a rule; says which field and which rule."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


class JobStatus(StrEnum):
    """A job's progress as the queue sees it (spec 70 section 3.5). Queuing means suspended."""

    CREATED = "Created"
    QUEUING = "Queuing"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def finished(self) -> bool:
        """Whether the job has ended."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED)


class PodSetSpec(msgspec.Struct, frozen=True):
    """``count`` pods made from one template.

    ``template`` includes what the operator will add to it (sidecars), ``template_path`` is where the job keeps it; an
    empty path: the job does not carry it yet. ``min_count``: the fewest the set may be admitted with. ``gang``: whether
    these pods start together with the other sets; ``gang_count``: how many of them do, if not all.
    """

    name: str
    count: int
    template: dict[str, Any]
    template_path: Path
    min_count: int | None = None
    gang: bool = True
    gang_count: int | None = None


class PrioritySource(msgspec.Struct, frozen=True):
    """A place that may name a priority class, or set the integer; ``field`` says where it is."""

    field: str
    class_name: str = ""
    value: int | None = None


class TemplateHints(msgspec.Struct, frozen=True):
    """Labels and annotations to put onto one pod template."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class JobPatch(msgspec.Struct, frozen=True):
    """A patch of a job: a JSON merge patch (an object) or a JSON patch (a list of operations)."""

    type: Literal["merge", "json"]
    body: dict[str, Any] | list[dict[str, Any]]

    def encode(self) -> bytes:
        """The request body."""
        return msgspec.json.encode(self.body)


class JobKind(Protocol):
    """One kind of job."""

    @property
    def resource(self) -> Resource:
        """The API resource of the jobs."""
        ...

    @property
    def suffix(self) -> str:
        """What is appended to a job's name to name its QueueUnit."""
        ...

    def managed(self, job: Job, *, manage_all: bool = False) -> bool:
        """Whether the queue holds this job: suspended at first sight, marked, or all are; never a foreign one."""
        ...

    def suspended(self, job: Job) -> bool:
        """Whether the job's own switch, or the suspend annotation, holds it."""
        ...

    def status(self, job: Job, *, children_alive: bool = False) -> JobStatus:
        """The job's progress. ``children_alive``: something it made still holds pods (a RayJob's cluster)."""
        ...

    def pod_sets(self, job: Job) -> list[PodSetSpec]:
        """The pods the job makes, in the order of spec 70 section 2.10."""
        ...

    def priority_sources(self, job: Job) -> list[PrioritySource]:
        """Where the job's priority may stand, most important first."""
        ...

    def gang_minimum(self, job: Job) -> int | None:
        """How many of the pods must start together; None if they need not."""
        ...

    def resume_patch(self, job: Job) -> dict[str, Any]:
        """The merge patch that lets the job go."""
        ...

    def suspend_patch(self, job: Job) -> dict[str, Any]:
        """The merge patch that holds the job."""
        ...

    def status_patch(self, job: Job, *, queuing: bool, now: float) -> dict[str, Any] | None:
        """The merge patch of the status sub-resource that tells users the job waits, or no longer does; or None."""
        ...

    def annotate_templates(self, job: Job, hints: Mapping[str, TemplateHints]) -> JobPatch | None:
        """The patch that puts hints (by pod set) onto the templates; None if nothing changes or it is not allowed."""
        ...

    def start_patch(
        self, job: Job, hints: Mapping[str, TemplateHints], annotations: Mapping[str, str] | None = None
    ) -> JobPatch:
        """Hints and resume in one patch, so that no pod can appear in between; ``annotations`` go onto the job."""
        ...

    def pod_set_of(self, pod_labels: Mapping[str, str]) -> str:
        """The pod set of a pod by the operator's labels; ``""`` if they do not say."""
        ...

    def pod_selector(self, job: Job) -> tuple[str, str] | None:
        """The label and value that the job's pods carry, once known."""
        ...


def dotted(path: Sequence[str | int]) -> str:
    """A path as text: ``spec.workerGroupSpecs[0].template``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
