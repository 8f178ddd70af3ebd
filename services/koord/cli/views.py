"""What ``koord get`` shows: rows built from API objects, one function a noun."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from koord.accounting.requests import amounts, pod_request, resource_list
from koord.kube.meta import parse_time
from koord.kube.pods import Pod
from koord.kube.protocol import quota as quota_keys
from koord.kube.resources import BY_TOKEN

Object = dict[str, Any]
Row = dict[str, Any]

# Quantities are printed whole, so these few stay in one column; the rest of a list is in --json.
_SHOWN = ("cpu", "memory", "nvidia.com/gpu")
_NO_LIMIT = frozenset((str((2**63 - 1) // 5), str((2**63 - 1) // 2000)))
_ADMITTED = frozenset(("Reserved", "Dequeued", "SchedReady", "SchedSucceed", "Running"))
_TERMINAL = frozenset(("Succeeded", "Failed"))


def _meta(item: Object) -> Object:
    meta: Object = item["metadata"]
    return meta


def age(item: Object, now: float) -> str:
    """An object's age as kubectl prints it."""
    stamp = _meta(item).get("creationTimestamp")
    if not stamp:
        return ""
    seconds = max(0, int(now - parse_time(stamp)))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def shown(resources: Object) -> Row:
    """The part of a ResourceList that fits a table."""
    return {name.removeprefix("nvidia.com/"): resources[name] for name in _SHOWN if name in resources}


def readable(resources: Object) -> Row:
    """``shown``, with a word for the amounts that stand where there is no limit (MaxInt64 / 5 and / 2000)."""
    return {key: "unlimited" if str(value) in _NO_LIMIT else value for key, value in shown(resources).items()}


def by_resource(row: Row) -> list[Row]:
    """A quota's row as one row a resource, for where four lists side by side do not fit."""
    lists = ("min", "max", "runtime", "used", "request")
    names = [name for name in _SHOWN if any(name in row[key] for key in lists)] or [""]
    rows: list[Row] = []
    for name in names:
        word = name.removeprefix("nvidia.com/")
        amounts_of = {key: readable(row[key]).get(word, "") for key in lists}
        rows.append({"label": " " if rows else row["label"], "resource": word, **amounts_of})
    return rows


def running_of(row: Row) -> str:
    """``3/4``: a job's running pods of those admitted; nothing when it has none (it waits, or is over)."""
    return f"{row['running']}/{row['pods']}" if row["pods"] else ""


def unit_phase(unit: Object) -> str:
    """A queue unit's phase; none yet means it waits."""
    return str((unit.get("status") or {}).get("phase") or "Enqueued")


def queue_of(unit: Object) -> str:
    """The queue a unit is in, or will be by its quota label."""
    labels = _meta(unit).get("labels") or {}
    return str((unit.get("spec") or {}).get("queue") or labels.get(quota_keys.NAME) or "")


