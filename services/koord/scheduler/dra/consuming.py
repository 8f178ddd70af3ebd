"""How much of a device's capacities a request takes: of devices that several claims share a part, of others all.

What is asked for is rounded up to what the device's policy allows; of a capacity that nothing is asked of, the policy's
default is taken, or all of it. A request that names a capacity which the device does not have, or wants more than there
is, is not for this device.
"""

from collections.abc import Mapping

import msgspec

from koord.kube.dynamicresources import Amount, DeviceCapacity
from koord.kube.quantity import Quantity, parse

CapacityName = tuple[str, str]
"""Domain and name."""


class Portion(msgspec.Struct, frozen=True):
    """An amount: whole nanos, and how it is written."""

    nanos: int
    text: str


class Limit(msgspec.Struct, frozen=True):
    """One capacity of a device. ``key``: its name as the slice has it; amounts of the policy in nanos."""

    key: str
    total: Portion
    default: Portion | None = None
    values: tuple[Portion, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None

    def portion(self, asked: Portion | None) -> Portion | None:
        """What is taken; None: the policy does not allow it, or there is not as much."""
        taken = self._rounded(asked)
        if taken.nanos > self.total.nanos or not self._allowed(taken):
            return None
        return taken

    def _rounded(self, asked: Portion | None) -> Portion:
        if asked is None:
            return self.default if self.default is not None else self.total
        if self.least is not None:
            if asked.nanos < self.least:
                return _portion(self.least)
            if self.step:
                return _stepped(asked, self.least, self.step)
        elif self.values:
            return next((value for value in self.values if asked.nanos <= value.nanos), asked)
        return asked

    def _allowed(self, taken: Portion) -> bool:
        if self.default is not None and taken.nanos == self.default.nanos:
            return True
        if self.least is not None or self.most is not None:
            return self.most is None or taken.nanos <= self.most
        return not self.values or any(taken.nanos == value.nanos for value in self.values)


def limit(key: str, capacity: DeviceCapacity) -> Limit:
    """The limit of a capacity; QuantityError: one of its amounts is none."""
    policy = capacity.request_policy
    total = portion_of(capacity.value)
    if policy is None:
        return Limit(key, total)
    range_ = policy.valid_range
    return Limit(
        key,
        total,
        None if policy.default is None else portion_of(policy.default),
        tuple(portion_of(value) for value in policy.valid_values),
        None if range_ is None or range_.min is None else parse(range_.min).nanos,
        None if range_ is None or range_.max is None else parse(range_.max).nanos,
        None if range_ is None or range_.step is None else parse(range_.step).nanos,
    )


def portion_of(amount: Amount) -> Portion:
    """An amount as it stands in JSON; QuantityError: it is none."""
    return Portion(parse(amount).nanos, str(amount))


def portions(
    asked: tuple[tuple[str, Portion], ...], driver: str, limits: Mapping[CapacityName, Limit]
) -> dict[CapacityName, Portion] | None:
    """What of each capacity of a device is taken; None: it cannot serve the request."""
    wanted = {full_name(name, driver): portion for name, portion in asked}
    if not wanted.keys() <= limits.keys():
        return None
    taken: dict[CapacityName, Portion] = {}
    for name, one in limits.items():
        portion = one.portion(wanted.get(name))
        if portion is None:
            return None
        taken[name] = portion
    return taken


def full_name(name: str, driver: str) -> CapacityName:
    """Domain and name of what may be written without its domain, which is the driver's then."""
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)


def _stepped(asked: Portion, least: int, step: int) -> Portion:
    over = (asked.nanos - least) % step
    return asked if not over else _portion(asked.nanos + step - over)


def _portion(nanos: int) -> Portion:
    return Portion(nanos, Quantity(nanos).canonical())
