"""From promises to claims that have their devices: what is written for a placed pod, and when it is there.

A claim that gets devices is given its finalizer first, so that nobody removes it with devices in use; then its status
says which it has and who may use it. One that has devices is told who else uses it. Each write names the version of the
claim that it was made for, so it happens once or not at all.
"""

from typing import Any

import msgspec

from koord.kube.dynamicresources import FINALIZER, Consumer, ResourceClaim
from koord.kube.resources import RESOURCE_CLAIMS
from koord.scheduler.dra.promises import Promise, Stage
from koord.scheduler.framework.contract import Write

DROPPED = "koord.sh/allocation-dropped"
"""Annotation: a write of an allocation was made void by this one, which has another version follow."""


def begin(claim: ResourceClaim, promise: Promise) -> Write:
    """The first or next write for the claim, for all pods that are to use it now."""
    meta = claim.metadata
    promise.seen = meta.resource_version
    if promise.allocation is not None and FINALIZER not in meta.finalizers:
        promise.stage = Stage.MARKING
        return _write(claim, {"metadata": {"finalizers": [*meta.finalizers, FINALIZER]}})
    promise.stage = Stage.WRITING
    promise.covered = set(promise.pods)
    known = {consumer.uid for consumer in claim.status.reserved_for}
    consumers = [
        *claim.status.reserved_for,
        *(Consumer(resource="pods", name=name, uid=uid) for uid, name in promise.pods.items() if uid not in known),
    ]
    status: dict[str, Any] = {"reservedFor": consumers}
    if promise.allocation is not None:
        status["allocation"] = promise.allocation.body
    return _write(claim, {"status": status}, "status")


def release(claim: ResourceClaim) -> Write:
    """Take the claim's devices away: nobody uses them."""
    return _write(claim, {"status": {"allocation": None, "reservedFor": None}}, "status")


def void(claim: ResourceClaim) -> Write:
    """Have the claim get another version, so that a write of which nobody knows can happen no more."""
    return _write(claim, {"metadata": {"annotations": {DROPPED: claim.metadata.resource_version}}})


def serves(claim: ResourceClaim, pod: str) -> bool:
    """Whether the claim has its devices and the pod of the uid may use them."""
    return claim.status.allocation is not None and any(each.uid == pod for each in claim.status.reserved_for)


def _write(claim: ResourceClaim, body: dict[str, Any], subresource: str = "") -> Write:
    meta = claim.metadata
    return Write(
        RESOURCE_CLAIMS,
        meta.namespace,
        meta.name,
        msgspec.json.encode(body),
        meta.uid,
        meta.resource_version,
        subresource,
    )
