"""What must hold at every step, judged from the ledger's data, the API's objects and what was heard on the way."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from koord.accounting.takes import NODE
from koord.kube.protocol.quota import DEFAULT_QUOTA
from koord.kube.resources import ELASTIC_QUOTAS, JOBS, NODES, PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Item, Record
from koord.ledger.nominations import DISRUPTIONS, Nomination
from tests.model.apiserver import ApiServer
from tests.model.objects import (
    GANG_MINIMUM,
    GANG_NAME,
    NODE_CPU,
    POD_GROUP_MINIMUM,
    POD_GROUP_NAME,
    QUOTA,
    QUOTA_NAME,
    UNIT_ENDED,
    admits,
    allocatable_cpu,
    charged,
    cpu_of,
    live,
    of_unit,
    owner_of,
    unit_cpu,
)


def allocatable(api: ApiServer) -> dict[str, int]:
    """Milli-cpu of each node."""
    return {name: allocatable_cpu(node) for name, node in api.objects(NODES).items()}


def room(api: ApiServer) -> dict[str, int]:
    """Milli-cpu left on each node, by the API alone."""
    left = allocatable(api)
    for pod in api.objects(PODS).values():
        node = pod["spec"].get("nodeName")
        if node in left and live(pod):
            left[node] -= cpu_of(pod)
    return left


async def everything(ledger: Ledger) -> tuple[dict[str, Item], dict[str, Record]]:
    """The ledger's items and records; nothing else runs meanwhile."""
    records: dict[str, Record] = {}
    async for record in ledger.records():
        assert record.uid not in records, f"two records of {record.uid}"
        records[record.uid] = record
    return await ledger.items(), records


def check_sums(items: Mapping[str, Item], records: Mapping[str, Record], units: Mapping[str, int]) -> None:
    """Held and used are the sums over records, and over the ``units`` of disruption budgets that nominations hold."""
    sums: dict[tuple[str, str, str], int] = defaultdict(int)
    for name, count in units.items():
        sums[name, "held", DISRUPTIONS] += count
    for record in records.values():
        part = "used" if record.state == "OBSERVED" else "held"
        for take in record.takes:
            for key, amount in take.amounts.items():
                sums[take.item, part, key] += amount
    stored = {
        (name, part, key): amount
        for name, item in items.items()
        for part, of in (("used", item.used), ("held", item.held))
        for key, amount in of.items()
        if amount
    }
    assert stored == {where: amount for where, amount in sums.items() if amount}


def check_taken(before: Mapping[str, Item], after: Mapping[str, Item], checked: tuple[str, ...]) -> None:
    """A claim has taken no checked amount from what was not below zero to below it."""
    for name, item in after.items():
        if not name.startswith(checked):
            continue
        for key in item.limits:
            left = _free(item, key)
            was = _free(before[name], key) if name in before else 0
            assert left >= 0 or left >= was, f"{name} {key}: a claim took it from {was} to {left}"
    for name in after.keys() - before.keys():
        assert not name.startswith(NODE), f"{name} came by a claim"


def _free(item: Item, key: str) -> int:
    return item.limits.get(key, 1 << 53) - item.used.get(key, 0) - item.held.get(key, 0)


def check_nominated(
    accepted: Iterable[ClaimRequest],
    before: Mapping[str, Item],
    after: Mapping[str, Item],
    nominations: Iterable[Nomination],
) -> None:
    """What claims of one call took of a node leaves the room that is nominated to others of their priority or more.

    Judged by the highest priority among those that took of the node: whoever came after it had to leave as much.
    """
    by_node: dict[str, list[ClaimRequest]] = defaultdict(list)
    for request in accepted:
        for node in {member.node for member in request.members}:
            by_node[node].append(request)
    for node, requests in by_node.items():
        highest = max(request.priority for request in requests)
        own = {member.uid for request in requests for member in request.members}
        groups = {request.group for request in requests if request.group}
        kept: dict[str, int] = defaultdict(int)
        for one in nominations:
            counts = one.priority > highest or (one.priority == highest and not one.foreign)
            if one.node == node and counts and one.uid not in own and one.group not in groups:
                for key, amount in one.amounts.items():
                    kept[key] += amount
        if (name := NODE + node) in after:
            _check_left(name, before.get(name), after[name], kept)


