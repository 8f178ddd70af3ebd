"""Stamps: the number of the last change that concerned something.

Who derived something from a few objects compares their stamps to learn whether it still holds.
"""

MOST = 100_000


class Stamps:
    """Stamps by name; see the functions below for the names. ``clock``: the number of the last change."""

    def __init__(self, most: int = MOST) -> None:
        self.clock = 0
        self._stamps: dict[str, int] = {}
        self._floor = 0
        self._most = most

    def of(self, name: str) -> int:
        """The number of the last change that concerned ``name``, or a later one."""
        return self._stamps.get(name, self._floor)

    def touch(self, *names: str) -> None:
        """A change that concerns these."""
        self.clock += 1
        if len(self._stamps) >= self._most:
            # Mostly of what is gone: everything counts as changed once.
            self._floor = self.clock
            self._stamps.clear()
        for name in names:
            self._stamps[name] = self.clock


def of_claim(key: str) -> str:
    """The claim itself, and its selected node."""
    return f"claim {key}"


def of_use(claim: str) -> str:
    """Whether pods with a node use the claim."""
    return f"use {claim}"


def of_disk(kind: str, name: str) -> str:
    """Which pods with a node have the disk."""
    return f"disk {kind} {name}"


def of_gift(claim: str) -> str:
    """Which volumes name the claim in their ``claimRef``."""
    return f"gift {claim}"


def of_volume(name: str) -> str:
    """The volume itself."""
    return f"volume {name}"


def of_pool(class_: str) -> str:
    """The free volumes of a class."""
    return f"pool {class_}"


def of_class(name: str) -> str:
    """The StorageClass itself."""
    return f"class {name}"


def of_capacity(class_: str) -> str:
    """The room for new volumes of a class."""
    return f"capacity {class_}"


def of_driver(name: str) -> str:
    """The CSI driver."""
    return f"driver {name}"


def of_csi_node(name: str) -> str:
    """The CSINode of a node."""
    return f"csinode {name}"
