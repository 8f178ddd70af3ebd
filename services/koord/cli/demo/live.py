"""What the demo shows while it runs: jobs by queue and stage, and pods, from the recorded history's newest state."""

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from koord.cli.demo.scenario import TEAMS

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

    def unit(self, unit: Any, *, deleted: bool) -> None:
        """A queue unit changed."""
        uid = unit["metadata"]["uid"]
        if deleted and self._units.get(uid, ("", ""))[1] not in ("finished", "failed"):
            self._units.pop(uid, None)
        elif not deleted:
            phase = (unit.get("status") or {}).get("phase") or ""
            self._units[uid] = (unit["metadata"]["namespace"], _PHASES.get(phase, "waiting"))

    def pod(self, pod: Any, *, deleted: bool) -> None:
        """A pod changed."""
        phase = (pod.get("status") or {}).get("phase") or "Pending"
        if phase == "Pending" and pod["spec"].get("nodeName"):
            phase = "Bound"
        self._pods[pod["metadata"]["uid"]] = "Gone" if deleted and phase not in ("Succeeded", "Failed") else phase

    def counts(self, namespace: str) -> Counter[str]:
        """Jobs of a namespace by stage."""
        return Counter(stage for where, stage in self._units.values() if where == namespace)

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
        for team in TEAMS:
            counts = self.counts(team.namespace)
            table.add_row(team.name, *(str(counts[stage]) for stage in STAGES))
        pods = Counter(self._pods.values())
        # Pods that their operators removed have ended too: the four numbers are all pods there ever were.
        over = pods["Succeeded"] + pods["Failed"] + pods["Gone"]
        line = Text(f"{elapsed_s:5.1f} s  {self.finished} of {self._jobs} jobs over  pods: ")
        line.append(f"pending {pods['Pending']}  bound {pods['Bound']}  running {pods['Running']}  over {over}")
        return Group(table, line)