def queues(queue_objects: Iterable[Object], units: Iterable[Object], now: float) -> list[Row]:
    """Queues with how many jobs wait, are admitted, and are done, and what keeps one from admitting by its policy."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for unit in units:
        phase = unit_phase(unit)
        group = "admitted" if phase in _ADMITTED else "done" if phase in ("Succeed", "Failed") else "waiting"
        counts[queue_of(unit)][group] += 1
    rows = []
    for queue in queue_objects:
        name, spec = _meta(queue)["name"], queue.get("spec") or {}
        rows.append(
            {
                "name": name,
                "policy": spec.get("queuePolicy") or "Priority",
                "priority": spec.get("priority") or 0,
                "waiting": counts[name]["waiting"],
                "admitted": counts[name]["admitted"],
                "done": counts[name]["done"],
                "age": age(queue, now),
                "message": _not_as_asked(queue),
            }
        )
    return sorted(rows, key=lambda row: (-row["priority"], row["name"]))


def _not_as_asked(queue: Object) -> str:
    """What the condition Active says where the queue does not simply admit by the policy that it names."""
    conditions = (queue.get("status") or {}).get("conditions") or ()
    active: Object = next((entry for entry in conditions if entry.get("type") == "Active"), {})
    return "" if active.get("reason") == "Ready" else active.get("message") or ""


def jobs(job_objects: dict[str, list[Object]], units: Iterable[Object], now: float) -> list[Row]:
    """Jobs of every kind (by resource token) with the phase and message of their queue unit."""
    by_job: dict[tuple[str, str | None, str | None], Object] = {}
    for unit in units:
        reference = (unit.get("spec") or {}).get("consumerRef") or {}
        by_job[(_meta(unit)["namespace"], reference.get("kind"), reference.get("name"))] = unit
    rows = []
    for token, items in job_objects.items():
        kind = BY_TOKEN[token].kind
        for job in items:
            meta = _meta(job)
            owned = by_job.get((meta["namespace"], kind, meta["name"]))
            status = (owned or {}).get("status") or {}
            admissions = status.get("admissions") or ()
            rows.append(
                {
                    "namespace": meta["namespace"],
                    "name": meta["name"],
                    "kind": kind,
                    "queue": queue_of(owned) if owned else "",
                    "phase": unit_phase(owned) if owned else "",
                    "priority": ((owned or {}).get("spec") or {}).get("priority") or 0,
                    "pods": sum(int(entry.get("replicas") or 0) for entry in admissions),
                    "running": sum(int(entry.get("running") or 0) for entry in admissions),
                    "age": age(job, now),
                    "message": status.get("message") or "",
                }
            )
    return sorted(rows, key=lambda row: (row["namespace"], row["name"], row["kind"]))


def quotas(quota_objects: Iterable[Object], now: float) -> list[Row]:
    """Quotas in tree order; ``depth`` is the distance from the top."""
    by_name = {_meta(quota)["name"]: quota for quota in quota_objects}
    children: dict[str, list[str]] = defaultdict(list)
    for name, quota in by_name.items():
        parent = (_meta(quota).get("labels") or {}).get(quota_keys.PARENT) or ""
        children[parent if parent in by_name and parent != name else ""].append(name)
    rows: list[Row] = []
    stack = [(0, name) for name in sorted(children[""], reverse=True)]
    placed = set()
    while stack:
        depth, name = stack.pop()
        if name in placed:
            continue
        placed.add(name)
        rows.append(_quota_row(by_name[name], depth, now))
        stack.extend((depth + 1, child) for child in sorted(children[name], reverse=True))
    # What hangs in a cycle is under no top; it is shown, not hidden.
    rows.extend(_quota_row(by_name[name], 0, now) for name in sorted(by_name.keys() - placed))
    return rows


def _quota_row(quota: Object, depth: int, now: float) -> Row:
    meta, spec = _meta(quota), quota.get("spec") or {}
    annotations = meta.get("annotations") or {}
    return {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "depth": depth,
        "parent": (meta.get("labels") or {}).get(quota_keys.PARENT) or "",
        "min": spec.get("min") or {},
        "max": spec.get("max") or {},
        "used": (quota.get("status") or {}).get("used") or {},
        "runtime": _resources(annotations.get(quota_keys.RUNTIME)),
        "request": _resources(annotations.get(quota_keys.REQUEST)),
        "age": age(quota, now),
    }


def _resources(annotation: str | None) -> Object:
    try:
        decoded = msgspec.json.decode(annotation or "{}")
    except msgspec.MsgspecError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def nodes(node_objects: Iterable[Object], pod_objects: Iterable[Object], now: float) -> list[Row]:
    """Nodes with what their live pods take of them."""
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    pods: Counter[str] = Counter()
    for item in pod_objects:
        pod = msgspec.convert(item, Pod, strict=False)
        if pod.spec.node_name and pod.status.phase not in _TERMINAL:
            taken[pod.spec.node_name].update(pod_request(pod.spec))
            pods[pod.spec.node_name] += 1
    rows = []
    for node in node_objects:
        name, status = _meta(node)["name"], node.get("status") or {}
        allocatable = status.get("allocatable") or {}
        rows.append(
            {
                "name": name,
                "status": _node_status(node),
                "pods": pods[name],
                "taken": resource_list(taken[name]),
                "allocatable": resource_list(amounts(allocatable)),
                "age": age(node, now),
            }
        )
    return sorted(rows, key=lambda row: row["name"])


def _node_status(node: Object) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in conditions)
    words = ["Ready" if ready else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def pods(pod_objects: Iterable[Object], now: float) -> list[Row]:
    """Pods with where they are and, while they wait, the scheduler's words."""
    rows = []
    for pod in pod_objects:
        meta, spec, status = _meta(pod), pod["spec"], pod.get("status") or {}
        waits = [
            entry.get("message") or ""
            for entry in status.get("conditions") or ()
            if entry.get("type") == "PodScheduled" and entry.get("status") == "False"
        ]
        rows.append(
            {
                "namespace": meta["namespace"],
                "name": meta["name"],
                "status": "Terminating" if meta.get("deletionTimestamp") else status.get("phase") or "Pending",
                "node": spec.get("nodeName") or "",
                "age": age(pod, now),
                "message": waits[0] if waits else "",
            }
        )
    return sorted(rows, key=lambda row: (row["namespace"], row["name"]))


def now() -> float:
    """The time rows are built at."""
    return time.time()
