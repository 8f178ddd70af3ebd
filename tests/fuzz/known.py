"""Bends that surely make an object bad, by rules of their own: what is told of such an object must name the field.

A bend that is not listed may be harmless, and one of several may hide the others, so only objects with one bend count.
Empty text is left out: it often means that nothing is said.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from koord.kube.protocol import gang, queue, quota
from koord.kube.resources import ELASTIC_QUOTAS, JOBS, POD_GROUPS, PODS, PYTORCHJOBS, QUEUES, RAYJOBS, TFJOBS, Resource
from tests.fuzz.bending import Bend, Path, collect, values

IsBad = Callable[[Any], bool]
_INTEGER = re.compile(r"[+-]?[0-9]+")
_QUANTITY = re.compile(r"[+-]?[0-9.]+([eEinumkKMGTP]*[-+]?[0-9]*)")
_DURATION = re.compile(r"[+-]?([0-9.]+(ns|us|µs|μs|ms|s|m|h))+|[+-]?0")


def _no_integer_text(value: Any) -> bool:
    return isinstance(value, str) and not _INTEGER.fullmatch(value)


def _no_count(value: Any) -> bool:
    return isinstance(value, str | bool | list | dict) or (isinstance(value, int) and -(2**31) < value < 0)


def _no_number(value: Any) -> bool:
    return isinstance(value, str | bool | list | dict)


def _no_quantity(value: Any) -> bool:
    return isinstance(value, bool | list | dict) or (isinstance(value, str) and not _QUANTITY.fullmatch(value))


def _no_duration(value: Any) -> bool:
    return isinstance(value, str) and not _DURATION.fullmatch(value)


def _none_of(*allowed: str) -> IsBad:
    return lambda value: isinstance(value, str) and value not in allowed


def _no_json(type_: type) -> IsBad:
    def is_bad(value: Any) -> bool:
        try:
            return isinstance(value, str) and not isinstance(json.loads(value), type_)
        except ValueError:
            return True

    return is_bad


def _label(key: str) -> Path:
    return ("metadata", "labels", key)


def _annotation(key: str) -> Path:
    return ("metadata", "annotations", key)


_OF_JOBS: Mapping[Path, IsBad] = {
    _annotation(queue.PRIORITY): _no_integer_text,
    _annotation(queue.ACTIVE): _none_of(
        "true", "false", "True", "False", "TRUE", "FALSE", "t", "f", "T", "F", "1", "0"
    ),
    _annotation(queue.MAX_EXEC_TIME): _no_integer_text,
}
KNOWN: Mapping[Resource, Mapping[Path, IsBad]] = {
    PODS: {
        _label(gang.POD_GROUP_MIN_AVAILABLE): _no_integer_text,
        _annotation(gang.MODE): _none_of(gang.STRICT, gang.NON_STRICT),
        _annotation(gang.WAITING_TIME): _no_duration,
    },
    ELASTIC_QUOTAS: {
        **{("spec", part, name): _no_quantity for part in ("min", "max") for name in ("cpu", "memory")},
        _annotation(quota.SHARED_WEIGHT): _no_json(dict),
        _annotation(quota.TOTAL_RESOURCE): _no_json(dict),
        _annotation(quota.NAMESPACES): _no_json(list),
        _annotation(queue.MAX_DEPTH): _no_integer_text,
    },
    POD_GROUPS: {
        ("spec", "minMember"): _no_count,
        ("spec", "scheduleTimeoutSeconds"): _no_number,
        _annotation(gang.GROUPS): _no_json(list),
        _annotation(gang.MODE): _none_of(gang.STRICT, gang.NON_STRICT),
        _annotation(gang.MATCH_POLICY): _none_of(*gang.MATCH_POLICIES),
    },
    QUEUES: {
        ("spec", "priority"): _no_number,
        ("spec", "queuePolicy"): _none_of("Priority", "Block"),
        _annotation(queue.MAX_DEPTH): _no_integer_text,
    },
    **dict.fromkeys((JOBS, TFJOBS, PYTORCHJOBS, RAYJOBS), _OF_JOBS),
}


def bad_bends(resource: Resource, each: int) -> Iterator[Bend]:
    """So many for each place; labels and annotations that are no text never get past the API."""
    for path, is_bad in KNOWN.get(resource, {}).items():
        for value in collect(values.filter(partial(_counts, is_bad, path[0] == "metadata")), each):
            yield Bend(path, value)


def _counts(is_bad: IsBad, text: bool, value: Any) -> bool:
    return value != "" and is_bad(value) and (isinstance(value, str) or not text)


def wrong(resource: Resource, changes: Sequence[Bend]) -> str:
    """The field that makes such an object bad, by its key; empty if that is not known."""
    if len(changes) != 1 or changes[0].gone or changes[0].value == "":
        return ""
    [change] = changes
    is_bad = KNOWN.get(resource, {}).get(change.path)
    if is_bad is None or not is_bad(change.value):
        return ""
    # What is no text does not decode, and the decoder names the map, not the key in it.
    if is_bad is _no_quantity and not isinstance(change.value, str):
        return ".".join(map(str, change.path[:-1]))
    return str(change.path[-1])
