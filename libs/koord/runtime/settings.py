"""Settings: defaults < YAML file < ``KOORD_*`` environment < flags, typed by msgspec.

One file serves all services: what everybody shares lies at the top, what is a service's own under its name. An
environment variable names a key by its path: ``KOORD_NATS__URL``, ``KOORD_SCHEDULER__BATCH``. A key nobody knows and a
value of the wrong type are errors that name the key's path and where it came from; nothing is guessed.
"""

import os
import re
import types
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import entry_points
from math import isfinite
from pathlib import Path
from typing import Literal, Protocol, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
import yaml

from koord.contracts.subjects import Subjects
from koord.telemetry.logs import without_password

T = TypeVar("T", bound=msgspec.Struct)

PREFIX = "KOORD_"
SCHEDULER_NAMES = ("koord-scheduler",)
# Top-level keys that belong to no service: the embedded cluster's.
OTHER_SECTIONS = ("local",)
_SLOT = re.compile(r"[A-Za-z0-9_-]{0,63}")


_NATS_SCHEMES = ("nats", "tls", "ws", "wss")
_REDIS_SCHEMES = ("redis", "rediss", "unix")


class SettingsError(ValueError):
    """A setting that is unknown, of the wrong type, or unreadable; names path, source and rule."""


def _check_url(url: str, schemes: Sequence[str], *, bare: bool = False) -> None:
    """ValueError if nobody can connect to ``url``. ``bare``: ``host:port`` without a scheme will do."""
    try:
        parts = urlsplit(url if "://" in url or not bare else f"{schemes[0]}://{url}")
        known = parts.scheme in schemes and bool(parts.hostname or (parts.scheme == "unix" and parts.path))
        known = known and (parts.port is None or parts.port > 0)
    except ValueError:  # a port or an IPv6 address that is none
        known = False
    if not known:
        others = ", ".join(schemes[1:])
        raise ValueError(f"url: {without_password(url)!r} is no address like {schemes[0]}://host:port (or {others})")


class NatsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the bus is. ``url`` may name several servers, comma-separated; ``replicas``: how many hold each stream."""

    url: str = "nats://127.0.0.1:4222"
    credentials: str = ""
    replicas: Literal[1, 3, 5] = 1

    def __post_init__(self) -> None:
        servers = self.url.split(",")
        for server in servers:
            _check_url(server.strip(), _NATS_SCHEMES, bare=True)


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the ledger is."""

    url: str = "redis://127.0.0.1:6379/0"

    def __post_init__(self) -> None:
        _check_url(self.url, _REDIS_SCHEMES)


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where ``/healthz``, ``/readyz`` and ``/metrics`` are served; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much to log and how."""

    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    format: Literal["json", "console"] = "console"


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every service shares. ``drain_s`` bounds the tidy end after SIGTERM.

    ``locks``: a directory shared by processes on one machine, by which they see each other's death at once.
    ``slot``: this process's name among the replicas of its service, the same after a restart ("": it has none).
    ``disable_default_quota``: a pod has the quota that its label names, or none (docs/quota.md).
    ``scheduler_names``: the values of spec.schedulerName whose pods koord places: the schedulers serve them, and the
    ledger takes what others nominate for foreign.
    """

    cluster: str = "local"
    nats: NatsSettings = NatsSettings()
    redis: RedisSettings = RedisSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    kubeconfig: str = ""
    locks: str = ""
    slot: str = ""
    drain_s: float = 15.0
    disable_default_quota: bool = False
    scheduler_names: tuple[str, ...] = SCHEDULER_NAMES

    def __post_init__(self) -> None:
        Subjects(self.cluster)
        if not _SLOT.fullmatch(self.slot):
            raise ValueError(f"slot: {self.slot!r} must be of letters, digits, - and _")
        if self.drain_s < 0:
            raise ValueError(f"drain_s: {self.drain_s:g} is negative")
        if not self.scheduler_names or not all(self.scheduler_names):
            raise ValueError("scheduler_names: at least one name, none of them empty")


def read_file(path: str | Path) -> dict[str, object]:
    """The settings file as a mapping; SettingsError when it cannot be read or is no mapping."""
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {path}: not YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"settings file {path}: must be a mapping of settings, is a {type(content).__name__}")
    return content


def load(
    type_: type[T],
    *,
    file: str | Path | Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    section: str = "",
    sections: Collection[str] = (),
    label: str = "file",
) -> T:
    """The settings of ``type_`` merged from all sources.

    ``section`` is the key in the file and the first word of the environment variables ("" for the shared top level);
    at the top level ``sections`` lists the keys that belong to services. ``flags`` are relative to the section, nested
    or dotted (``{"nats.url": ...}``); None means not given. SettingsError names path and source of what is wrong.
    """
    merge = _Merge(type_, section, sections)
    if file is not None:
        name, content = (label, file) if isinstance(file, Mapping) else (f"file {file}", read_file(file))
        part: object = content.get(section) if section else content
        if part is not None:
            merge.nested(part, name)
    for variable, text in sorted((env or {}).items()):
        merge.variable(variable, text)
    for path, value in (flags or {}).items():
        if value is not None:
            merge.flag(path.split("."), value)
    return merge.result()


class Spec(Protocol):
    """What :func:`load_service` needs to know of a service."""

    @property
    def name(self) -> str:
        """The service's name, and its section."""

    @property
    def settings(self) -> type[msgspec.Struct]:
        """The type of its own settings."""


