"""``koord submit FILE...``: create jobs, and with ``--wait`` show how they get on."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.live import Live

from koord.cli import options
from koord.cli.errors import CommandError, UsageProblem
from koord.cli.loop import run
from koord.cli.manifests import Manifest, read
from koord.cli.output import print_json, table

if TYPE_CHECKING:
    from koord.cli.follow import Follower

Until = Literal["running", "finished"]


def submit(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML or JSON manifests.")],
    wait: Annotated[bool, typer.Option("--wait", help="Show progress and wait.")] = False,
    until: Annotated[
        str, typer.Option("--until", metavar="running|finished", help="What --wait waits for.")
    ] = "finished",
    timeout: Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds to wait at most (0: for ever).")] = 0.0,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NS", help="For objects that name none.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Use this instead of the cluster's own.", show_default=False)
    ] = None,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """Create the objects of the files and, with --wait, follow the jobs among them.

    Manifests written for the real operators work unchanged: a suspended TFJob, PyTorchJob, RayJob or Job is held until
    its queue admits it. All files are checked before anything is created. Exit code 1 if a job failed.
    """
    if until not in ("running", "finished"):
        raise UsageProblem(f"--until {until!r}: must be running or finished")
    manifests = read(files, namespace)
    goal: Until = "running" if until == "running" else "finished"
    rows = run(_submit(manifests, kubeconfig, cluster, wait, goal, timeout, quiet=json))
    if json:
        print_json(rows)
    failed = [row["job"] for row in rows if row["stage"] == "failed"]
    if failed:
        raise CommandError(f"failed: {', '.join(failed)}")


async def _submit(
    manifests: list[Manifest],
    kubeconfig: Path | None,
    cluster: options.Cluster,
    wait: bool,
    until: Until,
    timeout: float,
    *,
    quiet: bool,
) -> list[dict[str, Any]]:
    from koord.cli.api import connect
    from koord.cli.clusters import find
    from koord.cli.follow import Follower
    from koord.localcluster.clusterapi import ApiError
    from koord.localcluster.httpapi import object_path

    console = Console(highlight=False, stderr=quiet)
    async with await connect(str(kubeconfig or find(cluster).kubeconfig)) as api:
        # Where each goes is known before the first is created, so that an unknown kind creates nothing.
        places = []
        for manifest in manifests:
            try:
                places.append(await api.resource_of_kind(manifest.body["apiVersion"], manifest.kind))
            except ApiError as error:
                asked = f"{manifest.source}: {manifest.kind}: {error.message}"
                if error.code != 404:
                    raise CommandError(asked) from error
                raise UsageProblem(
                    f"{asked}: this cluster does not know {manifest.body['apiVersion']} {manifest.kind}, "
                    f"nothing was created (koord holds and resumes {_held()})"
                ) from error
        follower = Follower(api)
        for manifest, place in zip(manifests, places, strict=True):
            where = manifest.body["metadata"].get("namespace", "default") if place.namespaced else None
            try:
                await api.create_at(object_path(place, where), manifest.body)
            except ApiError as error:
                kind = UsageProblem if error.code in (400, 404, 409, 415, 422) else CommandError
                raise kind(f"{manifest.source}: {manifest.kind} {manifest.name}: {error.message}") from error
            console.print(f"{manifest.kind} {where + '/' if where else ''}{manifest.name} created")
            follower.add(place, where or "", manifest.name)
        if not wait:
            return follower.rows()
        return await _wait(follower, console, until, timeout)


def _held() -> str:
    from koord.kube.jobs.registry import BY_KIND

    return ", ".join(f"{version} {kind}" for version, kind in BY_KIND)


async def _wait(follower: "Follower", console: Console, until: Until, timeout: float) -> list[dict[str, Any]]:
    columns = {"job": "JOB", "kind": "KIND", "stage": "STAGE", "pods": "RUNNING", "message": "MESSAGE"}
    told: dict[str, str] = {}
    try:
        async with asyncio.timeout(timeout or None):
            with Live(console=console, auto_refresh=False, transient=not console.is_terminal) as live:
                async for rows in follower.follow(until):
                    if console.is_terminal:
                        live.update(table(columns, rows), refresh=True)
                    else:
                        _tell(console, rows, told)
    except TimeoutError:
        waiting = [row["job"] for row in follower.rows() if row["stage"] not in ("running", "succeeded", "failed")]
        raise CommandError(f"not {until} after {timeout:g} s: {', '.join(waiting) or 'jobs still running'}") from None
    if not console.is_terminal:
        console.print(table(columns, follower.rows()))
    return follower.rows()


def _tell(console: Console, rows: list[dict[str, Any]], told: dict[str, str]) -> None:
    """In a pipe or a log: a line for each job whose stage or message is another than what was ``told``."""
    for row in rows:
        line = f"{row['job']} {row['stage']}" + (f": {row['message']}" if row["message"] else "")
        if told.get(row["job"]) != line:
            told[row["job"]] = line
            console.print(line, markup=False, soft_wrap=True)
