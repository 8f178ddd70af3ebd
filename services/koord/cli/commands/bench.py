"""``koord bench``: checked-in scenarios, found by the entry-point group ``koord.bench``."""

import inspect
from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.console import Console

from koord.cli.errors import CommandError, UsageProblem
from koord.cli.loop import run as run_loop
from koord.cli.options import Json
from koord.cli.output import print_json, print_rows, table
from koord.contracts.bench import BenchResult, Scenario

GROUP = "koord.bench"


def scenarios() -> dict[str, Scenario]:
    """All scenarios by name, sorted."""
    found: dict[str, Scenario] = {}
    for entry in entry_points(group=GROUP):
        loaded = entry.load()
        for scenario in loaded if isinstance(loaded, list | tuple) else (loaded,):
            found[scenario.name] = scenario
    return dict(sorted(found.items()))


def bench(
    name: Annotated[str | None, typer.Argument(metavar="SCENARIO", help="Which scenario to run.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the scenarios.")] = False,
    json: Json = False,
    parameter: Annotated[
        list[str] | None, typer.Option("--set", "-p", metavar="KEY=VALUE", help="Change a parameter (repeatable).")
    ] = None,
) -> None:
    """Measure koord on this machine.

    A scenario prints its figures, what others publish for the same work, the ratios, and what bounded it. Exit code 1
    means that a threshold was missed.
    """
    known = scenarios()
    if list_ or name is None:
        rows = [{"name": scenario.name, "summary": scenario.summary} for scenario in known.values()]
        print_rows({"name": "SCENARIO", "summary": "WHAT IT MEASURES"}, rows, as_json=json, nothing="none installed")
        return
    if name not in known:
        raise UsageProblem(f"scenario {name!r}: unknown; known are {', '.join(known)}")
    scenario = known[name]
    result = run_loop(_run(scenario, _parameters(scenario, parameter or [])))
    if json:
        print_json(result)
    else:
        _show(result)
    if not result.ok:
        raise CommandError(f"scenario {name}: below its threshold")


async def _run(scenario: Scenario, parameters: dict[str, object]) -> BenchResult:
    try:
        made = scenario.run(parameters)
        return await made if inspect.isawaitable(made) else made
    except ValueError as error:
        raise UsageProblem(f"scenario {scenario.name}: {error}") from error
    except TimeoutError as error:
        raise CommandError(f"scenario {scenario.name}: did not end in time") from error


def _parameters(scenario: Scenario, pairs: list[str]) -> dict[str, object]:
    """The scenario's defaults with the user's changes; each must be of its default's kind, numbers at least 1."""
    parameters = dict(scenario.defaults)
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise UsageProblem(f"--set {pair!r}: write it as KEY=VALUE")
        if key not in parameters:
            raise UsageProblem(f"--set {key}: unknown; {scenario.name} knows {', '.join(parameters)}")
        if isinstance(parameters[key], str):
            parameters[key] = text
        elif text.isascii() and text.isdigit() and int(text) >= 1:
            parameters[key] = int(text)
        else:
            raise UsageProblem(f"--set {key}: must be an integer of at least 1, got {text!r}")
    return parameters


def _figure(value: float) -> str:
    """Whole numbers from a thousand on, four digits below."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _show(result: BenchResult) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{result.scenario}[/bold]  {'ok' if result.ok else '[red]below its threshold[/red]'}")
    rows = [
        {
            "figure": key,
            "value": _figure(value),
            "published": _figure(result.published[key]) if key in result.published else None,
            "ratio": _figure(result.ratios[key]) if key in result.ratios else None,
        }
        for key, value in result.figures.items()
    ]
    # A ratio or a published figure of its own, such as one way against the other.
    alone = (result.published | result.ratios).keys() - result.figures.keys()
    rows += [
        {
            "figure": key,
            "published": _figure(result.published[key]) if key in result.published else None,
            "ratio": _figure(result.ratios[key]) if key in result.ratios else None,
        }
        for key in sorted(alone)
    ]
    console.print(table({"figure": "FIGURE", "value": "VALUE", "published": "PUBLISHED", "ratio": "RATIO"}, rows))
    console.print(f"bound by: {result.bound_by}")
