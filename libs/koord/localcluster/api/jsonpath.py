"""The simple JSON paths of CRDs (`.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`)."""

import re
from typing import Any

_TOKEN = re.compile(
    r"""\.(?P<field>(?:[^.\[\]\\]|\\.)+)
      | \[(?P<index>-?\d+)\]
      | \[(?P<slice>-?\d*:-?\d*)\]
      | \[(?P<all>\*)\]
      | \['(?P<quoted>(?:[^'\\]|\\.)*)'\]
      | \[\?\(\s*@\.(?P<key>[^\s=!<>]+?)\s*==\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s)]+))\s*\)\]
    """,
    re.VERBOSE,
)


class JsonPathError(ValueError):
    """A path outside of the supported subset."""


class JsonPath:
    """A compiled path; `find` answers every value it leads to."""

    def __init__(self, text: str) -> None:
        self.text = text
        body = text.strip()
        if body.startswith("{") and body.endswith("}"):
            body = body[1:-1]
        if body and body[0] not in ".[":
            body = "." + body
        self._steps: list[tuple[str, Any]] = []
        at = 0
        while at < len(body):
            token = _TOKEN.match(body, at)
            if token is None:
                raise JsonPathError(f"{text!r}: cannot read {body[at:]!r}")
            at = token.end()
            self._steps.append(_step(token))

    def find(self, obj: Any) -> list[Any]:
        """All values at the path; empty when it leads nowhere."""
        found = [obj]
        for kind, argument in self._steps:
            found = [value for node in found for value in _walk(node, kind, argument)]
            if not found:
                break
        return found

    def first(self, obj: Any) -> Any:
        """The first value at the path, or None."""
        found = self.find(obj)
        return found[0] if found else None


def _step(token: re.Match[str]) -> tuple[str, Any]:
    if (field := token["field"]) is not None:
        return ("all", None) if field == "*" else ("field", re.sub(r"\\(.)", r"\1", field))
    if (quoted := token["quoted"]) is not None:
        return "field", re.sub(r"\\(.)", r"\1", quoted)
    if (index := token["index"]) is not None:
        return "index", int(index)
    if (part := token["slice"]) is not None:
        start, _, end = part.partition(":")
        return "slice", slice(int(start) if start else None, int(end) if end else None)
    if token["all"] is not None:
        return "all", None
    value = next(text for text in (token["double"], token["single"], token["bare"]) if text is not None)
    return "filter", (token["key"].split("."), value)


def _walk(node: Any, kind: str, argument: Any) -> list[Any]:
    if kind == "field":
        return [node[argument]] if isinstance(node, dict) and argument in node else []
    if kind == "all":
        return list(node.values()) if isinstance(node, dict) else list(node) if isinstance(node, list) else []
    if not isinstance(node, list):
        return []
    if kind == "slice":
        return list(node[argument])
    if kind == "index":
        return [node[argument]] if -len(node) <= argument < len(node) else []
    keys, wanted = argument
    passed = []
    for item in node:
        value = item
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value is not None and text == wanted:
            passed.append(item)
    return passed
