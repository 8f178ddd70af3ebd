"""``koord explain pod NS/NAME`` and ``koord explain job NS/NAME``: why it is where it is, or nowhere."""

from typing import Annotated, Any

import typer
from rich.console import Console

from koord.cli import options
from koord.cli.errors import CommandError
from koord.cli.loop import run
from koord.cli.output import print_json, show
from koord.contracts.asks import PodExplanation

app = typer.Typer(no_args_is_help=True, help="Explain why something is where it is, or why it waits.")


@app.command("pod")
def pod(
    name: Annotated[str, typer.Argument(metavar="NS/NAME", help="The pod, e.g. ml/resnet-ddp-worker-0.")],
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
    from koord.cli.jobreading import explain_pod
    from koord.cli.state import Reader

    async with Reader(find(cluster)) as reader:
        return await explain_pod(reader, namespace, name)


def _print(answer: PodExplanation) -> None:
    from koord.accounting.requests import resource_list
    from koord.cli.views import readable

    console = Console(highlight=False)
    where = f" on {answer.node}" if answer.node else ""
    console.print(f"[bold]pod {answer.namespace}/{answer.name}[/bold]  {answer.state}{where}")
    if answer.message:
        console.print(answer.message, soft_wrap=True, markup=False)
    if answer.attempts:
        console.print(
            f"tried {_times(answer.attempts)}; {answer.feasible_nodes} of {answer.total_nodes} nodes would do now"
        )
    if answer.waiting_s or answer.wakes_on:
        console.print(_waits(answer), soft_wrap=True, markup=False)
    if answer.gang:
        console.print(f"gang {answer.gang}: {answer.gang_members} members seen, {answer.gang_minimum} needed")
    if answer.reasons:
        reasons = [{"plugin": r.plugin, "nodes": r.nodes, "message": r.reason} for r in answer.reasons]
        show({"plugin": "RULE", "nodes": "NODES", "message": "REASON"}, reasons)
    if answer.nearest:
        near = [
            {
                "node": node.node,
                "short": ", ".join(f"{name} {text}" for name, text in readable(resource_list(node.short)).items()),
                "reasons": "; ".join(node.reasons),
            }
            for node in answer.nearest
        ]
        show({"node": "NEAREST", "short": "SHORT", "reasons": "REASONS"}, near)
    if answer.quota:
        rows = []
        for level in answer.quota:
            used, limit, short = (readable(resource_list(part)) for part in (level.used, level.limit, level.short))
            for key in limit | used:
                row = {"used": used.get(key), "limit": limit.get(key), "short": short.get(key)}
                rows.append({"name": level.name, "resource": key, **row})
        show({"name": "QUOTA", "resource": "RESOURCE", "used": "USED", "limit": "LIMIT", "short": "SHORT"}, rows)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _waits(answer: PodExplanation) -> str:
    """For how long, because of whom, and when it is tried again."""
    from koord.cli.wakewords import spoken

    refused = f", refused by {', '.join(answer.rejected_by)}" if answer.rejected_by else ""
    said = f"waiting for {answer.waiting_s:.0f} s{refused}"
    if answer.state == "active":
        return f"{said}; its turn comes next"
    soon = f"in {answer.backoff_s:.0f} s" if answer.backoff_s >= 1 else ""
    if answer.state == "backoff":
        return f"{said}; tried again {soon or 'now'}"
    if not answer.wakes_on:
        return said
    return f"{said}; tried again{f' {soon} at the earliest,' if soon else ''} when {spoken(answer.wakes_on)}"


@app.command("job")
def job(
    name: Annotated[str, typer.Argument(metavar="NS/NAME", help="The job, e.g. ml/resnet-ddp.")],
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """Show why a job waits: its queue, what it asks for, the room on its quota and every quota above, and its pods.

    What is used is what the quotas' status says, a moment behind the ledger that decides.
    """
    namespace, job_name = options.split_key(name, "job")
    answer = run(_job(cluster, namespace, job_name))
    if json:
        print_json(answer)
    else:
        _print_job(answer)


async def _job(cluster: options.Cluster, namespace: str, name: str) -> dict[str, Any]:
    from koord.cli.clusters import find
    from koord.cli.jobreading import read
    from koord.cli.state import Reader

    async with Reader(find(cluster)) as reader:
        return await read(reader, namespace, name)


def _print_job(answer: dict[str, Any]) -> None:
    console = Console(highlight=False)
    console.print(
        f"[bold]{answer['kind']} {answer['namespace']}/{answer['name']}[/bold]  {answer['phase'] or 'not held'}"
    )
    for line in (answer["message"], *answer["notes"]):
        if line:
            console.print(line, soft_wrap=True, markup=False)
    if answer["quota"]:
        columns = {
            "name": "QUOTA", "resource": "RESOURCE", "asks": "ASKS", "used": "USED", "now": "MAY USE", "max": "MAX",
            "short": "SHORT",
        }  # fmt: skip
        show(columns, answer["quota"])
    if answer["pods"]:
        show({"status": "PODS", "count": "COUNT", "example": "EXAMPLE"}, answer["pods"])
