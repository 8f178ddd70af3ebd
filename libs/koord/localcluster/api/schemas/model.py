"""The compiled form of a structural schema: a graph of nodes, one per object, list, map or value.

Nodes of built-in kinds are shared and may be cyclic (JSONSchemaProps contains itself), so nothing may walk the graph
without walking an object along with it.
"""

from typing import Any

from msgspec import UNSET


class Rule:
    """One entry of `x-kubernetes-validations`."""

    __slots__ = ("field_path", "message", "message_expression", "optional_old_self", "reason", "text")

    def __init__(self, source: dict[str, Any]) -> None:
        self.text: str = source.get("rule", "")
        self.message: str = source.get("message", "")
        self.message_expression: str = source.get("messageExpression", "")
        self.reason: str = source.get("reason", "") or "FieldValueInvalid"
        self.field_path: str = source.get("fieldPath", "")
        self.optional_old_self: bool = bool(source.get("optionalOldSelf"))


class Schema:
    """One node.

    type: `object`, `array`, `string`, `integer`, `number`, `boolean`, or `` for any value.
    properties: the known fields of an object. additional: the schema of the values of a map. An object with neither is
    open when `preserve_unknown`, else it has no fields.
    list_type: `atomic`, `set` or `map` (then `list_map_keys`); map_type: `granular` or `atomic` (of objects and maps).
    merge, merge_key, retain_keys: strategic merge patch, of fields of built-in kinds only.
    definition: the name of a built-in type (`core.v1.Container`), empty elsewhere.
    default: UNSET when there is none.
    defaults_below, keyed_below: whether anything below has a default, whether this or anything below is a list that is
    a set or a map, rules_below: whether this or anything below has rules in CEL; known of custom resources only
    (`note_below`), so that walks leave out what is of no use to them.
    """

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "default",
        "defaults_below",
        "definition",
        "embedded_resource",
        "enum",
        "exclusive_maximum",
        "exclusive_minimum",
        "forbids_others",
        "format",
        "int_or_string",
        "items",
        "keyed_below",
        "list_map_keys",
        "list_type",
        "map_type",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "merge",
        "merge_key",
        "metadata_rules",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "not_",
        "nullable",
        "one_of",
        "pattern",
        "preserve_unknown",
        "properties",
        "required",
        "retain_keys",
        "rules",
        "rules_below",
        "type",
        "unique_items",
    )

    def __init__(self, type_: str = "") -> None:
        self.type = type_
        self.properties: dict[str, Schema] = {}
        self.items: Schema | None = None
        self.additional: Schema | None = None
        self.forbids_others = False  # `additionalProperties: false`
        self.required: tuple[str, ...] = ()
        self.default: Any = UNSET
        self.enum: tuple[Any, ...] = ()
        self.pattern = ""
        self.format = ""
        self.minimum: int | float | None = None
        self.maximum: int | float | None = None
        self.exclusive_minimum = False
        self.exclusive_maximum = False
        self.multiple_of: int | float | None = None
        self.min_length: int | None = None
        self.max_length: int | None = None
        self.min_items: int | None = None
        self.max_items: int | None = None
        self.unique_items = False
        self.min_properties: int | None = None
        self.max_properties: int | None = None
        self.nullable = False
        self.int_or_string = False
        self.preserve_unknown = False
        self.embedded_resource = False
        self.list_type = "atomic"
        self.list_map_keys: tuple[str, ...] = ()
        self.map_type = "granular"
        self.all_of: tuple[Schema, ...] = ()
        self.any_of: tuple[Schema, ...] = ()
        self.one_of: tuple[Schema, ...] = ()
        self.not_: Schema | None = None
        self.rules: tuple[Rule, ...] = ()
        self.merge = False
        self.merge_key = ""
        self.retain_keys = False
        self.definition = ""
        self.metadata_rules: Schema | None = None
        self.defaults_below = False
        self.keyed_below = False
        self.rules_below = False

    def __repr__(self) -> str:
        return f"Schema({self.definition or self.type or 'any'})"

    @property
    def open(self) -> bool:
        """Whether fields that are not in `properties` are allowed and nothing is known of them."""
        return self.preserve_unknown or not self.type

    def note_below(self) -> None:
        """Fill in what is known of all that is below. Not for built-in types, which contain themselves."""
        below = [*self.properties.values(), self.items, self.additional]
        for inner in below:
            if inner is not None and not inner.definition:
                inner.note_below()
                self.defaults_below |= inner.defaults_below or inner.default is not UNSET
                self.keyed_below |= inner.keyed_below
                self.rules_below |= inner.rules_below
        self.rules_below |= bool(self.rules)
        self.keyed_below |= self.list_type != "atomic"

    def field(self, name: str) -> "Schema | None":
        """The schema of one field or map value; None when nothing is known of it."""
        return self.properties.get(name) or self.additional
