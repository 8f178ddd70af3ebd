"""The schemas of custom resources: what a definition says, with the parts that every object has."""

from typing import Any

from koord.localcluster.api.schemas.builtin import object_metadata
from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.schemas.reading import read

_TEXT = Schema("string")


def custom_schema(source: dict[str, Any] | None) -> Schema:
    """The node of one version's `openAPIV3Schema`; an open object without one. The source must be structural."""
    node = read(source or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    _complete(node)
    return node


def _complete(node: Schema) -> None:
    """Give whole objects, at the root and where they are embedded, their type and metadata."""
    pending = [(node, True)]
    while pending:
        node, whole = pending.pop()
        if whole or node.embedded_resource:
            own = node.properties.get("metadata")
            if own is not None and own.properties:
                node.metadata_rules = own
            node.properties = {
                **node.properties,
                "apiVersion": _TEXT,
                "kind": _TEXT,
                "metadata": object_metadata(),
            }
        below = [inner for name, inner in node.properties.items() if inner is not _TEXT and not inner.definition]
        below += [inner for inner in (node.items, node.additional) if inner is not None]
        pending.extend((inner, False) for inner in below)
