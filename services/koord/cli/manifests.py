"""Reading manifests: every document of every file is checked before anything is created."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from koord.cli.errors import UsageProblem


class Manifest(NamedTuple):
    """One object and where it stands: ``file.yaml, document 2``."""

    source: str
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.body["metadata"]["name"])


def read(files: Iterable[Path], namespace: str | None) -> list[Manifest]:
    """The objects of all files in order, ``List`` objects taken apart; UsageProblem names file, document and rule."""
    manifests = [manifest for file in files for manifest in _file(file)]
    if not manifests:
        raise UsageProblem("the files hold no objects")
    for manifest in manifests:
        _check(manifest)
        if namespace is not None:
            own = manifest.body["metadata"].setdefault("namespace", namespace)
            if own != namespace:
                raise UsageProblem(
                    f"{manifest.source}: metadata.namespace: {own!r} is not the namespace asked for, {namespace!r}"
                )
    return manifests


def _file(file: Path) -> Iterator[Manifest]:
    try:
        text = file.read_text(encoding="utf-8")
        documents = list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except OSError as error:
        raise UsageProblem(f"{file}: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageProblem(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        source = f"{file}, document {number}"
        if isinstance(document, dict) and document.get("kind") == "List":
            items = document.get("items") or []
            if not isinstance(items, list):
                raise UsageProblem(f"{source}: items: must be a list, is {type(items).__name__}")
            for index, item in enumerate(items):
                yield Manifest(f"{source}, items[{index}]", item)
        else:
            yield Manifest(source, document)


def _check(manifest: Manifest) -> None:
    body = manifest.body
    if not isinstance(body, dict):
        raise UsageProblem(f"{manifest.source}: must be an object, is {type(body).__name__}")
    for field in ("apiVersion", "kind"):
        if not isinstance(body.get(field), str) or not body[field]:
            raise UsageProblem(f"{manifest.source}: {field}: must be a non-empty text")
    meta = body.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise UsageProblem(f"{manifest.source}: metadata.name: must be a non-empty text")
    if not isinstance(meta.get("namespace", ""), str):
        raise UsageProblem(f"{manifest.source}: metadata.namespace: must be a text")
    try:
        msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:  # YAML can say more than JSON: what holds itself, sets
        raise UsageProblem(f"{manifest.source}: cannot be written as JSON: {error}") from error
