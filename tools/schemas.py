"""Takes the facts about built-in types from a real server's OpenAPI v3 documents, without descriptions.

Usage: python -m tools.schemas --kubeconfig FILE [--check]

The result, one line per type, is checked in, so the embedded server needs neither a schema package nor a cluster. With
--check it is compared with what is checked in instead.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

TARGET = Path(__file__).parent.parent / "libs/koord/localcluster/api/data/schemas.json"
GROUPS = (
    "api/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apps/v1",
    "apis/authentication.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/autoscaling/v1",
    "apis/autoscaling/v2",
    "apis/batch/v1",
    "apis/coordination.k8s.io/v1",
    "apis/discovery.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/node.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/resource.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
    "apis/storage.k8s.io/v1",
)
_PREFIXES = ("io.k8s.apiextensions-apiserver.pkg.apis.", "io.k8s.apimachinery.pkg.", "io.k8s.api.")
# Defaults that are Go's zero values say nothing.
_ZERO: tuple[Any, ...] = ("", 0, False, {}, [])


def short(name: str) -> str:
    """`io.k8s.api.core.v1.Pod` as `core.v1.Pod`."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _reference(value: str) -> str:
    return short(value.rsplit("/", 1)[-1])


def trimmed(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without descriptions and empty defaults, its references by short name."""
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "description" or (key == "default" and value in _ZERO):
            continue
        if key == "allOf" and len(value) == 1 and "$ref" in value[0]:
            kept["$ref"] = _reference(value[0]["$ref"])
        elif key == "$ref":
            kept["$ref"] = _reference(value)
        elif key == "properties":
            kept[key] = {name: trimmed(inner) for name, inner in value.items()}
        elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
            kept[key] = trimmed(value)
        elif key in ("anyOf", "oneOf", "allOf"):
            kept[key] = [trimmed(inner) for inner in value]
        elif key != "x-kubernetes-group-version-kind" or len(value) == 1:
            # Types that belong to every group (DeleteOptions) list them all: of no use, and different by server.
            kept[key] = value
    return kept


def collect(documents: list[dict[str, Any]]) -> str:
    """The text of the file: sorted, one type a line."""
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        for name, schema in document["components"]["schemas"].items():
            found[short(name)] = trimmed(schema)
    encode = msgspec.json.Encoder(order="sorted").encode
    lines = [f"{encode(name).decode()}:{encode(found[name]).decode()}" for name in sorted(found)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def fetch(kubeconfig: str) -> list[dict[str, Any]]:
    """The documents of all groups, by kubectl."""
    documents = []
    for path in GROUPS:
        command = ["kubectl", "--kubeconfig", kubeconfig, "get", "--raw", f"/openapi/v3/{path}"]
        documents.append(msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout))
    return documents


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or with --check compare it with the one checked in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    text = collect(fetch(given.kubeconfig))
    if given.check:
        same = TARGET.is_file() and TARGET.read_text() == text
        print("schemas are up to date" if same else f"{TARGET.name} differs: run python -m tools.schemas")
        return 0 if same else 1
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
