"""NodeNUMAResource on one node, straight from spec 10 section 3.12: every set of NUMA nodes, every combination of
hints, CPUs by lists. Slow on purpose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, product
from math import ceil, floor

from koord.kube.protocol.cputopology import CPU
from tests.scheduler.numa.slowtake import Slow

NOT_ENOUGH = "not enough cpus available to satisfy request"
Hint = tuple[int | None, bool, int]
"""Set (None: any), preferred, score."""


@dataclass
class Pod:
    """What a pod has: CPUs, the level it wants for itself, and amounts of NUMA nodes by id."""

    cpus: set[int]
    exclusive: str
    zones: Mapping[int, Mapping[str, int]]


@dataclass
class Machine:
    """``zones`` by id: what can be had of each (amplified); ``reserved``: CPUs that nobody gets."""

    cpus: Sequence[CPU]
    zones: Mapping[int, Mapping[str, int]]
    pods: Sequence[Pod]
    reserved: set[int] = field(default_factory=set)
    ratio: Fraction = Fraction(1)

    def ids(self, zone: int) -> set[int]:
        """The CPUs of a NUMA node."""
        return {cpu.id for cpu in self.cpus if cpu.node == zone}

    @property
    def free(self) -> set[int]:
        """CPUs that nobody has."""
        return {cpu.id for cpu in self.cpus} - self.reserved - {cpu for pod in self.pods for cpu in pod.cpus}

    def used(self, zone: int, name: str) -> int:
        """What pods have of a NUMA node; of cpu CPUs of one's own cost the ratio."""
        total = sum(pod.zones.get(zone, {}).get(name, 0) for pod in self.pods)
        if name == "cpu":
            bound = 1000 * len(self.ids(zone) & {cpu for pod in self.pods for cpu in pod.cpus})
            if total >= bound > 0:
                total += ceil(bound * self.ratio) - bound
        return total

    def left(self, zone: int, name: str) -> int:
        """What is left of a NUMA node."""
        return max(0, self.zones[zone].get(name, 0) - self.used(zone, name))


@dataclass
class Wish:
    """What a pod wants: ``bind`` is a binding policy ("": no CPUs of its own), ``policy`` how it is aligned."""

    request: Mapping[str, int]
    bind: str = ""
    required: bool = False
    exclusive: str = ""
    policy: str = ""
    alone: bool = False
    most: bool = False
    weights: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    zones_most: bool = False
    burst: int = 0
    burst_required: bool = False


Answer = str | tuple[set[int], dict[int, dict[str, int]]]


def usable(machine: Machine, wish: Wish) -> set[int]:
    """Free CPUs that a required policy can use."""
    free = machine.free
    if not wish.required:
        return free
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in machine.cpus:
        cores.setdefault((cpu.socket, cpu.core), []).append(cpu.id)
    if wish.bind == "FullPCPUs":
        return {cpu for core in cores.values() if free.issuperset(core) for cpu in core}
    return {min(free & set(core)) for core in cores.values() if free & set(core)}


def _cores(machine: Machine) -> set[tuple[int, int]]:
    return {(cpu.socket, cpu.core) for cpu in machine.cpus}


def per_core(machine: Machine) -> int:
    """CPUs of a core."""
    return len(machine.cpus) // len(_cores(machine))


def room(machine: Machine, wish: Wish, zone: int, name: str) -> int:
    """How much of a resource a NUMA node has for the pod, in the terms of its allocatable."""
    left = machine.left(zone, name)
    if name == "cpu" and wish.bind:
        there = len(usable(machine, wish) & machine.ids(zone))
        left = min(left, ceil(1000 * there * machine.ratio))
    return left


def step(machine: Machine, wish: Wish, name: str) -> int:
    """What of a resource cannot be divided."""
    if name != "cpu" or not wish.bind:
        return 1
    return 1000 * (per_core(machine) if wish.required and wish.bind == "FullPCPUs" else 1)


