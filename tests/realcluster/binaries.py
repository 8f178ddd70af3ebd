"""Which tests run on a real control plane, and what it is made from.

`REALCLUSTER` says: `off` (what `make test` sets) leaves those tests out, `required` (what `make test-real` sets)
makes it an error if the binaries are absent; without it they run if the binaries are there.
`REAL_KUBECONFIG` names a running cluster that is used instead of one of our own.
"""

import os
from pathlib import Path

from koord.localcluster.controlplane.binaries import default_folder
from koord.localcluster.servers import ServerError


class Absent(Exception):
    """There is nothing to run a control plane from; says why and what to do."""


def mode() -> str:
    """`off`, `auto` or `required`."""
    chosen = os.environ.get("REALCLUSTER", "auto")
    if chosen not in {"off", "auto", "required"}:
        raise ValueError(f"REALCLUSTER={chosen!r}: use off, auto or required")
    return chosen


def running_cluster() -> Path | None:
    """The kubeconfig of a running cluster to use, if one is named."""
    named = os.environ.get("REAL_KUBECONFIG")
    return Path(named) if named else None


def folder() -> Path:
    """Where the binaries are; `Absent` if the least that counts is not there."""
    if mode() == "off":
        raise Absent("tests on a real control plane are left out (REALCLUSTER=off)")
    try:
        return default_folder()
    except ServerError as error:
        raise Absent(str(error)) from None


def has(name: str) -> bool:
    """Whether one of the further binaries (kwok, koord-scheduler, ...) could be built."""
    return (folder() / name).is_file()
