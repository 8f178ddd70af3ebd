"""What ``koord explain job`` says: a job's queue unit, its way up the quota tree, and its pods."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from koord.accounting.requests import amounts, resource_list
from koord.cli.errors import CommandError
from koord.cli.views import pods as pod_rows
from koord.cli.views import queue_of, readable, unit_phase
from koord.kube.protocol import quota as quota_keys
from koord.kube.quantity import QuantityError
from koord.kube.resources import BY_TOKEN

Object = dict[str, Any]
Level = tuple[str, dict[str, int], dict[str, int], dict[str, int]]


class QueueRule(NamedTuple):
    """How much the queue may admit of a quota: max times ``ceiling``, ``by_runtime`` no more than min or runtime."""

    ceiling: Fraction = Fraction(1)
    by_runtime: bool = True


_WAITING = frozenset(("Enqueued", "TimeoutBackoff"))


def explain(
    namespace: str,
    name: str,
    job_objects: dict[str, list[Object]],
    units: Iterable[Object],
    queues: Iterable[Object],
    quotas: Iterable[Object],
    pods: Iterable[Object],
    rule: QueueRule = QueueRule(),  # noqa: B008 - it never changes
) -> Object:
    """All that is known of a job and why it waits; CommandError if there is no such job."""
    found = [
        (BY_TOKEN[token].kind, item)
        for token, items in job_objects.items()
        for item in items
        if (item["metadata"]["namespace"], item["metadata"]["name"]) == (namespace, name)
    ]
    if not found:
        raise CommandError(f"job {namespace}/{name}: no such job: see koord get jobs -n {namespace}")
    kind, job = found[0]
    unit = next((unit for unit in units if _is_of(unit, namespace, kind, name)), None)
    status = (unit or {}).get("status") or {}
    queue = queue_of(unit) if unit else ""
    phase = unit_phase(unit) if unit else ""
    request = ((unit or {}).get("spec") or {}).get("request") or {}
    by_name = {quota["metadata"]["name"]: quota for quota in quotas}
    notes = []
    if len(found) > 1:
        notes.append(f"also of this name: {', '.join(other for other, _ in found[1:])}")
    if unit is None:
        notes.append(_without_unit(job))
    elif phase in _WAITING and not any(item["metadata"]["name"] == queue for item in queues):
        notes.append(_without_queue(queue, by_name.get(queue)))
    elif queue:
        notes.append(f"queue {queue}")
    asks = {key: amount for key, amount in _readable_amounts(request).items() if amount}
    levels = list(_levels(queue, by_name, rule)) if unit else []
    if phase in _WAITING:
        never = [
            f"it can never fit: it asks for more {resource} than the max of quota {quota}"
            for quota, limit, _, _ in levels
            for resource, amount in asks.items()
            if amount > _times(limit.get(resource, amount), rule.ceiling)
        ]
        if not never and status.get("attempts") and notes[-1] == f"queue {queue}":
            notes[-1] += f", attempts so far {status['attempts']}; tried again when room comes free"
        notes.extend(never)
    return {
        "namespace": namespace,
        "name": name,
        "kind": kind,
        "phase": phase,
        "queue": queue,
        "message": status.get("message") or "",
        "notes": notes,
        "quota": [row for level in levels for row in _rows(level, asks, waits=phase in _WAITING)],
        "pods": _pods(namespace, kind, name, pods),
    }


def _is_of(unit: Object, namespace: str, kind: str, name: str) -> bool:
    reference = (unit.get("spec") or {}).get("consumerRef") or {}
    return (unit["metadata"]["namespace"], reference.get("kind"), reference.get("name")) == (namespace, kind, name)


def _without_unit(job: Object) -> str:
    """Why no unit is there: the queue's rules leave the job alone, or they do not and it has not come to it."""
    spec, labels = job.get("spec") or {}, job["metadata"].get("labels") or {}
    suspended = spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend")
    if suspended or quota_keys.NAME in labels:
        return (
            "the queue has made no QueueUnit for it yet: if that stays so, see its events, whether another job owns it "
            "or spec.managedBy names another controller, and whether the queue runs (docs/queue.md)"
        )
    return "the queue does not hold it: only jobs that are suspended or name a quota by label are held (docs/queue.md)"


