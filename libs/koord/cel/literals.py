"""Literals that Kubernetes looks at when an expression is stored: durations, moments, patterns, lists of one type."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from cel_expr_python import cel

from koord.cel.tree import CALL, CONSTANT, LIST, MAP, Node, Tree, Type, nodes

_FORMS = {"duration": "duration(%s)", "timestamp": "timestamp(%s)", "matches": "''.matches(%s)"}
_PLAIN = frozenset(("bool", "int", "uint", "double", "string", "bytes", "duration", "timestamp", "list", "map"))


def literal_problems(tree: Tree, first: int) -> Iterator[tuple[int, str]]:
    """What is wrong with literals, each with the character where it is. `first`: where the expression begins."""
    found = list(nodes(tree.root))
    # What is put into a text may be of any types.
    formatted = {argument.id for node in found if node.kind == CALL and node.name == "format" for argument in node.args}
    for node in found:
        if node.kind == CALL and node.name in _FORMS and node.args:
            value = node.args[-1]
            if value.kind == CONSTANT and isinstance(value.value, str) and not _good(node.name, value.value):
                yield tree.positions.get(value.id, 0) - first, f"invalid {node.name} argument"
        elif node.kind in (LIST, MAP) and node.id not in formatted:
            yield from _mixed(tree, node, first)


@cache
def _environment() -> Any:
    return cel.NewEnv()


def _good(function: str, text: str) -> bool:
    try:
        answer = _environment().compile(_FORMS[function] % json.dumps(text)).eval()
    except (RuntimeError, UnicodeEncodeError):
        return False
    return bool(answer.type() != cel.Type.ERROR)


def _mixed(tree: Tree, node: Node, first: int) -> Iterator[tuple[int, str]]:
    """Elements (keys, values) of another type than the first."""
    groups = [node.args] if node.kind == LIST else [node.args[::2], node.args[1::2]]
    for group in groups:
        wanted: Type | None = None
        for inner in group:
            type_ = tree.type_of(inner)
            if type_.kind not in _PLAIN:
                continue
            if wanted is None:
                wanted = type_
            elif wanted.kind != type_.kind:
                why = f"expected type '{wanted.kind}' but found '{type_.kind}'"
                yield tree.positions.get(inner.id, 0) - first, why
                break
