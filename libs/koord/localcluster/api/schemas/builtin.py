"""The schemas of built-in kinds, from the facts that `tools/schemas.py` took from a real server.

Nothing is read before the first question; then the file's lines are kept as bytes and one is decoded, with what it
refers to, when its type is first asked for.
"""

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from koord.localcluster.api.schemas.model import Schema
from koord.localcluster.api.schemas.reading import _fill

META = "apis.meta.v1.ObjectMeta"
# The types whose JSON form is not what their Go struct would say.
_SPECIAL: dict[str, dict[str, Any]] = {
    "api.resource.Quantity": {"type": "", "format": "quantity"},
    "util.intstr.IntOrString": {"type": "", "format": "int-or-string", "x-kubernetes-int-or-string": True},
    "runtime.RawExtension": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "apis.meta.v1.FieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "apis.meta.v1.MicroTime": {"type": "string", "format": "micro-time"},
    "apis.meta.v1.Time": {"type": "string", "format": "date-time"},
    "apiextensions.v1.JSON": {"x-kubernetes-preserve-unknown-fields": True},
    "apiextensions.v1.JSONSchemaPropsOrArray": {"x-kubernetes-preserve-unknown-fields": True},
    "apiextensions.v1.JSONSchemaPropsOrBool": {"x-kubernetes-preserve-unknown-fields": True},
    "apiextensions.v1.JSONSchemaPropsOrStringArray": {"x-kubernetes-preserve-unknown-fields": True},
}
_nodes: dict[str, Schema] = {}


@cache
def facts() -> dict[str, msgspec.Raw]:
    """Every known type by its short name (`core.v1.Pod`), as JSON."""
    data = files("koord.localcluster.api").joinpath("data/schemas.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, msgspec.Raw])


def fact(name: str) -> dict[str, Any]:
    """What the file says of one type."""
    source: dict[str, Any] = msgspec.json.decode(facts()[name])
    return source


def builtin_schema(name: str) -> Schema:
    """The node of a built-in type such as `core.v1.Pod`; KeyError when it is not known."""
    node = _nodes.get(name)
    if node is None:
        source = _SPECIAL.get(name) or fact(name)
        # Known before it is filled: types contain themselves.
        node = _nodes[name] = Schema(source.get("type", ""))
        node.definition = name
        _fill(node, source, builtin_schema)
    return node


def object_metadata() -> Schema:
    """The node of metadata, the same for every kind."""
    return builtin_schema(META)
