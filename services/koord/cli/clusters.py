"""Finding a running cluster: the ready file that ``koord up`` writes.

Order: ``--cluster FILE``, the variable ``KOORD_CLUSTER``, else the newest live cluster of this user.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from koord.cli.errors import CommandError, UsageProblem

VARIABLE = "KOORD_CLUSTER"


class ClusterFile(msgspec.Struct):
    """What a client needs to reach a cluster.

    ``otlp`` is the trace store's URL, empty without one; ``http`` has each service's health and metrics address.
    """

    kubeconfig: str
    nats: str
    redis: str
    otlp: str = ""
    cluster: str = "local"
    pids: dict[str, int] = {}
    http: dict[str, str] = {}


def runtime_directory() -> Path:
    """Where the ready files of this user's clusters lie, private to the user."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(base) / "koord" if base else Path(tempfile.gettempdir()) / f"koord-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"{path}: {error.strerror}; set XDG_RUNTIME_DIR") from error
    if path.stat().st_uid != os.getuid():
        raise UsageProblem(f"{path}: belongs to another user; set XDG_RUNTIME_DIR")
    return path


def default_ready_file() -> Path:
    """The ready file of a cluster that this process runs."""
    return runtime_directory() / f"cluster-{os.getpid()}.json"


def write(path: Path, cluster: ClusterFile) -> None:
    """Write the ready file by rename, readable by its owner only (it leads to credentials). CommandError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(cluster)) + b"\n")
        temporary.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise CommandError(f"ready file {path}: {error.strerror}") from error


def reserve(path: Path) -> None:
    """Make ``path`` free for a ready file that is still to come, so that nobody takes an old one for it.

    What a cluster left there that is no more is removed. UsageProblem if it cannot be written, if the cluster it names
    still runs, or if it is something else than a ready file.
    """
    check_target("--ready-file", path)
    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        old = msgspec.json.decode(path.read_bytes(), type=ClusterFile)
    except msgspec.MsgspecError as error:
        raise UsageProblem(f"--ready-file {path}: there is a file that is not a ready file, name another") from error
    process = old.pids.get("up", 0)
    if process != os.getpid() and _alive(process):
        raise UsageProblem(f"--ready-file {path}: process {process}, whose cluster it is, runs; name another")
    path.unlink(missing_ok=True)


def drop(path: Path) -> None:
    """Remove the ready file of this process' cluster, not one that another process has put there."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        if msgspec.json.decode(path.read_bytes(), type=ClusterFile).pids.get("up") == os.getpid():
            path.unlink()


def check_target(option: str, path: Path) -> None:
    """UsageProblem unless a file can be put at ``path`` by rename."""
    if path.is_dir():
        raise UsageProblem(f"{option} {path}: is a directory")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise UsageProblem(f"{option} {path}: {path.absolute().parent} is no directory that can be written to")


def read(path: Path, named_by: str = "--cluster") -> ClusterFile:
    """The cluster of a ready file; UsageProblem names the file, by what it was named, and what is wrong with it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterFile)
    except OSError as error:
        raise UsageProblem(f"{named_by} {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageProblem(f"{named_by} {path}: not a ready file of koord up: {error}") from error


def find(option: Path | None) -> ClusterFile:
    """The cluster to talk to; UsageProblem if there is none."""
    if option is not None:
        return read(option)
    if os.environ.get(VARIABLE):
        return read(Path(os.environ[VARIABLE]), VARIABLE)
    live = _live()
    if not live:
        raise UsageProblem("no running cluster found: start one with 'koord up', or name one with --cluster FILE")
    path, cluster = live[0]
    if len(live) > 1:
        print(f"using the newest of {len(live)} running clusters, {path} (--cluster names another)", file=sys.stderr)
    return cluster


def _live() -> list[tuple[Path, ClusterFile]]:
    """Running clusters of this user, the newest first."""
    files = sorted(runtime_directory().glob("cluster-*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    found = []
    for file in files:
        try:
            cluster = read(file)
        except UsageProblem:
            continue
        if _alive(cluster.pids.get("up", 0)):
            found.append((file, cluster))
    return found


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
