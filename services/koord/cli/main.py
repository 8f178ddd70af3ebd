"""``koord``: the command line. Every command is one file in ``commands``."""

import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from typer.exceptions import TyperException

from koord.cli.commands import bench, check, demo, explain, get, run, submit, trace, up
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
app.add_typer(check.app, name="check")
app.command("bench")(bench.bench)


def main() -> None:
    """Run the command; one line on standard error and exit code 1 or 2 when it fails."""
    try:
        code = app(standalone_mode=False)
    except CommandError as error:
        _fail(str(error), error.code)
    except TyperException as error:
        _misused(error)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _misused(error: TyperException) -> NoReturn:
    """What the command line does not fit the command, in one line; a command that needs another word shows its help."""
    command, said = getattr(getattr(error, "ctx", None), "command_path", ""), error.format_message().strip()
    if said and "Usage:" not in said:
        words = " ".join(said.split()).rstrip(".")
        _fail(f"{words}: see {command} -h" if command else words, error.exit_code)
    sys.exit(error.exit_code)


def _fail(text: str, code: int) -> NoReturn:
    # Parsers show places in several lines; what fails here is told in one.
    line = " ".join(part.strip() for part in text.splitlines())
    # What the API and users wrote may look like markup: "[metadata.name: Invalid value ...]".
    Console(stderr=True, highlight=False).print(f"[bold red]error:[/bold red] {escape(line)}", soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
