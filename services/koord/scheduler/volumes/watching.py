"""The kinds that plugins for volumes watch, and the events for rejected pods that their changes amount to."""

from collections.abc import Iterable, Mapping

from koord.kube.meta import TypedObject
from koord.kube.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from koord.kube.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from koord.scheduler.framework.contract import Template, Watch
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.volumes.claims import claims_of
from koord.scheduler.volumes.substance import same

CLASSES = Watch(STORAGE_CLASSES, StorageClass)
DRIVERS = Watch(CSI_DRIVERS, CSIDriver)
NODES = Watch(CSI_NODES, CSINode)
CAPACITIES = Watch(CSI_STORAGE_CAPACITIES, CSIStorageCapacity)
VOLUMES = Watch(PERSISTENT_VOLUMES, PersistentVolume)
CLAIMS = Watch(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim)
ATTACHMENTS = Watch(VOLUME_ATTACHMENTS, VolumeAttachment)

_NONE: tuple[ClusterEvent, ...] = ()
_EVENTS: Mapping[str, tuple[ClusterEvent, ClusterEvent]] = {
    CLASSES.resource.token: (ClusterEvent.STORAGE_CLASS_ADD, ClusterEvent.STORAGE_CLASS_UPDATE),
    DRIVERS.resource.token: (ClusterEvent.CSI_DRIVER_ADD, ClusterEvent.CSI_DRIVER_UPDATE),
    NODES.resource.token: (ClusterEvent.CSI_NODE_ADD, ClusterEvent.CSI_NODE_UPDATE),
    CAPACITIES.resource.token: (ClusterEvent.CSI_CAPACITY_ADD, ClusterEvent.CSI_CAPACITY_UPDATE),
    VOLUMES.resource.token: (ClusterEvent.PV_ADD, ClusterEvent.PV_UPDATE),
    CLAIMS.resource.token: (ClusterEvent.PVC_ADD, ClusterEvent.PVC_UPDATE),
}


def events(resource: Resource, old: object | None, new: object | None) -> Iterable[ClusterEvent]:
    """An object that goes helps nobody, except an attachment; nor does one whose version alone is new."""
    if resource == VOLUME_ATTACHMENTS:
        return (ClusterEvent.VOLUME_ATTACHMENT_DELETE,) if new is None else _NONE
    if new is None or (isinstance(old, TypedObject) and isinstance(new, TypedObject) and same(old, new)):
        return _NONE
    added, updated = _EVENTS[resource.token]
    return (added,) if old is None else (updated,)


def uses_claim(template: Template, claim: PersistentVolumeClaim) -> bool:
    """Whether pods of the class use the claim."""
    claims = claims_of(template.namespace, template.spec)
    return claims is not None and any(use.key == claim.key for use in claims.uses)
