"""Who has which seats, and which nodes each pool serves: one book for all profiles of a scheduler. No I/O."""

import itertools
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from koord.kube.meta import TypedObject, View
from koord.scheduler.engine.cluster import Cluster, NodeInfo, RowColumn


class LicensePoolSpec(View, frozen=True):
    """``seats`` of ``product`` for the nodes that have all labels of ``node_selector``."""

    product: str = ""
    seats: int = 0
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)


class LicensePool(TypedObject, frozen=True):
    """The fields of a LicensePool that the plugin reads."""

    spec: LicensePoolSpec = msgspec.field(default_factory=LicensePoolSpec)


class Pool:
    """One pool in force. ``serves`` is True on the rows of its nodes; ``holders`` tells who has a seat.

    Two may: the one that we gave it to, and another replica's, which is shown before our claim is refused. It is free
    when both are gone.
    """

    def __init__(self, name: str, spec: LicensePoolSpec, serves: RowColumn, holders: dict[int, set[str]]) -> None:
        self.name = name
        self.spec = spec
        self.serves = serves
        self.holders = holders
        self.recount()

    def recount(self) -> None:
        """Seats were given or came back: ``free`` is how many nobody has. A pool may have shrunk below what is held."""
        self.free = self.spec.seats - sum(seat < self.spec.seats for seat in self.holders)

    def pick(self, count: int, start: int) -> tuple[int, ...]:
        """Free seats, the first at or behind ``start`` first: replicas that begin elsewhere seldom want the same."""
        seats = self.spec.seats
        order = (number % seats for number in range(start % seats, start % seats + seats))
        return tuple(itertools.islice((seat for seat in order if seat not in self.holders), count))

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is served."""
        return all(labels.get(key) == value for key, value in self.spec.node_selector.items())


class SeatBook:
    """Pools by name and seats by pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.pools: dict[str, Pool] = {}
        self._held: dict[str, tuple[str, tuple[int, ...]]] = {}
        # Kept by name, for pods may be told before their pool, and outlive it.
        self._holders: dict[str, dict[int, set[str]]] = {}
        self._versions: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._spare: list[RowColumn] = []

    @classmethod
    def of(cls, cluster: Cluster) -> "SeatBook":
        """The one book of a cluster, whichever profile asks first."""
        book = cluster.shared.get(cls)
        if book is None:
            book = cluster.shared[cls] = cls(cluster)
        assert isinstance(book, cls)
        return book

    def version(self, product: str) -> int:
        """Another number whenever seats or pools of the product are not what they were."""
        return self._versions.get(product, 0)

    def offering(self, product: str) -> list[Pool]:
        """The pools of a product."""
        return [pool for pool in self.pools.values() if pool.spec.product == product]

    # Pools and nodes ------------------------------------------------------------------------------------------------

    def put(self, name: str, spec: LicensePoolSpec | None) -> None:
        """A pool came, changed, or (None) went."""
        old = self.pools.pop(name, None)
        if old is not None:
            # Columns live as long as the cluster: one that is not needed is cleared and used again.
            old.serves.data[:] = False
            self._spare.append(old.serves)
            self._moved(old.spec.product)
        if spec is None:
            return
        column = self._spare.pop() if self._spare else self._cluster.column(dtype=np.bool_)
        pool = self.pools[name] = Pool(name, spec, column, self._holders.setdefault(name, {}))
        for row, node in enumerate(self._cluster.nodes):
            if node is not None:
                column.data[row] = pool.selects(node.labels)
        self._moved(spec.product)

    def node(self, row: int, node: NodeInfo) -> None:
        """A node came or changed. All rows are asked again then, so no version need move."""
        for pool in self.pools.values():
            pool.serves.data[row] = pool.selects(node.labels)

    # Seats ----------------------------------------------------------------------------------------------------------

    def take(self, uid: str, name: str, seats: tuple[int, ...]) -> None:
        """A pod has these seats, and no others."""
        if self._held.get(uid) == (name, seats):
            return
        self.give_back(uid)
        self._held[uid] = name, seats
        holders = self._holders.setdefault(name, {})
        for seat in seats:
            holders.setdefault(seat, set()).add(uid)
        self._seats_moved(name)

    def give_back(self, uid: str) -> None:
        """A pod has no seats any more; nothing if it had none."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        name, seats = held
        holders = self._holders[name]
        for seat in seats:
            holders[seat].discard(uid)
            if not holders[seat]:
                del holders[seat]
        self._seats_moved(name)

    def _seats_moved(self, name: str) -> None:
        pool = self.pools.get(name)
        if pool is not None:
            pool.recount()
            self._moved(pool.spec.product)

    def _moved(self, product: str) -> None:
        self._versions[product] = next(self._numbers)


def rows_of(column: RowColumn, rows: slice | NDArray[np.int64]) -> NDArray[np.bool_]:
    """A column of booleans at ``rows``."""
    found: NDArray[np.bool_] = column.data[rows]
    return found
