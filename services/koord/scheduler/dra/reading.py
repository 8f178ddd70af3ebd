"""Which attributes and capacities of a device an expression reads, where that can be told from what is written.

Most selectors read one or two of them. Devices that are equal in these are equal to the selector, though each has a
serial number; so it is evaluated once for all of them.
"""

from typing import Final

from koord.cel.tree import CALL, CONSTANT, IDENT, SELECT, Node

Read = tuple[str, str, str]
"""``attributes`` or ``capacity``, domain, name; or ``driver`` alone."""
DRIVER: Final = ("driver", "", "")
_MAPS = ("attributes", "capacity")


def reads(root: Node) -> frozenset[Read] | None:
    """All that is read; None: it cannot be told, so it may be anything."""
    found: set[Read] = set()
    return frozenset(found) if _collect(root, found) else None


def _collect(node: Node, found: set[Read]) -> bool:
    one = _one(node)
    if one is not None:
        found.add(one)
        return True
    if node.kind == IDENT and node.name == "device":
        return False
    return (node.target is None or _collect(node.target, found)) and all(_collect(each, found) for each in node.args)


def _one(node: Node) -> Read | None:
    """``device.attributes["domain"].name`` and the like, and ``device.driver``."""
    if node.kind == SELECT:
        if _is_device(node.target) and node.name not in _MAPS:
            return DRIVER
        inner, name = node.target, node.name
    elif node.kind == CALL and node.name == "_[_]" and len(node.args) == 2:
        inner, name = node.args[0], _text(node.args[1])
    else:
        return None
    if inner is None or not name or inner.kind != CALL or inner.name != "_[_]" or len(inner.args) != 2:
        return None
    part, domain = inner.args[0], _text(inner.args[1])
    if domain and part.kind == SELECT and part.name in _MAPS and _is_device(part.target):
        return part.name, domain, name
    return None


def _is_device(node: Node | None) -> bool:
    return node is not None and node.kind == IDENT and node.name == "device"


def _text(node: Node) -> str:
    return node.value if node.kind == CONSTANT and isinstance(node.value, str) else ""
