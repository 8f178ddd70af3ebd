"""What a pod asks for: one function for scheduler, queue, quota and ledger (spec 10 section 3.15, 70 section 3.3).

Amounts are plain integers: cpu in milli-cores, every other resource in whole base units (bytes, pieces). Sums are made
exactly and rounded up once at the end, as Kubernetes does.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from koord.kube.meta import ResourceList
from koord.kube.pods import Container, PodSpec, ResourceRequirements
from koord.kube.quantity import NANO, Format, Quantity, QuantityError, nano

CPU: Final = "cpu"
MEMORY: Final = "memory"

FLOOR_CPU_MILLI: Final = 100
FLOOR_MEMORY: Final = 200 << 20
"""What the scores assume of a container that says nothing about cpu or memory."""

_MILLI: Final = NANO // 1000
_BINARY: Final = ("memory", "ephemeral-storage", "storage")
_FLOORS: Final = {CPU: FLOOR_CPU_MILLI * _MILLI, MEMORY: FLOOR_MEMORY * NANO}
_NONE: Final[Mapping[str, int]] = {}


class RequestError(QuantityError):
    """An impossible amount; says which field (with the container's name) and which rule."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


def pod_request(spec: PodSpec) -> dict[str, int]:
    """What the pod asks for, by resource; resources it asks nothing of may be there with 0.

    ``max(containers + sidecars, max over init containers (it + sidecars before it)) + overhead``, per resource; a
    container's limit stands in for a missing request; pod-level resources, where set, replace cpu, memory and
    huge pages. RequestError names what is wrong.
    """
    return _whole(_pod_nanos(spec, _NONE))


def nonzero_request(spec: PodSpec) -> tuple[int, int]:
    """Cpu (milli) and memory (bytes) for scoring: containers lacking one count 100m and 200Mi; an explicit 0 stays."""
    total = _whole(_pod_nanos(spec, _FLOORS))
    return total.get(CPU, 0), total.get(MEMORY, 0)


def pod_limits(spec: PodSpec) -> dict[str, int]:
    """What the pod is held to, by resource: added up as in :func:`pod_request`, of the containers that have a limit.

    Overhead is added where there is a limit. RequestError names what is wrong.
    """
    total: dict[str, int] = {}
    for container in spec.containers:
        _sum(total, _limits_of(container, "containers"))
    if spec.init_containers:
        _raise_to_init(
            total,
            ((_limits_of(init, "initContainers"), init.restart_policy == "Always") for init in spec.init_containers),
        )
    if spec.resources is not None:
        total.update(_pod_level_ones(_nanos(spec.resources.limits, "spec.resources.limits")))
    if spec.overhead:
        overhead = _nanos(spec.overhead, "spec.overhead")
        _sum(total, {name: amount for name, amount in overhead.items() if name in total})
    return _whole(total)


def amounts(resources: Mapping[str, str | int | float], field: str = "") -> dict[str, int]:
    """A ResourceList as integers; QuantityError names ``field``, the resource and the rule."""
    return _whole(_nanos(resources, field))


def resource_list(values: Mapping[str, int]) -> dict[str, str]:
    """Integers as a ResourceList in canonical form, sorted by name; memory and storage with binary suffixes."""
    return {name: quantity(name, amount).canonical() for name, amount in sorted(values.items())}


def quantity(name: str, amount: int) -> Quantity:
    """One amount of resource ``name`` as a quantity."""
    if name == CPU:
        return Quantity(amount * _MILLI)
    binary = name in _BINARY or name.startswith("hugepages-") or name.endswith("-memory")
    return Quantity(amount * NANO, Format.BINARY_SI if binary else Format.DECIMAL_SI)


def format_amounts(values: Mapping[str, int]) -> str:
    """For people: ``cpu=2, memory=4Gi``, sorted by name; ``nothing`` when empty."""
    return ", ".join(f"{name}={text}" for name, text in resource_list(values).items()) or "nothing"


def add(total: dict[str, int], other: Mapping[str, int], times: int = 1) -> None:
    """Add ``times`` ``other`` to ``total``, in place."""
    for name, amount in other.items():
        total[name] = total.get(name, 0) + amount * times


def _pod_nanos(spec: PodSpec, floors: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in spec.containers:
        _sum(total, _container(container, floors, "containers"))
    if spec.init_containers:
        _raise_to_init(
            total,
            (
                (_container(init, floors, "initContainers"), init.restart_policy == "Always")
                for init in spec.init_containers
            ),
        )
    if spec.resources is not None:
        _pod_level(total, spec.resources)
    if spec.overhead:
        _sum(total, _nanos(spec.overhead, "spec.overhead"))
    return total


def _sum(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to_init(total: dict[str, int], init: Iterable[tuple[dict[str, int], bool]]) -> None:
    """Raise ``total``, the sum of the app containers, to what the init phase needs, sidecars added to both.

    ``init``: amounts of each init container in order, and whether it is a sidecar.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for request, sidecar in init:
        if sidecar:
            _sum(sidecars, request)
            _sum(total, request)
            request = sidecars
        elif sidecars:
            request = {name: request.get(name, 0) + sidecars.get(name, 0) for name in request.keys() | sidecars.keys()}
        for name, amount in request.items():
            if amount > peak.get(name, 0):
                peak[name] = amount
    for name, amount in peak.items():
        if amount > total.get(name, 0):
            total[name] = amount


def _pod_level(total: dict[str, int], resources: ResourceRequirements) -> None:
    requests = _nanos(resources.requests, "spec.resources.requests")
    for name, amount in _nanos(resources.limits, "spec.resources.limits").items():
        if name not in requests and name not in total:
            requests[name] = amount
    total.update(_pod_level_ones(requests))


def _pod_level_ones(found: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in found.items() if name in (CPU, MEMORY) or name.startswith("hugepages-")}


def _limits_of(container: Container, field: str) -> dict[str, int]:
    try:
        return _nanos(container.resources.limits, "limits")
    except RequestError as error:
        raise RequestError(f"spec.{field}[{container.name}].resources.{error.field}", error.rule) from None


def _container(container: Container, floors: Mapping[str, int], field: str) -> dict[str, int]:
    resources = container.resources
    try:
        request = _nanos(resources.requests, "requests")
        if resources.limits:
            for name, amount in _nanos(resources.limits, "limits").items():
                if name not in request:
                    request[name] = amount
    except RequestError as error:
        raise RequestError(f"spec.{field}[{container.name}].resources.{error.field}", error.rule) from None
    for name, amount in floors.items():
        if name not in request:
            request[name] = amount
    return request


def _nanos(resources: ResourceList | Mapping[str, str | int | float], field: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, text in resources.items():
        try:
            amount = nano(text)
        except QuantityError as error:
            raise RequestError(_entry(field, name), str(error)) from None
        if amount < 0:
            raise RequestError(_entry(field, name), f'quantity "{text}": must not be negative')
        found[name] = amount
    return found


def _entry(field: str, name: str) -> str:
    return f"{field}[{name}]" if field else name


def _whole(nanos: Mapping[str, int]) -> dict[str, int]:
    return {name: -(-amount // (_MILLI if name == CPU else NANO)) for name, amount in nanos.items()}
