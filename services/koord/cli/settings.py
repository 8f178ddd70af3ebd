"""Settings of the local cluster: section ``local`` of the file, ``KOORD_LOCAL__*``, and flags of ``up``."""

import os
from pathlib import Path

import msgspec

from koord.cli.errors import UsageProblem
from koord.cli.replicas import SERVICES, parse
from koord.runtime.settings import SettingsError, load


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``redis``: path of another redis-server binary than the packaged one; it needs Functions (7.0 or newer).

    ``replicas``: processes of each service; a number for all, ``gateway=2,scheduler=3``, or a mapping.
    """

    redis: str = ""
    replicas: int | str | dict[str, int] = 1

    def __post_init__(self) -> None:
        if self.redis and not (Path(self.redis).is_file() and os.access(self.redis, os.X_OK)):
            raise ValueError(f"redis: {self.redis!r} is no program")
        try:
            self.processes()
        except ValueError as error:
            raise ValueError(f"replicas: {error}") from error

    def processes(self) -> dict[str, int]:
        """``replicas`` by service."""
        return parse(self.replicas, SERVICES)


def local_settings(config: Path | None, redis: str | None, replicas: str | None = None) -> LocalSettings:
    """Merged from file, environment and flag; UsageProblem names the key, its source and the rule."""
    try:
        return load(
            LocalSettings, file=config, env=os.environ, flags={"redis": redis, "replicas": replicas}, section="local"
        )
    except SettingsError as error:
        raise UsageProblem(str(error)) from error
