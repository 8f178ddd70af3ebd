"""Devices as claims see them: attributes by full name, what they take of shared counters, who can reach them."""

from collections.abc import Hashable, Mapping

from koord.kube import dynamicresources as api
from koord.kube.quantity import parse
from koord.scheduler.dra.consuming import CapacityName, Limit, full_name, limit

Value = tuple[str, bool | int | str]
"""The kind (``bool``, ``int``, ``string``, ``version``) and the value of an attribute: equal only if both are."""
DeviceId = tuple[str, str, str]
"""Driver, pool and name."""
CounterName = tuple[str, str]
"""Counter set and counter."""


class Device:
    """A device of one version of its slice; compared by identity, so what is found out of it can be kept.

    ``counters`` are whole nanos of what it takes of the pool's counter sets. ``multiple``: several claims share it as
    long as its capacities (``limits``) last.
    """

    __slots__ = (
        "attributes",
        "capacity",
        "conditional",
        "counters",
        "id",
        "limits",
        "multiple",
        "substance",
        "taints",
    )

    def __init__(self, driver: str, pool: str, device: api.Device) -> None:
        self.id: DeviceId = (driver, pool, device.name)
        self.attributes: dict[tuple[str, str], Value] = {
            full_name(name, driver): value
            for name, attribute in device.attributes.items()
            if (value := _value(attribute)) is not None
        }
        self.capacity: dict[tuple[str, str], str] = {
            full_name(name, driver): str(capacity.value) for name, capacity in device.capacity.items()
        }
        self.multiple = bool(device.allow_multiple_allocations)
        self.limits: dict[CapacityName, Limit] = {
            full_name(name, driver): limit(name, capacity) for name, capacity in device.capacity.items()
        }
        self.taints = tuple(device.taints)
        self.conditional = bool(device.binding_conditions)
        """Somebody has to say first that it is ready: koord does not wait for that, so it is given to nobody."""
        self.counters: Mapping[CounterName, int] = {
            (each.counter_set, name): parse(counter.value).nanos
            for each in device.consumes_counters
            for name, counter in each.counters.items()
        }
        self.substance: Hashable = (
            driver,
            self.multiple,
            frozenset(self.attributes.items()),
            frozenset(self.capacity.items()),
        )
        """All that an expression can see: devices that are equal in it pass the same selectors."""

    def attribute(self, name: str) -> Value | None:
        """The attribute of the full name ``domain/name``; None: the device has none of that name."""
        domain, slash, short = name.partition("/")
        return self.attributes.get((domain, short)) if slash else None

    @property
    def driver(self) -> str:
        """Whose device it is."""
        return self.id[0]


def _value(attribute: api.DeviceAttribute) -> Value | None:
    if attribute.string_value is not None:
        return "string", attribute.string_value
    if attribute.int_value is not None:
        return "int", attribute.int_value
    if attribute.bool_value is not None:
        return "bool", attribute.bool_value
    if attribute.version_value is not None:
        return "version", attribute.version_value
    return None  # a kind of a newer server: as if it were not there
