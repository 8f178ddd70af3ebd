"""From OpenAPI schemas (JSON) to the compiled model; CRDs and the facts of built-in kinds share this code."""

from collections.abc import Callable
from typing import Any

from koord.localcluster.api.schemas.model import Rule, Schema

Resolve = Callable[[str], Schema]

_PLAIN = (
    ("pattern", "pattern"),
    ("format", "format"),
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("exclusiveMinimum", "exclusive_minimum"),
    ("exclusiveMaximum", "exclusive_maximum"),
    ("multipleOf", "multiple_of"),
    ("minLength", "min_length"),
    ("maxLength", "max_length"),
    ("minItems", "min_items"),
    ("maxItems", "max_items"),
    ("uniqueItems", "unique_items"),
    ("minProperties", "min_properties"),
    ("maxProperties", "max_properties"),
    ("nullable", "nullable"),
    ("default", "default"),
    ("x-kubernetes-int-or-string", "int_or_string"),
    ("x-kubernetes-preserve-unknown-fields", "preserve_unknown"),
    ("x-kubernetes-embedded-resource", "embedded_resource"),
    ("x-kubernetes-list-type", "list_type"),
    ("x-kubernetes-map-type", "map_type"),
    ("x-kubernetes-patch-merge-key", "merge_key"),
)


def read(source: dict[str, Any], resolve: Resolve | None = None) -> Schema:
    """The node of a schema. `resolve` finds the node that a `$ref` names; CRDs have none.

    The source must have passed the checks of a structural schema, or come from a server's own document.
    """
    reference = source.get("$ref")
    if reference is not None:
        if resolve is None:
            raise ValueError("$ref is not allowed here")
        target = resolve(reference)
        return _extended(target, source) if len(source) > 1 else target
    # What is an integer or a text may have a type beside that, which means nothing.
    node = Schema("" if source.get("x-kubernetes-int-or-string") else source.get("type", ""))
    _fill(node, source, resolve)
    return node


def _extended(target: Schema, source: dict[str, Any]) -> Schema:
    """A copy of a referenced node with what the field says besides; what is below is shared."""
    node = Schema()
    for slot in Schema.__slots__:
        setattr(node, slot, getattr(target, slot))
    _facts(node, source)
    return node


def _facts(node: Schema, source: dict[str, Any]) -> None:
    for key, slot in _PLAIN:
        if key in source:
            setattr(node, slot, source[key])
    if keys := source.get("x-kubernetes-list-map-keys"):
        node.list_map_keys = tuple(keys)
    if strategy := source.get("x-kubernetes-patch-strategy"):
        node.merge = "merge" in strategy
        node.retain_keys = "retainKeys" in strategy


def _fill(node: Schema, source: dict[str, Any], resolve: Resolve | None) -> None:
    _facts(node, source)
    node.required = tuple(source.get("required") or ())
    node.enum = tuple(source.get("enum") or ())
    if properties := source.get("properties"):
        node.properties = {name: read(inner, resolve) for name, inner in properties.items()}
    if isinstance(items := source.get("items"), dict):
        node.items = read(items, resolve)
    additional = source.get("additionalProperties")
    if isinstance(additional, dict):
        node.additional = read(additional, resolve)
    elif additional is False:
        node.forbids_others = True
    elif additional is True:
        node.preserve_unknown = True
    for key, slot in (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of")):
        if key in source:
            setattr(node, slot, tuple(read(inner, resolve) for inner in source[key]))
    if "not" in source:
        node.not_ = read(source["not"], resolve)
    node.rules = tuple(Rule(rule) for rule in source.get("x-kubernetes-validations") or ())
