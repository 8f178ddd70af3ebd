"""``koord get queues|jobs|quotas|nodes|pods``."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from koord.cli import options
from koord.cli.errors import CommandError, UsageProblem
from koord.cli.loop import run
from koord.cli.output import fits, print_json, print_rows


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
        "done": "DONE", "age": "AGE", "message": "MESSAGE",
    },
    Noun.jobs: {
        "namespace": "NAMESPACE", "name": "JOB", "kind": "KIND", "queue": "QUEUE", "phase": "PHASE",
        "ready": "RUNNING", "priority": "PRIORITY", "age": "AGE", "message": "MESSAGE",
    },
    Noun.quotas: {
        "label": "QUOTA", "min": "MIN", "max": "MAX", "runtime": "RUNTIME", "used": "USED", "request": "REQUEST",
        "age": "AGE",
    },
    Noun.nodes: {
        "name": "NODE", "status": "STATUS", "pods": "PODS", "taken": "TAKEN", "allocatable": "ALLOCATABLE",
        "age": "AGE",
    },
    Noun.pods: {
        "namespace": "NAMESPACE", "name": "POD", "status": "STATUS", "node": "NODE", "age": "AGE", "message": "MESSAGE",
    },
}  # fmt: skip
_BY_RESOURCE = {
    "label": "QUOTA", "resource": "RESOURCE", "min": "MIN", "max": "MAX", "runtime": "RUNTIME", "used": "USED",
    "request": "REQUEST",
}  # fmt: skip
# What a narrow terminal does without, first to last.
_SPARE = ("priority", "policy", "age", "kind", "queue")


def get(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="queues, jobs, quotas, nodes or pods.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this one: NAME, or NS/NAME.")] = None,
    namespace: options.Namespace = None,
    cluster: options.Cluster = None,
    json: options.Json = False,
) -> None:
    """List queues, jobs, quotas, nodes or pods.

    Read from the bus, so it costs the API server nothing; if the bus is away, from the API server. Why something waits
    is in the last column, and in whole in koord explain. A narrow terminal shows fewer columns, a pipe and --json all.
    """
    noun = _noun(what)
    if name is not None and "/" in name:
        own, name = options.split_key(name, noun.value.removesuffix("s"))
        if namespace not in (None, own):
            raise UsageProblem(f"{own}/{name}: is not in the namespace asked for, {namespace!r}")
        namespace = own
    rows = run(_rows(noun, cluster))
    if namespace is not None:
        rows = [row for row in rows if row.get("namespace", namespace) == namespace]
    if name is not None:
        rows = [row for row in rows if row["name"] == name]
        if not rows:
            where = f" in namespace {namespace!r}" if namespace else ""
            raise CommandError(f"no {noun.value.removesuffix('s')} named {name!r}{where}")
    nothing = f"no {noun.value}" + (f" in namespace {namespace!r}" if namespace else "")
    if json:
        print_json(rows)
        return
    if noun is Noun.quotas:
        rows = [{**row, "label": "  " * row["depth"] + row["name"]} for row in rows]
    view = [_for_people(row) for row in rows]
    if noun is Noun.quotas and view and not fits(_COLUMNS[noun], view):
        from koord.cli.views import by_resource

        print_rows(_BY_RESOURCE, [line for row in rows for line in by_resource(row)], as_json=False, nothing=nothing)
    else:
        print_rows(_COLUMNS[noun], view, as_json=False, nothing=nothing, spare=_SPARE)


def _noun(word: str) -> Noun:
    """``job`` is as good as ``jobs``."""
    for noun in Noun:
        if word.lower() in (noun.value, noun.value.removesuffix("s")):
            return noun
    raise UsageProblem(f"get {word!r}: unknown; known are {', '.join(Noun)}")


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    from koord.cli.views import readable, running_of

    made = {key: readable(value) if isinstance(value, dict) else value for key, value in row.items()}
    if "running" in row:
        made["ready"] = running_of(row)
    return made


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
