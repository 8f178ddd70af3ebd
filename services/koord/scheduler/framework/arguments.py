"""Arguments of third-party plugins: read into a struct, every problem named with the path of its field."""

from collections.abc import Mapping
from typing import Any, TypeVar

from koord.scheduler.config.decoding import Args, Decoder, Int32, Int64, Seconds
from koord.scheduler.config.errors import ConfigError, Problem, invalid, required, unsupported

__all__ = [
    "Args",
    "ConfigError",
    "Int32",
    "Int64",
    "Problem",
    "Seconds",
    "arguments",
    "invalid",
    "required",
    "unsupported",
]
A = TypeVar("A", bound=Args)
_OF_KUBERNETES = ("apiVersion", "kind")


def arguments(type_: type[A], settings: Mapping[str, Any]) -> A:
    """What a plugin's factory was told, with defaults filled in; ``apiVersion`` and ``kind`` are left out.

    ConfigError names all that is wrong at once: unknown fields, types, and what ``type_.problems("")`` finds, each by
    its path in the arguments. Whoever loads the plugin puts the path of the arguments before it.
    """
    decoder = Decoder()
    given = {key: value for key, value in settings.items() if key not in _OF_KUBERNETES}
    decoded = decoder.struct(type_, given, "")
    if decoded is None:
        raise ConfigError(decoder.problems)
    completed = decoded.completed()
    problems = list(completed.problems(""))
    if problems:
        raise ConfigError(problems)
    return completed
