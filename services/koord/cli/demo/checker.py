"""What must never happen, judged from the API's history alone.

It shares no code with the services on purpose: it has its own reading of quantities, of pod requests and of quota
chains, so that an error in theirs shows here. Rules: a quota above its limit at an admission; a gang with fewer than
its minimum bound 10 s after its first bind; a pod bound twice, or to a node without room for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from koord.cli.demo.history import Change, decode

GANG_GRACE_S = 10.0
ROOT = "koordinator-root-quota"
_ADMITTED = frozenset(("Reserved", "Dequeued", "SchedReady", "SchedSucceed", "Running"))
_SUFFIXES: dict[str, int | Fraction] = {
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
}  # fmt: skip

Amounts = dict[str, Fraction]


class Violation(NamedTuple):
    """One broken rule: which, on what object, and the figures."""

    rule: str
    subject: str
    detail: str


class _Pod:
    __slots__ = ("bound_s", "gang", "live", "node", "request")

    def __init__(self, request: Amounts, gang: tuple[str, int] | None) -> None:
        self.request = request
        self.gang = gang
        self.node = ""
        self.bound_s = 0.0
        self.live = True


class Checker:
    """Replays a history and collects violations: a whole one (:meth:`run`), or change by change as it happens.

    Change by change (:meth:`see`, at the end :meth:`finish`) it keeps what is live, and costs the same per change
    however much there is. A gang has ``gang_grace_s`` from its first bind until it must be whole.
    """

    def __init__(self, *, gang_grace_s: float = GANG_GRACE_S) -> None:
        self._grace_s = gang_grace_s
        self.violations: list[Violation] = []
        self.bound = 0
        self.peaks: dict[str, Amounts] = defaultdict(dict)
        self._pods: dict[str, _Pod] = {}
        self._room: dict[str, Amounts] = {}
        self._taken: dict[str, Amounts] = defaultdict(lambda: defaultdict(Fraction))
        self._limits: dict[str, Amounts] = {}
        self._parents: dict[str, str] = {}
        self._units: dict[str, tuple[str, Amounts]] = {}
        self._admitted: dict[str, Amounts] = defaultdict(lambda: defaultdict(Fraction))
        self._gangs: dict[str, list[float]] = defaultdict(list)
        self._minimum: dict[str, int] = {}
        self._last_s = 0.0
        self._rules = {
            "nodes": self._node,
            "pods": self._pod,
            "elasticquotas.scheduling.sigs.k8s.io": self._quota,
            "queueunits.scheduling.x-k8s.io": self._unit,
        }

    def run(self, changes: Iterable[Change]) -> list[Violation]:
        """Judge a whole history."""
        for change in changes:
            self.see(change, decode(change.raw))
        return self.finish()

    def see(self, change: Change, item: Any) -> None:
        """Judge the next change; ``item`` is its object, decoded."""
        self._last_s = max(self._last_s, change.seen_s)
        self._rules[change.resource](item, change)

    def finish(self) -> list[Violation]:
        """Judge what only the end shows; all violations."""
        self._judge_gangs()
        return self.violations

    # Nodes and pods -----------------------------------------------------------------------------------------------

    def _node(self, node: Any, change: Change) -> None:
        self._room[node["metadata"]["name"]] = amounts(node.get("status", {}).get("allocatable", {}))

    def _pod(self, pod: Any, change: Change) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        uid = meta["uid"]
        known = self._pods.get(uid)
        if known is None:
            known = self._pods[uid] = _Pod(request_of(spec), gang_of(meta))
        node = spec.get("nodeName", "")
        if node and node != known.node:
            self._bind(f"{meta['namespace']}/{meta['name']}", known, node, change)
        ended = change.type == "DELETED" or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if ended and known.live:
            known.live = False
            if known.node:
                for key, amount in known.request.items():
                    self._taken[known.node][key] -= amount
        if change.type == "DELETED":
            del self._pods[uid]

    def _bind(self, key: str, pod: _Pod, node: str, change: Change) -> None:
        if pod.node:
            self.violations.append(Violation("bound twice", f"pod {key}", f"first to {pod.node}, then to {node}"))
            return
        pod.node, pod.bound_s = node, change.seen_s
        self.bound += 1
        taken, room = self._taken[node], self._room.get(node, {})
        for resource, amount in pod.request.items():
            taken[resource] += amount
            if amount and taken[resource] > room.get(resource, 0):
                self.violations.append(
                    Violation(
                        "node without room",
                        f"pod {key}",
                        f"{node} has {float(room.get(resource, 0)):g} {resource}, {float(taken[resource]):g} taken",
                    )
                )
        if pod.gang is not None:
            self._gangs[pod.gang[0]].append(change.seen_s)
            self._minimum[pod.gang[0]] = pod.gang[1]

    def _judge_gangs(self) -> None:
        for gang, times in self._gangs.items():
            first = min(times)
            deadline = min(self._last_s, first + self._grace_s)
            bound = sum(1 for moment in times if moment <= deadline)
            if bound < self._minimum[gang]:
                self.violations.append(
                    Violation(
                        "gang in part",
                        f"gang {gang}",
                        f"{bound} of {self._minimum[gang]} bound after {self._grace_s:g} s",
                    )
                )

    # Quotas and units ---------------------------------------------------------------------------------------------

    def _quota(self, quota: Any, change: Change) -> None:
        meta = quota["metadata"]
        name = meta["name"]
        parent = ""
        if change.type == "DELETED":
            self._limits.pop(name, None)
        else:
            self._limits[name] = amounts(quota.get("spec", {}).get("max") or {})
            parent = meta.get("labels", {}).get("quota.scheduling.koordinator.sh/parent", "")
        if self._parents.get(name, "") != parent:
            self._parents[name] = parent
            self._admitted.clear()
            for held_by, total in self._units.values():
                self._add_admitted(held_by, total, 1)

    def _unit(self, unit: Any, change: Change) -> None:
        meta, status = unit["metadata"], unit.get("status", {})
        admitted = (
            change.type != "DELETED"
            and status.get("phase") in _ADMITTED
            and any(admission.get("replicas", 0) for admission in status.get("admissions") or ())
        )
        uid = meta["uid"]
        if not admitted:
            ended = self._units.pop(uid, None)
            if ended is not None:
                self._add_admitted(*ended, -1)
            return
        if uid in self._units:
            return
        quota = unit.get("spec", {}).get("queue") or meta.get("labels", {}).get(
            "quota.scheduling.koordinator.sh/name", ""
        )
        total = amounts(unit["spec"].get("resource") or {})
        self._units[uid] = (quota, total)
        self._add_admitted(quota, total, 1)
        for level in self._chain(quota):
            self._judge_quota(level, f"{meta['namespace']}/{meta['name']}")

    def _chain(self, quota: str) -> list[str]:
        chain: list[str] = []
        while quota and quota != ROOT and quota not in chain:
            chain.append(quota)
            quota = self._parents.get(quota, "")
        return chain

    def _add_admitted(self, quota: str, total: Amounts, times: int) -> None:
        for level in self._chain(quota):
            for resource, amount in total.items():
                self._admitted[level][resource] += times * amount

    def _judge_quota(self, level: str, unit: str) -> None:
        used, peak = self._admitted[level], self.peaks[level]
        for resource, limit in self._limits.get(level, {}).items():
            peak[resource] = max(peak.get(resource, Fraction(0)), used[resource])
            if used[resource] > limit:
                self.violations.append(
                    Violation(
                        "quota above its limit",
                        f"quota {level}",
                        f"{float(used[resource]):g} {resource} of {float(limit):g} after {unit}",
                    )
                )


def amounts(resources: Mapping[str, Any]) -> Amounts:
    """A ResourceList as exact numbers."""
    return {name: _number(str(text)) for name, text in resources.items()}


def _number(text: str) -> Fraction:
    for suffix in (text[-2:], text[-1:]):
        if suffix in _SUFFIXES:
            return Fraction(text[: -len(suffix)]) * _SUFFIXES[suffix]
    return Fraction(text)


def request_of(spec: Any) -> Amounts:
    """What a pod takes of its node: containers summed, the largest init container, overhead, and one pod."""
    total: Amounts = defaultdict(Fraction)
    for container in spec.get("containers", ()):
        for name, amount in _asked(container).items():
            total[name] += amount
    for container in spec.get("initContainers", ()):
        for name, amount in _asked(container).items():
            total[name] = max(total[name], amount)
    for name, amount in amounts(spec.get("overhead") or {}).items():
        total[name] += amount
    total["pods"] = Fraction(1)
    return total


def _asked(container: Any) -> Amounts:
    resources = container.get("resources") or {}
    return amounts(resources.get("limits") or {}) | amounts(resources.get("requests") or {})


def gang_of(meta: Any) -> tuple[str, int] | None:
    """The pod's gang ``ns/name`` and its minimum, by label or annotation; None for a pod of its own."""
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    group = "pod-group.scheduling.sigs.k8s.io"
    name = labels.get(group) or labels.get(f"{group}/name") or annotations.get("gang.scheduling.koordinator.sh/name")
    minimum = labels.get(f"{group}/min-available") or annotations.get("gang.scheduling.koordinator.sh/min-available")
    if not name or not minimum or not str(minimum).isdigit():
        return None
    return f"{meta['namespace']}/{name}", int(minimum)
