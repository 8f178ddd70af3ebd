"""Zones and regions of volumes, told by labels of the volumes (spec 10 section 3.15, VolumeZone)."""

from collections.abc import Mapping

import msgspec
import numpy as np

from koord.columns.matrix import Bools
from koord.scheduler.engine.labels import ABSENT
from koord.scheduler.engine.nodeterms import label_mask
from koord.scheduler.engine.window import Window
from koord.scheduler.volumes.book import VolumeBook
from koord.scheduler.volumes.claims import PodClaims
from koord.scheduler.volumes.stamps import of_claim, of_volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
KEYS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_NEW_NAME: Mapping[str, str] = {BETA_ZONE: ZONE, BETA_REGION: REGION}
SEPARATOR = "__"
"""Between the zones of a volume that is in several."""


class VolumeZones(msgspec.Struct, frozen=True):
    """Labels that nodes must have one of the values of. ``refusal``: why the pod fits nowhere."""

    tests: tuple[tuple[str, tuple[str, ...]], ...] = ()
    refusal: str | None = None

    def mask(self, window: Window) -> Bools:
        """True where the volumes are; a node without any zone or region takes all."""
        ok: Bools = np.ones(window.size, dtype=np.bool_)
        if not self.tests:
            return ok
        labels = window.cluster.labels
        for key, values in self.tests:
            here = label_mask((key, "In", values), window)
            if key in _NEW_NAME:
                lacks: Bools = labels.column(key).codes[window.rows] == ABSENT
                here |= lacks & label_mask((_NEW_NAME[key], "In", values), window)
            ok &= here
        zoned: Bools = np.zeros(window.size, dtype=np.bool_)
        for key in KEYS:
            zoned |= labels.column(key).codes[window.rows] != ABSENT
        return ok | ~zoned


def zones_of(claims: PodClaims, book: VolumeBook) -> tuple[VolumeZones, list[str]]:
    """What the volumes of bound claims ask of nodes, and the stamps that this depends on."""
    tests: dict[tuple[str, tuple[str, ...]], None] = {}
    depends: list[str] = []
    refusal: str | None = None
    for use in claims.uses:
        if use.owner:
            continue
        depends.append(of_claim(use.key))
        claim = book.claims.get(use.key)
        name = "" if claim is None else claim.spec.volume_name
        if not name:
            continue
        depends.append(of_volume(name))
        volume = book.volumes.get(name)
        if volume is None:
            refusal = refusal or f'persistentvolume "{name}" not found'
            continue
        for key in KEYS:
            value = volume.metadata.labels.get(key)
            zones = set() if value is None else set(value.split(SEPARATOR))
            if zones and "" not in zones:
                tests[key, tuple(sorted(zones))] = None
    return VolumeZones(tuple(tests), refusal), depends
