"""Which volumes of CSI drivers are at which node, each counted once however many pods use it (NodeVolumeLimits).

A volume is a driver and a handle. A claim without a volume counts, too: as one of its class's provisioner, under a
handle of its own.
"""

from koord.kube.pods import PodSpec
from koord.scheduler.volumes.book import VolumeBook
from koord.scheduler.volumes.claims import PodClaims
from koord.scheduler.volumes.migrated import CSIHandle, driver_of, inline_handle, volume_handle
from koord.scheduler.volumes.stamps import of_claim, of_class, of_volume


def handle_of(claim_key: str, book: VolumeBook) -> tuple[CSIHandle | None, list[str]]:
    """The volume of a claim, None if it has none of a CSI driver; and the stamps that this depends on."""
    depends = [of_claim(claim_key)]
    claim = book.claims.get(claim_key)
    if claim is None:
        return None, depends
    name = claim.spec.volume_name
    if name:
        depends.append(of_volume(name))
        volume = book.volumes.get(name)
        if volume is not None:
            return volume_handle(volume.spec), depends
    if not claim.storage_class:
        return None, depends
    depends.append(of_class(claim.storage_class))
    class_ = book.classes.get(claim.storage_class)
    return (None if class_ is None else CSIHandle(driver_of(class_.provisioner), f"\0{claim_key}")), depends


def inline_handles(spec: PodSpec) -> frozenset[CSIHandle]:
    """The volumes that a pod names itself."""
    return frozenset(handle for volume in spec.volumes if (handle := inline_handle(volume)) is not None)


def handles_of(claims: PodClaims, book: VolumeBook) -> tuple[frozenset[CSIHandle], list[str]]:
    """The volumes of a pod, and the stamps that they depend on."""
    found: set[CSIHandle] = set()
    depends: list[str] = []
    for use in claims.uses:
        handle, needs = handle_of(use.key, book)
        depends += needs
        if handle is not None:
            found.add(handle)
    return frozenset(found), depends


class Attached:
    """Volumes by node, with how many reasons each has to be there (pods, attachments)."""

    def __init__(self) -> None:
        self._reasons: dict[str, dict[CSIHandle, int]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._nodes: dict[CSIHandle, set[str]] = {}

    def add(self, node: str, volume: CSIHandle) -> bool:
        """One more reason; True if the volume was not there."""
        reasons = self._reasons.setdefault(node, {})
        before = reasons.get(volume, 0)
        reasons[volume] = before + 1
        if before:
            return False
        counts = self._counts.setdefault(node, {})
        counts[volume.driver] = counts.get(volume.driver, 0) + 1
        self._nodes.setdefault(volume, set()).add(node)
        return True

    def remove(self, node: str, volume: CSIHandle) -> bool:
        """One reason less; True if the volume is not there any more."""
        reasons = self._reasons[node]
        reasons[volume] -= 1
        if reasons[volume]:
            return False
        del reasons[volume]
        counts = self._counts[node]
        counts[volume.driver] -= 1
        if not counts[volume.driver]:
            del counts[volume.driver]
        if not reasons:
            del self._reasons[node], self._counts[node]
        nodes = self._nodes[volume]
        nodes.discard(node)
        if not nodes:
            del self._nodes[volume]
        return True

    def count(self, node: str, driver: str) -> int:
        """How many volumes of a driver are at a node."""
        return self._counts.get(node, {}).get(driver, 0)

    def counts(self, node: str) -> dict[str, int]:
        """How many volumes are at a node, by driver."""
        return self._counts.get(node, {})

    def nodes(self, volume: CSIHandle) -> set[str]:
        """Where a volume is."""
        return self._nodes.get(volume, set())
