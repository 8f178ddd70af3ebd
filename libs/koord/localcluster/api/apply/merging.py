"""Merging an applied configuration into an object, and taking fields out of one. Neither changes what it is given."""

from typing import Any

from koord.localcluster.api.apply.comparing import kind_of
from koord.localcluster.api.apply.elements import TypedError, element
from koord.localcluster.api.apply.fieldsets import Fields, is_member
from koord.localcluster.api.apply.structure import DEDUCED, ListType, MapType, Type


def merge(old: Any, new: Any, of: Type) -> Any:
    """The old value with the new one in it: maps by key, associative lists by item, all else replaced.

    A null leaves a map or an associative list as it is. TypedError when a list's items cannot be told apart.
    """
    kind = kind_of(new, of)
    if kind == "map" and of.map is not None:
        before = old if isinstance(old, dict) else {}
        after = new if isinstance(new, dict) else {}
        if not of.map.atomic and (before or after):
            return _merge_maps(before, after, of.map)
    elif kind == "list" and of.list is not None:
        items = old if isinstance(old, list) else []
        others = new if isinstance(new, list) else []
        if of.list.associative and (items or others):
            return _merge_lists(items, others, of.list)
    return new


def _merge_maps(old: dict[str, Any], new: dict[str, Any], of: MapType) -> dict[str, Any]:
    result = dict(old)
    for name, value in new.items():
        result[name] = merge(old[name], value, of.field(name) or DEDUCED) if name in old else value
    return result


def _merge_lists(old: list[Any], new: list[Any], of: ListType) -> list[Any]:
    """The order is the new one's; items that only the old list has stay where they were between those of both."""
    if not new:
        return old
    before = [element(item, of) for item in old]
    after = [element(item, of) for item in new]
    theirs = dict(zip(after, new, strict=True))
    if len(theirs) < len(new):
        raise TypedError("duplicate entries")
    # An item that the old list has several times is replaced, not merged.
    ours: dict[str, Any] = {}
    for step, item in zip(before, old, strict=True):
        ours[step] = None if step in ours else item
    shared = [step for step in after if step in ours]

    def merged(step: str) -> Any:
        own = ours.get(step)
        return theirs[step] if own is None else merge(own, theirs[step], of.element)

    result: list[Any] = []
    done: set[str] = set()
    upcoming = iter(shared)
    awaited = next(upcoming, None)
    left = right = 0
    while left < len(before) or right < len(after):
        if left < len(before) and right < len(after):
            step = before[left]
            if step == after[right]:
                result.append(merged(step))
                done.add(step)
                left += 1
                right += 1
                awaited = next(upcoming, None)
                continue
            if step in theirs and awaited is not None and step != awaited:
                left += 1
                continue
        if left < len(before):
            step = before[left]
            if step not in theirs:
                result.append(old[left])
                left += 1
                continue
            if step in done:
                left += 1
        if right < len(after):
            step = after[right]
            result.append(merged(step))
            done.add(step)
            right += 1
            if step == awaited:
                awaited = next(upcoming, None)
    return result


def remove(value: Any, fields: Fields, of: Type) -> Any:
    """The value without the fields in the set. A map or list of which nothing is left becomes null."""
    kind = kind_of(value, of)
    if kind == "scalar":
        return value
    if kind == "list":
        if not isinstance(value, list) or not value or of.list is None or not of.list.associative:
            return None
        return _remove_items(value, fields, of.list) or None
    if not isinstance(value, dict) or not value or of.map is None or of.map.atomic:
        return None
    result: dict[str, Any] = {}
    for name, inner in value.items():
        below = fields.get("f:" + name)
        if below is None:
            result[name] = inner
        elif not is_member(below):
            result[name] = remove(inner, below, of.map.field(name) or DEDUCED)
    return result or None


def _remove_items(items: list[Any], fields: Fields, of: ListType) -> list[Any]:
    result = []
    for item in items:
        below = fields.get(element(item, of))
        if below is None:
            result.append(item)
        elif not is_member(below):
            result.append(remove(item, below, of.element))
    return result
