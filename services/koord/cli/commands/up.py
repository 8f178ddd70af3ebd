"""``koord up``: everything on this machine until interrupted."""

import asyncio
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from koord.cli.errors import CommandError, UsageProblem
from koord.cli.loop import run

if TYPE_CHECKING:
    from koord.cli.local import LocalOptions


def up(
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=0,
            max=50_000,
            help="Fake nodes: 10 with the embedded API, none with --kubeconfig unless asked for.",
            show_default=False,
        ),
    ] = None,
    gpu_nodes: Annotated[int, typer.Option("--gpu-nodes", min=0, help="How many of them have 8 GPUs.")] = 0,
    kubeconfig: Annotated[
        Path | None,
        typer.Option("--kubeconfig", help="Use this cluster instead of the embedded API.", show_default=False),
    ] = None,
    install_crds: Annotated[
        bool, typer.Option("--install-crds", help="Make koord's CRDs on the cluster of --kubeconfig, where missing.")
    ] = False,
    operators: Annotated[
        str | None,
        typer.Option(
            "--operators",
            metavar="KINDS",
            help="Stand-ins beside the --nodes on it: TFJob,PyTorchJob,RayJob unless said, or none.",
            show_default=False,
        ),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option("--ready-file", metavar="F", help="Where to write the ready file.", show_default=False),
    ] = None,
    kubeconfig_out: Annotated[
        Path | None,
        typer.Option("--kubeconfig-out", metavar="K", help="Where to copy the kubeconfig to.", show_default=False),
    ] = None,
    scheduler_name: Annotated[
        list[str] | None, typer.Option("--scheduler-name", help="Scheduler name to serve (repeatable).")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The cluster's name on bus and ledger.")] = "local",
    redis: Annotated[
        str | None,
        typer.Option("--redis", help="Another redis-server binary (setting local.redis).", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="YAML file with settings for all.", show_default=False),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="D",
            help="Keep the embedded API's objects here; the next koord up goes on with them.",
            show_default=False,
        ),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas",
            metavar="N",
            help="Processes of each service, or gateway=2,scheduler=3 (setting local.replicas).",
            show_default=False,
        ),
    ] = None,
    nats_servers: Annotated[
        int, typer.Option("--nats-servers", metavar="N", help="1, or 3 or 5 that replicate (setting nats.replicas).")
    ] = 1,
    with_parent: Annotated[
        bool,
        typer.Option("--with-parent", help="End when the process ends that started this, for scripts and tests."),
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option("--log-level", help="debug, info, warning (the default) or error.", show_default=False),
    ] = None,
) -> None:
    """Run koord on this machine until interrupted.

    NATS, Redis, an embedded Kubernetes API with fake nodes, and every service, each a process of its own.
    With --kubeconfig it runs against that cluster, serves only koord-scheduler, and makes nothing there by itself:
    --install-crds makes its definitions, and --nodes fake nodes, for a cluster that is for tests. In another shell:
    kubectl with the kubeconfig of --kubeconfig-out, or koord get, submit, explain and trace, which find the cluster by
    themselves.
    """
    if nodes is None:
        nodes = 0 if kubeconfig is not None else 10
    if gpu_nodes > nodes:
        raise UsageProblem(f"--gpu-nodes {gpu_nodes}: must not exceed --nodes {nodes}")
    if kubeconfig is not None and not kubeconfig.is_file():
        raise UsageProblem(f"--kubeconfig {kubeconfig}: {'is no file' if kubeconfig.exists() else 'no such file'}")
    if kubeconfig is not None and data_dir is not None:
        raise UsageProblem("--data-dir keeps the embedded API's objects: it does not go with --kubeconfig")
    if kubeconfig is None and (install_crds or operators is not None):
        raise UsageProblem("--install-crds and --operators go with --kubeconfig: the embedded API has all of them")
    if operators is not None and not nodes:
        raise UsageProblem("--operators go with --nodes: real nodes have real operators")
    kinds = _kinds(operators)
    if nats_servers not in (1, 3, 5):
        raise UsageProblem(f"--nats-servers {nats_servers}: must be 1, 3 or 5")
    if log_level not in (None, "debug", "info", "warning", "error"):
        raise UsageProblem(f"--log-level {log_level!r}: must be debug, info, warning or error")

    from koord.cli.local import LocalOptions
    from koord.cli.settings import local_settings
    from koord.contracts.subjects import SubjectError, Subjects

    try:
        Subjects(name)
    except SubjectError as error:
        raise UsageProblem(f"--name: {error}") from error

    settings = local_settings(config, redis, replicas)
    binary = settings.redis

    options = LocalOptions(
        cluster=name,
        nodes=nodes,
        gpu_nodes=gpu_nodes,
        kubeconfig=str(kubeconfig.resolve()) if kubeconfig else "",
        crds=install_crds,
        operators=kinds,
        redis_binary=str(Path(binary).resolve()) if binary else "",
        scheduler_names=tuple(scheduler_name or ()),
        log_level=log_level or "",
        config=config.resolve() if config else None,
        data_dir=data_dir.resolve() if data_dir else None,
        replicas=settings.processes(),
        nats_servers=nats_servers,
    )
    run(_serve(options, ready_file, kubeconfig_out), with_parent=with_parent)


def _kinds(operators: str | None) -> tuple[str, ...]:
    """The kinds of jobs that get a stand-in; a real cluster has a Job controller of its own."""
    from koord.localcluster.components import KINDS

    if operators is None:
        return tuple(kind for kind in KINDS if kind != "Job")
    kinds = tuple(kind.strip() for kind in operators.split(",")) if operators not in ("", "none") else ()
    for kind in kinds:
        if kind not in KINDS:
            raise UsageProblem(f"--operators {operators}: {kind!r} is not one of {', '.join(KINDS)}, or none")
    return kinds


async def _serve(options: "LocalOptions", ready_file: Path | None, kubeconfig_out: Path | None) -> None:
    from koord.cli import clusters
    from koord.cli.local import LocalCluster

    console = Console(stderr=True, highlight=False)
    if kubeconfig_out is not None:
        clusters.check_target("--kubeconfig-out", kubeconfig_out)
    path = ready_file if ready_file is not None else clusters.default_ready_file()
    clusters.reserve(path)
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        async with LocalCluster(options) as cluster:
            if kubeconfig_out is not None:
                _copy(Path(cluster.kubeconfig), kubeconfig_out)
            clusters.write(path, cluster.file())
            # A restarted service has another process id.
            cluster.on_restart = lambda: clusters.write(path, cluster.file())
            console.print(f"[bold green]ready[/bold green]  ready file {path}")
            console.print(f"  kubectl --kubeconfig {kubeconfig_out or cluster.kubeconfig} get nodes", soft_wrap=True)
            console.print("  koord get queues; koord submit FILE --wait; Ctrl-C ends it")
            await cluster.lost.wait()
            raise CommandError("the embedded API server ended")
    except asyncio.CancelledError:
        console.print("ended")
    finally:
        clusters.drop(path)


def _copy(source: Path, target: Path) -> None:
    """Copy a kubeconfig, readable by its owner only."""
    temporary = target.with_name(f".{target.name}.part")
    temporary.touch(mode=0o600)
    shutil.copyfile(source, temporary)
    temporary.rename(target)
