"""Plugin sets of a profile merged with the defaults, point by point (spec 10 section 2.1).

Two steps, as upstream: the profile's ``multiPoint`` is merged with the default one; then every point gets, in this
order, what ``multiPoint`` has and the profile lists at the point too, the rest of ``multiPoint`` that implements the
point, and what the profile lists besides.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from koord.scheduler.config.decoding import Int32
from koord.scheduler.config.errors import Problem, duplicate, invalid
from koord.scheduler.config.model import POINTS, PluginUse, Point
from koord.scheduler.config.registry import ALIASES, REMOVED, UPSTREAM, WITHOUT_EFFECT, PluginKind

ALL = "*"
MULTI = "multiPoint"
LAST_PREBIND = "DefaultPreBind"


class PluginEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin in a set; weight 0 is none."""

    name: str = ""
    weight: Int32 = 0


class PluginSet(msgspec.Struct, frozen=True, rename="camel"):
    """What a profile says of one point."""

    enabled: tuple[PluginEntry, ...] = ()
    disabled: tuple[PluginEntry, ...] = ()


class Plugins(msgspec.Struct, frozen=True, rename="camel"):
    """The ``plugins`` of a profile."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()

    def items(self) -> Iterator[tuple[str, PluginSet]]:
        """The sets by the names they have in the file."""
        for field in msgspec.structs.fields(Plugins):
            yield field.encode_name, getattr(self, field.name)


class Merged(msgspec.Struct, frozen=True):
    """Plugins by point, all names (those of ``multiPoint`` first), those listed by the profile, what to warn of."""

    points: Mapping[Point, tuple[PluginUse, ...]]
    plugins: tuple[str, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def merge(plugins: Plugins | None, kinds: Mapping[str, PluginKind], path: str) -> Merged:
    """The plugins in force. ``path`` is that of the ``plugins`` block; without one the defaults are in force."""
    return _Merge(plugins, kinds, path).result()


class _Merge:
    """One profile's merge."""

    def __init__(self, plugins: Plugins | None, kinds: Mapping[str, PluginKind], path: str) -> None:
        self._given = plugins is not None
        self._kinds = kinds
        self._path = path
        self._problems: list[Problem] = []
        self._warnings: list[Problem] = []
        self._sets = {point: self._known(point, given) for point, given in (plugins or Plugins()).items()}

    def result(self) -> Merged:
        """Everything merged."""
        default = [PluginEntry(name, kind.weight) for name, kind in UPSTREAM.items()]
        multi = _with_defaults(default, self._sets[MULTI])
        self._once(multi, MULTI)
        points = {point: self._at(point, multi) for point in POINTS}
        for uses, point in ((points["queueSort"], "queueSort"), (points["bind"], "bind")):
            if not uses:
                self._problems.append(Problem(f"{self._path}.{point}", "Required value: at least one plugin"))
        if len(points["queueSort"]) > 1:
            count = len(points["queueSort"])
            rule = "only one queue sort plugin can be enabled"
            self._problems.append(invalid(f"{self._path}.queueSort.enabled", count, rule))
        used = {use.name for uses in points.values() for use in uses}
        names = [entry.name for entry in multi if entry.name in used]
        names += [use.name for uses in points.values() for use in uses]
        return Merged(points, tuple(dict.fromkeys(names)), tuple(self._problems), tuple(self._warnings))

    def _known(self, point: str, given: PluginSet) -> PluginSet:
        """The set with aliases resolved and without names that have no effect; problems for unknown ones."""
        enabled: list[PluginEntry] = []
        new_names = {entry.name for entry in given.enabled}  # the old name beside the new one is no error
        for index, entry in enumerate(given.enabled):
            where = f"{self._path}.{point}.enabled[{index}]"
            name = entry.name
            if name in WITHOUT_EFFECT:
                self._warnings.append(Problem(where, f"{name} has no effect: {WITHOUT_EFFECT[name]}"))
                continue
            if name in ALIASES:
                self._warnings.append(Problem(where, f"{name} is {ALIASES[name]} now"))
                name = ALIASES[name]
                if name in new_names:
                    continue
                new_names.add(name)
            kind = self._kinds.get(name)
            if name in REMOVED:
                self._problems.append(
                    invalid(where, name, "is not a plugin of kubescheduler.config.k8s.io/v1 any more")
                )
            elif kind is None:
                self._problems.append(invalid(f"{where}.name", name, f'plugin "{name}" does not exist'))
            elif point != MULTI and point not in kind.points:
                rule = f'plugin "{name}" does not extend {point}; it has {_listed(kind)}'
                self._problems.append(invalid(f"{where}.name", name, rule))
            elif entry.weight < 0:
                self._problems.append(invalid(f"{where}.weight", entry.weight, "must be non-negative"))
            else:
                enabled.append(PluginEntry(name, entry.weight))
        disabled = []
        for index, entry in enumerate(given.disabled):
            name = ALIASES.get(entry.name, entry.name)
            if name not in (ALL, *self._kinds, *WITHOUT_EFFECT, *REMOVED):
                where = f"{self._path}.{point}.disabled[{index}].name"
                self._warnings.append(Problem(where, f'there is no plugin "{name}" to disable'))
            disabled.append(PluginEntry(name))
        return PluginSet(tuple(enabled), tuple(disabled))

    def _at(self, point: Point, multi: Sequence[PluginEntry]) -> tuple[PluginUse, ...]:
        """The plugins of one point."""
        given = self._sets[point]
        enabled, disabled = list(given.enabled), {entry.name for entry in given.disabled}
        listed = {entry.name for entry in enabled}
        if point == "preBind" and self._given and not {ALL, LAST_PREBIND} & (disabled | listed):
            enabled.append(PluginEntry(LAST_PREBIND))
            listed.add(LAST_PREBIND)
        self._once(enabled, point)
        shared: list[PluginEntry] = []
        rest: list[PluginEntry] = []
        if ALL not in disabled:
            candidates = [
                entry for entry in multi if point in self._kinds[entry.name].points and entry.name not in disabled
            ]
            rest = [entry for entry in candidates if entry.name not in listed]
            twice = {entry.name for entry in candidates}
            shared = [entry for entry in enabled if entry.name in twice]
        shared_names = {entry.name for entry in shared}
        others = [entry for entry in enabled if entry.name not in shared_names]
        weighs = point == "score"
        return tuple(PluginUse(entry.name, (entry.weight or 1) if weighs else 0) for entry in (*shared, *rest, *others))

    def _once(self, entries: Sequence[PluginEntry], point: str) -> None:
        """A plugin twice is an error."""
        names = [entry.name for entry in entries]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            self._problems.append(duplicate(f"{self._path}.{point}.enabled", name))


def _with_defaults(default: Sequence[PluginEntry], given: PluginSet) -> list[PluginEntry]:
    """The default list less what is disabled; what is listed anew replaces its default in place, the rest follows."""
    disabled = {entry.name for entry in given.disabled}
    # Of a name that is listed twice the last replaces the default and the first stays: told as a duplicate.
    replacing = {entry.name: index for index, entry in enumerate(given.enabled)}
    merged: list[PluginEntry] = []
    replaced: set[int] = set()
    if ALL not in disabled:
        for entry in default:
            if entry.name in disabled:
                continue
            index = replacing.get(entry.name)
            if index is None:
                merged.append(entry)
            else:
                merged.append(given.enabled[index])
                replaced.add(index)
    return merged + [entry for index, entry in enumerate(given.enabled) if index not in replaced]


def _listed(kind: PluginKind) -> str:
    return ", ".join(point for point in POINTS if point in kind.points)