def load_service(
    spec: Spec,
    *,
    file: str | Path | Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> tuple[CommonSettings, msgspec.Struct]:
    """The shared settings and the service's own. ``env`` is the process's unless given.

    A flag is ``nats.url`` (shared) or ``scheduler.batch`` (the service's own). SettingsError as :func:`load`.
    """
    content = read_file(file) if isinstance(file, str | Path) else file
    label = f"file {file}" if isinstance(file, str | Path) else "file"
    environment = os.environ if env is None else env
    sections = {point.name for point in entry_points(group="koord.services")} | {spec.name, *OTHER_SECTIONS}
    common: dict[str, object] = {}
    own: dict[str, object] = {}
    for key, value in (flags or {}).items():
        first, _, rest = key.partition(".")
        if first == spec.name and rest:
            own[rest] = value
        else:
            common[key] = value
    return (
        load(CommonSettings, file=content, env=environment, flags=common, sections=sections, label=label),
        load(spec.settings, file=content, env=environment, flags=own, section=spec.name, label=label),
    )


class _Merge:
    """Values by path, each checked against the type of its field when it arrives."""

    def __init__(self, type_: type[msgspec.Struct], section: str, sections: Collection[str]) -> None:
        self._type = type_
        self._section = section
        self._sections = frozenset(sections)
        self._values: dict[str, object] = {}
        self._sources: dict[str, str] = {}

    def nested(self, content: object, source: str) -> None:
        """A whole mapping from the file."""
        if not isinstance(content, Mapping):
            raise SettingsError(f"{self._name([])} ({source}): must be a mapping, is {_kind(content)}")
        for key, value in content.items():
            if not self._section and key in self._sections:
                continue
            self.value([str(key)], value, source)

    def variable(self, variable: str, text: str) -> None:
        """One environment variable, if it is one of ours."""
        if not variable.startswith(PREFIX):
            return
        path = variable[len(PREFIX) :].lower().split("__")
        if self._section:
            if path[0].replace("-", "_") != self._section.replace("-", "_") or len(path) < 2:
                return
            path = path[1:]
        elif path[0] in self._sections or (path == ["cluster"] and ("/" in text or "." in text)):
            return  # a service's own; or the CLI's KOORD_CLUSTER, the path of a cluster file
        self.value(path, _parsed(self._field(path, variable), text), variable)

    def flag(self, path: list[str], value: object) -> None:
        """One flag; its text is read as a variable's."""
        self.value(path, _parsed(self._field(path, "flag"), value) if isinstance(value, str) else value, "flag")

    def value(self, path: list[str], value: object, source: str) -> None:
        """One value or sub-mapping at ``path``."""
        expected = self._field(path, source)
        struct = _struct(expected)
        if struct is not None:
            if not isinstance(value, Mapping):
                raise SettingsError(f"{self._name(path)} ({source}): must be a mapping, is {_kind(value)}")
            for key, inner in value.items():
                self.value([*path, str(key)], inner, source)
            return
        try:
            checked = msgspec.convert(value, type=expected, strict=source.startswith("file"))
        except (msgspec.ValidationError, ValueError) as error:
            raise SettingsError(f"{self._name(path)} ({source}): {_reason(error)}") from error
        if isinstance(checked, float) and not isfinite(checked):  # it would pass every comparison, or none
            raise SettingsError(f"{self._name(path)} ({source}): {checked} is not a finite number")
        target = self._values
        for key in path[:-1]:
            inner = target.setdefault(key, {})
            assert isinstance(inner, dict)
            target = inner
        target[path[-1]] = msgspec.to_builtins(checked)
        self._sources[".".join(path)] = source

    def result(self) -> T:  # type: ignore[type-var]
        """The struct; SettingsError when something required is missing or a rule across fields is broken."""
        try:
            return msgspec.convert(self._values, type=self._type)  # type: ignore[return-value]
        except (msgspec.ValidationError, ValueError) as error:
            text = str(error)
            path = text.rpartition(" - at `$")[2].rstrip("`").lstrip(".") if " - at `$" in text else ""
            source = self._sources.get(path, "")
            where = self._name(path.split(".") if path else []) + (f" ({source})" if source else "")
            raise SettingsError(f"{where}: {_reason(error)}") from error

    def _field(self, path: list[str], source: str) -> object:
        """The declared type at ``path``."""
        current: object = self._type
        for depth, key in enumerate(path):
            struct = _struct(current)
            if struct is None:
                raise SettingsError(f"{self._name(path[:depth])} ({source}): has no settings of its own ({key!r})")
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
            if key not in fields:
                known = ", ".join(sorted(fields) + (sorted(self._sections) if depth == 0 else []))
                raise SettingsError(f"{self._name(path[: depth + 1])} ({source}): unknown setting; known: {known}")
            current = fields[key]
        return current

    def _name(self, path: list[str]) -> str:
        return ".".join([self._section, *path] if self._section else path) or "settings"


def _struct(type_: object) -> type[msgspec.Struct] | None:
    """The struct that ``type_`` is, also when it may be None."""
    for candidate in _members(type_):
        if isinstance(candidate, type) and issubclass(candidate, msgspec.Struct):
            return candidate
    return None


def _members(type_: object) -> tuple[object, ...]:
    return get_args(type_) if get_origin(type_) in (Union, types.UnionType) else (type_,)


def _parsed(type_: object, text: str) -> object:
    """An environment variable's text as the field wants it: text stays text, the rest is read as YAML."""
    members = _members(type_)
    if any(member is str or get_origin(member) is Literal for member in members):
        return text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str) and any(get_origin(member) in (list, tuple, set, frozenset) for member in members):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _kind(value: object) -> str:
    return "empty" if value is None else f"a {type(value).__name__}"


def _reason(error: Exception) -> str:
    text = str(error)
    return text.partition(" - at `$")[0]
