"""How much room a CSI driver has for new volumes of a class, and on which nodes (spec 10 section 3.15).

Each claim is looked at alone: two claims that fit one by one may not fit together, as in the original; the driver says
so when it makes the volumes, and the pod is placed anew.
"""

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Ints
from koord.kube.selectors import Selector
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.nodeterms import NodeTerm
from koord.scheduler.engine.window import Window
from koord.scheduler.volumes.places import NOTHING, PlaceIndex, Places


class Room(msgspec.Struct, frozen=True):
    """The largest volume (bytes) that can be made on nodes that ``topology`` matches; without one, on none.

    ``amount``: all the room that there is; as large as the largest volume if the driver does not say.
    """

    limit: int
    topology: Selector | None
    amount: int


class ClassCapacity:
    """The capacity objects of one class by key."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rooms: dict[str, Room] = {}
        self._index: PlaceIndex | None = None
        self._position: dict[str, int] = {}
        self._limits = np.zeros(0, dtype=np.int64)
        self._amounts = np.zeros(0, dtype=np.int64)

    def set(self, key: str, room: Room | None) -> bool:
        """An object came, changed or (None) went; True if anything is different now."""
        before = self._rooms.get(key)
        if before == room:
            return False
        if room is None:
            del self._rooms[key]
        else:
            self._rooms[key] = room
        if before is not None and room is not None and before.topology == room.topology and self._index is not None:
            # Drivers say how much is left every minute.
            self._limits[self._position[key]], self._amounts[self._position[key]] = room.limit, room.amount
        else:
            self._index = None
        return True

    def enough(self, size: int, window: Window) -> Bools:
        """True where a volume of ``size`` bytes can be made."""
        index = self._laid()
        return index.any_of(self._limits >= size, window)

    def amounts(self, size: int, window: Window) -> Ints:
        """How much room (bytes) there is where a volume of ``size`` bytes can be made, -1 elsewhere; of several objects
        that would do, the first by name says it."""
        first = self._laid().first(self._limits >= size, window, 1)[0]
        found: Ints = np.full(window.size, -1, dtype=np.int64)
        can: Bools = first != NOTHING
        found[can] = self._amounts[first[can]]
        return found

    def _laid(self) -> PlaceIndex:
        if self._index is None:
            self._position = {key: position for position, key in enumerate(sorted(self._rooms))}
            rooms = [self._rooms[key] for key in self._position]
            self._limits = np.array([room.limit for room in rooms], dtype=np.int64)
            self._amounts = np.array([room.amount for room in rooms], dtype=np.int64)
            self._index = PlaceIndex([_places(room.topology) for room in rooms], self._cluster)
        return self._index


def _places(topology: Selector | None) -> Places:
    if topology is None:
        return ()
    tests = topology.requirements
    if not tests:
        return None
    return (NodeTerm(tuple((test.key, test.operator, tuple(sorted(test.values))) for test in tests)),)
