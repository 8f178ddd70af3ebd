"""``koord``: the command line. Every command is one file in ``commands``."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from koord.cli.commands import bench, demo, explain, get, run, submit, trace, up
from koord.cli.errors import CommandError

app = typer.Typer(
    name="koord",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Job queue, elastic quota and gang scheduler for Kubernetes.\n\n"
    "Try it: **koord demo**. Run a cluster on this machine: **koord up**, then in another shell "
    "**koord submit job.yaml --wait** and **koord get jobs**; "
    "**koord explain job** says why one waits, **koord trace job** where its time went.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"koord {version('koord')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What holds for every command."""


app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("run")(run.run)
app.command("submit")(submit.submit)
app.command("get")(get.get)
app.add_typer(explain.app, name="explain")
app.add_typer(trace.app, name="trace")
app.command("bench")(bench.bench)


def main() -> None:
    """Run the command; one line on standard error and exit code 1 or 2 when it fails."""
    try:
        app()
    except CommandError as error:
        # What the API and users wrote may look like markup: "[metadata.name: Invalid value ...]".
        words = escape(str(error))
        Console(stderr=True, highlight=False).print(f"[bold red]error:[/bold red] {words}", soft_wrap=True)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
