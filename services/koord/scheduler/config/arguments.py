"""The ``pluginConfig`` of a profile: arguments decoded, completed and checked; defaults for plugins that have none."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from koord.scheduler.config.decoding import Args, Decoder
from koord.scheduler.config.document import PluginConfig
from koord.scheduler.config.errors import Problem, duplicate, invalid, required, unsupported
from koord.scheduler.config.registry import ALIASES, WITHOUT_EFFECT, PluginKind
from koord.scheduler.config.versions import VERSIONS


class Arguments(msgspec.Struct, frozen=True):
    """Arguments by plugin, and what is wrong with them."""

    args: Mapping[str, Args | Mapping[str, Any]]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def read_arguments(
    entries: Sequence[PluginConfig], kinds: Mapping[str, PluginKind], used: Sequence[str], path: str
) -> Arguments:
    """The arguments of the ``used`` plugins. ``path`` is that of the list."""
    args: dict[str, Args | Mapping[str, Any]] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        where = f"{path}[{index}]"
        name = ALIASES.get(entry.name, entry.name)
        if not name:
            problems.append(required(f"{where}.name"))
            continue
        if name in seen:
            problems.append(duplicate(where, name))
            continue
        seen.add(name)
        if name in WITHOUT_EFFECT or name not in kinds:
            why = WITHOUT_EFFECT.get(name, "there is no such plugin")
            warnings.append(Problem(where, f'arguments of "{name}" have no effect: {why}'))
            continue
        given: Any = {} if entry.args is None else entry.args
        kind = kinds[name].args
        if not isinstance(given, dict):
            problems.append(invalid(f"{where}.args", given, "must be a mapping"))
            continue
        if kind is None:
            args[name] = given
            continue
        found = _read(kind, given, (f"{entry.name}Args", f"{name}Args"), f"{where}.args", problems)
        if found is not None:
            args[name] = found
        if name not in used:
            warnings.append(Problem(where, f'arguments of "{name}" have no effect: the profile does not use it'))
    complete: dict[str, Args | Mapping[str, Any]] = {}
    for name in used:
        default = kinds[name].args if name in kinds else None
        if name in args:
            complete[name] = args[name]
        elif default is not None:
            complete[name] = default().completed()
    return Arguments(complete, tuple(problems), tuple(warnings))


def _read(
    type_: type[Args], given: dict[str, Any], names: tuple[str, ...], path: str, problems: list[Problem]
) -> Args | None:
    """Complete and valid arguments; None, with the problems added, if they are not."""
    version, kind = given.get("apiVersion", VERSIONS[0]), given.get("kind", names[0])
    if version not in VERSIONS:
        problems.append(unsupported(f"{path}.apiVersion", version, VERSIONS))
    if kind not in names:
        problems.append(unsupported(f"{path}.kind", kind, list(dict.fromkeys(names))))
    if version not in VERSIONS or kind not in names:
        return None
    decoder = Decoder()
    content = {key: value for key, value in given.items() if key not in ("apiVersion", "kind")}
    decoded = decoder.struct(type_, content, path)
    problems += decoder.problems
    if decoded is None:
        return None
    completed = decoded.completed()
    found = list(completed.problems(path))
    problems += found
    return None if found else completed
