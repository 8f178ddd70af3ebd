"""``koord demo``: see the whole thing work, in about a minute."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.live import Live

from koord.cli.errors import CommandError, UsageProblem
from koord.cli.loop import run
from koord.cli.output import table

if TYPE_CHECKING:
    from koord.cli.demo.play import Summary


def demo(
    nodes: Annotated[int, typer.Option("--nodes", min=20, help="Fake nodes.")] = 1000,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Jobs of the four kinds.")] = 200,
    replicas: Annotated[
        str | None,
        typer.Option(
            "--replicas", metavar="N", help="Processes of each service, or gateway=2,scheduler=3.", show_default=False
        ),
    ] = None,
    with_parent: Annotated[
        bool,
        typer.Option("--with-parent", help="End when the process ends that started this, for scripts and tests."),
    ] = False,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the summary here.", show_default=False)
    ] = None,
) -> None:
    """See it work: 1,000 fake nodes, three teams, 200 jobs.

    Each team gets a quota and a queue; suspended TFJobs, PyTorchJobs, RayJobs and batch Jobs of two teams ask for more
    than the quotas allow and go through in waves, shown live: one team borrows what the others leave and gives it back.
    The third team starts a service of two PodGroups, which is placed whole.
    At the end the API's own watch history is judged: a quota exceeded, a gang bound in part, a pod bound twice or to a
    node without room fails the demo (exit code 1).
    """
    from koord.cli.clusters import check_target
    from koord.cli.demo.play import DemoOptions, play
    from koord.cli.replicas import SERVICES, parse

    try:
        processes = parse(replicas, SERVICES) if replicas is not None else {}
    except ValueError as error:
        raise UsageProblem(f"--replicas: {error}") from error
    if json is not None:
        check_target("--json", json)
    console = Console(highlight=False)
    log = Path(tempfile.mkstemp(prefix="koord-demo-", suffix=".log")[1])
    options = DemoOptions(nodes=nodes, gpu_nodes=max(10, nodes * 6 // 100), jobs=jobs, replicas=processes)
    with Live(console=console, auto_refresh=False, transient=False) as live:

        def show(view: RenderableType) -> None:
            if console.is_terminal:
                live.update(view, refresh=True)

        try:
            summary = run(play(options, show, console.print, log), with_parent=with_parent)
        except CommandError as error:
            raise CommandError(f"{error} (output of the services: {log})") from error
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
    _print(console, summary)
    if summary.gang_group.bound_early:
        raise CommandError(f"{summary.gang_group.bound_early} pods of a gang group bound in part (services: {log})")
    if summary.violations or summary.failed:
        raise CommandError(f"{len(summary.violations)} violations, {summary.failed} failed jobs (services: {log})")
    log.unlink()


def _print(console: Console, summary: "Summary") -> None:
    console.print(
        f"\n[bold]{summary.finished} of {summary.jobs} jobs finished[/bold] in {summary.wall_s:.1f} s\n"
        f"{summary.scheduler.pods_bound} pods bound: {summary.scheduler.bind_p50_s * 1000:.0f} ms from creation to "
        f"binding (p50), {summary.scheduler.bind_p99_s * 1000:.0f} ms (p99)"
    )
    rows = [
        {
            "name": quota.name,
            "min": quota.min.get("cpu", "-"),
            "max": quota.max.get("cpu", "-"),
            "peak": f"{quota.peak.get('cpu', 0.0):g}",
        }
        for quota in summary.quotas
    ]
    console.print(
        table({"name": "QUOTA", "min": "CPU GUARANTEED", "max": "CPU LIMIT", "peak": "MOST ADMITTED TO JOBS"}, rows)
    )
    group = summary.gang_group
    console.print(
        f"gang group {' + '.join(f'{name} ({pods} pods)' for name, pods in group.parts.items())}: "
        f"{group.bound_early} bound while incomplete, "
        f"{group.bound} bound {group.binding_s * 1000:.0f} ms after the last came"
    )
    if not summary.violations:
        console.print("[green]no violations[/green] in the API's watch history")
    for violation in summary.violations[:20]:
        console.print(f"[red]{violation['rule']}[/red]: {violation['subject']}: {violation['detail']}")
