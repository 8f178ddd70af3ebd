"""``koord bench``: checked-in scenarios, found by the entry-point group ``koord.bench``."""

import inspect
from importlib.metadata import entry_points
from typing import Annotated, Any

import msgspec
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
    result = run_loop(_run(known[name], _parameters(parameter or [])))
    if json:
        print_json(result)
    else:
        _show(result)
    if not result.ok:
        raise CommandError(f"scenario {name}: below its threshold")


async def _run(scenario: Scenario, parameters: dict[str, Any]) -> BenchResult:
    try:
        made = scenario.run(scenario.defaults | parameters)
        return await made if inspect.isawaitable(made) else made
    except ValueError as error:
        raise UsageProblem(f"scenario {scenario.name}: {error}") from error
    except TimeoutError as error:
        raise CommandError(f"scenario {scenario.name}: did not end in time") from error


def _parameters(pairs: list[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise UsageProblem(f"--set {pair!r}: write it as KEY=VALUE")
        try:
            parameters[key] = msgspec.json.decode(text)
        except msgspec.MsgspecError:
            parameters[key] = text
    return parameters


def _show(result: BenchResult) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{result.scenario}[/bold]  {'ok' if result.ok else '[red]below its threshold[/red]'}")
    rows = [
        {
            "figure": key,
            "value": f"{value:,.4g}" if isinstance(value, float) else value,
            "published": result.published.get(key),
            "ratio": result.ratios.get(key),
        }
        for key, value in result.figures.items()
    ]
    console.print(table({"figure": "FIGURE", "value": "VALUE", "published": "PUBLISHED", "ratio": "RATIO"}, rows))
    console.print(f"bound by: {result.bound_by}")
