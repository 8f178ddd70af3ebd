"""VolumeZone: volumes with labels of a zone or region go to nodes of it. Spec 10 section 3.15."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from koord.columns.matrix import Bools, Ints
from koord.kube.resources import Resource
from koord.kube.storage import PersistentVolume, PersistentVolumeClaim
from koord.scheduler.engine.cluster import Cluster, NodeInfo
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    AssignedPod,
    FilterPlugin,
    Locality,
    PreFilterPlugin,
    Reason,
    Template,
    Terms,
    Watch,
    WatchPlugin,
    Without,
)
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.plugins.obstacles import AsItIs
from koord.scheduler.plugins.rows import takes_now
from koord.scheduler.volumes import watching
from koord.scheduler.volumes.book import VolumeBook
from koord.scheduler.volumes.claims import PodClaims, claims_of
from koord.scheduler.volumes.derived import Derived
from koord.scheduler.volumes.zones import VolumeZones, zones_of

NO_ZONE = "node(s) had no available volume zone"


class VolumeZone(PreFilterPlugin, FilterPlugin, WatchPlugin):
    """Terms of the filter are the zones of the pod's volumes."""

    name: ClassVar[str] = "VolumeZone"
    reads_amounts: ClassVar[bool] = False
    events: ClassVar[frozenset[ClusterEvent]] = frozenset(
        (
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.PVC_ADD,
            ClusterEvent.PVC_UPDATE,
            ClusterEvent.PV_ADD,
            ClusterEvent.PV_UPDATE,
        )
    )
    filter_locality: ClassVar[Locality] = "node"
    prefilter_resolvable: ClassVar[bool] = False

    _book: VolumeBook
    _cluster: Cluster
    _derived: Derived[VolumeZones]

    def __init__(self) -> None:
        self.epoch = 0

    def attach(self, cluster: Cluster) -> None:
        """What is known of storage is one book for all plugins of the cluster."""
        self._cluster = cluster
        self._book = VolumeBook.of(cluster)
        self._derived = Derived(self._book, zones_of)

    def prefilter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The claims of the pod, if it has any."""
        return claims_of(template.namespace, template.spec)

    def prefilter(self, terms: Terms) -> str | None:
        """A volume that a claim has, and that does not exist."""
        assert isinstance(terms, PodClaims)
        return self._derived.of(terms).value.refusal

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """The zones of the pod's volumes, if they have any."""
        claims = claims_of(template.namespace, template.spec)
        if claims is None:
            return None
        zones = self._derived.of(claims).value
        return zones if zones.tests else None

    def filter(self, terms: Terms, window: Window) -> Bools:
        """The node is where the volumes are."""
        assert isinstance(terms, VolumeZones)
        return terms.mask(window)

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        """Taking pods away does not help."""
        return [Reason(NO_ZONE, ~self.filter(terms, window), resolvable=False)]

    def without(self, terms: Terms, rows: Ints, pods: Sequence[Sequence[AssignedPod]]) -> Without:
        """Pods that go leave their volumes where they are."""
        return AsItIs(self, terms)

    def watches(self) -> tuple[Watch, ...]:
        """Claims and volumes."""
        return (watching.VOLUMES, watching.CLAIMS)

    def changed(self, resource: Resource, key: str, old: Any | None, new: Any | None) -> Iterable[ClusterEvent]:
        """Into the book."""
        self._book.apply(resource, key, new)
        self.epoch = self._book.epoch
        return watching.events(resource, old, new)

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        """Only the pod's claims and their volumes."""
        if isinstance(subject, NodeInfo):
            return takes_now(self, self._cluster, template, subject)
        if isinstance(subject, PersistentVolumeClaim):
            return watching.uses_claim(template, subject)
        claims = claims_of(template.namespace, template.spec)
        if claims is None or not isinstance(subject, PersistentVolume):
            return True
        found = (self._book.claims.get(use.key) for use in claims.uses)
        return any(claim is not None and claim.spec.volume_name in ("", subject.metadata.name) for claim in found)
