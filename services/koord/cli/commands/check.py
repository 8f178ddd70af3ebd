"""``koord check``: whether a scheduler's file, or its command line, would be taken, before anything is started."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from koord.cli import options
from koord.cli.errors import UsageProblem
from koord.cli.output import print_json
from koord.runtime.settings import SCHEDULER_NAMES

if TYPE_CHECKING:
    from koord.scheduler.config.extenders import ExtenderConfig
    from koord.scheduler.config.model import SchedulerConfiguration

app = typer.Typer(no_args_is_help=True, help="Check a file before it is used.")


@app.callback()
def _checks() -> None:
    """What is checked is the next word."""


@app.command("scheduler-config")
def scheduler_config(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A KubeSchedulerConfiguration, or a ConfigMap with one.")
    ],
    slo_config: Annotated[
        Path | None,
        typer.Option("--slo-config", metavar="FILE", help="The ConfigMap slo-controller-config to compare it with."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Read a KubeSchedulerConfiguration of kube-scheduler or Koordinator as the scheduler would.

    Shows every profile with its plugins, point by point and in order, the extenders, what has no effect, and what to
    watch out for. Whatever is wrong is told with the path of its field; exit code 2. With the ConfigMap of
    Koordinator's manager it also warns where the agents evict pods before the scheduler stops placing them.
    """
    from koord.scheduler.config.errors import ConfigError
    from koord.scheduler.config.reading import read
    from koord.scheduler.config.registry import left_out
    from koord.scheduler.plugins.coscheduling import Coscheduling
    from koord.scheduler.plugins.elasticquota import ElasticQuota
    from koord.scheduler.plugins.factories import BUILT
    from koord.scheduler.plugins.profile import configured_profiles, installed, third_party_points

    text = _text(file)
    try:
        found = read(text, third_party_points(), source=str(file))
        # Of a third party's plugin only itself knows what its arguments mean.
        configured_profiles(found, Coscheduling(), ElasticQuota())
        absent = tuple(map(str, left_out(found, BUILT | installed().keys())))
        differing = () if slo_config is None else _disagreements(found, slo_config)
        found = msgspec.structs.replace(found, warnings=(*found.warnings, *absent, *differing))
    except ConfigError as error:
        raise UsageProblem(str(error)) from error
    if json:
        print_json(_plain(found))
    else:
        _print(found)


def _text(file: Path) -> str:
    from koord.scheduler.config.errors import unreadable

    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(f"{file}: {unreadable(error)}") from error


def _disagreements(found: "SchedulerConfiguration", slo_config: Path) -> tuple[str, ...]:
    """Where the profiles fill nodes beyond what the agents let be."""
    from koord.scheduler.config.koordinatorargs import LoadAwareSchedulingArgs
    from koord.scheduler.plugins.loadaware.agreement import disagreements, strategies

    of_agents = strategies(_text(slo_config), str(slo_config))
    return tuple(
        f"profile {profile.scheduler_name}: LoadAwareScheduling: {text}"
        for profile in found.profiles
        if "LoadAwareScheduling" in profile.at("filter")
        for text in disagreements(profile.arguments("LoadAwareScheduling", LoadAwareSchedulingArgs), of_agents)
    )


@app.command("scheduler-flags", context_settings={"ignore_unknown_options": True})
def scheduler_flags(
    arguments: Annotated[
        list[str], typer.Argument(metavar="-- ARGS", help="The arguments of the original's Deployment, after a --.")
    ],
    json: options.Json = False,
) -> None:
    """Read the command line of koord-scheduler or kube-scheduler, and show the settings that mean the same.

    What changes nothing in koord is warned of, with why; what is wrong or not there is told; exit code 2.
    """
    import yaml

    from koord.scheduler.config.errors import ConfigError
    from koord.scheduler.config.switches import read_switches

    try:
        found = read_switches(arguments)
    except ConfigError as error:
        raise UsageProblem("; ".join(map(str, error.problems))) from error
    if json:
        print_json({"settings": dict(found.settings), "warnings": list(found.warnings)})
        return
    console = Console(highlight=False)
    if found.settings:
        console.print(escape(yaml.safe_dump(dict(found.settings), sort_keys=False).rstrip()), soft_wrap=True)
    else:
        console.print("no settings are needed")
    for warning in found.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)


def _plain(found: "SchedulerConfiguration") -> dict[str, object]:
    return {
        "profiles": [
            {
                "schedulerName": profile.scheduler_name,
                "plugins": {
                    point: [{"name": use.name, **({"weight": use.weight} if use.weight else {})} for use in uses]
                    for point, uses in profile.points.items()
                },
            }
            for profile in found.profiles
        ],
        "settings": _settings(found),
        "extenders": [
            {"urlPrefix": extender.url_prefix, "verbs": _verbs(extender), "managedResources": list(extender.managed)}
            for extender in found.extenders
        ],
        "ignored": list(found.ignored),
        "warnings": list(found.warnings),
    }


def _settings(found: "SchedulerConfiguration") -> dict[str, list[str]]:
    """What else has to be set for the file to be taken: whose pods koord places, unless they are those by default."""
    names = [profile.scheduler_name for profile in found.profiles]
    return {} if set(names) == set(SCHEDULER_NAMES) else {"scheduler_names": names}


def _verbs(extender: "ExtenderConfig") -> dict[str, str]:
    """What it is called for, and how that is named in its URL."""
    steps = {
        "filter": extender.filter_verb,
        "prioritize": extender.prioritize_verb,
        "preempt": extender.preempt_verb,
        "bind": extender.bind_verb,
    }
    return {step: verb for step, verb in steps.items() if verb}


def _print(found: "SchedulerConfiguration") -> None:
    console = Console(highlight=False)
    for profile in found.profiles:
        console.print(f"[bold]{escape(profile.scheduler_name)}[/bold]")
        for point, uses in profile.points.items():
            names = ", ".join(f"{use.name} {use.weight}" if use.weight else use.name for use in uses)
            console.print(f"  {point:<10} {escape(names) or '-'}", soft_wrap=True)
    for extender in found.extenders:
        whose = f" for pods that ask for {', '.join(extender.managed)}" if extender.managed else ""
        verbs = ", ".join(f"{step} {verb}" for step, verb in _verbs(extender).items())
        console.print(f"extender {escape(extender.url_prefix)}: {escape(verbs) or '-'}{escape(whose)}", soft_wrap=True)
    for key, needed in _settings(found).items():
        named = escape(f"[{', '.join(needed)}]")
        console.print(f"needs the setting {key}: {named}", soft_wrap=True)
    if found.ignored:
        console.print(f"no effect: {escape(', '.join(found.ignored))}", soft_wrap=True)
    for warning in found.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)
