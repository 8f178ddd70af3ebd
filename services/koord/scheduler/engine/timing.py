"""How long plugins take, noted while somebody wants to know: in one planned batch of ten (spec 10 section 5).

Off, it costs one look at a flag where a plugin is asked. What is noted are calls of a plugin for as many rows as it was
asked about, and for how many nodes a pod's ranking holds; whoever turned it on reads it at the batch's end.
"""

from time import perf_counter

SUCCESS = "Success"
UNSCHEDULABLE = "Unschedulable"
MOST = 64
"""Single calls of one plugin at one point that are kept; their sum has all."""

Key = tuple[str, str, str]
"""Plugin, point, status."""


class Timing:
    """``on`` is read everywhere; ``begin`` and ``end`` belong to whoever plans."""

    __slots__ = ("calls", "nodes", "on", "totals")

    def __init__(self) -> None:
        self.on = False
        self.calls: dict[Key, list[float]] = {}
        """Seconds of single calls."""
        self.totals: dict[tuple[str, str], float] = {}
        """Seconds by point and status, of all plugins."""
        self.nodes: list[tuple[int, int]] = []
        """Nodes looked at, and how many of them are feasible, by pod (by run of equal pods)."""

    def begin(self) -> None:
        """Note from now on; what was noted before is dropped."""
        self.calls, self.totals, self.nodes = {}, {}, []
        self.on = True

    def end(self) -> None:
        """Note nothing more."""
        self.on = False

    def begun(self) -> float:
        """When a call begins, for :meth:`took`; 0 if it is not to be noted."""
        return perf_counter() if self.on else 0.0

    def took(self, plugin: str, point: str, begun: float, status: str = SUCCESS) -> None:
        """A call that began at ``begun`` is over."""
        seconds = perf_counter() - begun
        calls = self.calls.setdefault((plugin, point, status), [])
        if len(calls) < MOST:
            calls.append(seconds)
        where = point, status
        self.totals[where] = self.totals.get(where, 0.0) + seconds

    def looked(self, evaluated: int, feasible: int) -> None:
        """A pod's nodes were ranked."""
        if len(self.nodes) < MOST:
            self.nodes.append((evaluated, feasible))
