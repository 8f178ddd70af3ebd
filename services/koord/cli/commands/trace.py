"""``koord trace job NS/NAME``: the waterfall of a job's way, from the local trace store."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from koord.cli import options
from koord.cli.errors import CommandError
from koord.cli.loop import run
from koord.cli.output import print_json, width_of
from koord.kube.resources import BY_TOKEN

app = typer.Typer(no_args_is_help=True, help="Show the trace of a job: where its time went, service by service.")

# Cells: the widest and the narrowest bar, service and time beside it, and what a subject should have.
_WIDTH = 48
_LEAST = 10
_FIXED = 11 + 14 + 1
_SUBJECT = 30
# What a span is about, the most telling attribute first.
_SUBJECTS = ("pod", "object", "koord.unit", "gang", "claim", "koord.claim")


@app.callback()
def _group() -> None:
    """Keep ``job`` a sub-command of its own."""


@app.command("job")
def job(
    name: Annotated[str, typer.Argument(metavar="NS/NAME", help="The job, e.g. ml/resnet-ddp.")],
    cluster: options.Cluster = None,
    json: options.Json = False,
    before: Annotated[int, typer.Option(min=0, help="Which attempt: this many before the last one.")] = 0,
) -> None:
    """The spans of a job's last attempt: queued, admitted, planned, claimed, bound, running."""
    namespace, job_name = options.split_key(name, "job")
    spans = run(_load(cluster, namespace, job_name, before))
    if json:
        print_json(spans)
    else:
        _print(name, spans)


async def _load(cluster: options.Cluster, namespace: str, name: str, before: int) -> list[dict[str, Any]]:
    import aiohttp

    from koord.cli.clusters import find
    from koord.cli.state import Reader, trace_of_job

    target = find(cluster)
    if not target.otlp:
        raise CommandError("this cluster has no local trace store (it sends its traces elsewhere)")
    async with Reader(target) as reader:
        context = await trace_of_job(reader, namespace, name)
    trace, job = f"{context.trace_id:032x}", f"job {namespace}/{name}"
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            for attempt in range(before + 1):
                async with session.get(f"{target.otlp}/traces/{trace}") as answer:
                    spans: list[dict[str, Any]] = await answer.json()
                if not spans:
                    raise CommandError(f"{job}: the store has no spans of its trace {trace} (yet)")
                if attempt == before:
                    break
                links = [link for span in spans for link in span.get("links", ())]
                if not links:
                    raise CommandError(f"{job}: --before {before}: attempts before the last: {attempt}")
                trace = links[0]
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CommandError(f"trace store {target.otlp}: {error or type(error).__name__}") from error
    return spans


def _print(name: str, spans: list[dict[str, Any]]) -> None:
    start = min(span["start_ns"] for span in spans)
    total = max(1, max(span["end_ns"] for span in spans) - start)
    console = Console(highlight=False)
    heading = f"{len(spans)} spans in {total / 1e9:.3f} s  trace {spans[0]['trace_id']}"
    console.print(f"[bold]job {name}[/bold]  {heading}", soft_wrap=True)
    for line in waterfall(spans, start, total, width_of(console)):
        console.print(line, soft_wrap=True)


def waterfall(spans: list[dict[str, Any]], start: int, total: int, width: int | None) -> Iterator[Text]:
    """A line a span, at most ``width`` cells (None: as wide as it is); ``start`` and ``total`` in ns.

    In a narrow terminal the bars give way first, then what a line is about is cut; an error never is.
    """
    tree = _tree(spans)
    names = max(len("  " * depth + span["name"]) for depth, span in tree) + 2
    bars = _WIDTH if width is None else max(_LEAST, min(_WIDTH, width - names - _FIXED - _SUBJECT))
    for depth, span in tree:
        begin = min(int((span["start_ns"] - start) / total * bars), bars - 1)
        length = min(max(1, round((span["end_ns"] - span["start_ns"]) / total * bars)), bars - begin)
        line = Text(no_wrap=True)
        line.append(f"{'  ' * depth + span['name']:<{names}}")
        line.append(f"{span['service'].removeprefix('koord-'):<11.11}", style="cyan")
        line.append(f"{(span['end_ns'] - span['start_ns']) / 1e6:>10.2f} ms ")
        line.append(f"{' ' * begin + '━' * length:<{bars}} ", style="red" if span.get("error") else "green")
        line.append(str(span.get("error") or _subject(span)))
        if width is not None and not span.get("error"):
            line.truncate(max(width, names + _FIXED + bars + _LEAST), overflow="ellipsis")
        yield line


def _subject(span: dict[str, Any]) -> str:
    """What a span is about: ``ml/a``, or ``queueunit ml/a`` for an object."""
    attributes = span.get("attributes", {})
    subject = str(next((attributes[key] for key in _SUBJECTS if key in attributes), ""))
    token, space, rest = subject.partition(" ")
    resource = BY_TOKEN.get(token)
    return f"{resource.kind.lower()} {rest}" if space and resource is not None else subject


def _tree(spans: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Depth-first by parents, siblings by start; a span whose parent is not in the store is a root."""
    known = {span["span_id"] for span in spans}
    children: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        parent = span.get("parent_id", "")
        children.setdefault(parent if parent in known else "", []).append(span)
    ordered: list[tuple[int, dict[str, Any]]] = []
    stack = [(0, span) for span in reversed(children.get("", []))]
    while stack:
        depth, span = stack.pop()
        ordered.append((depth, span))
        stack.extend((depth + 1, child) for child in reversed(children.get(span["span_id"], [])))
    return ordered
