"""What claims ask for, as hashable values: claims of one template are one demand, whatever their names.

A demand names classes; what these say is looked up when devices are matched, so a class that changes changes no demand.
"""

import msgspec

from koord.kube.dynamicresources import ALL, EXACT_COUNT, DeviceSelector, DeviceTaint, ExactRequest, ResourceClaim
from koord.kube.quantity import QuantityError
from koord.scheduler.dra.consuming import Portion, portion_of

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"


class DemandError(ValueError):
    """Why devices cannot be told: names the claim's request and the rule, or the class."""


class Tolerated(msgspec.Struct, frozen=True):
    """A toleration; see :func:`tolerates`."""

    key: str
    operator: str
    value: str
    effect: str


class Ask(msgspec.Struct, frozen=True):
    """Devices of one class: ``count`` of them, or (``count`` is 0) ``all``. ``name``: ``request``, or
    ``request/sub-request``."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int = 1
    all: bool = False
    admin: bool = False
    tolerations: tuple[Tolerated, ...] = ()
    capacity: tuple[tuple[str, Portion], ...] = ()


class Wish(msgspec.Struct, frozen=True):
    """One request: the first of ``asks`` that can be had. ``listed``: it is a list, be it of one."""

    name: str
    asks: tuple[Ask, ...]
    listed: bool = False


class Constraint(msgspec.Struct, frozen=True):
    """Devices of ``requests`` (none: of all) have one value of ``attribute``, or all different ones."""

    attribute: str
    distinct: bool = False
    requests: frozenset[str] = frozenset()

    def concerns(self, ask: Ask) -> bool:
        """Whether devices of the request count."""
        return not self.requests or ask.name in self.requests or ask.name.partition("/")[0] in self.requests


class Demand(msgspec.Struct, frozen=True):
    """All that one claim asks for."""

    wishes: tuple[Wish, ...]
    constraints: tuple[Constraint, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that are named, each once, with the request that names it first."""
        return tuple(dict.fromkeys(ask.device_class for wish in self.wishes for ask in wish.asks))


def demand_of(claim: ResourceClaim) -> Demand:
    """What the claim asks for. DemandError: something that koord does not know, as newer servers may have it."""
    wishes: list[Wish] = []
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            wishes.append(Wish(request.name, (_ask(request.exactly, request.name),)))
        elif request.first_available:
            asks = tuple(_ask(sub, f"{request.name}/{sub.name}") for sub in request.first_available)
            wishes.append(Wish(request.name, asks, listed=True))
        else:
            raise DemandError(f"request {request.name}: unknown request type")
    constraints: list[Constraint] = []
    for constraint in claim.spec.devices.constraints:
        names = frozenset(constraint.requests)
        if constraint.match_attribute is not None:
            constraints.append(Constraint(constraint.match_attribute, False, names))
        elif constraint.distinct_attribute is not None:
            constraints.append(Constraint(constraint.distinct_attribute, True, names))
        else:
            raise DemandError("empty constraint (unsupported constraint type?)")
    return Demand(tuple(wishes), tuple(constraints))


def _ask(request: ExactRequest, name: str) -> Ask:
    if not request.device_class_name:
        raise DemandError(f"request {name}: unsupported request type")
    if request.allocation_mode not in (EXACT_COUNT, ALL):
        raise DemandError(f"request {name}: unsupported count mode {request.allocation_mode}")
    every = request.allocation_mode == ALL
    if not every and request.count < 1:
        raise DemandError(f"request {name}: count {request.count} is not positive")
    return Ask(
        name,
        request.device_class_name,
        expressions(request.selectors, f"request {name}"),
        0 if every else request.count,
        every,
        bool(request.admin_access),
        tuple(Tolerated(each.key, each.operator, each.value, each.effect) for each in request.tolerations),
        _capacity(request, name),
    )


def _capacity(request: ExactRequest, name: str) -> tuple[tuple[str, Portion], ...]:
    if request.capacity is None:
        return ()
    try:
        return tuple(sorted((key, portion_of(amount)) for key, amount in request.capacity.requests.items()))
    except QuantityError as error:
        raise DemandError(f"request {name}: capacity: {error}") from None


def expressions(selectors: list[DeviceSelector], where: str) -> tuple[str, ...]:
    """The expressions of selectors; DemandError names the selector that is none."""
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            raise DemandError(f"{where}: selector #{index}: CEL expression empty (unsupported selector type?)")
    return tuple(selector.cel.expression for selector in selectors if selector.cel is not None)


def tolerates(tolerations: tuple[Tolerated, ...], taint: DeviceTaint) -> bool:
    """Whether a taint keeps nobody off who has these. Effects other than NoSchedule and NoExecute never do."""
    if taint.effect not in (NO_SCHEDULE, NO_EXECUTE):
        return True
    return any(
        (not each.effect or each.effect == taint.effect)
        and (not each.key or each.key == taint.key)
        and (each.operator == "Exists" or (each.operator in ("", "Equal") and each.value == taint.value))
        for each in tolerations
    )
