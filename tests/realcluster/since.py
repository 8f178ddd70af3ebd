"""Statements that hold since a release of Kubernetes: on an older one they are left out, or checked not to hold.

    @pytest.mark.since("1.28", "match conditions")

    @pytest.mark.since("1.34", "words", only=("wildcards", "service"))  # of the parametrized cases, by their ids

On a control plane of an older release such a test is skipped, and so counted, with that reason. With
`CONFORMANCE_SINCE=check` it is run there all the same and must fail: a marker without need is an error.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from koord.localcluster.controlplane.binaries import release
from koord.localcluster.servers import ServerError
from tests.realcluster import binaries

Release = tuple[int, int]

_HERE = Path(__file__).parent
_BOTH = (_HERE.parent / "integration", _HERE.parent / "failures")
"""Suites that have a real server when `CONFORMANCE` is `real`."""
_CONFORMANCE = _HERE.parent / "conformance"


def read(text: str) -> Release:
    """`1.28` as (1, 28); `ValueError` if it is no release."""
    major, minor = text.split(".")
    return int(major), int(minor)


@functools.cache
def tested() -> Release | None:
    """The release of the real control plane that tests run on; None if there is none or it does not tell."""
    named = binaries.running_cluster()
    try:
        if named is None:
            return release(binaries.folder() / "kube-apiserver")
        kubectl = Path(sys.executable).with_name("kubectl")
        command = [str(kubectl), "--kubeconfig", str(named), "version", "-o", "json"]
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)
        version = json.loads(done.stdout)["serverVersion"]
        return int(version["major"]), int(version["minor"].rstrip("+"))
    except (binaries.Absent, ServerError, OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None  # the fixtures say what is wrong


def mark(items: list[pytest.Item]) -> None:
    """Skip what does not hold yet on the release that is tested, or expect it to fail."""
    check = os.environ.get("CONFORMANCE_SINCE", "") == "check"
    for item in items:
        first: Release = (0, 0)
        why = ""
        for marker in item.iter_markers("since"):
            since, text = marker.args
            if read(since) > first and _meant(item, marker):
                first, why = read(since), f"holds since Kubernetes {since}: {text}"
        if not why or not _on_a_real_one(item) or (here := tested()) is None or here >= first:
            continue
        item.add_marker(pytest.mark.xfail(reason=why, strict=True) if check else pytest.mark.skip(reason=why))


def _meant(item: pytest.Item, marker: pytest.Mark) -> bool:
    only: tuple[str, ...] = marker.kwargs.get("only", ())
    return not only or any(one in item.name.partition("[")[2] for one in only)


def _on_a_real_one(item: pytest.Item) -> bool:
    if item.path.is_relative_to(_CONFORMANCE):
        parameters = getattr(item, "callspec", None)
        return parameters is not None and parameters.params.get("server") == "real"
    if any(item.path.is_relative_to(folder) for folder in _BOTH):
        return os.environ.get("CONFORMANCE") == "real"
    return item.path.is_relative_to(_HERE)
