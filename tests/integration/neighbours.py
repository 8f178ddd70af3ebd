"""What pods may not share, judged from the API's history alone: no code of the services is used.

Anti-affinity, host ports, disks and bound CPUs are judged at each binding. Spreading and gangs are judged at rest: the
bindings of one moment come in any order.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from koord.cli.demo.history import Change

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
GANG = "pod-group.scheduling.sigs.k8s.io"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Only ``matchLabels`` are used here."""
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())


def numbers(cpuset: str) -> Iterator[int]:
    """``0-2,5`` as numbers."""
    for part in cpuset.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


class Neighbours:
    """The pods on their nodes, as change after change shows them."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.on: dict[str, dict[str, Any]] = {}
        """Live pods with a node, by uid."""
        self._zones: dict[str, str] = {}

    def run(self, changes: Iterable[Change]) -> list[str]:
        """Every rule that was broken, and how."""
        for change in changes:
            item = json.loads(change.raw)
            if change.resource == "nodes":
                self._zones[item["metadata"]["name"]] = item["metadata"]["labels"].get(ZONE, "")
            elif change.resource == "pods":
                self._pod(item, change.type)
        self._spread()
        return self.violations

    def _pod(self, pod: dict[str, Any], type_: str) -> None:
        uid, known = pod["metadata"]["uid"], self.on.get(pod["metadata"]["uid"])
        if type_ == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed"):
            self.on.pop(uid, None)
        elif node := pod["spec"].get("nodeName"):
            if known is None:
                for other in self.on.values():
                    self._beside(pod, other)
            elif known["spec"]["nodeName"] != node:
                self.violations.append(f"{_name(pod)} moved from {known['spec']['nodeName']} to {node}")
            self.on[uid] = pod

    def _beside(self, pod: dict[str, Any], other: dict[str, Any]) -> None:
        nodes = pod["spec"]["nodeName"], other["spec"]["nodeName"]
        for one, two in ((pod, other), (other, pod)):
            for key, selector in _keeps_off(one):
                same = nodes[0] == nodes[1] if key == HOSTNAME else self._zones[nodes[0]] == self._zones[nodes[1]]
                if same and matches(selector, two["metadata"].get("labels", {})):
                    self._broken(f"anti-affinity by {key}", pod, other)
        if nodes[0] == nodes[1]:
            for what, shared in (
                ("host port", _ports(pod) & _ports(other)),
                ("disk", _disks(pod) & _disks(other)),
                ("cpu", _cpus(pod) & _cpus(other)),
            ):
                if shared:
                    self._broken(f"{what} {sorted(shared)}", pod, other)

    def _broken(self, rule: str, pod: dict[str, Any], other: dict[str, Any]) -> None:
        self.violations.append(f"{rule}: {_name(pod)} came to {_name(other)} on {pod['spec']['nodeName']}")

    def _spread(self) -> None:
        """By constraint; each constraint is of pods that it selects itself."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        skews: dict[str, int] = {}
        for pod in self.on.values():
            for rule in pod["spec"].get("topologySpreadConstraints", ()):
                key = json.dumps(rule["labelSelector"], sort_keys=True)
                skews[key] = rule["maxSkew"]
                counts[key][self._zones[pod["spec"]["nodeName"]]] += 1
        for key, count in counts.items():
            fewest = min(count[zone] for zone in set(self._zones.values()))
            if max(count.values()) - fewest > skews[key]:
                self.violations.append(f"spreading of {key}: {dict(count)}")


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _keeps_off(pod: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    anti = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    for term in anti.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
        yield term["topologyKey"], term["labelSelector"]


def _ports(pod: dict[str, Any]) -> set[int]:
    return {
        port["hostPort"] for each in pod["spec"]["containers"] for port in each.get("ports", ()) if "hostPort" in port
    }


def _disks(pod: dict[str, Any]) -> set[str]:
    volumes = pod["spec"].get("volumes", ())
    return {each["gcePersistentDisk"]["pdName"] for each in volumes if "gcePersistentDisk" in each}


def _cpus(pod: dict[str, Any]) -> set[int]:
    status = json.loads(pod["metadata"].get("annotations", {}).get(RESOURCE_STATUS, "{}"))
    return set(numbers(status["cpuset"])) if status.get("cpuset") else set()
