"""Which fields of an object there are, and which a change adds, modifies and removes.

Sets of what lies beneath a value are None when there is nothing, `{}` when the value itself is meant (`fieldsets`). A
null is a value of every type; where two values of a type that allows several differ in kind, both readings count.
"""

from typing import Any, NamedTuple

from msgspec import UNSET

from koord.localcluster.api.apply.elements import element
from koord.localcluster.api.apply.fieldsets import SELF, Fields, joined
from koord.localcluster.api.apply.structure import DEDUCED, ListType, MapType, Type


class Comparison(NamedTuple):
    """The fields that differ between two objects, by how they do."""

    added: Fields
    modified: Fields
    removed: Fields


_Beneath = tuple[Fields | None, Fields | None, Fields | None]
_SAME: _Beneath = (None, None, None)
_MODIFIED: _Beneath = (None, {}, None)


def kind_of(value: Any, of: Type) -> str:
    """How a value is read: as `map`, `list` or `scalar`; what fits nothing as the first that the type allows."""
    if of.several and value is not None:
        if isinstance(value, dict):
            if of.map is not None:
                return "map"
        elif isinstance(value, list):
            if of.list is not None:
                return "list"
        elif of.scalar:
            return "scalar"
    if of.map is not None:
        return "map"
    return "scalar" if of.scalar else "list"


def equal(left: Any, right: Any) -> bool:
    """Equality of JSON values: `1` is `1.0` and not `true`."""
    if left is right:
        return True
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        return all(key in right and equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return False
        return all(equal(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    return bool(left == right)


def fields_of(value: Any, of: Type) -> Fields:
    """The set of the fields that an object has: what a manager that applies it comes to own."""
    return _fields(value, of) or {}


def _fields(value: Any, of: Type) -> Fields | None:
    kind = kind_of(value, of)
    if kind == "scalar":
        return {}
    if kind == "list" and of.list is not None:
        if not of.list.associative:
            return {}
        return _list_fields(value, of.list) if isinstance(value, list) and value else None
    assert of.map is not None
    if of.map.atomic:
        return {}
    return _map_fields(value, of.map) if isinstance(value, dict) and value else None


def _map_fields(value: dict[str, Any], of: MapType) -> Fields | None:
    result: Fields = {}
    for name, inner in value.items():
        beneath = _fields(inner, of.field(name) or DEDUCED)
        if inner is None or inner == {} or not of.declares(name):
            _mark(result, "f:" + name, beneath)
        elif beneath is not None:
            result["f:" + name] = beneath
    return result or None


def _list_fields(items: list[Any], of: ListType) -> Fields:
    result: Fields = {}
    steps = [element(item, of) for item in items]
    repeated = {step for step in steps if steps.count(step) > 1} if len(set(steps)) < len(steps) else ()
    for step, item in zip(steps, items, strict=True):
        if step in repeated:
            result[step] = {}
        else:
            _mark(result, step, _fields(item, of.element))
    return result


def _mark(into: Fields, step: str, beneath: Fields | None) -> None:
    """Put a step in as a member, with what lies beneath it."""
    into[step] = {SELF: {}, **beneath} if beneath and SELF not in beneath else beneath or {}


def compare(old: Any, new: Any, of: Type) -> Comparison:
    """What a change from one object to another added, modified and removed; TypedError when one has no such type."""
    added, modified, removed = _compare(old, new, of)
    return Comparison(added or {}, modified or {}, removed or {})


def _compare(old: Any, new: Any, of: Type) -> _Beneath:
    if old is new:
        return _SAME
    kind = kind_of(new, of)
    if of.several and (before := kind_of(old, of)) != kind:
        return _joined(_compare_as(before, old, new, of), _compare_as(kind, old, new, of))
    return _compare_as(kind, old, new, of)


def _joined(left: _Beneath, right: _Beneath) -> _Beneath:
    added, modified, removed = (
        b if a is None else a if b is None else joined(a, b) for a, b in zip(left, right, strict=True)
    )
    return added, modified, removed


def _compare_as(kind: str, old: Any, new: Any, of: Type) -> _Beneath:
    if kind == "map" and of.map is not None:
        before = old if isinstance(old, dict) else {}
        after = new if isinstance(new, dict) else {}
        if not of.map.atomic and (before or after):
            return _compare_maps(before, after, of.map)
    elif kind == "list" and of.list is not None:
        items = old if isinstance(old, list) else []
        others = new if isinstance(new, list) else []
        if of.list.associative and (items or others):
            return _compare_lists(items, others, of.list)
    return _SAME if equal(old, new) else _MODIFIED


def _compare_maps(old: dict[str, Any], new: dict[str, Any], of: MapType) -> _Beneath:
    added: Fields = {}
    modified: Fields = {}
    removed: Fields = {}
    for name, value in new.items():
        before = old.get(name, UNSET)
        if before is value:
            continue
        inner = of.field(name) or DEDUCED
        if before is UNSET:
            added["f:" + name] = whole(value, inner)
        else:
            _put("f:" + name, _compare(before, value, inner), added, modified, removed)
    for name, value in old.items():
        if name not in new:
            removed["f:" + name] = whole(value, of.field(name) or DEDUCED)
    return added or None, modified or None, removed or None


def _put(step: str, found: _Beneath, added: Fields, modified: Fields, removed: Fields) -> None:
    if found is _SAME:
        return
    if found[0] is not None:
        added[step] = found[0]
    if found[1] is not None:
        modified[step] = found[1]
    if found[2] is not None:
        removed[step] = found[2]


def _compare_lists(old: list[Any], new: list[Any], of: ListType) -> _Beneath:
    added: Fields = {}
    modified: Fields = {}
    removed: Fields = {}
    before, after = _by_step(old, of), _by_step(new, of)
    for step in before | after:
        was, now = before.get(step, []), after.get(step, [])
        if len(was) == 1 and len(now) == 1:
            _put(step, _compare(was[0], now[0], of.element), added, modified, removed)
        elif len(was) > 1 and len(now) > 1:
            if not equal(was, now):
                modified[step] = {}
        else:
            # Several items of one key are one thing that is owned as a whole.
            if was:
                removed[step] = whole(was[0], of.element) if len(was) == 1 else {}
            if now:
                added[step] = whole(now[0], of.element) if len(now) == 1 else {}
    return added or None, modified or None, removed or None


def _by_step(items: list[Any], of: ListType) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {}
    for item in items:
        result.setdefault(element(item, of), []).append(item)
    return result


def whole(value: Any, of: Type) -> Fields:
    """Everything at and beneath a value that was not there before, the value itself included."""
    kind = kind_of(value, of)
    if kind == "map":
        if isinstance(value, dict) and value and of.map is not None and not of.map.atomic:
            result: Fields = {SELF: {}}
            for name, inner in value.items():
                result["f:" + name] = whole(inner, of.map.field(name) or DEDUCED)
            return result
    elif kind == "list" and of.list is not None and of.list.associative and isinstance(value, list) and value:
        result = {SELF: {}}
        for step, items in _by_step(value, of.list).items():
            result[step] = whole(items[0], of.list.element) if len(items) == 1 else {}
        return result
    return {}
