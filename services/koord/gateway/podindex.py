"""What the gateway's own watch knows of pods: uid to version, node and name. Cheap, and never trusted alone.

A bind starts from the version seen here instead of reading each pod; if the pod has moved on, the API server refuses
the precondition and the pod is read again.
"""

from typing import NamedTuple

from koord.gateway.objects import Brief


class PodSight(NamedTuple):
    """A pod as last seen."""

    namespace: str
    name: str
    resource_version: str
    node: str
    terminating: bool


class PodIndex:
    """The pods that exist, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, PodSight] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def observe(self, type_: str, brief: Brief) -> None:
        """Take one change of the watch."""
        if type_ == "DELETED":
            self._pods.pop(brief.uid, None)
        else:
            self._pods[brief.uid] = PodSight(
                brief.namespace, brief.name, brief.resource_version, brief.node, brief.terminating
            )

    def get(self, uid: str) -> PodSight | None:
        """The pod with this uid, if the watch has shown it."""
        return self._pods.get(uid)
