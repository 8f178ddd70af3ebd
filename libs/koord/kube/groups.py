# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""PodGroup (spec 20 section 2.4). It has no status sub-resource: its status is written with the object."""

import msgspec

from koord.kube.meta import ResourceList, TypedObject, View


class PodGroupSpec(View, frozen=True):
    """The quorum of a gang."""

    min_member: int = 0
    min_resources: ResourceList = {}
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(View, frozen=True):
    """Progress of a gang."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None


class PodGroup(TypedObject, frozen=True):
    """A gang declared by an object; its annotations carry mode, groups and match policy."""

    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)
