"""Settings of the local cluster: section ``local`` of the file, ``KOORD_LOCAL__*``, and flags of ``up``."""

import os
from pathlib import Path

import msgspec

from koord.cli.errors import UsageProblem
from koord.runtime.settings import SettingsError, load


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``redis``: path of another redis-server binary than the packaged one; it needs Functions (7.0 or newer)."""

    redis: str = ""

    def __post_init__(self) -> None:
        if self.redis and not (Path(self.redis).is_file() and os.access(self.redis, os.X_OK)):
            raise ValueError(f"redis: {self.redis!r} is no program")


def local_settings(config: Path | None, redis: str | None) -> LocalSettings:
    """Merged from file, environment and flag; UsageProblem names the key, its source and the rule."""
    try:
        return load(LocalSettings, file=config, env=os.environ, flags={"redis": redis}, section="local")
    except SettingsError as error:
        raise UsageProblem(str(error)) from error
