"""What a workload of upstream's benchmark is, and how it becomes a scenario.

A threshold is the pods per second of a whole control plane below which upstream's own benchmark raises an alarm; our
figure is the decisions per second of one process on one core. So the ratio tells an order of magnitude, not a contest.
What churns in upstream a few times a second does so here in proportion to the pods: more often than that for each pod.
"""

import statistics
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.scheduler.upstream.bed import Bed, Rate, new_bed, servers

AIM, LEAST = 10.0, 3.0
"""How many times upstream's threshold is aimed at, and must be reached."""
Numbers = Mapping[str, int]
Drive = Callable[[Bed, Numbers], Awaitable[Rate]]


class Workload(msgspec.Struct, frozen=True):
    """One of upstream's: ``drive`` prepares a bed and answers the rate of the measured pods."""

    name: str
    summary: str
    drive: Drive
    defaults: dict[str, object]
    threshold: float

    def scenario(self) -> Scenario:
        """As the command line runs it."""

        async def run(parameters: Parameters) -> BenchResult:
            return await _run(self, parameters)

        return Scenario(self.name, f"{self.summary} (upstream: {self.threshold:g} pods/s)", run, self.defaults)


async def _run(workload: Workload, parameters: Parameters) -> BenchResult:
    numbers = {key: int(str(value)) for key, value in parameters.items()}
    rates: list[Rate] = []
    async with servers() as on:
        for _ in range(numbers["runs"]):
            async with new_bed(on) as bed:
                rates.append(await workload.drive(bed, numbers))
    rate = statistics.median(one.per_s for one in rates)
    ratio = rate / workload.threshold
    return BenchResult(
        workload.name,
        dict(parameters),
        {"decisions_per_s": rate, "decisions_per_cpu_s": statistics.median(one.per_cpu_s for one in rates)},
        published={"decisions_per_s": workload.threshold},
        ratios={"decisions_per_s": ratio},
        bound_by=f"one core of the scheduler's process; {'at' if ratio >= AIM else 'below'} the aim of {AIM:g} times",
        ok=ratio >= LEAST,
    )
