"""How values of a type are merged and owned: as a whole, by field, or by list item. Built from schemas, while walked.

The rules that make a type of a schema are those of a real server: lists without a type are atomic, maps are granular,
an object without declared fields may hold anything, and a type is deduced from the value where nothing is known.
"""

from typing import Any

from msgspec import UNSET

from koord.localcluster.api.schemas.model import Schema

_MOST_ROOTS = 512


class ListType:
    """A list. `associative`: items are owned one by one, by the fields in `keys`, or by value when there are none."""

    __slots__ = ("_items", "_known", "_preserve", "associative", "keys")

    def __init__(self, associative: bool, keys: tuple[str, ...], items: Schema | None, preserve: bool) -> None:
        self.associative = associative
        self.keys = keys
        self._items = items
        self._preserve = preserve
        self._known: Type | None = None

    @property
    def element(self) -> "Type":
        """The type of the items."""
        if self._known is None:
            self._known = UNTYPED if self._items is None else _type_of(self._items, self._preserve)
        return self._known

    def default(self, key: str) -> Any:
        """What a key field that is left out stands for; UNSET when for nothing."""
        declared = self._items.properties.get(key) if self._items is not None else None
        if self._items is None or declared is None:
            return UNSET
        if declared.default is UNSET and self._items.definition and key in self._items.required:
            # A field of a Go struct that is no pointer is never absent.
            return {"string": "", "integer": 0}.get(declared.type, UNSET)
        return declared.default


class MapType:
    """An object or a map. `atomic`: owned as a whole."""

    __slots__ = ("_known", "_preserve", "_schema", "_values", "atomic")

    def __init__(self, atomic: bool, schema: Schema | None, preserve: bool) -> None:
        self.atomic = atomic
        self._schema = schema
        self._preserve = preserve
        self._known: dict[str, Type] = {}
        self._values: Type | None = None

    def declares(self, name: str) -> bool:
        """Whether this is a declared field, not the key of a map."""
        return self._schema is not None and name in self._schema.properties

    def field(self, name: str) -> "Type | None":
        """The type of a field or of a map's values; None when there can be no such field."""
        schema = self._schema
        if schema is None:
            return DEDUCED
        known = self._known.get(name)
        if known is not None:
            return known
        declared = schema.properties.get(name)
        if declared is not None:
            known = self._known[name] = _type_of(declared, self._preserve)
            return known
        if self._values is None:
            if schema.additional is not None:
                self._values = _type_of(schema.additional, self._preserve)
            elif self._preserve or not schema.properties:
                self._values = DEDUCED
        return self._values


class Type:
    """What a value may be; more than one of the three where the schema leaves it open.

    scalar: `string`, `numeric`, `boolean` or `untyped`. `open` types have no schema: nothing of them is known.
    """

    __slots__ = ("list", "map", "scalar", "several")

    def __init__(self, scalar: str = "", list_: ListType | None = None, map_: MapType | None = None) -> None:
        self.scalar = scalar
        self.list = list_
        self.map = map_
        self.several = bool(scalar) + (list_ is not None) + (map_ is not None) > 1


UNTYPED = Type("untyped", ListType(False, (), None, False), MapType(True, None, False))
"""Anything, owned as a whole."""
DEDUCED = Type("untyped", ListType(False, (), None, False), MapType(False, None, False))
"""Anything, maps by their keys and all else as a whole."""

_SCALARS = {"integer": "numeric", "number": "numeric", "boolean": "boolean"}
_VALUES_ONLY = ("api.resource.Quantity", "util.intstr.IntOrString")
_WHOLE = ("runtime.RawExtension",)
_roots: dict[Schema, Type] = {}


def type_of(schema: Schema | None) -> Type:
    """The type of whole objects of a schema; deduced from the objects when there is none."""
    if schema is None:
        return DEDUCED
    known = _roots.get(schema)
    if known is None:
        if len(_roots) >= _MOST_ROOTS:
            _roots.clear()
        known = _roots[schema] = _type_of(schema, preserve=False)
    return known


def _type_of(schema: Schema, preserve: bool) -> Type:
    if schema.definition in _VALUES_ONLY:
        return Type("untyped")
    if schema.definition in _WHOLE:
        return UNTYPED
    preserve = preserve or schema.preserve_unknown
    kind = schema.type
    if kind == "object":
        return Type(map_=_map_of(schema, preserve))
    if kind == "array":
        return Type(list_=_list_of(schema, preserve))
    if kind == "string":
        return Type("string" if schema.format in ("", "byte") else "untyped")
    if kind:
        return Type(_SCALARS[kind])
    return Type("untyped", _list_of(schema, preserve), _map_of(schema, preserve))


def _list_of(schema: Schema, preserve: bool) -> ListType:
    associative = schema.list_type in ("set", "map")
    keys = schema.list_map_keys if schema.list_type == "map" else ()
    return ListType(associative, keys, schema.items, preserve)


def _map_of(schema: Schema, preserve: bool) -> MapType:
    return MapType(schema.map_type == "atomic", schema, preserve)
