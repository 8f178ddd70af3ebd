"""Printing rows: a table for people, JSON for programs (``--json``)."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]

_GAP = "  "
# A message narrower than this is no reading; it gets lines of its own below its row.
_READABLE = 40


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def table(columns: Mapping[str, str], rows: Sequence[Row]) -> Table:
    """A table like kubectl's for what is drawn again and again; ``columns`` maps a row's key to its heading."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    # Names are never cut: what gives way in a narrow terminal is the text at the end.
    *names, last = columns.values()
    for heading in names:
        made.add_column(heading, no_wrap=True, overflow="ignore", min_width=len(heading))
    made.add_column(last, overflow="fold")
    for row in rows:
        made.add_row(*(Text(text_of(row.get(key))) for key in columns))
    return made


def listing(
    columns: Mapping[str, str], rows: Sequence[Row], width: int | None, spare: Sequence[str] = ()
) -> Iterator[Text]:
    """The lines of a table at most ``width`` cells wide (None: as wide as it is); nothing is ever cut.

    What does not fit: the column ``message`` goes below its row, then the columns ``spare`` are left out in their order
    and named at the end, and a table that is still too wide is left to the terminal to wrap.
    """
    shown = dict(columns)
    message = shown.pop("message", None)
    cells = {key: [text_of(row.get(key)) for row in rows] for key in columns}
    widths = {key: max(map(cell_len, (heading, *cells[key]))) for key, heading in columns.items()}

    def total(keys: Sequence[str]) -> int:
        return sum(widths[key] for key in keys) + len(_GAP) * max(0, len(keys) - 1)

    left_out = []
    for key in (key for key in spare if key in shown):
        if width is None or total(list(shown)) <= width:
            break
        left_out.append(shown.pop(key))
    room = None if width is None else width - total(list(shown)) - len(_GAP)
    beside = message is not None and (room is None or room >= min(_READABLE, widths["message"]))
    headings = [*shown.items(), *([("message", message)] if beside and message else [])]
    last = headings[-1][0]
    yield Text(_GAP.join(_pad(heading, 0 if key == last else widths[key]) for key, heading in headings), style="bold")
    for index, row in enumerate(rows):
        line = _GAP.join(_pad(cells[key][index], 0 if key == last else widths[key]) for key in shown)
        words = text_of(row.get("message"))
        if not beside:
            yield Text(line)
            if message and words != "-":
                yield from (
                    Text(f"    {part}", style="dim") for part in textwrap.wrap(words, max(20, (width or 80) - 4))
                )
            continue
        first, *more = textwrap.wrap(words, room) if room else [words]
        yield Text(f"{line}{_GAP}{first}")
        yield from (Text(" " * (total(list(shown)) + len(_GAP)) + part) for part in more)
    if left_out:
        yield Text(f"(too narrow for {', '.join(left_out)})", style="dim")


def width_of(console: Console) -> int | None:
    """How wide a listing may be: the terminal; None where it is a pipe or a file."""
    return console.width if console.is_terminal else None


def fits(columns: Mapping[str, str], rows: Sequence[Row]) -> bool:
    """Whether a listing goes on this terminal as it is; into a pipe or a file everything does."""
    width = width_of(Console())
    return width is None or max(line.cell_len for line in listing(columns, rows, None)) <= width


def show(columns: Mapping[str, str], rows: Sequence[Row], spare: Sequence[str] = ()) -> None:
    """Print a listing on standard output; ``spare`` as in ``listing``."""
    console = Console(highlight=False)
    for line in listing(columns, rows, width_of(console), spare):
        console.print(line, soft_wrap=True)


def print_rows(
    columns: Mapping[str, str], rows: Sequence[Row], *, as_json: bool, nothing: str, spare: Sequence[str] = ()
) -> None:
    """Print rows as a table or as JSON; ``nothing`` is what people read when there are none."""
    if as_json:
        print_json(rows)
    elif rows:
        show(columns, rows, spare)
    else:
        Console(stderr=True, highlight=False).print(nothing)


def text_of(value: Any) -> str:
    """A cell's text: ``-`` for nothing, ``cpu 2, memory 4Gi`` for a mapping."""
    if value is None or value == "":
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {amount}" for key, amount in value.items()) or "-"
    return str(value)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
