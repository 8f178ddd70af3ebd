"""The steps of a path into an object, in the spelling of FieldsV1, and paths as messages show them.

`f:name` is a field or a map key, `k:{"name":"a"}` the item of a list with these key fields, `v:"x"` an item of a set,
`i:0` a position. Two steps are the same when their spellings are, so every step is made or respelled here.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from koord.localcluster.api.apply.structure import ListType

_decode = msgspec.json.decode
_encode = msgspec.json.encode


class TypedError(ValueError):
    """A value that does not fit its type."""


def spell(value: Any) -> str:
    """A scalar as Go's JSON writes it: `<`, `>` and `&` escaped, whole floats without a point."""
    if isinstance(value, str):
        text = _encode(value).decode()
        if "<" in text or ">" in text or "&" in text:
            text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029") if not text.isascii() else text
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return _encode(value).decode()


def element(item: Any, of: ListType) -> str:
    """The step to an item of an associative list; TypedError when the item cannot be one."""
    if of.keys:
        return _keyed(item, of)
    if isinstance(item, dict):
        raise TypedError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise TypedError("not supported: associative list with lists as elements")
    if item is None:
        raise TypedError("associative list without keys has an element that's an explicit null")
    return "v:" + spell(item)


def _keyed(item: Any, of: ListType) -> str:
    if item is None:
        raise TypedError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise TypedError("associative list with keys may not have non-map elements")
    found: dict[str, Any] = {}
    for key in of.keys:
        if key in item:
            found[key] = item[key]
        elif (default := of.default(key)) is not UNSET and default is not None:
            found[key] = default
    if not found:
        names = " ".join(f'"{key}"' for key in of.keys)
        raise TypedError(
            f"associative list with keys has an element that omits all key fields [{names}]"
            " (and doesn't have default values for any key fields)"
        )
    return keys_element(found)


def keys_element(keys: dict[str, Any]) -> str:
    """The step to the item that has these key fields."""
    return "k:{" + ",".join(f"{spell(key)}:{spell(keys[key])}" for key in sorted(keys)) + "}"


def respell(text: str) -> str | None:
    """A step as a client wrote it in the spelling used here; None for a kind of step that nobody knows.

    ValueError when it is none.
    """
    if len(text) < 2:
        raise ValueError("key must be 2 characters long:")
    if text[1] != ":":
        raise ValueError(f"missing colon: {text}")
    kind, rest = text[0], text[2:]
    if kind == "f":
        return text
    if kind == "v":
        return "v:" + spell(_decode(rest))
    if kind == "k":
        keys = _decode(rest)
        if not isinstance(keys, dict):
            raise ValueError(f"{rest} is no object")
        return keys_element(keys)
    if kind == "i":
        return f"i:{int(rest)}"
    return None


def shown(path: Iterable[str]) -> str:
    """A path as conflicts and errors show it: `.spec.containers[name="main"].image`."""
    return "".join(_shown(step) for step in path)


def _shown(step: str) -> str:
    kind, rest = step[0], step[2:]
    if kind == "f":
        return "." + rest
    if kind == "k":
        pairs = sorted(_decode(rest).items())
        return "[" + ",".join(f"{key}={_plain(value)}" for key, value in pairs) + "]"
    if kind == "v":
        return f"[={_plain(_decode(rest))}]"
    return f"[{rest}]"


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _encode(value).decode()
    return str(value)


def order(step: str) -> tuple[Any, ...]:
    """A key that sorts steps: fields, items by key fields, items by value, positions."""
    kind, rest = step[0], step[2:]
    if kind == "f":
        return (0, rest)
    if kind == "k":
        return (1, [(key, *_rank(value)) for key, value in sorted(_decode(rest).items())])
    if kind == "v":
        return (2, _rank(_decode(rest)))
    return (3, int(rest))


def _rank(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    if isinstance(value, str):
        return (1, value)
    return (3, str(value))
