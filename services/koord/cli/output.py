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
    for heading in columns.values():
        made.add_column(heading, no_wrap=True)
    for row in rows:
        made.add_row(*(_text(row.get(key)) for key in columns))
    return made


def print_rows(columns: Mapping[str, str], rows: Sequence[Row], *, as_json: bool, nothing: str) -> None:
    """Print rows as a table or as JSON; ``nothing`` is what people read when there are none."""
    if as_json:
        print_json(rows)
    elif rows:
        Console(highlight=False).print(table(columns, rows))
    else:
        Console(stderr=True, highlight=False).print(nothing)


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {amount}" for key, amount in value.items()) or "-"
    return str(value)
