"""The little that the queue reads of pods. Thousands of pods pass that belong to no unit: they are skipped unread."""

import msgspec

from koord.kube.meta import View

RELATED_UNIT = b"koord-queue/related-queueunit"
"""Bytes that the body of every pod of a unit holds; a body without them needs no decoding."""


class PodBriefMeta(View, frozen=True):
    """Metadata of a pod as far as the queue asks."""

    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class PodBriefSpec(View, frozen=True):
    """Spec of a pod as far as the queue asks."""

    node_name: str = ""


class PodBriefStatus(View, frozen=True):
    """Status of a pod as far as the queue asks."""

    phase: str = ""


class PodBrief(View, frozen=True):
    """Which unit and pod set a pod belongs to, and whether it holds a node."""

    metadata: PodBriefMeta = msgspec.field(default_factory=PodBriefMeta)
    spec: PodBriefSpec = msgspec.field(default_factory=PodBriefSpec)
    status: PodBriefStatus = msgspec.field(default_factory=PodBriefStatus)

    @property
    def running(self) -> bool:
        """A pod runs, for the queue, when it has a node and has not ended (spec 70 section 3.13)."""
        return bool(self.spec.node_name) and self.status.phase not in ("Succeeded", "Failed")
