"""``koord explain pod NS/NAME``: why a pod is where it is, or nowhere."""

from typing import Annotated

import typer
from rich.console import Console

from koord.cli import options
from koord.cli.errors import CommandError
from koord.cli.loop import run
from koord.cli.output import print_json, table
from koord.contracts.asks import PodExplanation

app = typer.Typer(no_args_is_help=True, help="Explain why something is where it is, or why it waits.")


@app.callback()
def _group() -> None:
    """Keep ``pod`` a sub-command of its own."""


@app.command("pod")
def pod(
    name: Annotated[str, typer.Argument(metavar="NS/NAME", help="The pod.")],
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """Ask the scheduler about one pod: its state, the nodes each rule refused, its quota chain and its gang."""
    namespace, pod_name = options.split_key(name, "pod")
    answer = run(_ask(cluster, namespace, pod_name))
    if answer.error:
        raise CommandError(f"pod {namespace}/{pod_name}: {answer.error}")
    if json:
        print_json(answer)
    else:
        _print(answer)


async def _ask(cluster: options.Cluster, namespace: str, name: str) -> PodExplanation:
    from koord.cli.clusters import find
    from koord.cli.state import Reader
    from koord.contracts.asks import ExplainPod

    async with Reader(find(cluster)) as reader:
        return await reader.ask("scheduler", "explain", ExplainPod(namespace, name), PodExplanation)


def _print(answer: PodExplanation) -> None:
    console = Console(highlight=False)
    where = f" on {answer.node}" if answer.node else ""
    console.print(f"[bold]pod {answer.namespace}/{answer.name}[/bold]  {answer.state}{where}")
    if answer.message:
        console.print(answer.message, soft_wrap=True, markup=False)
    if answer.attempts:
        console.print(f"attempts {answer.attempts}; {answer.feasible_nodes} of {answer.total_nodes} nodes would do")
    if answer.gang:
        console.print(f"gang {answer.gang}: {answer.gang_members} members seen, {answer.gang_minimum} needed")
    if answer.reasons:
        rows = [{"plugin": r.plugin, "nodes": r.nodes, "reason": r.reason} for r in answer.reasons]
        console.print(table({"plugin": "RULE", "nodes": "NODES", "reason": "REASON"}, rows))
    if answer.quota:
        rows = [{"name": q.name, "used": q.used, "limit": q.limit, "short": q.short} for q in answer.quota]
        console.print(table({"name": "QUOTA", "used": "USED", "limit": "LIMIT", "short": "SHORT"}, rows))
