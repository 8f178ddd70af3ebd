"""The kinds that DynamicResources watches, and the events for rejected pods that their changes amount to."""

from collections.abc import Iterable
from typing import Any

from koord.kube.dynamicresources import DeviceClass, ResourceClaim, ResourceSlice
from koord.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from koord.scheduler.framework.contract import Watch
from koord.scheduler.framework.events import ClusterEvent

WATCHES = (
    Watch(DEVICE_CLASSES, DeviceClass),
    Watch(RESOURCE_SLICES, ResourceSlice),
    Watch(RESOURCE_CLAIMS, ResourceClaim),
)
EVENTS = frozenset(
    (
        ClusterEvent.NODE_ADD,
        ClusterEvent.NODE_LABEL,
        ClusterEvent.POD_DELETE,
        ClusterEvent.POD_UPDATE,
        ClusterEvent.RESOURCE_CLAIM_ADD,
        ClusterEvent.RESOURCE_CLAIM_UPDATE,
        ClusterEvent.RESOURCE_CLAIM_DELETE,
        ClusterEvent.RESOURCE_SLICE_ADD,
        ClusterEvent.RESOURCE_SLICE_UPDATE,
        ClusterEvent.DEVICE_CLASS_ADD,
        ClusterEvent.DEVICE_CLASS_UPDATE,
    )
)
_NONE: tuple[ClusterEvent, ...] = ()


def events(resource: Resource, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
    """A class or slice that goes helps nobody, a claim that goes only if it had devices."""
    if resource is RESOURCE_CLAIMS:
        return _of_claim(old, new)
    if new is None or (old is not None and old.spec == new.spec):
        return _NONE
    if resource is RESOURCE_SLICES:
        return (ClusterEvent.RESOURCE_SLICE_ADD if old is None else ClusterEvent.RESOURCE_SLICE_UPDATE,)
    return (ClusterEvent.DEVICE_CLASS_ADD if old is None else ClusterEvent.DEVICE_CLASS_UPDATE,)


def _of_claim(old: ResourceClaim | None, new: ResourceClaim | None) -> Iterable[ClusterEvent]:
    if old is None:
        return (ClusterEvent.RESOURCE_CLAIM_ADD,)
    if new is None:
        return (ClusterEvent.RESOURCE_CLAIM_DELETE,) if old.status.allocation is not None else _NONE
    if old.metadata.uid != new.metadata.uid or _substance(old) != _substance(new):
        return (ClusterEvent.RESOURCE_CLAIM_UPDATE,)
    return _NONE


def _substance(claim: ResourceClaim) -> tuple[Any, ...]:
    meta = claim.metadata
    return claim.status, meta.deletion_timestamp, meta.owner_references
