"""What of an object matters here: controllers touch claims and volumes often, and mostly say nothing to a scheduler."""

from typing import Any

from koord.kube.meta import TypedObject
from koord.kube.storage import BETA_CLASS, BIND_COMPLETED, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim

_CLAIM_NOTES = (SELECTED_NODE, BIND_COMPLETED, BETA_CLASS)


def same(old: TypedObject | None, new: TypedObject | None) -> bool:
    """Whether nothing that the plugins for volumes look at is different, but for the version."""
    if old is None or new is None:
        return old is new
    if isinstance(old, PersistentVolumeClaim) and isinstance(new, PersistentVolumeClaim):
        return _of_claim(old) == _of_claim(new)
    if isinstance(old, PersistentVolume) and isinstance(new, PersistentVolume):
        return _of_volume(old) == _of_volume(new)
    return False


def _of_claim(claim: PersistentVolumeClaim) -> tuple[Any, ...]:
    meta = claim.metadata
    notes = tuple(meta.annotations.get(name) for name in _CLAIM_NOTES)
    return claim.spec, claim.status, meta.uid, meta.deletion_timestamp, meta.owner_references, notes


def _of_volume(volume: PersistentVolume) -> tuple[Any, ...]:
    meta = volume.metadata
    return volume.spec, volume.status, meta.uid, meta.deletion_timestamp, meta.labels, meta.annotations.get(BETA_CLASS)
