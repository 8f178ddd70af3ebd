"""How full a node may be: thresholds of the arguments, overridden by an annotation of the node. Spec 10 section 3.11.

A threshold is a percentage that is compared with a rounded one. As amounts are whole numbers, that amounts to one
number per node and resource: the smallest usage that is too much. It is found here once, so that the filter compares
and does no arithmetic.
"""

from collections.abc import Mapping
from math import ceil, inf
from typing import Final

import msgspec

from koord.kube.protocol.gotext import go_duration
from koord.kube.protocol.nodekeys import decode_value
from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
from koord.scheduler.plugins.loadaware.vectors import Vector

USAGE_THRESHOLDS: Final = "scheduling.koordinator.sh/usage-thresholds"

Aggregate = tuple[str, int]
"""Type and window in nanoseconds; a window of 0 is the longest one that is reported."""


class Thresholds(msgspec.Struct, frozen=True):
    """Percentages by resource. ``aggregate`` None: ``usage`` holds, of the last report; else ``aggregated`` holds, of
    that aggregate, and ``usage`` is not looked at."""

    usage: Mapping[str, int]
    prod: Mapping[str, int]
    aggregated: Mapping[str, int] = {}
    aggregate: Aggregate | None = None

    @property
    def node(self) -> Mapping[str, int]:
        """The thresholds of the whole node."""
        return self.usage if self.aggregate is None else self.aggregated


class _Aggregated(msgspec.Struct, rename="camel"):
    usage_thresholds: dict[str, int] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = ""


class _Own(msgspec.Struct, rename="camel"):
    usage_thresholds: dict[str, int] = {}
    prod_usage_thresholds: dict[str, int] = {}
    aggregated_usage: _Aggregated | None = None


def of_args(args: LoadAwareSchedulingArgs) -> Thresholds:
    """What holds for nodes that say nothing."""
    aggregated = args.aggregated
    if aggregated is None or not aggregated.usage_thresholds or not aggregated.usage_aggregation_type:
        return Thresholds(args.usage_thresholds, args.prod_usage_thresholds)
    aggregate = (aggregated.usage_aggregation_type, round(aggregated.usage_aggregated_duration * 10**9))
    return Thresholds(args.usage_thresholds, args.prod_usage_thresholds, aggregated.usage_thresholds, aggregate)


def of_node(default: Thresholds, text: str) -> Thresholds:
    """``default`` with the sections that a node's annotation fills. ValueError names the annotation and the rule."""
    own = decode_value(USAGE_THRESHOLDS, text, _Own)
    aggregated, aggregate = default.aggregated, default.aggregate
    given = own.aggregated_usage
    if given is not None and given.usage_thresholds and given.usage_aggregation_type:
        try:
            window = go_duration(given.usage_aggregated_duration or "0")
        except ValueError as error:
            raise ValueError(f"{USAGE_THRESHOLDS}: aggregatedUsage.usageAggregatedDuration: {error}") from None
        aggregated, aggregate = given.usage_thresholds, (given.usage_aggregation_type, window)
    return Thresholds(
        own.usage_thresholds or default.usage, own.prod_usage_thresholds or default.prod, aggregated, aggregate
    )


def limits(percents: Mapping[str, int], capacity: Vector, names: tuple[str, ...]) -> Vector | None:
    """The smallest usage of each resource that is too much; inf: any is fine. None: nothing is checked at all."""
    if not any(percents.get(name, 0) for name in names):
        return None
    return [_too_much(room, percents.get(name, 0)) for name, room in zip(names, capacity, strict=True)]


def _too_much(capacity: float, percent: int) -> float:
    """The smallest whole number whose rounded percentage of ``capacity`` is above ``percent``.

    Rounded is half away from zero in 64-bit floats, as in the original, whose answer near a half is kept that way.
    """
    if percent <= 0 or capacity <= 0:
        return inf
    least = percent + 0.5
    found = float(ceil(capacity * least / 100.0))
    while (found - 1) / capacity * 100.0 >= least:
        found -= 1
    while found / capacity * 100.0 < least:
        found += 1
    return found
