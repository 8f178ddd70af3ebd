"""Sets of fields in the form of FieldsV1, without decoding: ownership changes along a few paths and all else is shared.

A set is a dict from steps (`elements`) to what lies below them. Below a step that is a member and has no members
beneath stands `{}`; a member with others beneath has `.` among them; a step without `.` only leads to members. No
function changes what it is given.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from koord.localcluster.api.apply.elements import order, respell
from koord.localcluster.api.apply.structure import Type

Fields = dict[str, Any]
SELF = "."
_LEAF: Fields = {}


def is_member(below: Fields) -> bool:
    """Whether the step that leads to this is in the set itself."""
    return not below or SELF in below


def place(into: Fields, step: str, member: bool, beneath: Fields) -> None:
    """Put a step into a set that is being made; `beneath` has no mark of its own, and may become part of the set."""
    if not beneath:
        if member:
            into[step] = {}
    elif member:
        into[step] = {SELF: _LEAF, **beneath}
    else:
        into[step] = beneath


def union(left: Fields, right: Fields) -> Fields:
    """What is in either."""
    if not left or left is right:
        return right
    if not right:
        return left
    result = dict(left)
    for step, below in right.items():
        have = left.get(step)
        result[step] = below if have is None else joined(have, below)
    return result


def joined(left: Fields, right: Fields) -> Fields:
    """The union of what lies below one step."""
    if not left:
        return right if is_member(right) else {SELF: _LEAF, **right}
    if not right:
        return left if is_member(left) else {SELF: _LEAF, **left}
    return union(left, right)


def difference(left: Fields, right: Fields) -> Fields:
    """The members of the left set that are not members of the right one."""
    if not left or not right:
        return left
    result: Fields = {}
    for step, below in left.items():
        if step == SELF:
            continue
        other = right.get(step)
        if other is None:
            result[step] = below
        else:
            place(result, step, is_member(below) and not is_member(other), difference(_inner(below), other))
    return result


def without(left: Fields, right: Fields) -> Fields:
    """The left set less everything at and beneath the members of the right one."""
    if not left or not right:
        return left
    result: Fields = {}
    for step, below in left.items():
        if step == SELF:
            continue
        other = right.get(step)
        if other is None:
            result[step] = below
        elif not is_member(other):
            place(result, step, is_member(below), without(_inner(below), other))
    return result


def intersection(left: Fields, right: Fields) -> Fields:
    """What is a member of both."""
    result: Fields = {}
    for step, below in left.items():
        other = right.get(step)
        if other is not None and step != SELF:
            place(result, step, is_member(below) and is_member(other), intersection(_inner(below), _inner(other)))
    return result


def _inner(below: Fields) -> Fields:
    """What lies beneath a step, without the mark that the step itself is a member."""
    if SELF not in below:
        return below
    return {step: inner for step, inner in below.items() if step != SELF}


def contains(fields: Fields, path: Sequence[str]) -> bool:
    """Whether a path is a member."""
    for step in path:
        below = fields.get(step)
        if below is None:
            return False
        fields = below
    return bool(path) and is_member(fields)


def paths(fields: Fields, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every member; those of one level before those beneath them."""
    steps = sorted((step for step in fields if step != SELF), key=order)
    for step in steps:
        if is_member(fields[step]):
            yield (*prefix, step)
    for step in steps:
        yield from paths(fields[step], (*prefix, step))


def at(*path: str) -> Fields:
    """The set of one path, whose steps are names of fields."""
    result: Fields = {}
    for name in reversed(path):
        result = {f"f:{name}": result}
    return result


def with_named(fields: Fields, of: Type | None) -> Fields:
    """The set with every declared field that leads to members as a member itself.

    An object is removed with the last of its fields, although nobody owns "the object" itself.
    """
    result: Fields = {}
    for step, below in fields.items():
        if step == SELF:
            continue
        inner: Type | None = None
        named = False
        if of is not None and step[0] == "f" and of.map is not None:
            inner = of.map.field(step[2:])
            named = of.map.declares(step[2:])
        elif of is not None and step[0] == "k" and of.list is not None:
            inner = of.list.element
        place(result, step, named or is_member(below), with_named(below, inner))
    return result


def reconciled(fields: Fields, of: Type) -> Fields:
    """The set as the type has it now: what lies beneath something that became atomic is owned as a whole."""
    result: Fields = {}
    for step, below in fields.items():
        if step == SELF or not below:
            result[step] = below
            continue
        inner: Type | None = None
        if step[0] == "f" and of.map is not None:
            inner = of.map.field(step[2:])
        elif step[0] in "kv" and of.list is not None:
            inner = of.list.element
        if inner is None or inner.several:
            result[step] = below
        elif (inner.map is not None and inner.map.atomic) or (inner.list is not None and not inner.list.associative):
            result[step] = {}
        else:
            result[step] = reconciled(below, inner)
    return result


def read(value: Any) -> Fields:
    """A set as a client sent it; ValueError when it is none."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("a set of fields is an object")
    return _inner(_read(value))


def _read(value: dict[str, Any]) -> Fields:
    result: Fields = {}
    marked = False
    for text, below in value.items():
        if text == SELF:
            marked = True
            continue
        step = respell(text)
        if step is None:
            continue
        if not isinstance(below, dict):
            raise ValueError("a set of fields is an object")
        result[step] = _read(below)
    if marked and result:
        return {SELF: _LEAF, **result}
    return result
