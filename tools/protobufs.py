"""Make `data/protobuf.json`: the field numbers of the kinds that clients send as protobuf.

    python -m tools.protobufs --modules FOLDER

FOLDER has the Go modules `k8s.io/api@V` and `k8s.io/apimachinery@V` (the module cache does). Only the tags of struct
fields are read, which are Kubernetes' wire format: name, number, type. A line per message: differences read well.
"""

import argparse
import json
import re
import sys
from pathlib import Path

OUT = Path(__file__).parents[1] / "libs/koord/localcluster/api/data/protobuf.json"
META = "k8s.io/apimachinery/pkg/apis/meta/v1"
PACKAGES = (
    "core/v1",
    "apps/v1",
    "batch/v1",
    "policy/v1",
    "rbac/v1",
    "resource/v1",
    "networking/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "scheduling/v1",
    "storage/v1",
    "coordination/v1",
    "discovery/v1",
    "events/v1",
    "authorization/v1",
    "authentication/v1",
    "admissionregistration/v1",
)
GROUPS = {
    "core": "",
    "rbac": "rbac.authorization.k8s.io",
    "resource": "resource.k8s.io",
    "networking": "networking.k8s.io",
    "scheduling": "scheduling.k8s.io",
    "storage": "storage.k8s.io",
    "coordination": "coordination.k8s.io",
    "discovery": "discovery.k8s.io",
    "events": "events.k8s.io",
    "admissionregistration": "admissionregistration.k8s.io",
    "authorization": "authorization.k8s.io",
    "authentication": "authentication.k8s.io",
}
# What is written in a way of its own.
SPECIAL = {
    f"{META}.Time": "time",
    f"{META}.MicroTime": "time",
    f"{META}.Duration": "duration",
    f"{META}.FieldsV1": "fields",
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "quantity",
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": "intorstring",
    "k8s.io/apimachinery/pkg/runtime.RawExtension": "raw",
    "k8s.io/apimachinery/pkg/types.UID": "string",
    "k8s.io/apimachinery/pkg/types.NodeName": "string",
}
BASIC = {
    "string": "string",
    "bool": "bool",
    "int": "int",
    "int32": "int",
    "int64": "int",
    "uint32": "int",
    "uint64": "int",
    "float64": "float",
    "[]byte": "bytes",
}
_STRUCT = re.compile(r"^type (\w+) struct \{$")
_NAMED = re.compile(r"^type (\w+) ([\w.\[\]*]+)$")
_FIELD = re.compile(r"^\s+(?:(\w+)\s+)?([\w.\[\]*]+)\s+`(.*)`")
_TAG = re.compile(r'protobuf:"\w+,(\d+)')
_JSON = re.compile(r'json:"([^",]*)')
_IMPORT = re.compile(r'^\s*(?:import\s+)?(?:(\w+)\s+)?"(k8s\.io/[^"]+)"')


class Package:
    """The declarations of one Go package: structs with their fields, and names for other types."""

    def __init__(self, path: str, folder: Path) -> None:
        self.path = path
        self.structs: dict[str, list[tuple[str, str, str]]] = {}
        self.named: dict[str, str] = {}
        self.imports: dict[str, str] = {}
        for name in ("types.go", "well_known_types.go"):
            if (folder / name).exists():
                self._read((folder / name).read_text())

    def _read(self, text: str) -> None:
        struct = ""
        for line in text.splitlines():
            if struct:
                if line == "}":
                    struct = ""
                elif found := _FIELD.match(line):
                    self.structs[struct].append((found[1] or "", found[2], found[3]))
            elif found := _STRUCT.match(line):
                struct = found[1]
                self.structs[struct] = []
            elif found := _NAMED.match(line):
                self.named[found[1]] = found[2]
            elif found := _IMPORT.match(line):
                self.imports[found[1] or found[2].rsplit("/", 1)[-1]] = found[2]


class Reader:
    """Turns Go types into descriptions of messages, following what they refer to."""

    def __init__(self, modules: Path, version: str) -> None:
        self._roots = {
            "k8s.io/api/": modules / f"k8s.io/api@{version}",
            "k8s.io/apimachinery/": modules / f"k8s.io/apimachinery@{version}",
        }
        self._packages: dict[str, Package] = {}
        self.messages: dict[str, dict[str, str]] = {}

    def package(self, path: str) -> Package:
        """The declarations of a package, read when it is first asked for."""
        if path not in self._packages:
            root, folder = next((root, folder) for root, folder in self._roots.items() if path.startswith(root))
            self._packages[path] = Package(path, folder / path.removeprefix(root))
        return self._packages[path]

    def message(self, path: str, name: str) -> str:
        """The name of the message of a struct, with all that it refers to."""
        known = f"{path}.{name}".removeprefix("k8s.io/api/").removeprefix("k8s.io/apimachinery/pkg/apis/")
        if known in self.messages:
            return known
        fields: dict[str, str] = {}
        self.messages[known] = fields
        package = self.package(path)
        if name not in package.structs:
            # A list under a name of its own is a message with that list.
            fields["1"] = self._type(package, package.named[name])
            return known
        for _, type_, tags in package.structs[name]:
            tag, json_name = _TAG.search(tags), _JSON.search(tags)
            if tag is None or json_name is None:
                continue
            # What JSON has in line is a message of its own here: it has no name.
            if json_name[1] != "-":
                fields[tag[1]] = f"{self._type(package, type_)} {json_name[1]}".rstrip()
        return known

    def _type(self, package: Package, type_: str) -> str:
        if type_ in BASIC:
            return BASIC[type_]
        if type_.startswith("*"):
            return "optional " + self._type(package, type_[1:])
        if type_.startswith("[]"):
            return "list " + self._type(package, type_[2:])
        if type_.startswith("map["):
            return "map " + self._type(package, type_[type_.index("]") + 1 :])
        alias, _, name = type_.rpartition(".")
        path = package.imports[alias] if alias else package.path
        if f"{path}.{name}" in SPECIAL:
            return SPECIAL[f"{path}.{name}"]
        owner = self.package(path)
        if name in owner.named and not owner.named[name].startswith("[]"):
            return self._type(owner, owner.named[name])
        return self.message(path, name)


def collect(modules: Path, version: str) -> dict[str, dict[str, object]]:
    """Kinds (apiVersion and kind to message) and messages (number to type and name)."""
    reader = Reader(modules, version)
    kinds: dict[str, object] = {}
    for place in PACKAGES:
        group, api = place.split("/")
        package = reader.package(f"k8s.io/api/{place}")
        api_version = "/".join(part for part in (GROUPS.get(group, group), api) if part)
        for name, fields in package.structs.items():
            if any(type_.endswith("TypeMeta") for _, type_, _ in fields) and not name.endswith("List"):
                kinds[f"{api_version} {name}"] = reader.message(package.path, name)
    options = reader.message(META, "DeleteOptions")
    kinds["v1 DeleteOptions"] = kinds["meta.k8s.io/v1 DeleteOptions"] = options
    return {"kinds": kinds, "messages": dict(reader.messages)}


def render(found: dict[str, dict[str, object]]) -> str:
    """The file: JSON, sorted, a line for each kind and message."""
    parts = []
    for section in ("kinds", "messages"):
        lines = [
            f"  {json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}"
            for name, value in sorted(found[section].items())
        ]
        parts.append(f' "{section}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", type=Path, required=True, help="a Go module cache")
    parser.add_argument("--version", default="v0.37.2")
    options = parser.parse_args()
    OUT.write_text(render(collect(options.modules, options.version)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
