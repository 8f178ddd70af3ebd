"""What happens to a custom object before it is checked: unknown fields go, defaults come, nulls that mean nothing go.

All work in place. The order is the real server's: prune, default, drop nulls.
"""

import copy
from typing import Any

from msgspec import UNSET

from koord.localcluster.api.schemas.model import Schema

_META = ("apiVersion", "kind", "metadata")


def prune(value: Any, schema: Schema | None, path: str, unknown: list[str]) -> None:
    """Drop fields that the schema does not have; their paths are added to `unknown`."""
    if isinstance(value, dict):
        preserve = schema is not None and schema.preserve_unknown
        properties = schema.properties if schema is not None else {}
        additional = schema.additional if schema is not None else None
        whole = not path or (schema is not None and schema.embedded_resource)
        for name in list(value):
            if whole and name in _META:
                continue  # `metadata` is read by its own rules
            inner = properties.get(name) or additional
            if inner is not None:
                prune(value[name], inner, f"{path}.{name}" if path else name, unknown)
            elif schema is not None and schema.forbids_others:
                prune(value[name], None, f"{path}.{name}" if path else name, unknown)  # to be refused, not dropped
            elif not preserve:
                unknown.append(f"{path}.{name}" if path else name)
                del value[name]
    elif isinstance(value, list):
        items = schema.items if schema is not None else None
        if schema is not None and schema.preserve_unknown and items is None:
            return
        for i, inner in enumerate(value):
            prune(inner, items, f"{path}[{i}]", unknown)


def fill(value: Any, schema: Schema) -> None:
    """Give fields that are absent (or null where null is not allowed) their defaults."""
    if not schema.defaults_below:
        return
    if isinstance(value, dict):
        for name, inner in schema.properties.items():
            if inner.default is not UNSET:
                given = value.get(name, UNSET)
                if given is UNSET or (given is None and not inner.nullable):
                    value[name] = copy.deepcopy(inner.default)
        for name, given in value.items():
            below = schema.properties.get(name) or schema.additional
            if below is not None:
                if given is None and not below.nullable and below.default is not UNSET:
                    value[name] = given = copy.deepcopy(below.default)
                if isinstance(given, dict | list):
                    fill(given, below)
    elif isinstance(value, list) and schema.items is not None:
        items = schema.items
        for i, given in enumerate(value):
            if given is None and not items.nullable and items.default is not UNSET:
                value[i] = given = copy.deepcopy(items.default)
            if isinstance(given, dict | list):
                fill(given, items)


def drop_nulls(value: Any, schema: Schema) -> None:
    """Remove null fields whose schema does not allow null; null elements of lists stay, to be refused."""
    if isinstance(value, dict):
        for name in list(value):
            inner = schema.properties.get(name) or schema.additional
            if inner is None:
                continue
            given = value[name]
            if given is None:
                if not inner.nullable and inner.default is UNSET:
                    del value[name]
            elif isinstance(given, dict | list):
                drop_nulls(given, inner)
    elif isinstance(value, list) and schema.items is not None:
        for given in value:
            if isinstance(given, dict | list):
                drop_nulls(given, schema.items)
