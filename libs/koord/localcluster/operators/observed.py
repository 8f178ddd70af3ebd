"""What an operator knows of a job's pods."""

from typing import NamedTuple

import msgspec

from koord.kube.conditions import Condition, is_true
from koord.kube.meta import ObjectMeta, View
from koord.kube.pods import FAILED, SUCCEEDED


class _Terminated(View, frozen=True):
    exit_code: int = 0


class _State(View, frozen=True):
    terminated: _Terminated | None = None


class _ContainerStatus(View, frozen=True):
    state: _State = msgspec.field(default_factory=_State)


class _Status(View, frozen=True):
    phase: str = ""
    conditions: list[Condition] = msgspec.field(default_factory=list)
    container_statuses: list[_ContainerStatus] = msgspec.field(default_factory=list)


class PodObject(View, frozen=True):
    """The part of a pod that operators read."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    status: _Status = msgspec.field(default_factory=_Status)


class PodSeen(NamedTuple):
    """One pod of a job. `ended_s` is when we saw it ended or gone (0: it has not), `exit_code` is the worst one.

    `ours` tells, of a pod that was deleted, that this operator deleted it.
    """

    name: str
    uid: str
    owner_uid: str
    labels: dict[str, str]
    phase: str
    ready: bool
    deleting: bool
    exit_code: int
    version: int
    ended_s: float = 0.0
    ours: bool = False

    @property
    def terminal(self) -> bool:
        """It has run to its end."""
        return self.phase in (SUCCEEDED, FAILED)

    @property
    def active(self) -> bool:
        """It runs, or may still come to run."""
        return not self.deleting and not self.terminal


class Observed(NamedTuple):
    """All pods of one job: those that exist, and those that we saw vanish since we started, by their last state."""

    pods: list[PodSeen]
    gone: list[PodSeen]


def seen(pod: PodObject, owner_uid: str, version: int) -> PodSeen:
    """The observation of a pod (its `ended_s` not set)."""
    exits = [status.state.terminated for status in pod.status.container_statuses]
    return PodSeen(
        pod.metadata.name,
        pod.metadata.uid,
        owner_uid,
        pod.metadata.labels,
        pod.status.phase,
        is_true(pod.status.conditions, "Ready"),
        pod.metadata.deletion_timestamp is not None,
        max((state.exit_code for state in exits if state is not None), default=0),
        version,
    )
