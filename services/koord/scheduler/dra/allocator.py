"""Gives devices to claims: all that a pod's claims ask for, or nothing. Pure; one view of devices at a time.

The first solution counts: requests in their order, of a list the first that can be had, devices in the order of pools
and slices. What was tried in vain is taken back. Devices that are alike to all that is asked for are tried once, and
there is an end to trying: claims that need more than :data:`MOST_STEPS` steps on a node are refused there.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from koord.kube.dynamicresources import MOST_RESULTS
from koord.scheduler.dra.consuming import CapacityName, Portion, portions
from koord.scheduler.dra.demand import Ask, Constraint, Demand, tolerates
from koord.scheduler.dra.devices import CounterName, Device, DeviceId, Value
from koord.scheduler.dra.matching import Matcher
from koord.scheduler.dra.pools import Failure, Group, PoolId

MOST_STEPS = 10_000
FIRST_AVAILABLE_MOST = 8
"""How many sub-requests a request may list; each that is not needed counts as much as one point of preference."""
IN_VAIN = "timed out trying to allocate devices"


class AllocationError(ValueError):
    """Why nothing can be given here at all. ``claim``: the index of the claim that is at fault, None: a class is."""

    def __init__(self, text: str, claim: int | None) -> None:
        super().__init__(text)
        self.claim = claim


class Chosen(msgspec.Struct, frozen=True):
    """One device for one request; ``group`` says who reaches it."""

    ask: Ask
    device: Device
    group: Group
    portions: Mapping[CapacityName, Portion] | None = None
    """Of a device that several claims share: what this one takes."""


class Given(msgspec.Struct, frozen=True):
    """What one claim gets: devices, and for each of its requests which of the alternatives."""

    devices: tuple[Chosen, ...]
    picks: tuple[int, ...]


def allocate(demands: Sequence[Demand], view: Sequence[Group], matcher: Matcher) -> tuple[Given, ...] | None:
    """What the claims get of the devices in ``view``, in the order of ``demands``; None: they cannot all be had.

    AllocationError: which devices there are cannot be told.
    """
    return _Search(demands, view, matcher).run()


def preference(demands: Sequence[Demand], given: Sequence[Given]) -> int:
    """How far up in lists of alternatives what was given stands: upstream's score, before it is normalised."""
    return sum(
        FIRST_AVAILABLE_MOST - pick
        for demand, each in zip(demands, given, strict=True)
        for wish, pick in zip(demand.wishes, each.picks, strict=True)
        if wish.listed
    )


class _Tried(msgspec.Struct):
    """A constraint, and the values of the devices chosen so far."""

    rule: Constraint
    values: Counter[Value]

    def allows(self, device: Device) -> bool:
        value = device.attribute(self.rule.attribute)
        if value is None:
            return False
        if self.rule.distinct:
            return value not in self.values
        return not self.values or value in self.values


