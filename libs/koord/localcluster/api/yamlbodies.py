"""YAML bodies as Kubernetes reads them: what they say in JSON. Applies and whole objects share this.

Times are texts, keys are texts, and keys that come twice are remembered. A body whose aliases stand for more than it
could hold itself is refused before it is put together: nine lines can name a billion values.
"""

import math
import re
from typing import Any

import yaml

from koord.localcluster.api.store import encode

MOST_NODES = 1_000_000
"""Values that a body may stand for once its aliases are written out."""


class YamlError(ValueError):
    """A body that is no YAML, or whose content JSON does not know."""


# The one in C, where there is one, is ten times as fast.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the base class, noting the keys that come again."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    self.repeated.append(f'line {key.start_mark.line + 1}: key "{key.value}" already set in map')
                seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        if all(type(key) is str for key in made):
            return made
        return {_key(key): value for key, value in made.items()}

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """A number with a fraction; JSON knows neither infinity nor what is no number."""
        number = float(self.construct_yaml_float(node))
        if not math.isfinite(number):
            raise YamlError(f"json: unsupported value: {node.value}")
        return number


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_number)
_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"[yYnN]$"), list("yYnN"))
_Loader.bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}


def read_yaml(body: bytes) -> tuple[bytes, list[str]]:
    """The first document of a body as JSON, and a sentence for every key that comes again; `YamlError` otherwise."""
    try:
        loader = _Loader(body)
        try:
            if not loader.check_node():
                return b"null", []
            node = loader.get_node()
            if _size(node, {}, set()) > MOST_NODES:
                raise YamlError("yaml: document contains excessive aliasing")
            return encode(loader.construct_document(node)), loader.repeated
        finally:
            loader.dispose()
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
        raise YamlError(f"yaml: {_printable(error)}") from error
    except RecursionError as error:
        raise YamlError("yaml: exceeded max depth") from error


def _key(key: Any) -> str:
    """A key as JSON has it; there are none but texts."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise YamlError(f"unsupported map key of type: {type(key).__name__}")


def _size(node: yaml.Node, known: dict[int, int], open_: set[int]) -> int:
    """How many values a node stands for, those that aliases repeat counted every time."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    at = id(node)
    if at in known:
        return known[at]
    if at in open_:
        raise YamlError("yaml: anchor value contains itself")
    open_.add(at)
    size = 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            size += _size(key, known, open_) + _size(value, known, open_)
    else:
        for value in node.value:
            size += _size(value, known, open_)
    open_.remove(at)
    known[at] = size
    return size


def _printable(error: Exception) -> str:
    return str(error).encode("utf-8", "replace").decode()
