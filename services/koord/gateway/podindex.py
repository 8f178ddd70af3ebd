"""What the gateway's own watch knows of pods: version, node, whether it is going. Cheap, and never trusted alone.

A bind starts from the version seen here instead of reading each pod; if the pod has moved on, the API server refuses
the precondition and the pod is read again.
"""

from typing import NamedTuple

from koord.contracts.state import ChangeType
from koord.gateway.objects import Brief


class PodSight(NamedTuple):
    """A pod as last seen."""

    uid: str
    resource_version: str
    node: str
    terminating: bool


class PodIndex:
    """The pods that exist, by namespace and name."""

    def __init__(self) -> None:
        self._pods: dict[str, PodSight] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def observe(self, type_: ChangeType, key: str, brief: Brief) -> None:
        """Take one change of the watch."""
        if type_ == "DELETED":
            self._pods.pop(key, None)
        else:
            self._pods[key] = PodSight(brief.uid, brief.resource_version, brief.node, brief.terminating)

    def drop(self, key: str) -> None:
        """The pod vanished unseen."""
        self._pods.pop(key, None)

    def get(self, namespace: str, name: str, uid: str) -> PodSight | None:
        """The pod with this name and uid, if the watch has shown it."""
        sight = self._pods.get(f"{namespace}/{name}")
        return sight if sight is not None and sight.uid == uid else None
