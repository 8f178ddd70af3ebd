"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386) that never change their input: touched levels are copied.

Where Kubernetes is more lenient than the RFC so is this: `replace` adds a name that is not there, a value left out is
null, so is a name that is not there to `test` and `copy`, and negative indices count from the end.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from koord.localcluster.clusterapi import Object

MAX_COPIED = 3 << 20
"""Bytes of JSON that the copies of one patch may add."""

_encode = msgspec.json.Encoder().encode

_INDEX = re.compile(r"[+-]?[0-9]{1,19}")


class PatchError(ValueError):
    """A patch that cannot be applied to this object."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch; parts that the patch does not name are shared with the target."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(result.get(key), value)
        else:
            result[key] = value
    return result


def json_patch(target: Object, operations: Sequence[Any]) -> Object:
    """Apply a JSON patch, all of it or (raising) nothing."""
    result: Any = target
    copied = 0
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise PatchError(f"operation {index}: must be an object")
        try:
            if operation.get("op") == "copy":
                # A few dozen copies of a value into itself would be more than any memory holds.
                copied += len(_encode(_resolve(result, _pointer(operation, "from"), lenient=True)))
                if copied > MAX_COPIED:
                    raise PatchError(
                        "Unable to complete the copy, the accumulated size increase of copy is"
                        f" {copied}, exceeding the limit {MAX_COPIED}"
                    )
            result = _apply(result, operation)
        except PatchError as error:
            raise PatchError(f"operation {index}: {error}") from None
    if not isinstance(result, dict):
        raise PatchError("the result is not an object")
    return result


def _apply(root: Any, operation: Object) -> Any:
    name = operation.get("op")
    path = _pointer(operation, "path")
    match name:
        case "add":
            return _edit(root, path, operation.get("value"), "add")
        case "replace":
            return _edit(root, path, operation.get("value"), "replace")
        case "remove":
            return _edit(root, path, None, "remove")
        case "test":
            if not _equal(_resolve(root, path, lenient=True), operation.get("value")):
                raise PatchError(f"test failed at {operation['path']!r}")
            return root
        case "move":
            source = _pointer(operation, "from")
            if path[: len(source)] == source and len(path) > len(source):
                raise PatchError("cannot move a value into itself")
            value = _resolve(root, source)
            return _edit(_edit(root, source, None, "remove"), path, value, "add")
        case "copy":
            return _edit(root, path, _resolve(root, _pointer(operation, "from"), lenient=True), "add")
        case _:
            raise PatchError(f"unknown operation {name!r}")


def _pointer(operation: Object, key: str) -> list[str]:
    text = operation.get(key)
    if not isinstance(text, str):
        raise PatchError(f"{key} must be a JSON pointer")
    if text == "":
        return []
    if not text.startswith("/"):
        raise PatchError(f"{key} {text!r} must start with '/'")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(text: str, length: int, *, end: bool) -> int:
    if end and text == "-":
        return length
    if not _INDEX.fullmatch(text):
        raise PatchError(f"{text!r} is no index of an array")
    index = int(text)
    if index < 0:
        index += length + 1 if end else length
    if index < 0 or index > length or (index == length and not end):
        raise PatchError(f"index {index} is out of bounds (length {length})")
    return index


def _resolve(node: Any, path: list[str], *, lenient: bool = False) -> Any:
    """The value at a path; `lenient`: a last name that is not there is null."""
    for i, step in enumerate(path):
        if isinstance(node, dict):
            if step not in node and not (lenient and i == len(path) - 1):
                raise PatchError(f"path {'/' + '/'.join(path)!r} does not exist")
            node = node.get(step)
        elif isinstance(node, list):
            node = node[_index(step, len(node), end=False)]
        else:
            raise PatchError(f"path {'/' + '/'.join(path)!r} does not exist")
    return node


def _edit(node: Any, path: list[str], value: Any, action: str) -> Any:
    """A copy of `node` with the value at `path` added, replaced or removed."""
    if not path:
        if action == "remove":
            raise PatchError("cannot remove the whole object")
        return value
    step, rest = path[0], path[1:]
    if isinstance(node, dict):
        copy = dict(node)
        if rest:
            if step not in copy:
                raise PatchError(f"the parent of {step!r}/{'/'.join(rest)} does not exist")
            copy[step] = _edit(copy[step], rest, value, action)
        elif action != "remove":
            copy[step] = value
        elif step not in copy:
            raise PatchError(f"key {step!r} does not exist")
        else:
            del copy[step]
        return copy
    if isinstance(node, list):
        items = list(node)
        if rest:
            index = _index(step, len(items), end=False)
            items[index] = _edit(items[index], rest, value, action)
        elif action == "add":
            items.insert(_index(step, len(items), end=True), value)
        elif action == "replace":
            items[_index(step, len(items), end=False)] = value
        else:
            del items[_index(step, len(items), end=False)]
        return items
    raise PatchError(f"{step!r} is below a value that has no members")


def _equal(left: Any, right: Any) -> bool:
    # JSON knows true from 1; Python does not.
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)
