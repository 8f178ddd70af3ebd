"""Whether an applied configuration fits its type, in the words of a real server."""

from typing import Any

from koord.localcluster.api.apply.comparing import kind_of
from koord.localcluster.api.apply.elements import TypedError, element, shown
from koord.localcluster.api.apply.structure import ListType, MapType, Type


def check(value: Any, of: Type) -> None:
    """TypedError when a configuration has unknown fields, values of other types or list items twice."""
    errors = list(_check(value, of))
    if errors:
        raise TypedError(errors[0] if len(errors) == 1 else "\n".join(["errors:", *(f"  {text}" for text in errors)]))


def _check(value: Any, of: Type) -> list[str]:
    if value is None:
        return []
    kind = kind_of(value, of)
    if kind == "map":
        assert of.map is not None
        return _check_map(value, of.map) if isinstance(value, dict) else [f": expected map, got {_go(value)}"]
    if kind == "list":
        assert of.list is not None
        return _check_list(value, of.list) if isinstance(value, list) else [f": expected list, got {_go(value)}"]
    return _check_scalar(value, of.scalar)


def _check_map(value: dict[str, Any], of: MapType) -> list[str]:
    errors: list[str] = []
    for name in sorted(value):
        inner = of.field(name)
        if inner is None:
            errors.append(f".{name}: field not declared in schema")
            break
        errors.extend(f".{name}{text}" for text in _check(value[name], inner))
    return errors


def _check_list(items: list[Any], of: ListType) -> list[str]:
    errors: list[str] = []
    seen = set()
    for index, item in enumerate(items):
        step = f"i:{index}"
        if of.associative:
            try:
                step = element(item, of)
            except TypedError as error:
                return [*errors, f": element {index}: {error}"]
            if step in seen:
                errors.append(f": duplicate entries for key {shown([step])}")
            seen.add(step)
        errors.extend(f"{shown([step])}{text}" for text in _check(item, of.element))
    return errors


def _check_scalar(value: Any, scalar: str) -> list[str]:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if scalar == "numeric":
        return [] if numeric else [f": expected numeric (int or float), got {_go_type(value)}"]
    if scalar == "string":
        return (
            []
            if isinstance(value, str)
            else [f": expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"]
        )
    if scalar == "boolean":
        return [] if isinstance(value, bool) else [f": expected boolean, got {_go(value)}"]
    return [f": expected any scalar, got {_go(value)}"] if isinstance(value, dict | list) else []


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, dict):
        return "map[string]interface {}"
    return "[]interface {}" if isinstance(value, list) else "string"


def _go_syntax(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        inner = ", ".join(f'"{key}":{_go_syntax(value[key])}' for key in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _go(value: Any) -> str:
    """A value as Go prints a pointer to a struct that holds it."""
    return f"&{{{_go_plain(value)}}}"


def _go_plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go_plain(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_plain, value)) + "]"
    return "<nil>" if value is None else str(value)
