"""Where the binaries of a control plane are found when nobody says, and of which release they are."""

import os
import re
import subprocess
from pathlib import Path

from koord.localcluster.servers import ServerError

NEEDED = ("etcd", "kube-apiserver")
"""The least that makes a control plane."""


def default_folder() -> Path:
    """The folder of binaries; `ServerError` with one line if the least that counts is not there.

    `CONTROLPLANE_BIN` names it. Without that it is what `make realcluster` built: `bin` in
    `REALCLUSTER_CACHE`, or in `.realcluster` of the working directory or a directory above it.
    """
    named, cache = os.environ.get("CONTROLPLANE_BIN"), os.environ.get("REALCLUSTER_CACHE")
    if named:
        return _checked(Path(named), "CONTROLPLANE_BIN has none")
    if cache:
        return _checked(Path(cache) / "bin", "make realcluster builds them")
    here = Path.cwd()
    built = [place / ".realcluster" / "bin" for place in (here, *here.parents)]
    return _checked(next((place for place in built if place.is_dir()), built[0]), "make realcluster builds them")


def _checked(folder: Path, hint: str) -> Path:
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if missing:
        raise ServerError(f"no real control plane: {' and '.join(missing)} not there ({hint})")
    return folder


def release(program: Path) -> tuple[int, int]:
    """The release of Kubernetes that a program says it is made of: (1, 37); runs it. `ServerError` if it tells none."""
    try:
        done = subprocess.run([program, "--version"], check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerError(f"{program.name}: {error}") from None
    found = re.match(r"Kubernetes v(\d+)\.(\d+)\.", done.stdout)
    if found is None:
        raise ServerError(f"{program.name} --version tells no release: {(done.stdout + done.stderr)[:200]!r}")
    return int(found[1]), int(found[2])
