"""Run the embedded API server: `python -m koord.localcluster.api --dir D --ready-file F`."""

import argparse
import ctypes
import os
import signal
import sys
from importlib import import_module
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

import uvloop

from koord.localcluster.api.allocator import use_one_arena
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.datadir import DataDirectory
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.journal import SYNC_SECONDS, Journal, JournalError
from koord.localcluster.api.server import ApiServer, Components, Ready, Running, load_crds, run
from koord.localcluster.clusterapi import ApiError

_PR_SET_PDEATHSIG = 1
_COMPONENTS = "koord.localcluster.components"


def parse_arguments(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The server's own options; what it does not know is left for the components."""
    parser = argparse.ArgumentParser(
        prog="python -m koord.localcluster.api",
        description="An embedded Kubernetes API server on loopback, over HTTPS, with all state in memory.",
        allow_abbrev=False,
    )
    parser.add_argument("--dir", type=Path, required=True, help="private folder for certificates and the kubeconfig")
    parser.add_argument(
        "--ready-file", type=Path, help="JSON {url, kubeconfig, ca, token, pid}, written when it serves"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument(
        "--data-dir", type=Path, help="keep objects, certificates, token and port here; one server at a time"
    )
    parser.add_argument(
        "--sync-seconds",
        type=float,
        default=SYNC_SECONDS,
        help="with --data-dir: what a power failure may take, at most (%(default)s); a killed server loses nothing",
    )
    parser.add_argument("--crds", type=Path, action="append", default=[], help="a folder of more CRDs; may be repeated")
    parser.add_argument(
        "--nodes", type=int, default=0, help="fake nodes with kubelets and job operators in this process"
    )
    parser.add_argument(
        "--graceful-deletion",
        action="store_true",
        help="mark bound pods and leave their removal to kubelets outside of this process (implied by --nodes)",
    )
    options, rest = parser.parse_known_args(arguments)
    if not 0 <= options.sync_seconds <= 60:
        parser.error(f"--sync-seconds {options.sync_seconds}: must be from 0 to 60")
    if not 0 <= options.port <= 65535:
        parser.error(f"--port {options.port}: must be from 0 to 65535")
    for folder in options.crds:
        if not folder.is_dir():
            parser.error(f"--crds {folder}: no such folder")
    return options, rest


def end_with_parent() -> None:
    """Ask the kernel to end this process when its parent dies."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)


def find_components(options: argparse.Namespace, rest: list[str]) -> Components | None:
    """The in-process components, if they were asked for."""
    if not options.nodes and not rest:
        return None
    if find_spec(_COMPONENTS) is None:
        sys.exit(f"--nodes and {rest}: this installation has no in-process components")
    # By name: whether the components are installed is known at run time only.
    components = import_module(_COMPONENTS)
    wanted = components.parse_options(options, rest)

    async def start(api: InProcessApi) -> Running:
        running: Running = await components.start(api, wanted)
        return running

    return start


def main() -> int:
    """Serve until told to stop."""
    use_one_arena()
    options, rest = parse_arguments(sys.argv[1:])
    end_with_parent()
    try:
        return serve(options, rest)
    except JournalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ApiError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def serve(options: argparse.Namespace, rest: list[str]) -> int:
    """Serve with these options; `JournalError` when the data directory cannot be used."""
    data = DataDirectory(options.data_dir) if options.data_dir is not None else None
    journal = Journal(data.store, sync_s=options.sync_seconds) if data is not None else None
    cluster = Cluster(graceful_pods=options.nodes > 0 or options.graceful_deletion, journal=journal)
    with as_file(files("koord.kube") / "crds") as folder:
        load_crds(cluster, [folder, *options.crds])
    components = find_components(options, rest)
    server = ApiServer(cluster, options.dir, host=options.host, port=options.port, data=data)

    def announce(ready: Ready) -> None:
        print(f"API server at {ready.url}, kubeconfig {ready.kubeconfig}", flush=True)

    return uvloop.run(run(server, options.ready_file, components, announce))


if __name__ == "__main__":
    sys.exit(main())
