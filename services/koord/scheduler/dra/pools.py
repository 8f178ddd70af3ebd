"""Pools of devices: slices of one driver that belong together, of which only the newest generation counts.

A pool whose newest generation is not there whole is *incomplete*, one that contradicts itself *invalid*: nothing is
given from either. The devices of a slice are grouped by the nodes that reach them.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final

import msgspec

from koord.kube.dynamicresources import Device as ApiDevice
from koord.kube.dynamicresources import ResourceSlice
from koord.kube.pods import NodeSelector
from koord.kube.quantity import QuantityError, parse
from koord.scheduler.dra.consuming import CapacityName
from koord.scheduler.dra.demand import DemandError
from koord.scheduler.dra.devices import CounterName, Device
from koord.scheduler.engine.nodeterms import NodeTerm, node_terms

Shared = dict[str, Counter[CapacityName]]
PoolId = tuple[str, str]
"""Driver and name."""


class Reach(msgspec.Struct, frozen=True):
    """From which nodes: the one of the name, those that a term fits, or (neither) all. ``selector`` is as it was
    written."""

    node: str = ""
    terms: tuple[NodeTerm, ...] = ()
    selector: NodeSelector | None = None

    @property
    def key(self) -> Hashable:
        """Equal for devices that the same nodes reach."""
        return self.node, self.terms


EVERYWHERE: Final = Reach()


class Failure(msgspec.Struct, frozen=True):
    """Why it cannot be told which devices match; ``of_class``: the class's fault, not the claim's."""

    text: str
    of_class: bool


class Group:
    """Devices of one slice that the same nodes reach. ``matches`` is the matcher's."""

    __slots__ = ("devices", "matches", "pool", "reach")

    def __init__(self, pool: "Pool", reach: Reach, devices: tuple[Device, ...]) -> None:
        self.pool = pool
        self.reach = reach
        self.devices = devices
        self.matches: dict[Hashable, tuple[Device, ...] | Failure] = {}


class Pool:
    """One pool. ``used``: names of devices that claims have alone, with how many; ``shared``: what claims take of the
    capacities of others, in nanos. Both are kept by whoever knows of claims."""

    def __init__(self, id_: PoolId, used: dict[str, int], shared: Shared | None = None) -> None:
        self.id = id_
        self.used = used
        self.shared: Shared = {} if shared is None else shared
        self.groups: tuple[Group, ...] = ()
        self.problem = ""
        """Why nothing is given from it; empty: it is complete and valid."""
        self.counters: dict[CounterName, int] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._made: dict[str, tuple[ResourceSlice, tuple[Group, ...]]] = {}
        self._partitions: dict[str, Device] = {}

    @property
    def empty(self) -> bool:
        """Whether no slice is left."""
        return not self._slices

    @property
    def name(self) -> str:
        """``driver/pool``."""
        return f"{self.id[0]}/{self.id[1]}"

    def put(self, name: str, slice_: ResourceSlice | None) -> None:
        """A slice came, changed or (None) went. ValueError names the device and the field; nothing has changed then."""
        before = self._slices.get(name)
        made = self._made.get(name)
        if slice_ is not None:
            self._made[name] = (slice_, self._groups_of(slice_))
            self._slices[name] = slice_
        else:
            self._slices.pop(name, None)
            self._made.pop(name, None)
        try:
            self._assemble()
        except ValueError:
            if before is not None and made is not None:
                self._slices[name], self._made[name] = before, made
            else:
                del self._slices[name], self._made[name]
            self._assemble()
            raise

    def left(self) -> dict[CounterName, int]:
        """What is left of the counters, given who has devices. A new dict."""
        left = dict(self.counters)
        if left:
            for name in self.used.keys() | self.shared.keys():
                device = self._partitions.get(name)
                for counter, amount in device.counters.items() if device is not None else ():
                    left[counter] = left.get(counter, 0) - amount
        return left

    def _groups_of(self, slice_: ResourceSlice) -> tuple[Group, ...]:
        spec = slice_.spec
        if spec.per_device_node_selection:
            grouped: dict[Hashable, tuple[Reach, list[ApiDevice]]] = {}
            for device in spec.devices:
                reach = _reach(device.node_name, device.all_nodes, device.node_selector)
                if reach is not None:
                    grouped.setdefault(reach.key, (reach, []))[1].append(device)
            return tuple(self._group(reach, devices) for reach, devices in grouped.values())
        reach = _reach(spec.node_name, spec.all_nodes, spec.node_selector)
        return (self._group(reach, spec.devices),) if reach is not None and spec.devices else ()

    def _group(self, reach: Reach, devices: list[ApiDevice]) -> Group:
        driver, pool = self.id
        made: list[Device] = []
        for device in devices:
            try:
                made.append(Device(driver, pool, device))
            except QuantityError as error:
                raise ValueError(f"spec.devices[{device.name}]: {error}") from None
        return Group(self, reach, tuple(made))

    def _assemble(self) -> None:
        newest = max((one.spec.pool.generation for one in self._slices.values()), default=0)
        names = sorted(name for name, one in self._slices.items() if one.spec.pool.generation == newest)
        self.groups = tuple(group for name in names for group in self._made[name][1])
        self.counters = {}
        self._partitions = {}
        self.problem = ""
        if not names:
            return
        if len(names) != self._slices[names[0]].spec.pool.resource_slice_count:
            self.problem = f"resource pool {self.name} is currently being updated"
            return
        try:
            self._validate([self._slices[name] for name in names])
        except DemandError as error:
            self.problem = f"resource pool {self.name} is currently invalid: {error}"

    def _validate(self, slices: list[ResourceSlice]) -> None:
        sets: set[str] = set()
        for counters in (each for one in slices for each in one.spec.shared_counters):
            if counters.name in sets:
                raise DemandError(f"duplicate counter set name {counters.name}")
            sets.add(counters.name)
            for name, counter in counters.counters.items():
                try:
                    self.counters[counters.name, name] = parse(counter.value).nanos
                except QuantityError as error:
                    raise ValueError(f"spec.sharedCounters[{counters.name}].counters[{name}]: {error}") from None
        seen: set[str] = set()
        for device in (each for group in self.groups for each in group.devices):
            name = device.id[2]
            if name in seen:
                raise DemandError(f"duplicate device name {name}")
            seen.add(name)
            for counter_set, counter_name in device.counters:
                if counter_set not in sets:
                    raise DemandError(f"counter set {counter_set} not found")
                if (counter_set, counter_name) not in self.counters:
                    raise DemandError(f"counter {counter_name} not found in counter set {counter_set}")
            if device.counters:
                self._partitions[name] = device


def _reach(node: str | None, all_nodes: bool | None, selector: NodeSelector | None) -> Reach | None:
    """None: none of the ways is said that koord knows."""
    if node:
        return Reach(node)
    if all_nodes:
        return EVERYWHERE
    return None if selector is None else Reach("", node_terms(selector), selector)
