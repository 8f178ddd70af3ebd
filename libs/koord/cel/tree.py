"""A checked expression as a tree, read from the form in which the evaluator hands it out (`cel.expr.CheckedExpr`).

Only what costs are estimated from: the shape, names, literals, types and the overloads that were chosen.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from koord.cel.protofields import message_fields

Fields = dict[int, list[Any]]

CONSTANT, IDENT, SELECT, CALL, LIST, MAP, LOOP = range(7)


class Type(NamedTuple):
    """`kind`: `list`, `map`, `string`, `bytes`, `int`, ..., `dyn`, or `message` with its `name`; `inner`: elements."""

    kind: str
    name: str = ""
    inner: "Type | None" = None


DYN = Type("dyn")


class Node:
    """One expression.

    name: of an identifier, a field, a function. value: a literal. target: what a member function is called on, what is
    selected from. args: arguments, elements, keys and values of a map in turns. test: `has(...)`.
    loop: of a comprehension: its variables, then range, initial value, condition, step and result as `args`.
    """

    __slots__ = ("args", "id", "kind", "loop", "name", "target", "test", "value")

    def __init__(self, id_: int, kind: int) -> None:
        self.id = id_
        self.kind = kind
        self.name = ""
        self.value: Any = None
        self.target: Node | None = None
        self.args: list[Node] = []
        self.test = False
        self.loop: tuple[str, str, str] = ("", "", "")


class Tree(NamedTuple):
    """A checked expression: `types` and `positions` (in characters from the beginning) by the id of a node."""

    root: Node
    types: dict[int, Type]
    positions: dict[int, int]

    def type_of(self, node: Node) -> Type:
        """The type of an expression."""
        return self.types.get(node.id, DYN)


def _fields(data: memoryview) -> Fields:
    found: Fields = {}
    for number, value in message_fields(data):
        found.setdefault(number, []).append(value)
    return found


def _text(fields: Fields, number: int) -> str:
    return bytes(fields[number][0]).decode() if number in fields else ""


_PRIMITIVES = ("", "bool", "int", "uint", "double", "string", "bytes")
_KNOWN = ("", "any", "timestamp", "duration")


def _type(data: memoryview) -> Type:
    fields = _fields(data)
    if 2 in fields:
        return Type("null")
    if 3 in fields:
        return Type(_PRIMITIVES[fields[3][0]])
    if 4 in fields:
        return Type(_PRIMITIVES[fields[4][0]])
    if 5 in fields:
        return Type(_KNOWN[fields[5][0]])
    if 6 in fields:
        inner = _fields(fields[6][0])
        return Type("list", "", _type(inner[1][0]) if 1 in inner else DYN)
    if 7 in fields:
        inner = _fields(fields[7][0])
        return Type("map", "", _type(inner[2][0]) if 2 in inner else DYN)
    if 9 in fields:
        return Type("message", _text(fields, 9))
    return Type("type") if 11 in fields else DYN


def read(serialized: bytes) -> Tree:
    """The tree of a serialized checked expression (in a `google.protobuf.Any`)."""
    fields = _fields(_fields(memoryview(serialized))[2][0])
    types, positions = {}, {}
    for entry in fields.get(3, ()):
        pair = _fields(entry)
        types[pair.get(1, [0])[0]] = _type(pair[2][0])
    for entry in _fields(fields[5][0]).get(4, ()) if 5 in fields else ():
        pair = _fields(entry)
        positions[pair.get(1, [0])[0]] = pair.get(2, [0])[0]
    return Tree(_node(fields[4][0]), types, positions)


def _node(data: memoryview) -> Node:
    fields = _fields(data)
    found = (fields.get(2) or (0,))[0]
    for number, kind in ((3, CONSTANT), (4, IDENT), (5, SELECT), (6, CALL), (7, LIST), (8, MAP), (9, LOOP)):
        if number in fields:
            node = Node(found, kind)
            _READERS[kind](node, _fields(fields[number][0]))
            return node
    return Node(found, CONSTANT)


def _read_constant(node: Node, fields: Fields) -> None:
    for number, values in fields.items():
        value = values[0]
        if number == 6:
            node.value = bytes(value).decode()
        elif number == 7:
            node.value = bytes(value)
        elif number == 2:
            node.value = bool(value)
        elif number in (3, 4):
            node.value = value - (1 << 64) if number == 3 and value >= 1 << 63 else value
        elif number == 5:
            node.value = 0.0  # no cost depends on it


def _read_ident(node: Node, fields: Fields) -> None:
    node.name = _text(fields, 1)


def _read_select(node: Node, fields: Fields) -> None:
    node.target = _node(fields[1][0])
    node.name = _text(fields, 2)
    node.test = bool(fields.get(3, [0])[0])


def _read_call(node: Node, fields: Fields) -> None:
    node.target = _node(fields[1][0]) if 1 in fields else None
    node.name = _text(fields, 2)
    node.args = [_node(argument) for argument in fields.get(3, ())]


def _read_list(node: Node, fields: Fields) -> None:
    node.args = [_node(element) for element in fields.get(1, ())]


def _read_map(node: Node, fields: Fields) -> None:
    for entry in fields.get(2, ()):
        pair = _fields(entry)
        if 3 in pair:
            node.args.append(_node(pair[3][0]))
        if 4 in pair:
            node.args.append(_node(pair[4][0]))


def _read_loop(node: Node, fields: Fields) -> None:
    node.loop = (_text(fields, 1), _text(fields, 8), _text(fields, 3))
    node.args = [_node(fields[number][0]) for number in (2, 4, 5, 6, 7)]


_READERS = {
    CONSTANT: _read_constant,
    IDENT: _read_ident,
    SELECT: _read_select,
    CALL: _read_call,
    LIST: _read_list,
    MAP: _read_map,
    LOOP: _read_loop,
}


def names(node: Node) -> set[str]:
    """Every identifier that is read in an expression."""
    return {inner.name for inner in nodes(node) if inner.kind == IDENT}


def nodes(node: Node) -> Iterator[Node]:
    """An expression and all that it is made of."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending += node.args
        if node.target is not None:
            pending.append(node.target)