def _without_queue(queue: str, quota: Object | None) -> str:
    """What to do for a unit whose queue does not exist; a quota may be there that makes none."""
    change = f"change the label {quota_keys.NAME}"
    if quota is None:
        return f"there is no queue {queue!r}: create an ElasticQuota of this name, or {change}"
    key = f"{quota['metadata'].get('namespace') or ''}/{queue}".removeprefix("/")
    return f"there is no queue {queue!r}, though there is an ElasticQuota {key}: see its events, or {change}"


def _readable_amounts(resources: Object) -> dict[str, int]:
    """A ResourceList's amounts, without those that no quantity can be read from.

    ElasticQuotas are shown as the API has them, and no rule kept a malformed one out; its event says what is wrong.
    """
    found: dict[str, int] = {}
    for key, text in resources.items():
        try:
            found |= amounts({key: text})
        except QuantityError:
            continue
    return found


def _levels(quota: str, by_name: dict[str, Object], rule: QueueRule) -> Iterator[Level]:
    """The quotas of a chain, leaf first: name, max, what it may use now and what it uses, in base units."""
    seen: set[str] = set()
    while quota in by_name and quota not in seen:
        seen.add(quota)
        item = by_name[quota]
        limit = _readable_amounts((item.get("spec") or {}).get("max") or {})
        yield quota, limit, _now(item, limit, rule), _readable_amounts((item.get("status") or {}).get("used") or {})
        quota = (item["metadata"].get("labels") or {}).get(quota_keys.PARENT) or ""


def _now(item: Object, limit: dict[str, int], rule: QueueRule) -> dict[str, int]:
    """What the queue may admit by its rule; by max where no runtime is shown."""
    most = {key: _times(amount, rule.ceiling) for key, amount in limit.items()}
    if not rule.by_runtime:
        return most
    try:
        runtime = quota_keys.resource_list(item["metadata"].get("annotations") or {}, quota_keys.RUNTIME)
        if runtime is None:
            return most
        least, shown = _readable_amounts((item.get("spec") or {}).get("min") or {}), amounts(runtime)
    except (quota_keys.AnnotationError, QuantityError):
        return most
    return {key: min(amount, max(least.get(key, 0), shown.get(key, 0))) for key, amount in most.items()}


def _times(amount: int, ceiling: Fraction) -> int:
    return amount * ceiling.numerator // ceiling.denominator


def _rows(level: Level, asks: dict[str, int], *, waits: bool) -> Iterator[Object]:
    """A quota's rows, one a resource that the job asks for."""
    name, limit, now, used = level
    over = {key: used.get(key, 0) + amount - now[key] for key, amount in asks.items() if key in now}
    short = {key: amount for key, amount in over.items() if waits and amount > 0}
    words = {
        column: _words(part)
        for column, part in (("asks", asks), ("used", used), ("now", now), ("max", limit), ("short", short))
    }
    for key in asks:
        row = {column: texts.get(key, "") for column, texts in words.items()}
        yield {"name": name, "resource": key.removeprefix("nvidia.com/"), **row}


def _words(values: dict[str, int]) -> dict[str, str]:
    made = resource_list(values)
    return {key: str(next(iter(readable({"cpu": value}).values()))) for key, value in made.items()}


def _pods(namespace: str, kind: str, name: str, pods: Iterable[Object]) -> list[Object]:
    """The job's pods by status, with one of each as an example; those of a RayJob belong to its RayCluster."""
    owners = {(kind, name)}
    mine = []
    for pod in pods:
        if pod["metadata"]["namespace"] != namespace:
            continue
        references = pod["metadata"].get("ownerReferences") or ()
        if any((ref.get("kind"), ref.get("name")) in owners or _of_ray(kind, name, ref) for ref in references):
            mine.append(pod)
    groups: dict[str, list[str]] = {}
    for row in pod_rows(mine, 0.0):
        state = "Starting" if row["status"] == "Pending" and row["node"] else row["status"]
        groups.setdefault(state, []).append(f"{row['namespace']}/{row['name']}")
    return [{"status": status, "count": len(names), "example": names[0]} for status, names in sorted(groups.items())]


def _of_ray(kind: str, name: str, reference: Object) -> bool:
    owner = str(reference.get("name") or "")
    return kind == "RayJob" and reference.get("kind") == "RayCluster" and owner.startswith(f"{name}-raycluster-")
