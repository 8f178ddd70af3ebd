"""Disks that pods name themselves, and which two pods may not have on one node (VolumeRestrictions, spec 10 3.15).

Google's disks, iSCSI and RBD may be shared if everybody only reads; Amazon's may not be shared at all.
"""

import msgspec

from koord.kube.pods import PodSpec, Volume


class Disk(msgspec.Struct, frozen=True):
    """One disk. ``monitors``: of RBD, which is the same disk only if both name one of them."""

    kind: str
    name: str
    read_only: bool
    monitors: frozenset[str] = frozenset()

    @property
    def identity(self) -> tuple[str, str]:
        """What disks that clash have in common."""
        return (self.kind, self.name)

    def clashes(self, other: "Disk") -> bool:
        """Whether two pods with these disks may not be on one node."""
        if self.identity != other.identity or (self.read_only and other.read_only):
            return False
        return self.kind != "rbd" or not self.monitors.isdisjoint(other.monitors)


def disks_of(spec: PodSpec) -> frozenset[Disk]:
    """The disks that a pod names."""
    found = set()
    for volume in spec.volumes:
        disk = _disk(volume)
        if disk is not None:
            found.add(disk)
    return frozenset(found)


def _disk(volume: Volume) -> Disk | None:
    if (gce := volume.gce_persistent_disk) is not None:
        return Disk("gce", gce.pd_name, gce.read_only)
    if (ebs := volume.aws_elastic_block_store) is not None:
        return Disk("ebs", ebs.volume_id, read_only=False)
    if (iscsi := volume.iscsi) is not None:
        return Disk("iscsi", iscsi.iqn, iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        return Disk("rbd", f"{rbd.pool}/{rbd.image}", rbd.read_only, frozenset(rbd.monitors))
    return None
