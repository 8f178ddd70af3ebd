"""YAML (or JSON) text to plain values, as strictly as Kubernetes reads it: no double keys, no surprises.

A key whose value is null counts as not given, as in Go. What is repeated by anchors and aliases is bounded, so that no
short text stands for a huge one.
"""

from typing import Any

import yaml

from koord.scheduler.config.errors import ConfigError, Problem, invalid

MOST_CHARACTERS = 1 << 20
"""What a ConfigMap can hold."""
_MOST_VALUES = 100_000
_DEEPEST = 60


class _Loader(yaml.SafeLoader):
    """Safe YAML; a mapping with a key twice is an error, and what looks like a date is text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        "while reading a mapping", node.start_mark, f"key {key.value!r} twice", key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load(text: str, source: str = "") -> dict[str, Any]:
    """The one mapping in ``text``; ConfigError when it is no YAML, no mapping, or more than one document."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError([Problem("", f"has {len(text)} characters; at most {MOST_CHARACTERS}")], source)
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except Exception as error:  # explicit tags on nonsense make the reader raise nearly anything
        reason = str(error) if isinstance(error, yaml.YAMLError) else f"{type(error).__name__}: {error}"
        raise ConfigError([Problem("", f"not YAML: {' '.join(reason.split())}")], source) from error
    if not documents:
        raise ConfigError([Problem("", "is empty")], source)
    if len(documents) > 1:
        raise ConfigError([Problem("", f"has {len(documents)} documents; must be one")], source)
    try:  # first of all: what contains itself, or grows by aliases, cannot be shown in a message either
        plain = _Plain().value(documents[0], "", 0)
    except ConfigError as error:
        raise ConfigError(error.problems, source) from None
    if not isinstance(plain, dict):
        raise ConfigError([invalid("", plain, "must be a mapping")], source)
    return plain


class _Plain:
    """Copies values without nulls and with text keys only, and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def value(self, value: object, path: str, depth: int) -> object:
        """A copy; ConfigError for what JSON cannot say, and for too much of it."""
        self._count += 1
        if self._count > _MOST_VALUES or depth > _DEEPEST:
            what = f"more than {_MOST_VALUES} values" if depth <= _DEEPEST else f"more than {_DEEPEST} levels"
            raise ConfigError([Problem(path[:100], f"{what}, aliases counted")])
        if isinstance(value, dict):
            copy = {}
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise ConfigError([invalid(path, key, "must be text to be a key")])
                if inner is not None:
                    copy[key] = self.value(inner, child(path, key), depth + 1)
            return copy
        if isinstance(value, list):
            return [self.value(inner, f"{path}[{index}]", depth + 1) for index, inner in enumerate(value)]
        if value is None or isinstance(value, str | bool | int | float):
            return value
        raise ConfigError([Problem(path, f"is a {type(value).__name__}, which no field takes")])


def child(path: str, key: str) -> str:
    """The path of a field below ``path``."""
    return f"{path}.{key}" if path else key
