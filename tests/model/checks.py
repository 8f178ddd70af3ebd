"""What must hold at every step, judged from the ledger's data, the API's objects and what was heard on the way."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from koord.accounting.requests import amounts
from koord.accounting.takes import NODE
from koord.kube.resources import NODES, PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.ledger.model import Item, Record
from tests.model.outside import ApiServer

NODE_CPU = 4000
"""Milli-cpu of a node."""
ENDED = ("Succeeded", "Failed")
GANG = "gang.scheduling.koordinator.sh/"
GANG_NAME, GANG_MINIMUM, GANG_MODE = GANG + "name", GANG + "min-available", GANG + "mode"
QUOTA_NAME = "quota.scheduling.koordinator.sh/name"


def cpu_of(pod: Mapping[str, Any]) -> int:
    """What a pod of this test asks for, in milli."""
    return amounts(pod["spec"]["containers"][0]["resources"]["requests"], "requests")["cpu"]


def unit_cpu(unit: Mapping[str, Any]) -> int:
    return 1000 * int(unit["spec"]["resource"]["cpu"])


def admits(unit: Mapping[str, Any]) -> bool:
    return bool(unit.get("status", {}).get("admissions"))


def live(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") not in ENDED


def allocatable(api: ApiServer) -> dict[str, int]:
    """Milli-cpu of each node."""
    return {name: amounts(node["status"]["allocatable"], "a")["cpu"] for name, node in api.objects(NODES).items()}


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


def check_sums(items: Mapping[str, Item], records: Mapping[str, Record]) -> None:
    """Held and used are the sums over records."""
    sums: dict[tuple[str, str, str], int] = defaultdict(int)
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


def unlike(api: ApiServer, items: Mapping[str, Item], records: Mapping[str, Record]) -> str:
    """How the ledger differs from the API, at rest."""
    wanted: dict[str, str] = {}
    used: dict[str, int] = defaultdict(int)
    for pod in api.objects(PODS).values():
        node = pod["spec"].get("nodeName")
        if node and live(pod):
            wanted[pod["metadata"]["uid"]] = node
            used[f"node/{node}"] += cpu_of(pod)
            for name in pod["metadata"].get("labels", {}).values():
                used[f"quota/{name}"] += cpu_of(pod)
                used[f"admitted/{name}"] += cpu_of(pod)
    for unit in api.objects(QUEUE_UNITS).values():
        if admits(unit):
            wanted[unit["metadata"]["uid"]] = ""
            used[f"admitted/{unit['metadata']['labels'][QUOTA_NAME]}"] += unit_cpu(unit)
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


def unplaced(api: ApiServer, quota_cpu: int) -> str:
    """A pod or gang that could be placed and is not."""
    left = room(api)
    spent = sum(
        cpu_of(pod)
        for pod in api.objects(PODS).values()
        if pod["spec"].get("nodeName") and live(pod) and pod["metadata"].get("labels")
    )
    units = list(api.objects(QUEUE_UNITS).values())
    admitted = spent + sum(unit_cpu(unit) for unit in units if admits(unit))
    for unit in units:
        if not admits(unit) and admitted + unit_cpu(unit) <= 1000 * quota_cpu:
            return f"unit {unit['metadata']['name']} ({unit_cpu(unit)}) waits although {admitted} is admitted"
    gangs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for pod in api.objects(PODS).values():
        gang = pod["metadata"].get("annotations", {}).get(GANG_NAME)
        if gang:
            gangs[gang].append(pod)
        elif not pod["spec"].get("nodeName") and live(pod):
            fits = any(amount >= cpu_of(pod) for amount in left.values())
            if fits and (not pod["metadata"].get("labels") or spent + cpu_of(pod) <= 1000 * quota_cpu):
                return f"pod {pod['metadata']['name']} ({cpu_of(pod)}) waits although there is room: {left}"
    for gang, pods in gangs.items():
        pending = [pod for pod in pods if not pod["spec"].get("nodeName") and live(pod)]
        minimum = int(pods[0]["metadata"]["annotations"][GANG_MINIMUM])
        places = sum(max(0, amount) // 1000 for amount in left.values())
        if pending and len(pods) >= minimum and places >= len(pending):
            return f"gang {gang} waits with {len(pending)} of {len(pods)} although there is room: {left}"
    return ""
