"""What an expression about given values costs at most, before it is evaluated: the meter that the evaluator has not.

Kubernetes' prices are for cel-go. The evaluator differs in what takes time: functions written in Python, lists that
loops make (they are copied with every element), all values on their way in and out. And what is taken out shares
nothing: a list that holds another one three times is as large as three. So besides its size everything has a *weight*
here, the values that it holds (ten characters of a text are one), and what is made, compared or shown is paid by
weight.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from koord.cel.cost import SCALARS, Estimate, Path, Variable
from koord.cel.limits import MOST
from koord.cel.tree import CALL, CONSTANT, IDENT, LIST, LOOP, MAP, SELECT, Node, Tree, nodes

# Objects are messages to the checker, too.
_SCALARS = SCALARS - {"message"}
# Microseconds of a call from C++ to Python and back, in units of 50 ns.
_PYTHON = dict.fromkeys(
    (
        *("isQuantity", "isSemver", "isIP", "isCIDR", "isURL", "ip.isCanonical", "sign", "isInteger", "asInteger"),
        *("asApproximateFloat", "isSorted", "min", "max", "sum", "indexOf", "lastIndexOf", "family", "prefixLength"),
        *("isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "validate"),
        *("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery", "major", "minor", "patch"),
    ),
    70,
) | dict.fromkeys(
    (
        *("quantity", "semver", "ip", "cidr", "url", "add", "sub", "compareTo", "isGreaterThan", "isLessThan"),
        *("containsIP", "containsCIDR", "masked", "find", "findAll"),
    ),
    150,
)
# More per character or element of what they are about than their price says.
_PER_SIZE = {"findAll": 8, "url": 1, "isURL": 1, "getQuery": 10, "split": 2, "indexOf": 4, "lastIndexOf": 4}
_GROWING = frozenset(("format", "flatten", "join", "replace", "split", "lists.range", "distinct"))
_TAKEN_OUT = 4
_FEW_NODES, _MANY_NODES = 60, 200


# What takes the same time however large its arguments are, or looks at one argument once.
_QUICK = re.compile(r"!_|-_|_\[_\]|_\?_:_|_([=!<>]=|[-*/%<>]|&&|\|\|)_|@in|size|startsWith|endsWith|type|int|bool")


def is_quick(tree: Tree) -> bool:
    """Whether an expression is short, has no loops and no costly functions, so that it needs no meter."""
    every = list(nodes(tree.root))
    return len(every) <= _FEW_NODES and all(
        node.kind in (CONSTANT, IDENT, SELECT)
        or (node.kind == LIST and all(inner.kind == CONSTANT for inner in node.args))
        or (node.kind == CALL and _QUICK.fullmatch(node.name) is not None)
        for node in every
    )


def is_plain(tree: Tree) -> bool:
    """Whether an expression takes the time that Kubernetes' estimate says; it needs no meter if that is little."""
    every = list(nodes(tree.root))
    return len(every) <= _MANY_NODES and not any(
        (node.kind in (LIST, MAP) and any(inner.kind != CONSTANT for inner in node.args))
        or (node.kind == CALL and (node.name in _PYTHON or node.name in _GROWING or node.name.startswith("sets.")))
        for node in every
    )


