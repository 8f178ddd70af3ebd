"""Options that several commands share."""

import re
from pathlib import Path
from typing import Annotated

import typer

_NAME = re.compile(r"[a-z0-9.-]{1,253}")

Cluster = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="Ready file of the cluster to talk to (default: $KOORD_CLUSTER, else the newest running one).",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NS", help="Only this namespace (default: all).")
]


def split_key(text: str, what: str) -> tuple[str, str]:
    """``NS/NAME`` in its parts; a name alone is in namespace ``default``. UsageProblem if it is neither."""
    from koord.cli.errors import UsageProblem

    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise UsageProblem(f"{what} {text!r}: write it as NAMESPACE/NAME")
    for part in filter(None, (namespace, name)):
        if not _NAME.fullmatch(part):
            raise UsageProblem(f"{what} {text!r}: {part!r} is no name, which is of a-z, 0-9, '-' and '.'")
    return namespace or "default", name
