"""Patches as the gateway needs them: preconditions put inside, and whether an object already holds what one asks for.

Pure. The API server checks uid and resourceVersion of a merge or strategic patch when they stand in its metadata; a
JSON patch gets ``test`` operations in front.
"""

from typing import Any, Literal

import msgspec

PatchKind = Literal["merge", "json", "strategic", "apply"]
_anything = msgspec.json.Decoder()


class PatchError(ValueError):
    """A patch body that is not one; says what is wrong."""


def with_preconditions(body: bytes, kind: PatchKind, uid: str, resource_version: str) -> bytes:
    """The patch with its preconditions inside; PatchError if the body is not a patch of this kind."""
    try:
        patch = _anything.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PatchError(str(error)) from error
    checks = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    if kind == "json":
        if not isinstance(patch, list) or not all(isinstance(step, dict) for step in patch):
            raise PatchError("a JSON patch is a list of operations")
        if not checks:
            return body
        tests = [{"op": "test", "path": f"/metadata/{key}", "value": value} for key, value in checks.items()]
        return msgspec.json.encode([*tests, *patch])
    if not isinstance(patch, dict):
        raise PatchError(f"a {kind} patch is an object")
    if not checks:
        return body
    metadata = patch.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise PatchError("metadata: not an object")
    return msgspec.json.encode({**patch, "metadata": {**metadata, **checks}})


def holds(body: bytes, merge_patch: bytes) -> bool:
    """Whether applying the merge patch to the object in ``body`` would change nothing (RFC 7396)."""
    try:
        return _holds(_anything.decode(body), _anything.decode(merge_patch))
    except (msgspec.MsgspecError, RecursionError):
        return False


def _holds(have: Any, want: Any) -> bool:
    if not isinstance(want, dict):
        return bool(have == want)
    if not isinstance(have, dict):
        return False
    return all(
        key not in have if value is None else key in have and _holds(have[key], value) for key, value in want.items()
    )
