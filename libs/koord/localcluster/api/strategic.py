"""Strategic merge patch for built-in types, driven by the merge keys of their schemas.

The schemas say for each type and field: the type of the field's value or elements, whether a list merges, and by which
key. Directives: `$patch` (replace, delete, merge), `$retainKeys`, `$setElementOrder/<list>` and
`$deleteFromPrimitiveList/<list>`.
"""

from functools import cache
from typing import Any, NamedTuple

import msgspec

from koord.localcluster.api.errors import bad_request
from koord.localcluster.api.patches import PatchError
from koord.localcluster.api.schemas.builtin import builtin_schema, facts
from koord.localcluster.clusterapi import Object

_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVE = "$deleteFromPrimitiveList/"
_encode = msgspec.json.Encoder(order="sorted").encode


class FieldRule(NamedTuple):
    """What a patch may do to one field: `type` of its value or elements ("" when it has no known fields)."""

    type: str = ""
    merge: bool = False
    key: str = ""
    retain: bool = False


_PLAIN = FieldRule()


@cache
def rules_of(type_name: str) -> dict[str, FieldRule]:
    """The rules of a type's fields; a list that does not merge is replaced whole and has none."""
    if type_name not in facts():
        return {}
    rules = {}
    for field, inner in builtin_schema(type_name).properties.items():
        if inner.type == "array":
            if inner.merge and inner.items is not None:
                rules[field] = FieldRule(inner.items.definition, True, inner.merge_key, inner.retain_keys)
        elif inner.definition or inner.retain_keys:
            rules[field] = FieldRule(inner.definition, retain=inner.retain_keys)
    return rules


def strategic_merge(target: Object, patch: Object, type_name: str) -> Object:
    """Apply a strategic merge patch to an object of a type named as `core.v1.Pod`; the target is not changed."""
    if type_name not in facts():
        raise PatchError(f"no merge keys are known for {type_name}")
    merged = _merge_map(target, patch, type_name)
    return merged if isinstance(merged, dict) else {}


def _merge_map(target: Any, patch: Object, type_name: str) -> Any:
    directive = patch.get("$patch")
    if not isinstance(directive, str):
        directive = None  # what is no text is no directive, and no field either
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"unknown $patch directive {directive!r}")
    rules = rules_of(type_name)
    result = dict(target) if isinstance(target, dict) else {}
    retain = patch.get("$retainKeys")
    if retain is not None:
        if not isinstance(retain, list):
            raise bad_request("invalid patch format of retainKeys")
        result = {key: value for key, value in result.items() if key in retain}
    for key, value in patch.items():
        if key in ("$patch", "$retainKeys") or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_PRIMITIVE):
            name = key[len(_DELETE_PRIMITIVE) :]
            if isinstance(result.get(name), list) and isinstance(value, list) and name not in patch:
                result[name] = [item for item in result[name] if item not in value]
            continue
        rule = rules.get(key, _PLAIN)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge_map(result.get(key), value, rule.type)
        elif isinstance(value, list) and rule.merge:
            current = result.get(key)
            current = current if isinstance(current, list) else []
            merged = _merge_list(current, value, rule, patch.get(_DELETE_PRIMITIVE + key), key)
            result[key] = _ordered(merged, value, current, rule)
        else:
            result[key] = value
    for key, order in patch.items():
        if key.startswith(_ORDER):
            name = key[len(_ORDER) :]
            if isinstance(result.get(name), list):
                server = target.get(name) if isinstance(target, dict) else None
                rule = rules.get(name, _PLAIN)
                result[name] = _ordered(result[name], order, server if isinstance(server, list) else [], rule)
    return result


def _merge_list(current: list[Any], patch: list[Any], rule: FieldRule, deleted: Any, field: str) -> list[Any]:
    if not rule.key:
        gone = _places(deleted if isinstance(deleted, list) else [])
        kept = [item for item in current if _hashable(item) not in gone]
        have = _places(kept)
        return kept + [item for place, item in _places(patch, patch).items() if place not in have]
    replace = any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch)
    result = [] if replace else list(current)
    at: dict[Any, list[int]] = {}
    for i, have in enumerate(result):
        if isinstance(have, dict):
            at.setdefault(_hashable(have.get(rule.key)), []).append(i)
    for item in patch:
        if not isinstance(item, dict):
            raise PatchError(f"{field}: an element must be an object")
        directive = item.get("$patch")
        if directive == "replace":
            if len(item) > 1:
                result.append({key: value for key, value in item.items() if key != "$patch"})
            continue
        if rule.key not in item:
            raise PatchError(f"{field}: an element has no merge key {rule.key!r}")
        value = _hashable(item[rule.key])
        if directive == "delete":
            for i in at.pop(value, ()):
                result[i] = _GONE
        elif directive not in (None, "merge"):
            raise PatchError(f"{field}: unknown $patch directive {directive!r}")
        elif value in at:
            first = at[value][0]
            result[first] = _merge_map(result[first], item, rule.type)
        else:
            at[value] = [len(result)]
            result.append(_merge_map({}, item, rule.type))
    return [item for item in result if item is not _GONE]


_GONE = object()


def _hashable(value: Any) -> Any:
    """A value, or what stands for it in a dict if it cannot be a key itself."""
    return _encode(value) if isinstance(value, dict | list) else value


def _places(values: list[Any], held: list[Any] | None = None) -> dict[Any, Any]:
    """The first place of each value, or with `held` what is there in another list."""
    found: dict[Any, Any] = {}
    for i, value in enumerate(values):
        found.setdefault(_hashable(value), i if held is None else held[i])
    return found


def _ordered(items: list[Any], order: Any, server: list[Any], rule: FieldRule) -> list[Any]:
    """Elements named by the order come in that order, the others in that of before (`server`).

    Between the two groups the order of before decides as long as both elements were there; a new one comes first.
    """
    if not isinstance(order, list):
        raise PatchError("$setElementOrder must be a list")

    def key_of(item: Any) -> Any:
        return item.get(rule.key) if rule.key and isinstance(item, dict) else item

    wanted, known = _places([key_of(item) for item in order]), _places([key_of(item) for item in server])
    keys = [_hashable(key_of(item)) for item in items]
    ranked = sorted((wanted[key], i) for i, key in enumerate(keys) if key in wanted)
    named = [items[i] for _, i in ranked]
    others = [item for item, key in zip(items, keys, strict=True) if key not in wanted]
    result: list[Any] = []
    i = j = 0
    while i < len(others) and j < len(named):
        left, right = _hashable(key_of(others[i])), _hashable(key_of(named[j]))
        if left in known and right in known and known[left] < known[right]:
            result.append(others[i])
            i += 1
        else:
            result.append(named[j])
            j += 1
    return result + others[i:] + named[j:]
