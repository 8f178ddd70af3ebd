"""Makes the table of strategic merge keys from the schema data of the `kubernetes-validate` package.

Usage: python -m tools.merge_keys [--check]

Only types that a served built-in kind reaches, and only fields that matter to a merge, are kept: the result is small
enough to check in, so the server needs no schema package at run time.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import msgspec

from koord.localcluster.api.builtin import register_builtins
from koord.localcluster.api.resources import Registry

VERSION = "1.37.0"
TARGET = Path(__file__).parent.parent / "libs/koord/localcluster/api/data/merge_keys.json"
_PREFIXES = ("io.k8s.apiextensions-apiserver.pkg.apis.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.api.")


def short(name: str) -> str:
    """`io.k8s.api.core.v1.Pod` as `core.v1.Pod`."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _reference(schema: dict[str, Any]) -> str:
    ref = schema.get("$ref") or schema.get("items", {}).get("$ref", "")
    extra = schema.get("additionalProperties")
    if not ref and isinstance(extra, dict):
        return ""
    return str(ref).rsplit("/", 1)[-1]


def table() -> dict[str, dict[str, list[Any]]]:
    """Type -> field -> [type of value or elements, list merges, merge key, retain keys]."""
    package = Path(kubernetes_validate.__file__).parent
    path = package / "kubernetes-json-schema" / f"v{VERSION}-local" / "_definitions.json"
    definitions = {short(name): schema for name, schema in msgspec.json.decode(path.read_bytes())["$defs"].items()}
    registry = Registry()
    register_builtins(registry)
    pending = [resource.strategic or "" for resource in registry.resources.values()]
    missing = [name for name in pending if name not in definitions]
    if missing:
        raise SystemExit(f"no schema for {missing}")
    raw: dict[str, dict[str, list[Any]]] = {}
    while pending:
        name = pending.pop()
        if name in raw or name not in definitions:
            continue
        fields: dict[str, list[Any]] = {}
        for field, schema in definitions[name].get("properties", {}).items():
            strategy = str(schema.get("x-kubernetes-patch-strategy", ""))
            is_list = "items" in schema
            merge = is_list and "merge" in strategy
            target = short(_reference(schema))
            if is_list and not merge:
                continue  # replaced whole: what is inside does not matter
            if target:
                pending.append(target)
            key = str(schema.get("x-kubernetes-patch-merge-key", "")) if merge else ""
            fields[field] = [target, merge, key, "retainKeys" in strategy]
        raw[name] = fields
    return _prune(raw)


def _prune(raw: dict[str, dict[str, list[Any]]]) -> dict[str, dict[str, list[Any]]]:
    """Drop fields and types below which no list ever merges."""
    useful = {name for name, fields in raw.items() if any(rule[1] for rule in fields.values())}
    while True:
        more = {name for name, fields in raw.items() if any(rule[0] in useful for rule in fields.values())}
        if more <= useful:
            break
        useful |= more
    pruned: dict[str, dict[str, list[Any]]] = {}
    registry = Registry()
    register_builtins(registry)
    roots = {resource.strategic for resource in registry.resources.values()}
    for name in sorted(raw):
        if name not in useful and name not in roots:
            continue
        fields = {}
        for field, (target, merge, key, retain) in sorted(raw[name].items()):
            kept = target if target in useful else ""
            if kept or merge or retain:
                fields[field] = _trimmed([kept, merge, key, retain])
        pruned[name] = fields
    return pruned


def _trimmed(rule: list[Any]) -> list[Any]:
    while rule and not rule[-1]:
        rule.pop()
    return rule


def main(arguments: list[str] | None = None) -> int:
    """Write the table, or with --check compare it with the one checked in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    lines = [f"{msgspec.json.encode(name).decode()}:{msgspec.json.encode(t).decode()}" for name, t in table().items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if check:
        same = TARGET.is_file() and TARGET.read_text() == text
        print("merge keys are up to date" if same else f"{TARGET.name} differs: run python -m tools.merge_keys")
        return 0 if same else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