def _check_left(name: str, before: Item | None, after: Item, nominated: Mapping[str, int]) -> None:
    for key, amount in nominated.items():
        took = before is not None and _free(after, key) < _free(before, key)
        assert not took or _free(after, key) >= amount, (
            f"{name} {key}: claims left {_free(after, key)} of {amount} kept"
        )


def check_strict(records: Mapping[str, Record], claims: Mapping[str, frozenset[str]], seen_bound: set[str]) -> None:
    """While a member of a Strict claim is HELD all are, but those that the API showed bound meanwhile (row 10)."""
    for claim, uids in claims.items():
        mine = {uid: records[uid].state for uid in uids if uid in records and records[uid].claim == claim}
        if "HELD" in mine.values():
            others = {uid: mine.get(uid, "ended") for uid in uids - seen_bound}
            assert set(others.values()) <= {"HELD"}, f"claim {claim} is held in part: {others}"


def check_nodes(api: ApiServer, by_koord: Mapping[str, str], shrunk: set[str]) -> None:
    """What koord bound fits on each node that never lost room."""
    taken: dict[str, int] = defaultdict(int)
    for pod in api.objects(PODS).values():
        node = by_koord.get(pod["metadata"]["uid"])
        if node is not None and live(pod):
            assert pod["spec"]["nodeName"] == node
            taken[node] += cpu_of(pod)
    over = {node: amount for node, amount in taken.items() if amount > NODE_CPU and node not in shrunk}
    assert not over, f"more than {NODE_CPU} was bound: {over}"


def quota_of(item: Mapping[str, Any], quotas: frozenset[str]) -> str:
    """The quota that an object is charged to; empty if there is none."""
    named: str = item["metadata"].get("labels", {}).get(QUOTA_NAME, DEFAULT_QUOTA)
    return named if named in quotas else DEFAULT_QUOTA if DEFAULT_QUOTA in quotas else ""


def quotas_of(api: ApiServer) -> frozenset[str]:
    return frozenset(quota["metadata"]["name"] for quota in api.objects(ELASTIC_QUOTAS).values())


def check_quota(api: ApiServer, by_koord: Mapping[str, str], most_cpu: int) -> None:
    """What koord bound of the quota's pods is never more than the most that the quota ever allowed."""
    taken = sum(
        cpu_of(pod)
        for pod in api.objects(PODS).values()
        if pod["metadata"]["uid"] in by_koord and live(pod) and QUOTA_NAME in pod["metadata"].get("labels", {})
    )
    assert taken <= 1000 * most_cpu, f"quota {QUOTA}: {taken} is bound, at most {most_cpu} cpu were ever allowed"


def unlike(api: ApiServer, items: Mapping[str, Item], records: Mapping[str, Record]) -> str:
    """How the ledger differs from the API, at rest."""
    wanted: dict[str, str] = {}
    used: dict[str, int] = defaultdict(int)
    quotas = quotas_of(api)
    for pod in api.objects(PODS).values():
        node = pod["spec"].get("nodeName")
        if node and live(pod):
            wanted[pod["metadata"]["uid"]] = node
            used[NODE + node] += cpu_of(pod)
            if name := quota_of(pod, quotas):
                used[f"quota/{name}"] += cpu_of(pod)
                used[f"admitted/{name}"] += 0 if of_unit(pod) else cpu_of(pod)
    for unit in api.objects(QUEUE_UNITS).values():
        if charged(unit):
            wanted[unit["metadata"]["uid"]] = ""
            used[f"admitted/{quota_of(unit, quotas)}"] += unit_cpu(unit)
    recorded = {record.uid: (record.state, record.node) for record in records.values()}
    if recorded != {uid: ("OBSERVED", node) for uid, node in wanted.items()}:
        return f"records {recorded}, objects {wanted}"
    open_ = {name: item.limits.get("cpu", 0) for name, item in items.items() if item.open and name.startswith(NODE)}
    limits = {NODE + name: cpu for name, cpu in allocatable(api).items()}
    if open_ != limits:
        return f"open nodes {open_}, nodes {limits}"
    stored = {name: item.used.get("cpu", 0) for name, item in items.items()}
    differing = {
        name: (stored.get(name, 0), used.get(name, 0))
        for name in stored.keys() | used.keys()
        if stored.get(name, 0) != used.get(name, 0)
    }
    return f"used and recounted: {differing}" if differing else ""


