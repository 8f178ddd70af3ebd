"""What the demo shows while it runs: jobs by queue and stage, and pods, from the recorded history's newest state."""

import asyncio
from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from koord.cli.demo.scenario import JOB_TEAMS, SERVICE, SERVING
from koord.kube import quantity

STAGES = ("waiting", "admitted", "running", "finished", "failed")
_PHASES = {
    "": "waiting", "Enqueued": "waiting", "TimeoutBackoff": "waiting", "Reserved": "admitted", "Dequeued": "admitted",
    "SchedReady": "admitted", "SchedSucceed": "admitted", "Running": "running", "Succeed": "finished",
    "Failed": "failed",
}  # fmt: skip


class Progress:
    """Counts of the moment, fed with every change."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._units: dict[str, tuple[str, str]] = {}
        self._pods: dict[str, str] = {}
        self._cpu: dict[str, float] = {}
        self._service: set[str] = set()
        self.changed = asyncio.Event()

    def unit(self, unit: Any, *, deleted: bool) -> None:
        """A queue unit changed."""
        uid = unit["metadata"]["uid"]
        if deleted and self._units.get(uid, ("", ""))[1] not in ("finished", "failed"):
            self._units.pop(uid, None)
        elif not deleted:
            phase = (unit.get("status") or {}).get("phase") or ""
            self._units[uid] = (unit["metadata"]["namespace"], _PHASES.get(phase, "waiting"))
            self._cpu[uid] = quantity.milli((unit["spec"].get("resource") or {}).get("cpu", "0")) / 1000

    def pod(self, pod: Any, *, deleted: bool) -> None:
        """A pod changed."""
        phase = (pod.get("status") or {}).get("phase") or "Pending"
        if phase == "Pending" and pod["spec"].get("nodeName"):
            phase = "Bound"
        if phase != "Pending" and pod["metadata"]["namespace"] == SERVING.namespace:
            self._service.add(pod["metadata"]["uid"])
        self._pods[pod["metadata"]["uid"]] = "Gone" if deleted and phase not in ("Succeeded", "Failed") else phase

    def counts(self, namespace: str) -> Counter[str]:
        """Jobs of a namespace by stage."""
        return Counter(stage for where, stage in self._units.values() if where == namespace)

    def admitted_cpu(self, namespace: str) -> float:
        """CPU of a namespace's jobs that were let go and are not over."""
        return sum(
            self._cpu[uid] for uid, (where, stage) in self._units.items()
            if where == namespace and stage in ("admitted", "running")
        )  # fmt: skip

    def let_go(self, namespace: str) -> int:
        """How many of a namespace's jobs do not wait any more."""
        counts = self.counts(namespace)
        return counts.total() - counts["waiting"]

    @property
    def service_bound(self) -> bool:
        """Whether every pod of the service has its node."""
        return len(self._service) >= sum(part.pods for part in SERVICE)

    @property
    def finished(self) -> int:
        """Jobs that are over, well or badly."""
        return sum(1 for _, stage in self._units.values() if stage in ("finished", "failed"))

    @property
    def failed(self) -> int:
        """Jobs that failed."""
        return sum(1 for _, stage in self._units.values() if stage == "failed")

    def render(self, elapsed_s: float) -> RenderableType:
        """The table of the moment."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("QUEUE")
        for stage in STAGES:
            table.add_column(stage.upper(), justify="right")
        for heading in ("CPU", "GUARANTEED", "BORROWED"):
            table.add_column(heading, justify="right")
        for team in JOB_TEAMS:
            counts, cpu = self.counts(team.namespace), self.admitted_cpu(team.namespace)
            borrowed = max(0.0, cpu - team.guaranteed.cpu)
            amounts = (f"{cpu:g}", str(team.guaranteed.cpu), f"{borrowed:g}")
            table.add_row(team.name, *(str(counts[stage]) for stage in STAGES), *amounts)
        pods = Counter(self._pods.values())
        # Pods that their operators removed have ended too: the four numbers are all pods there ever were.
        over = pods["Succeeded"] + pods["Failed"] + pods["Gone"]
        line = Text(f"{elapsed_s:5.1f} s  {self.finished} of {self._jobs} jobs over  pods: ")
        line.append(f"pending {pods['Pending']}  bound {pods['Bound']}  running {pods['Running']}  over {over}")
        return Group(table, line)
