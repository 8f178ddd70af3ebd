"""What is known of storage, shared by the plugins that deal with volumes: objects of the API, and what was promised.

Promised is what ``Reserve`` chose and the API does not show yet: which claim gets a volume, and for which node the
volume of a claim is to be made. Several pods may use one claim, so a promise has holders and ends with the last of
them, or when the API shows it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from koord.kube.meta import key as key_of
from koord.kube.quantity import value
from koord.kube.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Resource,
)
from koord.kube.selectors import compile_label_selector
from koord.kube.storage import (
    AVAILABLE,
    SELECTED_NODE,
    STORAGE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.volumes.capacity import ClassCapacity, Room
from koord.scheduler.volumes.places import Places, places
from koord.scheduler.volumes.pool import Offer, Pool, mode_bits
from koord.scheduler.volumes.stamps import (
    Stamps,
    of_capacity,
    of_claim,
    of_class,
    of_csi_node,
    of_driver,
    of_gift,
    of_pool,
    of_volume,
)
from koord.scheduler.volumes.substance import same

LARGEST = 1 << 62


class Promise(msgspec.Struct, gc=False):
    """To whom a volume, or for which node a claim, is promised; ``holders`` are uids of pods."""

    to: str
    uid: str = ""
    holders: set[str] = msgspec.field(default_factory=set)


class VolumeBook:
    """Objects by key. ``cluster``: whose label columns volumes are matched with."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.where: dict[str, Places] = {}
        """From which nodes a volume can be reached."""
        self.given: dict[str, set[str]] = {}
        """By claim: volumes whose ``claimRef`` names it."""
        self._capacities: dict[str, ClassCapacity] = {}
        self._class_of_capacity: dict[str, str] = {}
        self._pools: dict[str, Pool] = {}
        self._pool_of: dict[str, str] = {}
        self.stamps = Stamps()
        self.epoch = 0
        """How often the API told something new."""
        self._volume_promises: dict[str, Promise] = {}
        self._promised_to: dict[str, set[str]] = {}
        """By claim: the volumes promised to it."""
        self._node_promises: dict[str, Promise] = {}
        self._held: dict[str, tuple[set[str], set[str]]] = {}

    @classmethod
    def of(cls, cluster: Cluster) -> "VolumeBook":
        """The one book of a cluster."""
        book = cluster.shared.setdefault(cls, cls(cluster))
        assert isinstance(book, cls)
        return book

    # Objects --------------------------------------------------------------------------------------------------------

    def apply(self, resource: Resource, key: str, new: Any | None) -> bool:
        """An object came, changed or (None) went; True if it is news, so that each of several plugins may tell.

        ValueError names the field and the rule; what was known of the object stays.
        """
        news = self._apply(resource, key, new)
        self.epoch += news
        return news

    def _apply(self, resource: Resource, key: str, new: Any | None) -> bool:
        if resource is PERSISTENT_VOLUME_CLAIMS:
            return self._apply_claim(key, new)
        if resource is PERSISTENT_VOLUMES:
            return self._apply_volume(key, new)
        if resource is CSI_STORAGE_CAPACITIES:
            return self._apply_capacity(key, new)
        if resource is STORAGE_CLASSES:
            return _put(self.classes, key, new) and self._news(of_class(key))
        if resource is CSI_DRIVERS:
            return _put(self.drivers, key, new) and self._news(of_driver(key))
        if resource is CSI_NODES:
            return _put(self.csi_nodes, key, new) and self._news(of_csi_node(key))
        return False

    def _news(self, name: str) -> bool:
        self.stamps.touch(name)
        return True

    def _apply_claim(self, key: str, new: PersistentVolumeClaim | None) -> bool:
        old = self.claims.get(key)
        if old is new:
            return False
        if new is not None and same(old, new):
            self.claims[key] = new
            return False
        if new is not None:
            amount(new.spec.resources.requests, f"PersistentVolumeClaim {key}: spec.resources.requests")
            if new.spec.selector is not None:
                compile_label_selector(new.spec.selector)
        _put(self.claims, key, new)
        promise = self._node_promises.get(key)
        if promise is not None and (
            new is None
            or new.metadata.uid != promise.uid
            or new.spec.volume_name
            or SELECTED_NODE in new.metadata.annotations
        ):
            self._let_go(self._node_promises.pop(key).holders, 1, key)
        self.stamps.touch(of_claim(key))
        return True

    def _apply_volume(self, name: str, new: PersistentVolume | None) -> bool:
        old = self.volumes.get(name)
        if old is new:
            return False
        if new is not None and same(old, new):
            self.volumes[name] = new
            return False
        size = 0
        if new is not None:
            size = amount(new.spec.capacity, f"PersistentVolume {name}: spec.capacity")
            self.where[name] = places(new.required)
        else:
            del self.where[name]
        _put(self.volumes, name, new)
        if old is not None and old.spec.claim_ref is not None:
            self._ungive(old)
        ref = None if new is None else new.spec.claim_ref
        if new is not None and ref is not None:
            self.given.setdefault(key_of(ref.namespace, ref.name), set()).add(name)
        names = {of_volume(name)}
        if name in self._volume_promises and (new is None or ref is not None):
            names.add(of_gift(self._volume_promises[name].to))
            holders = self._unpromise(name).holders
            self._let_go(holders, 0, name)
        self._pool_volume(name, new, size)
        for one in (old, new):
            if one is not None and one.spec.claim_ref is not None:
                names.add(of_gift(key_of(one.spec.claim_ref.namespace, one.spec.claim_ref.name)))
        self.stamps.touch(*names)
        return True

    def _pool_volume(self, name: str, new: PersistentVolume | None, size: int) -> None:
        """Put a free volume into the pool of its class, take any other out."""
        free = (
            new is not None
            and new.spec.claim_ref is None
            and new.status.phase == AVAILABLE
            and new.metadata.deletion_timestamp is None
        )
        before = self._pool_of.get(name)
        now = new.storage_class if new is not None and free else None
        if before is not None and before != now:
            del self._pool_of[name]
            self._pools[before].remove(name)
            self.stamps.touch(of_pool(before))
        if new is None or now is None:
            return
        self._pool_of[name] = now
        self.pool(now).set(
            Offer(
                name,
                size,
                mode_bits(new.spec.access_modes),
                new.spec.volume_mode == "Block",
                new.spec.volume_attributes_class_name or "",
                new.metadata.labels,
                self.where[name],
            )
        )
        self.stamps.touch(of_pool(now))

    def _ungive(self, volume: PersistentVolume) -> None:
        ref = volume.spec.claim_ref
        assert ref is not None, "only called for volumes that are somebody's"
        claim = key_of(ref.namespace, ref.name)
        given = self.given.get(claim)
        if given is not None:
            given.discard(volume.metadata.name)
            if not given:
                del self.given[claim]

    def _apply_capacity(self, key: str, new: CSIStorageCapacity | None) -> bool:
        room: Room | None = None
        if new is not None:
            largest = -1 if new.limit is None else min(value(new.limit), LARGEST)
            room = Room(
                largest,
                None if new.node_topology is None else compile_label_selector(new.node_topology),
                largest if new.capacity is None else min(value(new.capacity), LARGEST),
            )
        before = self._class_of_capacity.pop(key, None)
        if before is not None and (new is None or new.storage_class_name != before):
            self.capacity(before).set(key, None)
            self.stamps.touch(of_capacity(before))
        if new is None:
            return before is not None
        self._class_of_capacity[key] = new.storage_class_name
        if self.capacity(new.storage_class_name).set(key, room):
            self.stamps.touch(of_capacity(new.storage_class_name))
            return True
        return False

    def pool(self, class_: str) -> Pool:
        """The free volumes of a class."""
        found = self._pools.get(class_)
        if found is None:
            found = self._pools[class_] = Pool(self._cluster)
        return found

    def capacity(self, class_: str) -> ClassCapacity:
        """How much room there is for volumes of a class."""
        found = self._capacities.get(class_)
        if found is None:
            found = self._capacities[class_] = ClassCapacity(self._cluster)
        return found

    # Promises -------------------------------------------------------------------------------------------------------

    def selected_node(self, claim: PersistentVolumeClaim) -> str | None:
        """The node for which the claim's volume is to be made; None: any."""
        promise = self._node_promises.get(claim.key)
        return promise.to if promise is not None else claim.metadata.annotations.get(SELECTED_NODE)

    def given_to(self, claim: PersistentVolumeClaim) -> list[str]:
        """Names of the volumes that are the claim's, promised ones included, though it may not have them yet."""
        names = {
            name
            for name in self.given.get(claim.key, ())
            if (ref := self.volumes[name].spec.claim_ref) is not None and ref.uid in ("", claim.metadata.uid)
        }
        for name in self._promised_to.get(claim.key, ()):
            if self._volume_promises[name].uid == claim.metadata.uid:
                names.add(name)
        return sorted(names)

    def promise_volume(self, pod: str, volume: str, claim: PersistentVolumeClaim) -> None:
        """A claim is to get a volume, for the sake of a pod (its uid)."""
        pool = self._pool_of.get(volume)
        if pool is None:
            return  # its claimRef says so already
        before = self._volume_promises.get(volume)
        if before is not None and (before.to, before.uid) != (claim.key, claim.metadata.uid):
            self._unpromise(volume)
        self._promise(self._volume_promises, volume, claim.key, claim.metadata.uid, pod)
        self._promised_to.setdefault(claim.key, set()).add(volume)
        self._pools[pool].take(volume)
        self._held.setdefault(pod, (set(), set()))[0].add(volume)
        self.stamps.touch(of_pool(pool), of_gift(claim.key))

    def promise_node(self, pod: str, claim: PersistentVolumeClaim, node: str) -> None:
        """The claim's volume is to be made for a node, for the sake of a pod (its uid)."""
        if SELECTED_NODE in claim.metadata.annotations:
            return
        self._promise(self._node_promises, claim.key, node, claim.metadata.uid, pod)
        self._held.setdefault(pod, (set(), set()))[1].add(claim.key)
        self.stamps.touch(of_claim(claim.key))

    def take_back(self, pod: str) -> None:
        """The pod holds its promises no longer."""
        volumes, claims = self._held.pop(pod, (set(), set()))
        for volume in volumes:
            promise = self._volume_promises.get(volume)
            if promise is None:
                continue
            promise.holders.discard(pod)
            if not promise.holders:
                self._unpromise(volume)
                self.stamps.touch(of_gift(promise.to))
                pool = self._pool_of.get(volume)
                if pool is not None:
                    self._pools[pool].give_back(volume)
                    self.stamps.touch(of_pool(pool))
        for claim in claims:
            promise = self._node_promises.get(claim)
            if promise is None:
                continue
            promise.holders.discard(pod)
            if not promise.holders:
                del self._node_promises[claim]
                self.stamps.touch(of_claim(claim))

    @property
    def promised(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Claims by volume, and nodes by claim, that were promised and not seen."""
        return (
            {volume: promise.to for volume, promise in self._volume_promises.items()},
            {claim: promise.to for claim, promise in self._node_promises.items()},
        )

    @staticmethod
    def _promise(promises: dict[str, Promise], name: str, to: str, uid: str, pod: str) -> None:
        promise = promises.get(name)
        if promise is None or promise.to != to or promise.uid != uid:
            promise = promises[name] = Promise(to, uid)
        promise.holders.add(pod)

    def _unpromise(self, volume: str) -> Promise:
        promise = self._volume_promises.pop(volume)
        promised = self._promised_to[promise.to]
        promised.discard(volume)
        if not promised:
            del self._promised_to[promise.to]
        return promise

    def _let_go(self, holders: Iterable[str], which: int, name: str) -> None:
        """The API shows what was promised, or something else: it speaks for itself from now on."""
        for pod in holders:
            held = self._held.get(pod)
            if held is not None:
                held[which].discard(name)
                if not held[0] and not held[1]:
                    del self._held[pod]


def amount(amounts: Mapping[str, str | int | float], where: str) -> int:
    """Bytes of ``storage``; 0 if there is none. QuantityError (a ValueError) names the field and the rule."""
    text = amounts.get(STORAGE)
    if text is None:
        return 0
    try:
        return min(value(text), LARGEST)
    except ValueError as error:
        raise ValueError(f"{where}.{STORAGE}: {error}") from error


def _put(into: dict[str, Any], key: str, new: Any | None) -> bool:
    """True if it is another object than before."""
    if into.get(key) is new:
        return False
    if new is None:
        del into[key]
    else:
        into[key] = new
    return True
