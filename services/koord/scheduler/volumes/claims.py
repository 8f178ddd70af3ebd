"""Which claims a pod uses, and what they are now: bound, waiting for a node, or a reason not to place the pod at all.

Spec 10 section 3.15, VolumeBinding; the order of the checks and the texts are Kubernetes'.
"""

import msgspec

from koord.kube.meta import key as key_of
from koord.kube.pods import PodSpec
from koord.kube.storage import LOST, WAIT_FOR_CONSUMER, PersistentVolumeClaim
from koord.scheduler.volumes.book import VolumeBook

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


class ClaimUse(msgspec.Struct, frozen=True):
    """A claim that a pod uses. ``owner``: the uid of the pod that must own it, empty if it is nobody's alone."""

    namespace: str
    name: str
    owner: str = ""

    @property
    def key(self) -> str:
        """``ns/name``."""
        return key_of(self.namespace, self.name)


class PodClaims(msgspec.Struct, frozen=True):
    """All claims of a pod, each once, in the order of its volumes: the terms of plugins that look at claims."""

    uses: tuple[ClaimUse, ...]


def claims_of(namespace: str, spec: PodSpec) -> PodClaims | None:
    """The claims of a pod; None if it uses none."""
    if not spec.volumes:
        return None
    uses: dict[ClaimUse, None] = {}
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            uses[ClaimUse(namespace, volume.persistent_volume_claim.claim_name)] = None
        elif volume.ephemeral is not None:
            uses[ClaimUse(namespace, volume.ephemeral.claim_name, volume.ephemeral.pod_uid)] = None
    return PodClaims(tuple(uses)) if uses else None


def missing(use: ClaimUse) -> str:
    """A claim that does not exist."""
    if use.owner:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
    return f'persistentvolumeclaim "{use.name}" not found'


def problem(use: ClaimUse, claim: PersistentVolumeClaim | None) -> str | None:
    """Why no pod may use the claim now, or None."""
    if claim is None:
        return missing(use)
    if claim.status.phase == LOST:
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    if use.owner:
        owner = claim.metadata.controller
        if owner is None or owner.uid != use.owner:
            return f"PVC {use.key} was not created for the pod (pod is not owner)"
    return None


def waits_for_node(claim: PersistentVolumeClaim, book: VolumeBook) -> bool:
    """Whether the claim is bound when a pod that uses it has a node, not before; a class that does not say binds at
    once, as the API's default is."""
    name = claim.storage_class
    class_ = book.classes.get(name) if name else None
    return class_ is not None and class_.volume_binding_mode == WAIT_FOR_CONSUMER