def unplaced(api: ApiServer, items: Mapping[str, Item]) -> str:
    """A pod, gang, unit or job that could go on and does not."""
    return _pods_wait(api, items) or _units_wait(api, items) or _jobs_wait(api)


def _left(items: Mapping[str, Item], name: str) -> int:
    item = items.get(name)
    return _free(item, "cpu") if item is not None and item.open else 0


def _pods_wait(api: ApiServer, items: Mapping[str, Item]) -> str:
    left = room(api)
    of_quota = _left(items, f"quota/{QUOTA}")
    gangs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for pod in api.objects(PODS).values():
        meta = pod["metadata"]
        if gang := meta.get("annotations", {}).get(GANG_NAME) or meta.get("labels", {}).get(POD_GROUP_NAME):
            gangs[gang].append(pod)
        elif not pod["spec"].get("nodeName") and live(pod):
            fits = any(amount >= cpu_of(pod) for amount in left.values())
            if fits and (QUOTA_NAME not in meta.get("labels", {}) or cpu_of(pod) <= of_quota):
                return f"pod {meta['name']} ({cpu_of(pod)}) waits although there is room: {left}"
    for gang, pods in gangs.items():
        pending = [pod for pod in pods if not pod["spec"].get("nodeName") and live(pod)]
        minimum = _minimum(pods[0])
        places = sum(max(0, amount) // 1000 for amount in left.values())
        limited = QUOTA_NAME in pods[0]["metadata"].get("labels", {})
        fits = places >= len(pending) and (not limited or 1000 * len(pending) <= of_quota)
        if pending and len(pods) >= minimum and fits:
            return f"gang {gang} waits with {len(pending)} of {len(pods)} although there is room: {left}"
    return ""


def _minimum(pod: Mapping[str, Any]) -> int:
    meta = pod["metadata"]
    return int(meta.get("annotations", {}).get(GANG_MINIMUM) or meta.get("labels", {}).get(POD_GROUP_MINIMUM) or 1)


def _units_wait(api: ApiServer, items: Mapping[str, Item]) -> str:
    of_quota = _left(items, f"admitted/{QUOTA}")
    for unit in api.objects(QUEUE_UNITS).values():
        over = unit.get("status", {}).get("phase") in UNIT_ENDED or unit["spec"].get("active") is False
        if not over and not admits(unit) and unit_cpu(unit) <= of_quota:
            job = _job_of(api, unit)
            if job is None or job["spec"].get("suspend"):
                return f"unit {unit['metadata']['name']} ({unit_cpu(unit)}) waits although {of_quota} can be admitted"
    return ""


def _jobs_wait(api: ApiServer) -> str:
    """A Job's unit is admitted and the Job is not let go, or there is no unit."""
    units = {owner_of(unit): unit for unit in api.objects(QUEUE_UNITS).values()}
    for job in api.objects(JOBS).values():
        unit = units.get(job["metadata"]["uid"])
        over = bool(job.get("status", {}).get("conditions"))
        if unit is None and not over:
            return f"job {job['metadata']['name']} has no unit"
        active = unit is not None and unit["spec"].get("active") is not False
        if unit is not None and active and not over and admits(unit) and job["spec"].get("suspend"):
            return f"job {job['metadata']['name']} is admitted and suspended"
    return ""


def _job_of(api: ApiServer, unit: Mapping[str, Any]) -> dict[str, Any] | None:
    owner = owner_of(dict(unit))
    return next((job for job in api.objects(JOBS).values() if job["metadata"]["uid"] == owner), None)
