"""Volumes that are written as before CSI: Kubernetes has CSI drivers see to them, so they count as theirs.

The names are those of Kubernetes' translation (k8s.io/csi-translation-lib). A handle only has to tell volumes of one
driver apart, in all the ways in which the same one may be written.
"""

from collections.abc import Mapping
from typing import NamedTuple

from koord.kube.pods import Volume
from koord.kube.storage import PersistentVolumeSpec

EBS, GCE_PD, AZURE_DISK = "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com"
CINDER, VSPHERE = "cinder.csi.openstack.org", "csi.vsphere.vmware.com"

_DRIVERS: Mapping[str, str] = {
    "kubernetes.io/aws-ebs": EBS,
    "kubernetes.io/gce-pd": GCE_PD,
    "kubernetes.io/azure-disk": AZURE_DISK,
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": CINDER,
    "kubernetes.io/vsphere-volume": VSPHERE,
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}


class CSIHandle(NamedTuple):
    """One volume of a CSI driver."""

    driver: str
    handle: str


def driver_of(provisioner: str) -> str:
    """The driver that sees to the volumes of a provisioner: most often itself."""
    return _DRIVERS.get(provisioner, provisioner)


def volume_handle(spec: PersistentVolumeSpec) -> CSIHandle | None:
    """The volume of a PersistentVolume; None if it is not of a CSI driver."""
    if spec.csi is not None:
        handle = spec.csi.volume_handle
        return CSIHandle(spec.csi.driver, _last(handle) if spec.csi.driver == GCE_PD else handle)
    return _handle(spec)


def inline_handle(volume: Volume) -> CSIHandle | None:
    """The volume that a pod names itself; None if it is not of a CSI driver."""
    return _handle(volume)


def _handle(source: PersistentVolumeSpec | Volume) -> CSIHandle | None:
    if source.aws_elastic_block_store is not None:
        return CSIHandle(EBS, _last(source.aws_elastic_block_store.volume_id))
    if source.gce_persistent_disk is not None:
        return CSIHandle(GCE_PD, source.gce_persistent_disk.pd_name)
    if source.azure_disk is not None:
        return CSIHandle(AZURE_DISK, source.azure_disk.disk_uri)
    if source.cinder is not None:
        return CSIHandle(CINDER, source.cinder.volume_id)
    if source.vsphere_volume is not None:
        return CSIHandle(VSPHERE, source.vsphere_volume.volume_path)
    return None


def _last(path: str) -> str:
    """``aws://zone/vol-1`` and ``projects/p/zones/z/disks/d`` are the volume ``vol-1``, the disk ``d``."""
    return path.rpartition("/")[2]
