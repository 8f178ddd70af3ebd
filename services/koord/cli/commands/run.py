"""``koord run SERVICE``: one service, found by the entry-point group ``koord.services``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from koord.cli.errors import UsageProblem


def run(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="gateway, reconciler, quota, queue, scheduler, …")],
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with settings.", show_default=False)
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, e.g. nats.url=… (repeatable).")
    ] = None,
) -> None:
    """Run one service until SIGTERM.

    Settings come from defaults, then the YAML file, then KOORD_* variables (KOORD_NATS__URL is nats.url), then --set.
    """
    from koord.runtime.run import run_service
    from koord.runtime.service import UnknownService, find
    from koord.runtime.settings import SettingsError, load_service

    try:
        spec = find(service)
        common, own = load_service(spec, file=config, flags=_flags(set_ or []))
    except (UnknownService, SettingsError) as error:
        raise UsageProblem(str(error)) from error
    sys.exit(run_service(spec, common, own))


def _flags(pairs: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise UsageProblem(f"--set {pair!r}: write it as KEY=VALUE")
        flags[key] = text
    return flags