class Values:
    """The values that expressions are about. What is asked of them is worked out once, for all expressions."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self._known: dict[Path, list[Any]] = {}
        self._weights: dict[Path, int] = {}

    def _reached(self, path: Path) -> list[Any]:
        found = self._known.get(path)
        if found is None:
            found = _step(self._reached(path[:-1]), path[-1]) if path else [self.values]
            self._known[path] = found
        return found

    def size_of(self, path: Path) -> int | None:
        """The size of what lies at a path, of elements that of the largest; None when it is not known."""
        if path[0] not in self.values or path[-1] in ("@keys", "@indices"):
            return 256 if path[-1] == "@keys" else None
        return max((_length(value) for value in self._reached(path)), default=0)

    def weight_of(self, path: Path) -> int:
        """The weight of what lies at a path, of elements that of the heaviest."""
        found = self._weights.get(path)
        if found is None:
            if path[-1] in ("@keys", "@indices") or path[0] not in self.values:
                found = self.longest
            else:
                found = max((_measure(value)[1] for value in self._reached(path)), default=0)
            self._weights[path] = found
        return found

    @cached_property
    def _measured(self) -> tuple[int, int]:
        return _measure(self.values)

    @property
    def longest(self) -> int:
        """The length of the longest text, list or map: what a size is that no path leads to."""
        return self._measured[0]

    @property
    def weight(self) -> int:
        """The weight of all values."""
        return self._measured[1]


class _Meter(Estimate):
    def __init__(self, tree: Tree, values: Values) -> None:
        super().__init__(tree, values.size_of, values.longest, metered=True)
        self._values = values
        self._weights: dict[int, int] = {}
        self._heaviest: dict[int, int] = {}  # element of a list, value of a map

    def cost(self, node: Node) -> int:
        total = super().cost(node)
        weight = min(MOST, self._weigh(node))
        self._weights[node.id] = weight
        kind = self._tree.type_of(node).kind
        if node.kind in (CALL, LOOP) and not self._path(node):
            if node.name in ("format", "flatten"):
                self._sizes[node.id] = weight * 20
            elif kind == "string":
                self._sizes[node.id] = min(self._sizes.get(node.id, MOST), weight * 20)
        return min(MOST, total + (self._more(node, weight) if node.kind in (CALL, LOOP) else 0))

    def answered(self, node: Node) -> int:
        """What it costs to take out the answer of a whole expression."""
        return self._weight(node)

    def _weight(self, node: Node) -> int:
        return self._weights.get(node.id, 1)

    def _element(self, node: Node) -> int:
        """The weight of the heaviest element of a list or value of a map."""
        if path := self._path(node):
            return self._values.weight_of((*path, "@values"))
        return self._heaviest.get(node.id, self._weight(node))

    def _bind(self, range_: Node, variables: list[Variable]) -> None:
        for variable in variables:
            variable.weight = self._element(range_)
            if variable.path[-1:] == ("@keys",):
                variable.weight = self._values.longest

    def _carry(self, start: Node, variable: Variable) -> None:
        variable.weight = self._weight(start)

    def _weigh(self, node: Node) -> int:
        if node.kind == CONSTANT:
            return 1 + (len(node.value) // 10 if isinstance(node.value, str | bytes) else 0)
        if self._tree.type_of(node).kind in _SCALARS:
            return 1
        if node.kind == IDENT and (bound := self._variables.get(node.name)):
            return bound[-1].weight
        if path := self._path(node):
            return self._values.weight_of(path)
        if node.kind == SELECT:
            return self._weight(node.target) if node.target is not None else 1
        if node.kind in (LIST, MAP):
            self._heaviest[node.id] = max((self._weight(argument) for argument in node.args), default=0)
            return 1 + sum(self._weight(argument) for argument in node.args)
        if node.kind == LOOP:
            range_, start, _, step, result = node.args
            if range_.kind == LIST and not range_.args:
                return self._weight(result)
            self._heaviest[node.id] = self._heaviest.get(step.id, self._weight(step))
            return self._weight(start) + self._size(range_) * self._weight(step)
        return self._made(node)

    def _made(self, node: Node) -> int:
        """The weight of what a function answers."""
        whole = [node.target, *node.args] if node.target is not None else node.args
        weights = [self._weight(argument) for argument in whole]
        if node.name in ("_[_]", "_[?_]"):
            return self._element(whole[0])
        held = [self._element(argument) for argument in whole if self._tree.type_of(argument).kind not in _SCALARS]
        self._heaviest[node.id] = max(held, default=0)
        if node.name == "_?_:_":
            return max(weights[1:])
        size = self._sizes.get(node.id, 0)
        if node.name in ("replace", "join"):
            return 1 + size // 10
        if node.name in ("lists.range", "split"):
            self._heaviest[node.id] = 1
            return 1 + size
        return 1 + sum(weights) if node.name != "_+_" else sum(weights)

    def _more(self, node: Node, weight: int) -> int:
        """What something costs that Kubernetes' price does not say."""
        if node.kind == LOOP:
            count = self._size(node.args[0])
            return count * count // 3 if node.args[1].kind in (LIST, MAP) else 0
        name = node.name
        whole = [node.target, *node.args] if node.target is not None else node.args
        kinds = [self._tree.type_of(argument).kind for argument in whole]
        more = _PYTHON.get(name, 0)
        if name in _PER_SIZE and not (name.endswith("ndexOf") and kinds[0] == "string"):
            size = self._values.weight * 10 if name == "getQuery" else self._size(whole[0])
            more += size * _PER_SIZE[name]
        elif name in ("_==_", "_!=_") and not any(kind in _SCALARS or kind == "string" for kind in kinds):
            more += min(self._weight(argument) for argument in whole)
        elif name == "@in" and kinds[0] not in _SCALARS and kinds[0] != "string":
            more += self._weight(whole[1])
        elif name == "_+_" and self._tree.type_of(node).kind in ("list", "dyn"):
            more += self._sizes.get(node.id, 0)
        elif name in ("format", "flatten", "string", "@sortByAssociatedKeys", "sort", "reverse", "slice"):
            more += weight
        elif name == "distinct":
            more += self._size(whole[0]) ** 2 * max(self._element(whole[0]) - 1, 0)
        elif name.startswith("sets."):
            pairs = self._size(whole[0]) * self._size(whole[1])
            more += pairs * max(min(self._element(whole[0]), self._element(whole[1])) - 1, 0)
        return more


def metered(tree: Tree, values: Values | Mapping[str, Any]) -> int:
    """What an expression about these values costs at most, all that it is given and its answer included."""
    found = values if isinstance(values, Values) else Values(values)
    meter = _Meter(tree, found)
    total = meter.cost(tree.root)
    return min(MOST, total + found.weight + meter.answered(tree.root) * _TAKEN_OUT)


def _step(found: list[Any], name: str) -> list[Any]:
    return list(_stepped(found, name))


def _stepped(found: list[Any], name: str) -> Iterator[Any]:
    for value in found:
        if name in ("@items", "@values"):
            # What is looped over has no known type here: a list or the keys of a map.
            yield from value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        elif isinstance(value, dict) and name in value:
            yield value[name]


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | dict) else 1


def _measure(value: Any) -> tuple[int, int]:
    """The length of the longest text, list or map in a value, and its weight."""
    longest = weight = 0
    pending = [value]
    while pending:
        value = pending.pop()
        weight += 1
        kind = type(value)
        if kind is str or kind is bytes:
            size = len(value)
            weight += size // 10
        elif kind is dict:
            size = len(value)
            pending.extend(value.values())
        elif kind is list:
            size = len(value)
            pending += value
        else:
            continue
        if size > longest:
            longest = size
    return longest, weight