def split(machine: Machine, wish: Wish, zones: Sequence[int]) -> dict[int, dict[str, int]] | str:
    """What the pod takes of each; the text if they have too little of something."""
    shares: dict[int, dict[str, int]] = {}
    for name in sorted(wish.request):
        if not any(name in listed for listed in machine.zones.values()):
            continue
        unit = step(machine, wish, name)
        cost = unit * (machine.ratio if unit > 1 else 1)
        asked = wish.request[name]
        left = -(-asked // unit)
        order = sorted(zones, key=lambda zone: (room(machine, wish, zone, name), zone))
        last = 0
        for number, zone in enumerate(order):
            share = min(floor(room(machine, wish, zone, name) / cost), left // (len(order) - number))
            if share:
                shares.setdefault(zone, {})[name] = share * unit
                left -= share
                last = zone
        if left:
            return f"Insufficient NUMA {name}"
        if asked % unit:
            shares[last][name] -= unit - asked % unit
    return shares


def score(machine: Machine, wish: Wish, zones: Sequence[int]) -> int:
    """How well the pod suits a set of NUMA nodes."""
    total = weights = 0
    for name, weight in wish.weights.items():
        asked = wish.request.get(name, 0)
        if not asked and name not in ("cpu", "memory"):
            continue
        if name == "cpu" and wish.bind:
            asked = ceil(asked * machine.ratio)
        capacity = sum(machine.zones[zone].get(name, 0) for zone in zones)
        want = sum(machine.used(zone, name) for zone in zones) + asked
        if not capacity:
            continue
        if wish.zones_most:
            points = min(want, capacity) * 100 // capacity
        else:
            points = 0 if want > capacity else (capacity - want) * 100 // capacity
        total += weight * points
        weights += weight
    return total // weights if weights else 0


def hints(machine: Machine, wish: Wish) -> dict[str, list[Hint] | None]:
    """Per resource the sets that hold the whole pod and have some of it everywhere; None: no NUMA node lists it."""
    ids = sorted(machine.zones)
    found: dict[str, list[Hint] | None] = {}
    sets = [chosen for size in range(1, len(ids) + 1) for chosen in combinations(range(len(ids)), size)]
    for name in sorted(wish.request):
        if not any(name in listed for listed in machine.zones.values()):
            found[name] = None
            continue
        listed: list[tuple[int, int, int]] = []
        for chosen in sets:
            zones = [ids[index] for index in chosen]
            if not isinstance(split(machine, wish, zones), str) and all(
                room(machine, wish, zone, name) > 0 for zone in zones
            ):
                listed.append((sum(1 << index for index in chosen), len(chosen), score(machine, wish, zones)))
        least = min((size for _, size, _ in listed), default=0)
        found[name] = [(mask, size == least or wish.policy == "Restricted", points) for mask, size, points in listed]
    return found


def allowed(machine: Machine, mask: int) -> bool:
    """Whether a pod that wants its NUMA nodes alone may have this set."""
    ids = sorted(machine.zones)
    shared = single = 0
    for pod in machine.pods:
        mine = sum(1 << index for index, zone in enumerate(ids) if machine.ids(zone) & pod.cpus or zone in pod.zones)
        if mine.bit_count() > 1:
            shared |= mine
        else:
            single |= mine
    single &= ~shared
    return not mask & single if mask.bit_count() > 1 else not mask & shared


def align(machine: Machine, wish: Wish) -> int | str | None:
    """The topology manager: a set, None for no set at all, or the text why not."""
    everything = (1 << len(machine.zones)) - 1
    wanted = hints(machine, wish)
    unsatisfied = [name for name, listed in wanted.items() if listed == []]
    if wish.policy == "Restricted" and unsatisfied:
        return f"Unsatisfied NUMA {unsatisfied[0]}"
    lists: list[list[Hint]] = []
    for listed in wanted.values():
        some: list[Hint] = [(None, True, 0)] if listed is None else listed or [(everything, False, 0)]
        if wish.policy == "SingleNUMANode":
            some = [one for one in some if one[1] and (one[0] is None or one[0].bit_count() == 1)]
        lists.append(some)
    best, best_preferred, best_score, satisfied = everything, False, 0, True
    for chosen in product(*lists):
        masks = [mask for mask, _, _ in chosen if mask is not None]
        mask = everything
        for one in masks:
            mask &= one
        if not mask:
            continue
        preferred = all(one[1] for one in chosen) and len(set(masks)) <= 1
        # A pod that takes nothing of NUMA nodes has no neighbours there.
        if wish.alone and masks and not allowed(machine, mask):
            preferred = False
        points = sum(one[2] for one in chosen if one[0] == mask)
        size, least = mask.bit_count(), best.bit_count()
        better = size < least or (size == least and (mask < best or points > best_score))
        if preferred and best_preferred:
            # "Fewest zones, then highest score, then lowest mask": sets of four do not come in ascending order, so the
            # rule for one candidate after the other would leave a better score behind.
            better = (size, -points, mask) < (least, -best_score, best)
        if (preferred and not best_preferred) or (preferred == best_preferred and better):
            best, best_preferred, best_score = mask, preferred, points
            satisfied = not unsatisfied and mask.bit_count() >= max((one.bit_count() for one in masks), default=0)
    if wish.policy == "BestEffort":
        return best if satisfied and not (unsatisfied and not best_preferred) else everything
    if not best_preferred:
        parts = []
        for name, listed in wanted.items():
            if listed is not None:
                like = " ".join(f"{mask:02b}" for mask, yes, _ in listed if yes)
                parts.append(f"{name} prefer [{like}] among [{' '.join(f'{mask:02b}' for mask, _, _ in listed)}]")
        joint = "," if wish.policy == "SingleNUMANode" else " & "
        return f"Unaligned NUMA Hint cause {joint.join(sorted(parts))}"
    return None if wish.policy == "SingleNUMANode" and best == everything else best


def give(machine: Machine, wish: Wish, shares: Mapping[int, Mapping[str, int]]) -> set[int] | str:
    """CPUs for the pod, of its NUMA nodes if it has some."""
    need = wish.request["cpu"] // 1000
    free = usable(machine, wish)
    if len(free) < need:
        return NOT_ENOUGH
    by_id = {cpu.id: cpu for cpu in machine.cpus}
    cores, nodes = set(), set()
    for pod in machine.pods:
        for cpu in pod.cpus & by_id.keys():
            if pod.exclusive == "PCPULevel":
                cores.add((by_id[cpu].socket, by_id[cpu].core))
            elif pod.exclusive == "NUMANodeLevel":
                nodes.add(by_id[cpu].node)
    asked = {zone: amounts["cpu"] // 1000 for zone, amounts in shares.items() if "cpu" in amounts}
    given: set[int] = set()
    for zone, count in sorted(asked.items()) if asked else [(None, need)]:
        there = free if zone is None else free & machine.ids(zone)
        count = min(count, len(there))
        taken = Slow(machine.cpus, there, count, wish.exclusive, cores, nodes, wish.most).run(
            full=wish.bind == "FullPCPUs"
        )
        given |= taken or set()
    if len(given) != need:
        return NOT_ENOUGH
    per = [len({cpu for cpu in given if (by_id[cpu].socket, by_id[cpu].core) == core}) for core in _cores(machine)]
    kept = {"FullPCPUs": {0, per_core(machine)}, "SpreadByPCPUs": {0, 1}}[wish.bind].issuperset(per)
    return given if kept or not wish.required else f"insufficient CPUs to satisfy required cpu bind policy {wish.bind}"


def place(machine: Machine, wish: Wish) -> Answer:
    """What the pod gets on the machine, or the text why it gets nothing."""
    shares: dict[int, dict[str, int]] = {}
    if wish.policy:
        if not machine.zones:
            return "node(s) missing NUMA resources"
        mask = align(machine, wish)
        if isinstance(mask, str):
            return mask
        if mask is not None:
            ids = sorted(machine.zones)
            found = split(machine, wish, [zone for index, zone in enumerate(ids) if mask >> index & 1])
            if isinstance(found, str):
                return found
            shares = found
    elif wish.burst and not wish.bind:
        pools = {
            zone: len(machine.free & machine.ids(zone))
            for zone in machine.zones
            if 1000 * len(machine.free & machine.ids(zone)) >= wish.burst
            and machine.left(zone, "cpu") >= wish.request["cpu"]
        }
        if not pools and wish.burst_required:
            return "node(s) no NUMA node whose shared CPUs cover the cpu limit"
        if pools:
            zone = min(pools, key=lambda one: (pools[one] if wish.most else -pools[one], one))
            shares = {zone: {"cpu": wish.request["cpu"]}}
    if not wish.bind:
        return set(), shares
    cpus = give(machine, wish, shares)
    return cpus if isinstance(cpus, str) else (cpus, shares)
