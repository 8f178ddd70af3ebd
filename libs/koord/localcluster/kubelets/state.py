"""What the fleet knows of a node and of a pod on it."""

import math
from collections.abc import Mapping
from enum import IntEnum

from koord.kube.pods import Pod
from koord.localcluster.kubelets.machine import Containers, Plan
from koord.localcluster.kubelets.nodes import Room, Shortage


class Stage(IntEnum):
    """Where a pod is; the write that its due timer makes follows from it."""

    STARTING = 1
    REJECTED = 2
    RUNNING = 3
    ENDED = 4
    STOPPING = 5


class Kubelet:
    """One node. A deleted node keeps its account, in case it comes back under its name, but is not `alive`."""

    __slots__ = ("alive", "beat_s", "name", "number", "room", "since_s", "uid")

    def __init__(self, name: str, number: int, room: Room, since_s: float) -> None:
        self.name = name
        self.uid = ""
        self.number = number
        self.room = room
        self.since_s = since_s
        self.beat_s = since_s
        self.alive = False


class Run:
    """One pod on one node. `due_s` is when its next write is due (infinite: never); `busy`: a writer has it."""

    __slots__ = (
        "busy", "containers", "due_s", "holds", "ip", "kubelet", "name", "namespace", "plan", "request",
        "shortage", "stage", "started_s", "uid",
    )  # fmt: skip

    def __init__(
        self, pod: Pod, kubelet: Kubelet, plan: Plan, containers: Containers, request: Mapping[str, int]
    ) -> None:
        self.namespace = pod.metadata.namespace
        self.name = pod.metadata.name
        self.uid = pod.metadata.uid
        self.kubelet = kubelet
        self.plan = plan
        self.containers = containers
        self.request = request
        self.stage = Stage.STARTING
        self.shortage: Shortage | None = None
        self.started_s = 0.0
        self.due_s = math.inf
        self.ip = ""
        self.busy = False
        self.holds = False

    def hold(self) -> None:
        """Take the node's room."""
        if not self.holds:
            self.kubelet.room.take(self.request)
            self.holds = True

    def release(self) -> None:
        """Give the node's room back."""
        if self.holds:
            self.kubelet.room.free(self.request)
            self.holds = False
