"""What an expression can cost at most, in Kubernetes' units (of about 50 ns), without evaluating it.

The estimate is cel-go's with the prices of Kubernetes' functions: a loop costs its body times the elements it has at
most, a function what its arguments are long at most. What sizes there are is asked for by path (`self`, `spec`,
`@items`): of a definition the bounds of its schema. With the sizes that the objects of a request really have it is the
base of `metering`, which stands for Kubernetes' meter: it is never less than what that would show, and it counts what
Kubernetes does not, texts that become longer and repetitions in patterns.
"""

import re
from collections.abc import Callable
from math import ceil
from typing import Any

from koord.cel.declared import Declared
from koord.cel.limits import MOST
from koord.cel.tree import CALL, CONSTANT, IDENT, LIST, LOOP, MAP, SELECT, Node, Tree, Type

Path = tuple[str, ...]
SizeOf = Callable[[Path], int | None]
_TRAVERSAL, _REGEX = 0.1, 0.25
SCALARS = frozenset(("bool", "int", "uint", "double", "null", "timestamp", "duration", "message", "type"))
_LISTS = frozenset(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"))
_TEXTS = frozenset(("lowerAscii", "upperAscii", "substring", "trim", "charAt"))
_PARSERS = frozenset(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver", "url", "isURL"))
_ORDER = frozenset(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"))
_COUNTS = re.compile(r"(\d{1,4})\}")
_COMPARED = frozenset(("list", "map", "string", "bytes", "dyn", "any"))


def _scaled(size: int, factor: float) -> int:
    return min(MOST, ceil(size * factor)) if size < 1 << 52 else min(MOST, int(size * factor))


class Variable:
    """A variable of a loop: where its values come from, and how large they are."""

    __slots__ = ("path", "size", "weight")

    def __init__(self, path: Path, size: int | None) -> None:
        self.path = path
        self.size = size
        self.weight = 0


class Estimate:
    """Works out what an expression costs, node by node, and how large its parts are."""

    def __init__(self, tree: Tree, size_of: SizeOf, unknown: int, *, metered: bool) -> None:
        self._metered = metered
        self._tree = tree
        self._size_of = size_of
        self._unknown = unknown
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, int] = {}
        self._entries: dict[int, int] = {}
        self._variables: dict[str, list[Variable]] = {}

    # --- sizes

    def _path(self, node: Node) -> Path:
        if node.kind == IDENT and (bound := self._variables.get(node.name)):
            return bound[-1].path
        return self._paths.get(node.id, ())

    def _known(self, node: Node) -> int | None:
        found = self._sizes.get(node.id)
        if found is not None:
            return found
        if node.kind == CONSTANT:
            return len(node.value) if isinstance(node.value, str | bytes) else 1
        if node.kind == LIST:
            return len(node.args)
        if node.kind == MAP:
            return len(node.args) // 2
        path = self._path(node)
        if path and not path[0].startswith("@result"):
            found = self._size_of(path)
            if found is not None:
                return found
        if self._tree.type_of(node).kind in SCALARS:
            return 1
        if node.kind == IDENT and (bound := self._variables.get(node.name)):
            return bound[-1].size
        return None

    def _size(self, node: Node) -> int:
        found = self._known(node)
        return self._unknown if found is None else found

    def _element_size(self, node: Node) -> int:
        """The size of the elements of a list."""
        found = self._entries.get(node.id)
        if found is None and (path := self._path(node)):
            found = self._size_of((*path, "@items"))
        return self._unknown if found is None else found

    # --- costs

    def cost(self, node: Node) -> int:
        """The most that an expression and all below it cost."""
        if node.kind == CONSTANT:
            return 0
        if node.kind == IDENT:
            bound = self._variables.get(node.name)
            self._paths[node.id] = bound[-1].path if bound else (node.name,)
            return 1
        if node.kind in (SELECT, CALL, LOOP):
            price = {SELECT: self._select, CALL: self._call, LOOP: self._loop}[node.kind]
            return price(node)
        total = 10 if node.kind == LIST else 30
        sizes = 0
        for i, argument in enumerate(node.args):
            total += self.cost(argument)
            if node.kind == LIST or i % 2:
                sizes = max(sizes, self._size(argument))
        self._entries[node.id] = sizes
        return min(MOST, total)

    def _select(self, node: Node) -> int:
        assert node.target is not None
        total = self.cost(node.target)
        if node.test:
            return total
        self._paths[node.id] = (*self._path(node.target), node.name)
        return total + (self._tree.type_of(node.target).kind in ("map", "message"))

    def _loop(self, node: Node) -> int:
        range_, start, condition, step, result = node.args
        first, second, accumulator = node.loop
        total = self.cost(range_) + self.cost(start)
        in_list = self._tree.type_of(range_).kind == "list" or range_.kind == LIST
        path = self._path(range_)
        entry = self._entries.get(range_.id)
        items = Variable((*path, "@items" if in_list else "@values") if path else (), entry)
        keys = Variable((*path, "@indices" if in_list else "@keys") if path else (), 1 if in_list else None)
        single = items if in_list or self._tree.type_of(range_).kind == "dyn" else keys
        bound = [(accumulator, Variable((), self._known(start)))]
        bound += [(first, keys), (second, items)] if second else [(first, single)]
        self._bind(range_, [variable for _, variable in bound[1:]])
        binds = range_.kind == LIST and not range_.args  # `cel.bind`: no loop, its accumulator is a variable
        if binds:
            self._carry(start, bound[0][1])
        for name, variable in bound:
            self._variables.setdefault(name, []).append(variable)
        body = self.cost(condition) + self.cost(step)
        for name, _ in bound[1:]:
            self._variables[name].pop()
        total += self.cost(result)
        self._variables[accumulator].pop()
        count = self._size(range_)
        total += min(MOST, count * body)
        if binds:
            if (size := self._known(result)) is not None:
                self._sizes[node.id] = size
            if (inner := self._entries.get(result.id)) is not None:
                self._entries[node.id] = inner
        elif start.kind in (LIST, MAP):
            self._sizes[node.id] = count
            if (inner := self._entries.get(step.id)) is not None:
                self._entries[node.id] = inner
        elif (size := self._known(start)) is not None:
            self._sizes[node.id] = size
        return min(MOST, total)

    def _bind(self, range_: Node, variables: list[Variable]) -> None:
        """Note what the variables of a loop over `range_` hold."""

    def _carry(self, start: Node, variable: Variable) -> None:
        """Note what a variable holds that is bound to the value of `start`."""

    def _call(self, node: Node) -> int:
        costs = [self.cost(argument) for argument in node.args]
        total = sum(costs)
        if node.target is not None:
            total += self.cost(node.target)
        if node.name == "dyn":
            self._sizes[node.id] = self._size(node.args[0])
            return min(MOST, total + 1)
        if node.name in ("_&&_", "_||_", "@not_strictly_false"):
            return min(MOST, total + (node.name == "@not_strictly_false"))
        if node.name == "_?_:_":
            yes, no = node.args[1:]
            self._sizes[node.id] = max(self._size(yes), self._size(no))
            inner = [self._entries.get(side.id) for side in (yes, no)]
            known = [size for size in inner if size is not None]
            if len(known) == 2:
                self._entries[node.id] = max(known)
            return min(MOST, costs[0] + max(costs[1:]))
        return min(MOST, total + self._function(node))

    def _function(self, node: Node) -> int:
        """The price of a function alone."""
        name, target, args = node.name, node.target, node.args
        whole = [target, *args] if target is not None else args
        if name in _ORDER:
            return self._compared(args)
        if name == "_+_" and self._tree.type_of(node).kind in ("string", "bytes", "list", "dyn"):
            return self._sum(node)
        if name in ("_[_]", "_[?_]"):
            path = self._path(args[0])
            inner = "@items" if self._tree.type_of(args[0]).kind == "list" else "@values"
            if path:
                self._paths[node.id] = (*path, inner)
            if (entry := self._entries.get(args[0].id)) is not None:
                self._sizes[node.id] = entry
            return 1
        if name == "@in":
            return self._size(args[1]) if self._tree.type_of(args[1]).kind != "map" else 1
        if name in ("matches", "find", "findAll") and len(whole) > 1:
            if name == "findAll":
                self._sizes[node.id] = self._size(whole[0])
            times = _repeats(whole[1].value) if self._metered else 1
            return _scaled(self._size(whole[0]) + 1, _TRAVERSAL) * _scaled(self._size(whole[1]), _REGEX) * times
        if name == "contains":
            return max(1, _scaled(self._size(whole[0]), _TRAVERSAL) * _scaled(self._size(whole[1]), _TRAVERSAL))
        if name in ("startsWith", "endsWith"):
            return _scaled(self._size(whole[1]), _TRAVERSAL)
        return self._library(node, whole)

    def _compared(self, args: list[Node]) -> int:
        types = [self._tree.type_of(argument) for argument in args]
        if any(type_.kind not in _COMPARED for type_ in types):
            return 1
        return _scaled(min(self._size(argument) for argument in args), _TRAVERSAL)

    def _sum(self, node: Node) -> int:
        size = min(MOST, sum(self._size(argument) for argument in node.args))
        inner = [self._entries.get(argument.id) for argument in node.args]
        known = [found for found in inner if found is not None]
        if known:
            self._entries[node.id] = max(known)
        kind = self._tree.type_of(node).kind
        if kind == "dyn" and any(self._tree.type_of(argument).kind in SCALARS for argument in node.args):
            return 1
        self._sizes[node.id] = size
        return 1 if kind == "list" else _scaled(size, _TRAVERSAL)

    def _library(self, node: Node, whole: list[Node]) -> int:
        name = node.name
        if not whole:
            return 1
        size = self._known(whole[0])
        size = self._unknown if size is None else size
        if name in _LISTS:
            kind = (self._tree.type_of(whole[0]).inner or Type("")).kind
            each = 1
            if self._tree.type_of(whole[0]).kind == "string":
                return _scaled(size, _TRAVERSAL)
            if kind in ("string", "bytes"):
                each += _scaled(self._element_size(whole[0]), _TRAVERSAL)
            return min(MOST, size * each)
        if name in _TEXTS:
            self._sizes[node.id] = size
            return _scaled(size, _TRAVERSAL)
        if name in _PARSERS:
            return _scaled(size, _TRAVERSAL) if self._tree.type_of(whole[0]).kind != "message" else 1
        if name in ("containsIP", "containsCIDR"):
            parsed = self._tree.type_of(whole[1]).kind == "string"
            return (4 if name == "containsIP" else 7) + (_scaled(self._size(whole[1]), _TRAVERSAL) if parsed else 0)
        if name == "ip.isCanonical":
            return _scaled(size, 2 * _TRAVERSAL)
        if name in ("replace", "join") and len(whole) >= 1:
            return self._rebuilt(node, whole, size)
        if name == "split":
            self._sizes[node.id] = self._entries[node.id] = size
            return _scaled(size, 2 * _TRAVERSAL)
        if name in ("format", "bytes", "string", "strings.quote") and self._tree.type_of(whole[0]).kind not in SCALARS:
            return _scaled(size, _TRAVERSAL)
        if name == "validate" and len(whole) > 1:
            return min(MOST, _scaled(self._size(whole[1]), _TRAVERSAL) * 32)
        if name.startswith("sets.") and len(whole) > 1:
            return min(MOST, size * self._size(whole[1]) * (2 if name == "sets.equivalent" else 1) + 1)
        if name in ("sort", "distinct", "flatten", "reverse", "slice", "@sortByAssociatedKeys"):
            self._sizes[node.id] = size
            return min(MOST, size * size if name == "distinct" else 2 * size + 1)
        if name == "lists.range":
            # Its length is a value, not a size: only a literal is known.
            self._sizes[node.id] = max(node.args[0].value, 0) if node.args[0].kind == CONSTANT else MOST
            return self._sizes[node.id]
        if name in ("orValue", "value", "optional.of", "optional.ofNonZeroValue"):
            self._sizes[node.id] = max(size, *(self._size(argument) for argument in whole[1:]), 0)
        return 1

    def _rebuilt(self, node: Node, whole: list[Node], size: int) -> int:
        """Texts that may come out longer than they went in."""
        if node.name == "join":
            separator = self._size(whole[1]) if len(whole) > 1 else 0
            made = size * (self._element_size(whole[0]) + separator)
            self._sizes[node.id] = min(MOST, made)
            return _scaled(made, _TRAVERSAL)
        old, new = (self._size(argument) for argument in whole[1:3])
        literal = whole[1].value if whole[1].kind == CONSTANT else ""
        made = (size + 1) * new + size if not literal else ceil(size / len(literal)) * new if new > old else 0
        self._sizes[node.id] = min(MOST, max(made, size))
        return _scaled(size, 2 * _TRAVERSAL) + (_scaled(made, _TRAVERSAL) if self._metered else 0)


def _repeats(pattern: Any) -> int:
    """How often the most repeated part of a pattern is repeated; a guess for one that is made when it is used."""
    if not isinstance(pattern, str):
        return 100
    return max((int(count) for count in _COUNTS.findall(pattern)), default=1) or 1


def estimate(tree: Tree, size_of: SizeOf) -> int:
    """What an expression costs at most by Kubernetes' estimate, `MOST` when that is not bounded."""
    return min(MOST, Estimate(tree, size_of, MOST, metered=False).cost(tree.root))


def bounds(roots: dict[str, Declared]) -> SizeOf:
    """The sizes that schemas allow."""

    def size_of(path: Path) -> int | None:
        root = roots.get(path[0])
        found = root.at(path[1:]) if root is not None else None
        return found.most if found is not None else None

    return size_of
