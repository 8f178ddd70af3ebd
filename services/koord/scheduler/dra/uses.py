"""Which claims a pod uses, and why it may not use them now; the checks' order and the texts are upstream's (1.37)."""

from collections.abc import Sequence

import msgspec

from koord.kube.dynamicresources import ResourceClaim
from koord.kube.meta import key as key_of
from koord.kube.pods import PodResourceClaim

NOT_CREATED = "ResourceClaim not created yet"


class Use(msgspec.Struct, frozen=True):
    """One of the pod's entries. ``claim`` is empty if none was made for it yet; ``owner``: the uid of the pod that must
    own it, empty if it may be anybody's."""

    namespace: str
    entry: str
    claim: str
    owner: str = ""

    @property
    def key(self) -> str:
        """``ns/name``."""
        return key_of(self.namespace, self.claim)


class Uses(msgspec.Struct, frozen=True):
    """All claims of a pod, in the order of its entries: the terms of the plugin."""

    uses: tuple[Use, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the claims, each once."""
        return tuple(dict.fromkeys(use.key for use in self.uses if use.claim))


def uses_of(namespace: str, claims: Sequence[PodResourceClaim]) -> Uses | None:
    """The claims of a pod; None if it uses none."""
    if not claims:
        return None
    return Uses(tuple(Use(namespace, each.name, each.resource_claim_name or "", each.pod_uid) for each in claims))


def problem(use: Use, claim: ResourceClaim | None, pod: str = "") -> str | None:
    """Why no pod may use the claim, or None. ``pod``: ``ns/name`` of the pod, where it is known."""
    if not use.claim:
        shown = f'pod "{pod}"' if pod else "pod"
        if use.owner:
            return f"{shown}: {NOT_CREATED}"
        return f'{shown}, spec.resourceClaim "{use.entry}": none of the supported fields are set'
    if claim is None:
        return f'resourceclaim.resource.k8s.io "{use.claim}" not found'
    if claim.metadata.deletion_timestamp is not None:
        return f'resourceclaim "{use.claim}" is being deleted'
    if use.owner:
        owner = claim.metadata.controller
        if owner is None or owner.uid != use.owner:
            shown = f"Pod {pod}" if pod else "the pod"
            return f"ResourceClaim {use.key} was not created for {shown} (Pod is not owner)"
    return None
