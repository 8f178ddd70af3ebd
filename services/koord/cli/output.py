"""Printing rows: a table for people, JSON for programs (``--json``)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

Row = Mapping[str, Any]


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def table(columns: Mapping[str, str], rows: Sequence[Row]) -> Table:
    """A table like kubectl's; ``columns`` maps a row's key to its heading."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    # Names are never cut: what gives way in a narrow terminal is the text at the end.
    *names, last = columns.values()
    for heading in names:
        made.add_column(heading, no_wrap=True, overflow="ignore", min_width=len(heading))
    made.add_column(last, overflow="fold")
    for row in rows:
        made.add_row(*(_text(row.get(key)) for key in columns))
    return made


def show(view: Table) -> None:
    """Print a table; into a pipe or a file at its full width."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=Console(width=10_000).measure(view).maximum)
    console.print(view)


def print_rows(columns: Mapping[str, str], rows: Sequence[Row], *, as_json: bool, nothing: str) -> None:
    """Print rows as a table or as JSON; ``nothing`` is what people read when there are none."""
    if as_json:
        print_json(rows)
    elif rows:
        show(table(columns, rows))
    else:
        Console(stderr=True, highlight=False).print(nothing)


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {amount}" for key, amount in value.items()) or "-"
    return str(value)
