"""Rules that several arguments share, with upstream's messages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from koord.scheduler.config.decoding import Int32, Int64
from koord.scheduler.config.errors import Problem, duplicate, invalid, required, unsupported

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_PREFIX_RULE = "prefix part must be a lowercase RFC 1123 subdomain of at most 253 characters"

MOST_WEIGHT = 100


class ResourceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A resource that counts in a score. A weight of 0, or none, means 1 where upstream says so."""

    name: str = ""
    weight: Int64 = 0


class ShapePoint(msgspec.Struct, frozen=True, rename="camel"):
    """At so many percent of utilization so many points, 0..10."""

    utilization: Int32 = 0
    score: Int32 = 0


NATIVE_TWO = (ResourceSpec("cpu", 1), ResourceSpec("memory", 1))
AggregationType = Literal["", "avg", "p50", "p90", "p95", "p99"]


def weighted(resources: Sequence[ResourceSpec], default: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
    """``default`` for an empty list; weight 0 becomes 1."""
    if not resources:
        return default
    return tuple(ResourceSpec(resource.name, resource.weight or 1) for resource in resources)


def check_resources(path: str, resources: Sequence[ResourceSpec]) -> Iterator[Problem]:
    """Weights are in (0, 100]."""
    for index, resource in enumerate(resources):
        if not 0 < resource.weight <= MOST_WEIGHT:
            rule = f"resource weight of {resource.name} not in valid range (0, 100]"
            yield invalid(f"{path}[{index}].weight", resource.weight, rule)


def check_shape(path: str, shape: Sequence[ShapePoint]) -> Iterator[Problem]:
    """At least one point, utilization rising, everything in its range."""
    if not shape:
        yield required(path, "at least one point must be specified")
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            rule = "values must be sorted in increasing order"
            yield invalid(f"{path}[{index}].utilization", shape[index].utilization, rule)
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            yield invalid(f"{path}[{index}].utilization", point.utilization, "not in valid range [0, 100]")
        if not 0 <= point.score <= 10:
            yield invalid(f"{path}[{index}].score", point.score, "not in valid range [0, 10]")


def check_qualified_name(path: str, name: str) -> Iterator[Problem]:
    """A label key or resource name: ``name`` or ``domain/name``."""
    prefix, slash, last = name.rpartition("/")
    if "/" in prefix:
        yield invalid(
            path, name, "a qualified name " + _NAME_RULE.removeprefix("name part ") + " with an optional prefix"
        )
        return
    if slash and not (0 < len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix)):
        yield invalid(path, name, _PREFIX_RULE)
    if not last:
        yield invalid(path, name, "name part must be non-empty")
    elif len(last) > 63:
        yield invalid(path, name, "name part must be no more than 63 characters")
    if not _NAME.fullmatch(last):
        yield invalid(path, name, _NAME_RULE)


def is_extended(name: str) -> bool:
    """Whether a resource is an extended one: with a domain that is not Kubernetes' own."""
    domain = name.rpartition("/")[0]
    native = not domain or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return not native and not name.startswith("requests.")


def check_percents(path: str, values: Mapping[str, int], what: str, *, lowest: int) -> Iterator[Problem]:
    """Every value in lowest..100: ``WHAT of X should be a positive value, got N`` / ``should be less than 100``."""
    for name, value in values.items():
        if value < lowest:
            yield invalid(path, dict(values), f"{what} of {name} should be a positive value, got {value}")
        elif value > 100:
            yield invalid(path, dict(values), f"{what} of {name} should be less than 100, got {value}")


def check_aggregation(path: str, type_: str) -> Iterator[Problem]:
    """One of the five aggregations, or none."""
    known = get_args(AggregationType)
    if type_ not in known:
        yield unsupported(path, type_, known[1:])


def check_once(path: str, names: Sequence[str]) -> Iterator[Problem]:
    """No name twice; ``path`` has a place for the index: ``resources[{}].name``."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield duplicate(path.format(index), name)
