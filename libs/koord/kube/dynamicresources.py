# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty default
"""Dynamic resources (resource.k8s.io/v1): devices that drivers offer in slices, claims on them, classes of devices.

Only structured parameters: what a scheduler needs to give devices to claims itself. Quantities are as they stand in
JSON. Opaque configuration of drivers is carried as it is and never looked into.
"""

from typing import Final

import msgspec

from koord.kube.meta import TypedObject, View
from koord.kube.pods import NodeSelector

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""On a claim that has devices: it is not removed before they are free."""
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that was made of a template: the name of the pod's entry it is for."""

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
MOST_CONSUMERS: Final = 256
"""How many pods may use one claim at a time."""
MOST_RESULTS: Final = 32
"""How many devices one claim may have."""

Amount = str | int | float


class DeviceAttribute(View, frozen=True):
    """What a device says of itself; exactly one field is set."""

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)


class CapacityRange(View, frozen=True):
    """Amounts that may be asked for: from ``min`` to ``max`` by ``step``."""

    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class CapacityPolicy(View, frozen=True):
    """What may be asked for of a capacity, and what counts if nothing is."""

    default: Amount | None = None
    valid_values: list[Amount] = []
    valid_range: CapacityRange | None = None


class DeviceCapacity(View, frozen=True):
    """How much of something a device has."""

    value: Amount = 0
    request_policy: CapacityPolicy | None = None


class Counter(View, frozen=True):
    """An amount that devices of one pool share."""

    value: Amount = 0


class CounterSet(View, frozen=True):
    """Amounts by name, of which partitions of one piece of hardware take."""

    name: str = ""
    counters: dict[str, Counter] = {}


class CounterConsumption(View, frozen=True):
    """What a device takes of a counter set while it is given away."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(View, frozen=True):
    """Who does not tolerate it is not given the device (NoSchedule, NoExecute)."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Device(View, frozen=True):
    """One device of a slice. Attributes and capacities are named ``domain/name``, or ``name`` in the driver's domain;
    ``node_name``, ``node_selector`` and ``all_nodes`` count if the slice says ``perDeviceNodeSelection``."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[CounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    binding_conditions: list[str] = []
    allow_multiple_allocations: bool | None = None


class ResourcePool(View, frozen=True):
    """Which pool a slice belongs to; ``resource_slice_count`` slices of one generation are the whole pool."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(View, frozen=True):
    """Devices of a driver and from where they can be reached."""

    driver: str = ""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(TypedObject, frozen=True):
    """A part of a pool of devices, as its driver publishes it."""

    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)


class CELSelector(View, frozen=True):
    """An expression about ``device`` that must be true."""

    expression: str = ""


class DeviceSelector(View, frozen=True):
    """A test of devices; kinds of tests that are not known leave ``cel`` out."""

    cel: CELSelector | None = None


class DeviceToleration(View, frozen=True):
    """A taint that is accepted."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(View, frozen=True):
    """How much of a device's capacities is wanted."""

    requests: dict[str, Amount] = {}


class ExactRequest(View, frozen=True):
    """Devices of one class. ``name`` is that of a sub-request."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceRequest(View, frozen=True):
    """What is asked for: exactly something, or the first of several that is available."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: list[ExactRequest] = []


class DeviceConstraint(View, frozen=True):
    """All devices of the requests (of all, if none is named) have one value of an attribute, or all different ones."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueConfiguration(View, frozen=True):
    """Configuration for a driver, which alone understands it."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class DeviceConfiguration(View, frozen=True):
    """Configuration of the devices of some requests; of all, if none is named."""

    requests: list[str] = []
    opaque: OpaqueConfiguration | None = None


class DeviceClaim(View, frozen=True):
    """What a claim asks for."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceConfiguration] = []


class ResourceClaimSpec(View, frozen=True):
    """What a claim asks for; never changes."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class DeviceResult(View, frozen=True):
    """One device that a claim has. ``request``: ``name`` or ``name/sub-request``."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Amount] = {}

    @property
    def id(self) -> tuple[str, str, str]:
        """Driver, pool and name: which device it is."""
        return self.driver, self.pool, self.device


class DeviceResults(View, frozen=True):
    """All devices that a claim has."""

    results: list[DeviceResult] = []


class AllocationResult(View, frozen=True):
    """What a claim was given, and from which nodes it can be used (None: from all)."""

    devices: DeviceResults = msgspec.field(default_factory=DeviceResults)
    node_selector: NodeSelector | None = None


class Consumer(View, frozen=True):
    """Who may use a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(View, frozen=True):
    """What became of a claim."""

    allocation: AllocationResult | None = None
    reserved_for: list[Consumer] = []


class ResourceClaim(TypedObject, frozen=True):
    """A wish for devices, and the handle by which pods use them."""

    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = msgspec.field(default_factory=ResourceClaimStatus)


class DeviceClassSpec(View, frozen=True):
    """Which devices are of the class, and their configuration."""

    selectors: list[DeviceSelector] = []
    config: list[DeviceConfiguration] = []


class DeviceClass(TypedObject, frozen=True):
    """A kind of devices that claims ask for by name."""

    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)
