"""``koord get queues|jobs|quotas|nodes|pods``."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from koord.cli import options
from koord.cli.errors import CommandError
from koord.cli.loop import run
from koord.cli.output import print_rows


class Noun(StrEnum):
    """What can be listed."""

    queues = "queues"
    jobs = "jobs"
    quotas = "quotas"
    nodes = "nodes"
    pods = "pods"


_COLUMNS: dict[Noun, dict[str, str]] = {
    Noun.queues: {
        "name": "QUEUE", "policy": "POLICY", "priority": "PRIORITY", "waiting": "WAITING", "admitted": "ADMITTED",
        "done": "DONE", "age": "AGE",
    },
    Noun.jobs: {
        "namespace": "NAMESPACE", "name": "JOB", "kind": "KIND", "queue": "QUEUE", "phase": "PHASE",
        "running": "RUNNING", "pods": "PODS", "priority": "PRIORITY", "age": "AGE", "message": "MESSAGE",
    },
    Noun.quotas: {"label": "QUOTA", "min": "MIN", "max": "MAX", "used": "USED", "request": "REQUEST", "age": "AGE"},
    Noun.nodes: {
        "name": "NODE", "status": "STATUS", "pods": "PODS", "taken": "TAKEN", "allocatable": "ALLOCATABLE",
        "age": "AGE",
    },
    Noun.pods: {
        "namespace": "NAMESPACE", "name": "POD", "status": "STATUS", "node": "NODE", "age": "AGE", "message": "MESSAGE",
    },
}  # fmt: skip


def get(
    noun: Annotated[Noun, typer.Argument(help="What to list.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this one.")] = None,
    namespace: options.Namespace = None,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """List queues, jobs, quotas, nodes or pods.

    Read from the bus, so it costs the API server nothing; if the bus is away, from the API server.
    """
    rows = run(_rows(noun, cluster))
    if namespace is not None:
        rows = [row for row in rows if row.get("namespace", namespace) == namespace]
    if name is not None:
        rows = [row for row in rows if row["name"] == name]
        if not rows:
            raise CommandError(f"no {noun.value.removesuffix('s')} named {name!r}")
    if not json:
        rows = [_for_people(noun, row) for row in rows]
    print_rows(_COLUMNS[noun], rows, as_json=json, nothing=f"no {noun.value}")


def _for_people(noun: Noun, row: dict[str, Any]) -> dict[str, Any]:
    from koord.cli.views import shown

    readable = {key: shown(value) if isinstance(value, dict) else value for key, value in row.items()}
    if noun is Noun.quotas:
        readable["label"] = "  " * row["depth"] + row["name"]
    return readable


async def _rows(noun: Noun, cluster: options.Cluster) -> list[dict[str, Any]]:
    from koord.cli import views
    from koord.cli.clusters import find
    from koord.cli.state import Reader
    from koord.kube import resources
    from koord.kube.jobs.registry import JOB_KINDS

    async with Reader(find(cluster)) as reader:
        now = views.now()
        if noun is Noun.queues:
            return views.queues(
                await reader.objects(resources.QUEUES), await reader.objects(resources.QUEUE_UNITS), now
            )
        if noun is Noun.jobs:
            jobs = {token: await reader.objects(resources.BY_TOKEN[token]) for token in JOB_KINDS}
            return views.jobs(jobs, await reader.objects(resources.QUEUE_UNITS), now)
        if noun is Noun.quotas:
            return views.quotas(await reader.objects(resources.ELASTIC_QUOTAS), now)
        if noun is Noun.nodes:
            return views.nodes(await reader.objects(resources.NODES), await reader.objects(resources.PODS), now)
        return views.pods(await reader.objects(resources.PODS), now)
