"""``koord bench recovery``: how long binding pauses when something dies, and that nothing is lost, doubled or wrong.

Under a steady arrival of pods, one process after the other is killed, several rounds of each kind. The *pause* of a
fault is what pods saw of it: the seconds from create to nodeName of the pods created from one second before the kill,
or waiting at the kill, until binding was level again (nobody waits longer than a second). After each fault the arrival
stops, everything must come to rest, and the ledger must equal a recount of the API's objects.
"""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from koord.cli.api import connect
from koord.cli.benchmarks.arrivals import NAMESPACE, Arrivals
from koord.cli.benchmarks.faults import Fault, kill, parse, target
from koord.cli.benchmarks.judging import Judge
from koord.cli.benchmarks.population import Population, until
from koord.cli.benchmarks.upprocess import UpProcess, failure, say
from koord.cli.errors import CommandError
from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient, RequestFailed
from koord.localcluster.httpapi import HttpClusterApi

_CONNECTIONS = 32
_CALM_S = 1.0
_BEFORE_S = 1.0
_AFTER_S = 2.0
_STALL_S = 60.0
_SHOWN = 6


class Pause(NamedTuple):
    """What one kill did to binding: each pod's wait, the longest first, by its name; seconds.

    ``gap_s`` is the longest time without a binding and ``gap_at_s`` when that began, from the kill on; ``created_at``
    says when the pods were created.
    """

    waits: list[tuple[float, str]]
    gap_s: float
    gap_at_s: float
    level_s: float
    created_at: Mapping[str, float]

    def __str__(self) -> str:
        shown = self.waits[:: max(1, len(self.waits) // _SHOWN)]
        return (
            f"longest gap {self.gap_s:.2f} s from {self.gap_at_s:+.2f} s on, level after {self.level_s:.1f} s; "
            f"waits {', '.join(f'{wait:.2f} s ({key} of {self.created_at[key]:+.2f} s)' for wait, key in shown)}"
        )


class Seen(Protocol):
    """What a pause is made of (:class:`Population` has it)."""

    @property
    def waits(self) -> Mapping[str, tuple[float, float]]:
        """(created, bound) by pod."""
        ...

    @property
    def waiting(self) -> Mapping[str, float]:
        """When pods without a node were created."""
        ...

    @property
    def bound_at(self) -> Sequence[float]:
        """Every binding, in order."""
        ...


def pause_of(seen: Seen, killed: float, level: float) -> Pause:
    """The pause between a kill and the moment when binding was level again; who still waits has waited until now."""
    begun, now = killed - _BEFORE_S, time.monotonic()
    waits = [
        (bound - created, key)
        for key, (created, bound) in seen.waits.items()
        if created <= level and (created >= begun or bound >= killed)
    ]
    waits += [(now - created, key) for key, created in seen.waiting.items() if created <= level]
    moments = [begun, *(moment for moment in seen.bound_at if begun <= moment <= level), level]
    gap, gap_at = max((later - earlier, earlier) for earlier, later in itertools.pairwise(moments))
    created_at = {key: created - killed for key, (created, _) in seen.waits.items()}
    created_at |= {key: created - killed for key, created in seen.waiting.items()}
    return Pause(sorted(waits, reverse=True), gap, gap_at - killed, level - killed, created_at)


class _Bench:
    def __init__(
        self, up: UpProcess, api: HttpClusterApi, people: Population, arrivals: Arrivals, rate: int, warm_s: int
    ) -> None:
        self._up = up
        self._people = people
        self._arrivals = arrivals
        self._rate = rate
        self._warm_s = warm_s
        self.judge = Judge(up, api, people, arrivals)
        self.pauses: dict[str, list[Pause]] = defaultdict(list)

    async def fill(self, pods: int) -> None:
        """The standing population."""
        await self._arrivals.setup()
        await self._arrivals.fill(pods)
        if not await self._people.all_bound(_STALL_S):
            raise CommandError(f"{len(self._people.waiting)} of the first {pods} pods were not bound")
        await self.judge.rest("the start")

    async def fault(self, fault: Fault, turn: int) -> None:
        """One kill, from a steady arrival to rest."""
        before = len(self._arrivals.pods)
        self._people.chapter()
        self._arrivals.start(self._rate)
        await asyncio.sleep(self._warm_s)
        name, role = await target(self._up, fault.kind, turn)
        if await self._people.level(time.monotonic(), calm_s=_CALM_S / 2, timeout_s=_STALL_S) is None:
            raise CommandError(f"binding does not keep up with {self._rate} pods a second")
        killed = time.monotonic()
        pid = kill(self._up, name)
        level = await self._people.level(killed + _AFTER_S, calm_s=_CALM_S, timeout_s=_STALL_S)
        await self._arrivals.stop()
        pause = pause_of(self._people, killed, level if level is not None else time.monotonic())
        self.pauses[fault.kind].append(pause)
        say(f"{fault.kind} {turn + 1}: {name}{role and f' ({role})'} killed; {pause}")
        await self._up.restarted(name, pid)
        await self.judge.rest(f"{fault.kind} {turn + 1}")
        await self._clear(self._arrivals.pods[before:])

    async def _clear(self, names: list[str]) -> None:
        """Back to the standing population."""
        await self._arrivals.delete(names)
        keys = {f"{NAMESPACE}/{name}" for name in names}
        if not await until(lambda: keys.isdisjoint(self._people.live), _STALL_S):
            raise CommandError(f"{len(keys & self._people.live)} deleted pods do not go")


async def _recovery(parameters: Parameters) -> BenchResult:
    faults = parse(str(parameters["faults"]))
    nodes, pods, rate, warm_s, rounds, replicas, servers = (
        int(str(parameters[key])) for key in ("nodes", "pods", "rate", "warm_s", "rounds", "replicas", "nats_servers")
    )
    options = ["--nodes", str(nodes), "--name", "bench", "--log-level", "error"]
    options += ["--replicas", str(replicas)] if replicas > 1 else []
    options += ["--nats-servers", str(servers)] if servers > 1 else []
    async with UpProcess(options) as up, await connect(up.file().kubeconfig) as api:
        client = LeanClient(await load_access(up.file().kubeconfig), connections=_CONNECTIONS, timeout_s=_STALL_S)
        try:
            async with Population(api) as people:
                bench = _Bench(up, api, people, Arrivals(client, people), rate, warm_s)
                await bench.fill(pods)
                for turn in range(rounds):
                    for fault in faults:
                        await bench.fault(fault, turn)
                bench.judge.finish()
        except (CommandError, RuntimeError, RequestFailed, ExceptionGroup) as error:
            raise failure(error, up) from error
        finally:
            await client.close()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    ok = bench.judge.clean
    say("| killed | p50 | p99 | longest | without any binding |\n| --- | --- | --- | --- | --- |")
    for kind, limit_s in faults:
        found = _figures(bench.pauses[kind])
        figures |= {f"fault.{kind}.{name}": value for name, value in found.items()}
        say(f"| {kind} | {' | '.join(f'{found[name]:.2f} s' for name in ('p50_s', 'p99_s', 'max_s', 'gap_s'))} |")
        if limit_s:
            ratios[f"fault.{kind}.p99_s"] = limit_s / max(found["p99_s"], 1e-3)
            ok = ok and found["p99_s"] <= limit_s
    figures |= bench.judge.figures()
    return BenchResult(
        scenario=RECOVERY.name,
        parameters=dict(parameters),
        figures=figures,
        ratios=ratios,
        bound_by="detection of a death and the restart of a process; ratios are the limit over the p99",
        ok=ok,
    )


def _figures(pauses: Sequence[Pause]) -> dict[str, float]:
    """Of all rounds of one kind of fault."""
    waits = sorted(wait for pause in pauses for wait, _ in pause.waits)
    return {
        "p50_s": _quantile(waits, 0.5),
        "p99_s": _quantile(waits, 0.99),
        "max_s": waits[-1] if waits else 0.0,
        "gap_s": max(pause.gap_s for pause in pauses),
        "level_s": max(pause.level_s for pause in pauses),
    }


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


RECOVERY = Scenario(
    "recovery",
    "pause in binding when gateway, scheduler, NATS or Redis is killed; nothing lost, doubled or miscounted",
    _recovery,
    {
        "nodes": 1000,
        "pods": 20000,
        "rate": 160,
        "warm_s": 4,
        "rounds": 3,
        "replicas": 1,
        "nats_servers": 1,
        "faults": "gateway,scheduler,nats,redis",
    },
)