class _Search:
    def __init__(self, demands: Sequence[Demand], view: Sequence[Group], matcher: Matcher) -> None:
        self._demands = demands
        self._steps = 0
        self._usable: dict[tuple[int, int, int], list[tuple[Device, Group]]] = {}
        self._constraints = [[_Tried(rule, Counter()) for rule in demand.constraints] for demand in demands]
        self._chosen: list[list[Chosen]] = [[] for _ in demands]
        self._picks: list[list[int]] = [[0] * len(demand.wishes) for demand in demands]
        self._taken: dict[DeviceId, set[int]] = {}
        self._shares: dict[DeviceId, Counter[CapacityName]] = {}
        self._shared_by: Counter[DeviceId] = Counter()
        self._left: dict[PoolId, dict[CounterName, int]] = {}
        self._kinds: dict[DeviceId, Hashable] = {}
        self._able: dict[DeviceId, list[tuple[int, int, int]]] = {}
        for claim, demand in enumerate(demands):
            for wish, each in enumerate(demand.wishes):
                for pick, ask in enumerate(each.asks):
                    self._usable[claim, wish, pick] = self._candidates(claim, ask, view, matcher)
        for key, found in self._usable.items():
            for device, _ in found:
                self._able.setdefault(device.id, []).append(key)

    def _candidates(self, claim: int, ask: Ask, view: Sequence[Group], matcher: Matcher) -> list[tuple[Device, Group]]:
        """Devices that the request could have if nobody else asked. Of all or nothing: none if one cannot be had."""
        found: list[tuple[Device, Group]] = []
        for group in view:
            if group.pool.problem:
                if ask.all:
                    raise AllocationError(f"request {ask.name}: asks for all devices, but {group.pool.problem}", claim)
                continue
            matching = matcher.matching(group, ask)
            if isinstance(matching, Failure):
                raise AllocationError(matching.text, None if matching.of_class else claim)
            for device in matching:
                if (not ask.admin and not self._free(ask, device, group)) or not all(
                    tolerates(ask.tolerations, taint) for taint in device.taints
                ):
                    if ask.all:
                        return []
                    continue
                found.append((device, group))
        return found

    def _free(self, ask: Ask, device: Device, group: Group) -> bool:
        """Whether nobody has the device, or enough of what several claims share is left."""
        name = device.id[2]
        if name in group.pool.used:
            return False
        if not device.multiple:
            return name not in group.pool.shared
        return self._portions(ask, device, group) is not None

    def _portions(self, ask: Ask, device: Device, group: Group) -> dict[CapacityName, Portion] | None:
        """What the request would take of a device that is shared; None: that is not left."""
        taken = portions(ask.capacity, device.driver, device.limits)
        if taken is None:
            return None
        others, own = group.pool.shared.get(device.id[2]), self._shares.get(device.id)
        for name, portion in taken.items():
            left = device.limits[name].total.nanos
            left -= (others[name] if others else 0) + (own[name] if own else 0)
            if portion.nanos > left:
                return None
        return taken

    def run(self) -> tuple[Given, ...] | None:
        if not self._claim(0):
            return None
        return tuple(
            Given(tuple(chosen), tuple(picks)) for chosen, picks in zip(self._chosen, self._picks, strict=True)
        )

    def _claim(self, claim: int) -> bool:
        return claim == len(self._demands) or self._wish(claim, 0)

    def _wish(self, claim: int, wish: int) -> bool:
        wishes = self._demands[claim].wishes
        if wish == len(wishes):
            return self._claim(claim + 1)
        for pick, ask in enumerate(wishes[wish].asks):
            usable = self._usable[claim, wish, pick]
            count = len(usable) if ask.all else ask.count
            enough = count <= len(usable) or any(device.multiple for device, _ in usable)
            if not count or not enough or len(self._chosen[claim]) + count > MOST_RESULTS:
                continue
            self._picks[claim][wish] = pick
            if self._pick(claim, wish, ask, usable, count, 0):
                return True
        return False

    def _pick(
        self, claim: int, wish: int, ask: Ask, usable: list[tuple[Device, Group]], count: int, start: int
    ) -> bool:
        """``count`` more devices from ``start`` on: their order does not matter, so only ascending ones are tried."""
        if not count:
            return self._wish(claim, wish + 1)
        failed: set[Hashable] = set()
        again = not ask.all and any(device.multiple for device, _ in usable)
        for index in range(start, len(usable) if again else len(usable) - count + 1):
            device, group = usable[index]
            if failed and self._kind(device) in failed:
                continue
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise AllocationError(IN_VAIN, claim)
            if self._take(claim, ask, device, group):
                more_of_it = device.multiple and not ask.all and not ask.admin
                if self._pick(claim, wish, ask, usable, count - 1, index if more_of_it else index + 1):
                    return True
                self._put_back(claim, ask, device, group)
                failed.add(self._kind(device))
            if ask.all:
                return False  # it needs every one of them
        return False

    def _take(self, claim: int, ask: Ask, device: Device, group: Group) -> bool:
        holders = self._taken.get(device.id)
        shared = device.multiple and not ask.admin
        if not shared and holders and (claim in holders or not ask.admin):
            return False
        taken = self._portions(ask, device, group) if shared else None
        if shared and taken is None:
            return False
        counted = device.counters and not (shared and self._counted_already(device, group))
        if counted:
            pool = group.pool
            left = self._left.get(pool.id)
            if left is None:
                left = self._left[pool.id] = pool.left()
            if any(left.get(counter, 0) < amount for counter, amount in device.counters.items()):
                return False
        concerned = [tried for tried in self._constraints[claim] if tried.rule.concerns(ask)]
        if not all(tried.allows(device) for tried in concerned):
            return False
        for tried in concerned:
            value = device.attribute(tried.rule.attribute)
            assert value is not None, "allowed"
            tried.values[value] += 1
        for counter, amount in device.counters.items() if counted else ():
            self._left[group.pool.id][counter] -= amount
        if taken is not None:
            own = self._shares.setdefault(device.id, Counter())
            own.update({name: portion.nanos for name, portion in taken.items()})
            self._shared_by[device.id] += 1
        else:
            self._taken.setdefault(device.id, set()).add(claim)
        self._chosen[claim].append(Chosen(ask, device, group, taken))
        return True

    def _counted_already(self, device: Device, group: Group) -> bool:
        """Whether the counters of a shared device are taken, which happens once however many share it."""
        return self._shared_by[device.id] > 0 or device.id[2] in group.pool.shared

    def _put_back(self, claim: int, ask: Ask, device: Device, group: Group) -> None:
        given = self._chosen[claim].pop()
        if given.portions is not None:
            own = self._shares[device.id]
            own.subtract({name: portion.nanos for name, portion in given.portions.items()})
            self._shared_by[device.id] -= 1
            counted = not self._counted_already(device, group)
        else:
            self._taken[device.id].discard(claim)
            counted = True
        for counter, amount in device.counters.items() if counted else ():
            self._left[group.pool.id][counter] += amount
        for tried in self._constraints[claim]:
            if tried.rule.concerns(ask):
                value = device.attribute(tried.rule.attribute)
                assert value is not None, "allowed"
                tried.values[value] -= 1
                if not tried.values[value]:
                    del tried.values[value]

    def _kind(self, device: Device) -> Hashable:
        """Equal for devices that are alike to all that is asked for: where one fails, so does the other.

        Devices that some request of this pod has already are a kind of their own each.
        """
        if device.multiple:
            return device.id
        found = self._kinds.get(device.id)
        if found is None:
            values = tuple(device.attribute(tried.rule.attribute) for each in self._constraints for tried in each)
            counters = (device.id[:2], tuple(sorted(device.counters.items()))) if device.counters else ()
            found = self._kinds[device.id] = (tuple(self._able.get(device.id, ())), values, counters)
        return (found, frozenset(self._taken.get(device.id) or ()))
