"""What is known of devices, shared by all profiles: slices, classes, claims, and what was promised to claims.

``clock`` counts whatever may change an answer; ``stamps`` of views say which of them it concerns.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from koord.kube.dynamicresources import DeviceClass, ResourceClaim, ResourceSlice
from koord.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from koord.scheduler.dra.devices import DeviceId
from koord.scheduler.dra.matching import Matcher
from koord.scheduler.dra.pools import Pool, PoolId, Shared
from koord.scheduler.dra.promises import Promise
from koord.scheduler.dra.results import Allocation, Share, shares
from koord.scheduler.dra.views import Views
from koord.scheduler.engine.cluster import Cluster

Held = tuple[tuple[DeviceId, ...], tuple[Share, ...]]
NOTHING_HELD: Held = ((), ())
SHARES = ("", "")
"""In the count of what is taken of a shared device: how many share it."""


class DeviceBook:
    """Objects by key. ``classes_at``: the clock when a class changed last."""

    def __init__(self, cluster: Cluster) -> None:
        self.claims: dict[str, ResourceClaim] = {}
        self.matcher = Matcher()
        self.pools: dict[PoolId, Pool] = {}
        self.views = Views(cluster)
        self.promises: dict[str, Promise] = {}
        """By claim."""
        self.clock = 1
        self.classes_at = 0
        self._slices: dict[str, ResourceSlice] = {}
        self._used: dict[PoolId, dict[str, int]] = {}
        self._shared: dict[PoolId, Shared] = {}
        self._held: dict[str, Held] = {}
        """By claim: the devices that are nobody else's because of it, and what it takes of shared ones."""
        self._of_pod: dict[str, set[str]] = {}

    @classmethod
    def of(cls, cluster: Cluster) -> "DeviceBook":
        """The one book of a cluster."""
        book = cluster.shared.get(cls)
        if book is None:
            book = cluster.shared[cls] = cls(cluster)
        assert isinstance(book, cls)
        return book

    # Objects --------------------------------------------------------------------------------------------------------

    def apply(self, resource: Resource, key: str, new: Any | None) -> None:
        """An object came, changed or (None) went; may be told several times. ValueError names the field and the rule,
        what was known of the object stays."""
        if resource is RESOURCE_SLICES:
            self._apply_slice(key, new)
        elif resource is DEVICE_CLASSES:
            self._apply_class(key, new)
        elif resource is RESOURCE_CLAIMS:
            self._apply_claim(key, new)

    def _apply_class(self, key: str, new: DeviceClass | None) -> None:
        if self.matcher.classes.get(key) is not new:
            self.matcher.put(key, new)
            self.clock += 1
            self.classes_at = self.clock

    def _apply_slice(self, key: str, new: ResourceSlice | None) -> None:
        old = self._slices.get(key)
        if old is new:
            return
        if old is not None and new is not None and old.spec == new.spec:
            self._slices[key] = new
            return
        if new is not None:
            self._put(_pool_of(new), key, new)
        if old is not None and (new is None or _pool_of(old) != _pool_of(new)):
            self._put(_pool_of(old), key, None)
        if new is not None:
            self._slices[key] = new
        else:
            del self._slices[key]

    def _put(self, id_: PoolId, key: str, slice_: ResourceSlice | None) -> None:
        pool = self.pools.get(id_)
        if pool is None:
            pool = Pool(id_, self._used.setdefault(id_, {}), self._shared.setdefault(id_, {}))
        before = pool.groups
        pool.put(key, slice_)
        self.clock += 1
        self.pools[id_] = pool
        if pool.empty:
            del self.pools[id_]
        self.views.regroup(pool, before, self.clock)

    def _apply_claim(self, key: str, new: ResourceClaim | None) -> None:
        old = self.claims.get(key)
        if old is new:
            return
        if new is None:
            self.claims.pop(key, None)
        else:
            self.claims[key] = new
        self.clock += 1
        promise = self.promises.get(key)
        if promise is not None and (new is None or promise.void(new)):
            self._end(key, promise)
        self._hold(key)

    # Promises -------------------------------------------------------------------------------------------------------

    def promise(self, key: str, allocation: Allocation | None, pod: str, name: str) -> None:
        """The pod of the uid is to use the claim, and the claim gets ``allocation`` if it has none."""
        found = self.promises.get(key)
        if found is None:
            found = self.promises[key] = Promise(self.claims[key].metadata.uid, allocation)
        elif found.allocation is None:
            found.allocation = allocation
        found.pods[pod] = name
        self._of_pod.setdefault(pod, set()).add(key)
        self.clock += 1
        self._hold(key)

    def take_back(self, pod: str) -> None:
        """The pod does not use its claims after all, or the API shows that it does."""
        for key in self._of_pod.pop(pod, ()):
            promise = self.promises.get(key)
            if promise is None:
                continue
            promise.pods.pop(pod, None)
            promise.covered.discard(pod)
            if not promise.pods and not promise.doubtful(self.claims.get(key)):
                del self.promises[key]
                self.clock += 1
                self._hold(key)

    def _end(self, key: str, promise: Promise) -> None:
        del self.promises[key]
        for pod in promise.pods:
            keys = self._of_pod.get(pod)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._of_pod[pod]

    # Devices --------------------------------------------------------------------------------------------------------

    def node_changed(self, row: int) -> None:
        """A node is on the row, or it changed."""
        self.clock += 1
        self.views.node_changed(row)

    def node_gone(self, row: int) -> None:
        """The row is free."""
        self.clock += 1
        self.views.node_gone(row)

    def _hold(self, key: str) -> None:
        """Count the devices that the claim has, or is promised, as used."""
        claim, promise = self.claims.get(key), self.promises.get(key)
        now = NOTHING_HELD
        if claim is not None and claim.status.allocation is not None:
            results = claim.status.allocation.devices.results
            alone = tuple(each.id for each in results if not each.admin_access and each.share_id is None)
            now = (alone, shares(results))
        elif promise is not None and promise.allocation is not None:
            now = (promise.allocation.devices, promise.allocation.shares)
        before = self._held.get(key, NOTHING_HELD)
        if now == before:
            return
        if now != NOTHING_HELD:
            self._held[key] = now
        else:
            del self._held[key]
        self._count(before, -1)
        self._count(now, 1)
        pools = {device[:2] for held in (before, now) for device in held[0]}
        self._touch(pools | {share.device[:2] for held in (before, now) for share in held[1]})

    def _count(self, held: Held, sign: int) -> None:
        for driver, pool, name in held[0]:
            used = self._used.setdefault((driver, pool), {})
            used[name] = used.get(name, 0) + sign
            if not used[name]:
                del used[name]
        for share in held[1]:
            driver, pool, name = share.device
            shared = self._shared.setdefault((driver, pool), {})
            taken = shared.setdefault(name, Counter())
            taken[SHARES] += sign
            for capacity, nanos in share.taken:
                taken[capacity] += sign * nanos
            if not taken[SHARES]:
                del shared[name]

    def _touch(self, pools: Iterable[PoolId]) -> None:
        self.clock += 1
        for pool in pools:
            self.views.touch(pool, self.clock)


def _pool_of(slice_: ResourceSlice) -> PoolId:
    return slice_.spec.driver, slice_.spec.pool.name
