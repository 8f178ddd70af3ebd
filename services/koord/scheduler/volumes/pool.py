"""The volumes of one class that are nobody's yet, smallest first, and which of them would do for a claim.

Spec 10 section 3.15, VolumeBinding: a claim that waits for its first consumer gets the smallest volume that is large
enough, has the access modes, the mode and the labels it asks for, and can be reached from the node.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Ints
from koord.kube.selectors import Selector
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.volumes.places import PlaceIndex, Places

MODES: Mapping[str, int] = {"ReadWriteOnce": 1, "ReadOnlyMany": 2, "ReadWriteMany": 4, "ReadWriteOncePod": 8}


def mode_bits(modes: list[str]) -> int:
    """Access modes as bits; one that nobody knows is a bit that no volume has and every claim needs."""
    bits = 0
    for mode in modes:
        bits |= MODES.get(mode, 1 << 30)
    return bits


class Offer(msgspec.Struct, frozen=True):
    """A free volume. ``size`` in bytes; ``modes``: see :func:`mode_bits`."""

    name: str
    size: int
    modes: int
    block: bool
    attributes: str
    labels: Mapping[str, str]
    where: Places


class Ask(msgspec.Struct, frozen=True):
    """What a claim asks of a volume."""

    size: int
    modes: int
    block: bool
    attributes: str
    selector: Selector | None = None


class Pool:
    """Free volumes by name. Changing it is cheap; what is looked up is laid out anew by the first look after it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._offers: dict[str, Offer] = {}
        self._taken: set[str] = set()
        self._laid = False
        self._gone = 0

    def __len__(self) -> int:
        return len(self._offers)

    def set(self, offer: Offer) -> None:
        """A volume is free, or a free one changed."""
        if self._offers.get(offer.name) != offer:
            self._offers[offer.name] = offer
            self._laid = False

    def remove(self, name: str) -> bool:
        """A volume is gone or somebody's; True if it was here."""
        if self._offers.pop(name, None) is None:
            return False
        self._taken.discard(name)
        if self._laid:
            self._free[self._position[name]] = False
            self._gone += 1
            self._laid = self._gone * 2 <= len(self.names)
        return True

    def take(self, name: str) -> None:
        """A volume is promised to a claim: it is not free for now."""
        self._taken.add(name)
        if self._laid and name in self._offers:
            self._free[self._position[name]] = False

    def give_back(self, name: str) -> None:
        """The promise is void."""
        self._taken.discard(name)
        if self._laid and name in self._offers:
            self._free[self._position[name]] = True

    def fitting(self, ask: Ask) -> Bools:
        """Which volumes would do, by position; smaller ones come first, equal ones by name."""
        self._lay()
        fits: Bools = self._free & (self._sizes >= ask.size) & ((self._modes & ask.modes) == ask.modes)
        fits &= self._blocks == ask.block
        fits &= self._attributes == self._numbers.get(ask.attributes, -1)
        if ask.selector is not None:
            for position in np.flatnonzero(fits).tolist():
                fits[position] = ask.selector.matches(self._offers[self.names[position]].labels)
        return fits

    @property
    def sizes(self) -> Ints:
        """Bytes by position."""
        self._lay()
        return self._sizes

    @property
    def index(self) -> PlaceIndex:
        """Where they are."""
        self._lay()
        return self._index

    def _lay(self) -> None:
        if self._laid:
            return
        offers = sorted(self._offers.values(), key=lambda offer: (offer.size, offer.name))
        self.names = [offer.name for offer in offers]
        self._position = {name: position for position, name in enumerate(self.names)}
        self._sizes: Ints = np.array([offer.size for offer in offers], dtype=np.int64)
        self._modes = np.array([offer.modes for offer in offers], dtype=np.int64)
        self._blocks = np.array([offer.block for offer in offers], dtype=np.bool_)
        self._numbers: dict[str, int] = {}
        self._attributes = np.array(
            [self._numbers.setdefault(offer.attributes, len(self._numbers)) for offer in offers], dtype=np.int64
        )
        self._free: Bools = np.array([offer.name not in self._taken for offer in offers], dtype=np.bool_)
        self._index = PlaceIndex([offer.where for offer in offers], self._cluster)
        self._gone = 0
        self._laid = True
