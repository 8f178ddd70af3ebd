"""``koord bench memory``: what ``koord up`` weighs with thousands of nodes and pods, and whether churn makes it grow.

The cluster runs as its own processes, so the benchmark's memory is not in the sum. After the fill, as many pods are
deleted as are created each second, gangs, jobs and pods that fit nowhere among them (these make events); the nodes'
heartbeats go on. All processes are weighed every few seconds. The second half of the samples says whether one grows:
by then what has a bounded length (the trace store, the ledger's marks of pods that ended, the API server's events)
should have reached it.
"""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from koord.cli.api import connect
from koord.cli.benchmarks.arrivals import Arrivals
from koord.cli.benchmarks.judging import Judge, unit_of
from koord.cli.benchmarks.population import Population
from koord.cli.benchmarks.upprocess import UpProcess, failure, say
from koord.cli.benchmarks.weighing import Growth, Sample, growth, weigh
from koord.cli.errors import CommandError
from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient, RequestFailed

_LIMIT_MIB = 3072.0
_RING = "traces"
_RING_MIB = 300.0
"""What the trace store weighs when its 256 MiB of spans are full: it is counted so from the start."""
_CONNECTIONS = 32
_STALL_S = 60.0
_JOB_LIFE_S = 30.0
_MISFIT_LIFE_S = 10.0


class _Scales:
    """Weighs the cluster every few seconds, from its start to its end."""

    def __init__(self, up: UpProcess, every_s: float, file: Path | None) -> None:
        self._up = up
        self._every_s = every_s
        self._file = file
        self.samples: list[Sample] = []
        self.pids: dict[str, set[int]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pids = self._up.file().pids
            for name, pid in pids.items():
                self.pids.setdefault(name, set()).add(pid)
            sample = await asyncio.to_thread(weigh, pids, time.monotonic())
            self.samples.append(sample)
            if self._file is not None:
                row = [f"{sample.at_s:.0f}", *(f"{name}={mib:.1f}" for name, mib in sorted(sample.mib.items()))]
                with self._file.open("a") as file:
                    print(*row, file=file)
            await asyncio.sleep(self._every_s)

    @property
    def restarted(self) -> list[str]:
        """Processes that died and came back meanwhile."""
        return sorted(name for name, pids in self.pids.items() if len(pids) > 1)


async def _churn(arrivals: Arrivals, people: Population, pods: int, rate: int, seconds: float) -> None:
    """As many deletions as arrivals, the oldest pods first; misfits go after a while, jobs too if they are over."""
    arrivals.start(rate)
    jobs: list[tuple[float, str]] = []
    misfits: list[tuple[float, str]] = []
    begun = time.monotonic()
    known = len(arrivals.jobs)
    try:
        while (now := time.monotonic()) < begun + seconds:
            jobs += [(now, name) for name in arrivals.jobs[known:]]
            known = len(arrivals.jobs)
            misfits.append((now, await arrivals.misfit()))
            await arrivals.delete(arrivals.pods[: max(0, len(arrivals.pods) - pods)])
            old = [name for made, name in jobs if made < now - _JOB_LIFE_S and unit_of(name) in people.units_over]
            await arrivals.delete_jobs(old)
            await arrivals.delete([name for made, name in misfits if made < now - _MISFIT_LIFE_S])
            gone = frozenset(old)
            jobs = [one for one in jobs if one[1] not in gone]
            misfits = [one for one in misfits if one[0] >= now - _MISFIT_LIFE_S]
            await asyncio.sleep(max(0.0, now + 1.0 - time.monotonic()))
    finally:
        await arrivals.stop()
        await arrivals.delete([name for _, name in misfits])


async def _memory(parameters: Parameters) -> BenchResult:
    nodes, pods, rate, seconds, every = (
        int(str(parameters[key])) for key in ("nodes", "pods", "rate", "seconds", "sample_s")
    )
    file = Path(str(parameters["samples"])) if parameters["samples"] else None
    options = ["--nodes", str(nodes), "--name", "bench", "--log-level", "error"]
    async with UpProcess(options) as up, await connect(up.file().kubeconfig) as api:
        client = LeanClient(await load_access(up.file().kubeconfig), connections=_CONNECTIONS, timeout_s=_STALL_S)
        scales = _Scales(up, float(every), file)
        weighing = asyncio.create_task(scales.run(), name="bench scales")
        try:
            async with Population(api) as people:
                arrivals = Arrivals(client, people)
                judge = Judge(up, api, people, arrivals)
                await arrivals.setup()
                await arrivals.fill(pods)
                if not await people.all_bound(_STALL_S):
                    raise CommandError(f"{len(people.waiting)} of the first {pods} pods were not bound")
                begun = time.monotonic()
                say(f"{pods} pods are bound; churn for {seconds} s")
                await _churn(arrivals, people, pods, rate, float(seconds))
                ended = time.monotonic()
                await judge.rest("the end")
                judge.finish()
        except (CommandError, RuntimeError, RequestFailed, ExceptionGroup) as error:
            raise failure(error, up) from error
        finally:
            weighing.cancel()
            await asyncio.wait({weighing})
            await client.close()
    if not weighing.cancelled():
        weighing.result()
    churn = [sample for sample in scales.samples if begun <= sample.at_s <= ended]
    grown = growth(churn[len(churn) // 2 :], apart=_RING)
    peak = max(sample.total - sample.mib.get(_RING, 0.0) for sample in scales.samples) + _RING_MIB
    growing = sorted(name for name, one in grown.items() if one.grows and name != _RING)
    say("| process | MiB | MiB an hour |\n| --- | --- | --- |")
    for name, one in grown.items():
        say(f"| {name} | {one.mib:.0f} | {one.mib_per_h:+.0f} |")
    for name in scales.restarted:
        say(f"{name} was restarted")
    return BenchResult(
        scenario=MEMORY.name,
        parameters=dict(parameters),
        figures={"peak_mib": peak, **_figures(grown), "restarted": float(len(scales.restarted)), **judge.figures()},
        ratios={"peak_mib": _LIMIT_MIB / peak},
        bound_by="PSS; grows: " + (", ".join(growing) if growing else "nothing"),
        ok=peak < _LIMIT_MIB and not growing and not scales.restarted and judge.clean,
    )


def _figures(grown: Mapping[str, Growth]) -> dict[str, float]:
    sizes = {f"mib.{name}": one.mib for name, one in grown.items()}
    return sizes | {f"mib_per_h.{name}": one.mib_per_h for name, one in grown.items()}


MEMORY = Scenario(
    "memory",
    "memory of koord up by process at 5,000 nodes and 50,000 pods, and whether it grows under churn",
    _memory,
    {"nodes": 5000, "pods": 50000, "rate": 50, "seconds": 1800, "sample_s": 10, "samples": ""},
)
