"""NodeResourcesBalancedAllocation: prefer nodes whose resources are used in equal shares. Spec 10 section 3.15."""

from functools import cached_property
from typing import ClassVar, Self

import msgspec
import numpy as np

from koord.columns.matrix import Bools, Floats
from koord.scheduler.config.upstreamargs import NodeResourcesBalancedAllocationArgs
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.constants import same
from koord.scheduler.engine.resources import CPU, FIRST, MEMORY
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import ScorePlugin, Template, Terms
from koord.scheduler.framework.events import ClusterEvent


class BalancedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resources to keep in balance.

    ``relative``: as Kubernetes 1.36 does, nodes are rated by how much the pod would change their balance.
    """

    resources: tuple[str, ...] = ("cpu", "memory")
    relative: bool = False

    @classmethod
    def of(cls, args: NodeResourcesBalancedAllocationArgs) -> Self:
        """From the plugin's arguments in a KubeSchedulerConfiguration, checked and completed."""
        return cls(tuple(resource.name for resource in args.resources), args.relative)


class BalancedTerms(msgspec.Struct, frozen=True, dict=True):
    """Number and requested amount of each resource that counts."""

    parts: tuple[tuple[int, float], ...]

    @cached_property
    def natives(self) -> Floats | None:
        """What is added to cpu and memory as a column; None if other resources count."""
        if [number for number, _ in self.parts] != [CPU, MEMORY]:
            return None
        return np.array([[amount] for _, amount in self.parts])


class NodeResourcesBalancedAllocation(ScorePlugin):
    """100 less the standard deviation of the used fractions, with real requests (no floor)."""

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    events: ClassVar[frozenset[ClusterEvent]] = frozenset()

    def __init__(self, settings: BalancedSettings | None = None) -> None:
        self.settings = settings or BalancedSettings()

    def score_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        """None if the pod requests none of the resources."""
        names = [name for name in self.settings.resources if name in ("cpu", "memory") or template.request.get(name, 0)]
        if not any(template.request.get(name, 0) for name in names):
            return None
        # What no node offers has no number, and is in no balance.
        numbers = [number for name in names if (number := cluster.resources.find(name)) is not None]
        vector = template.footprint.vector
        amounts = [float(vector[FIRST + n]) if FIRST + n < len(vector) else 0.0 for n in numbers]
        return BalancedTerms(tuple(zip(numbers, amounts, strict=True)))

    def score(self, terms: Terms, window: Window) -> Floats:
        """Balance with the pod; relative: floor(50 + (50 + balance with − balance without)/2)."""
        assert isinstance(terms, BalancedTerms)
        if terms.natives is not None and not self.settings.relative:
            both = window.natives(nonzero=False)
            if both is not None:
                return _of_two(*both, terms.natives)
        balance = _balance(terms.parts, window)
        if not self.settings.relative:
            return balance
        balance -= _balance(tuple((number, 0.0) for number, _ in terms.parts), window)
        return np.floor(50.0 + (50.0 + balance) / 2.0)


def _of_two(free: Floats, capacity: Floats, added: Floats) -> Floats:
    """As :func:`_balance` does it for two resources that every node has, on both at once."""
    used = capacity - free
    used += added
    used /= capacity
    np.minimum(used, same(1.0, used.shape[1]), out=used)
    deviation: Floats = used[0]
    deviation -= used[1]
    np.abs(deviation, out=deviation)
    deviation *= 0.5
    np.subtract(1.0, deviation, out=deviation)
    deviation *= 100.0
    return np.trunc(deviation, out=deviation)


def _balance(parts: tuple[tuple[int, float], ...], window: Window) -> Floats:
    """trunc((1 − std)·100) of the used fractions; one resource: std 0; two: half their distance; more: the
    population's."""
    fractions: list[Floats] = []
    lacking: list[Bools] = []
    some_lack = False
    for number, added in parts:
        capacity = window.allocated(number)
        used = capacity - window.free(number)
        used += added
        if capacity.size and capacity.min() <= 0.0:
            lack: Bools = capacity <= 0.0
            some_lack = True
            used = np.divide(used, capacity, out=np.zeros(window.size), where=~lack)
        else:
            lack = np.zeros(0, dtype=np.bool_)
            used /= capacity
        fractions.append(np.minimum(used, 1.0, out=used))
        lacking.append(lack)
    if some_lack:
        deviation = _deviation_where(fractions, [lack if len(lack) else None for lack in lacking], window.size)
    elif len(fractions) < 2:
        return np.full(window.size, 100.0)
    elif len(fractions) == 2:
        deviation = np.subtract(fractions[0], fractions[1], out=fractions[0])
        np.abs(deviation, out=deviation)
        deviation /= 2.0
    else:
        stack = np.stack(fractions)
        deviation = np.sqrt(((stack - stack.mean(axis=0)) ** 2).mean(axis=0))
    np.subtract(1.0, deviation, out=deviation)
    deviation *= 100.0
    return np.trunc(deviation, out=deviation)


def _deviation_where(fractions: list[Floats], lacking: list[Bools | None], size: int) -> Floats:
    """The deviation over the resources that each node has."""
    present = np.stack([np.ones(size) if lack is None else (~lack).astype(np.float64) for lack in lacking])
    stack = np.stack(fractions) * present
    count = present.sum(axis=0)
    mean = np.divide(stack.sum(axis=0), count, out=np.zeros(size), where=count > 0)
    squares = ((stack - mean) ** 2 * present).sum(axis=0)
    deviation: Floats = np.sqrt(np.divide(squares, count, out=np.zeros(size), where=count > 0))
    two = count == 2
    if two.any():
        # Upstream takes half the distance for two resources; keep its exact number.
        top = np.where(present > 0, stack, -np.inf).max(axis=0)
        low = np.where(present > 0, stack, np.inf).min(axis=0)
        deviation[two] = (np.abs(top - low) / 2.0)[two]
    return deviation
