"""Pods from create to nodeName on a real kube-apiserver: koord, kube-scheduler and koord-scheduler one after the other.

Same server, same nodes, same pods, same run, so the ratios mean something; each contender has the two cores to itself
besides the server, etcd and the load generator. Three loads: ``basic_1k`` (1,000 pods at 100 a second on the first 100
nodes' worth of cluster, as Koordinator measures), ``burst`` (5,000 pods created as fast as the server takes them), and
``backlog`` (the same pods, all created before the scheduler starts: what it does when creating costs nothing any more).
"""

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from koord.cli.benchmarks.contenders import Contender, Koord, Peer, install_koordinator
from koord.cli.benchmarks.podload import NAMESPACE, Load, api_of, load_pods
from koord.cli.benchmarks.realtable import GENERATOR, SERVER, cpu_shares, table
from koord.cli.benchmarks.upprocess import say
from koord.cli.errors import CommandError, UsageProblem
from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.gateway.access import ApiAccess
from koord.gateway.kubeconfig import load_access
from koord.localcluster.clusterapi import ApiError
from koord.localcluster.controlplane.binaries import NEEDED, default_folder
from koord.localcluster.controlplane.plane import ControlPlane
from koord.localcluster.httpapi import HttpClusterApi
from koord.localcluster.servers import ServerError

_PUBLISHED_PODS_PER_S = 45.6
_AT_ONCE = 32
# Nodes are written by hand, without kubelets and a controller manager: nobody would take the first taint away.
NODES_BY_HAND = {"disable-admission-plugins": "ServiceAccount,TaintNodesByCondition"}
# Thousands of pods are deleted between two runs, by one request.
_QUICK_TO_CLEAR = {"delete-collection-workers": "8"}
LOADS = ("basic_1k", "burst", "backlog")
CONTENDERS = ("koord", "kube-scheduler", "koord-scheduler")
_BUSY = 0.85
"""Of all cores: who keeps so much busy is bound by them."""


def binaries(parameters: Parameters) -> Path:
    """The folder with etcd and kube-apiserver: the parameter's, else where they are built; UsageProblem without one."""
    named = str(parameters["binaries"])
    try:
        folder = Path(named) if named else default_folder()
    except ServerError as error:
        raise UsageProblem(f"{error}; or say -p binaries=FOLDER") from error
    lacking = [name for name in NEEDED if not (folder / name).is_file()]
    if lacking:
        raise UsageProblem(f"-p binaries={named}: {' and '.join(lacking)} not there")
    return folder


async def make_nodes(api: HttpClusterApi, first: int, past: int) -> None:
    """Ready nodes without kubelets: 32 cores, 128 GiB, 110 pods each."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await api.create("nodes", None, _node(f"node-{number:05d}"))

    async with asyncio.TaskGroup() as group:
        for number in range(first, past):
            group.create_task(one(number))


async def clear(api: HttpClusterApi) -> None:
    """Delete all pods of the load (there are no kubelets to wait for), and what koord remembers of its last stream.

    koord with a new NATS otherwise waits a minute for requests that the old one's decisions may have left under way.
    """
    with contextlib.suppress(ApiError):
        await api.delete("leases.coordination.k8s.io", "koord-system", "koord-ledger")
    await api.delete("pods", NAMESPACE, "", grace_period_seconds=0)


def _chosen(parameters: Parameters, key: str, known: Sequence[str]) -> list[str]:
    """The names in a parameter, in the order of ``known``; ValueError for one that is not."""
    named = [name.strip() for name in str(parameters[key]).split(",") if name.strip()]
    if not named or (unknown := [name for name in named if name not in known]):
        raise ValueError(f"{key}: {', '.join(unknown) if named else 'nothing'} named; known are {', '.join(known)}")
    return [name for name in known if name in named]


async def _run(parameters: Parameters) -> BenchResult:
    folder = binaries(parameters)
    nodes, pods, rounds = (int(str(parameters[key])) for key in ("nodes", "pods", "rounds"))
    small = min(nodes, int(str(parameters["small_nodes"])))
    loads, names = _chosen(parameters, "loads", LOADS), _chosen(parameters, "contenders", CONTENDERS)
    log: list[str] = []
    plane = ControlPlane(folder, apiserver_flags=NODES_BY_HAND | _QUICK_TO_CLEAR)
    try:
        await plane.start()
        access = await load_access(str(plane.kubeconfig))
        async with api_of(access) as api:
            contenders = await _contenders(plane, folder, api, names, log)
            await api.create("namespaces", None, {"metadata": {"name": NAMESPACE}})
            runs: dict[tuple[str, str], list[Load]] = {}
            made, began = 0, time.monotonic()
            for load in loads:
                count, most = (int(str(parameters["small_pods"])), small) if load == "basic_1k" else (pods, nodes)
                await make_nodes(api, made, most)
                made = max(made, most)
                for round_ in range(rounds):
                    # In turn from another one, so that none always finds the server younger than the others.
                    for contender in (*contenders[round_ % len(contenders) :], *contenders[: round_ % len(contenders)]):
                        run = await _one(plane, access, contender, load, count, float(str(parameters["rate"])))
                        runs.setdefault((load, contender.name), []).append(run)
                        await clear(api)
            took_s = time.monotonic() - began
    except (ServerError, CommandError, RuntimeError) as error:
        raise CommandError("\n".join([*log[-20:], str(error)])) from error
    finally:
        await plane.stop()
    return _result(parameters, loads, [contender.name for contender in contenders], runs, took_s / rounds)


async def _contenders(
    plane: ControlPlane, folder: Path, api: HttpClusterApi, names: Sequence[str], log: list[str]
) -> list[Contender]:
    found: list[Contender] = []
    for name in names:
        if name == "koord":
            found.append(Koord(plane.kubeconfig, log))
        elif not (folder / name).is_file():
            say(f"{name} was not built and is left out")
        elif name == "kube-scheduler":
            found.append(Peer(plane, name, "default-scheduler"))
        else:
            await install_koordinator(api, folder / "koordinator-crds")
            found.append(Peer(plane, name, "koord-scheduler"))
    if not found:
        raise CommandError(f"{folder} has none of {', '.join(names)}")
    return found


async def _one(plane: ControlPlane, access: ApiAccess, contender: Contender, load: str, pods: int, rate: float) -> Load:
    server = {"apiserver": plane.apiservers[0].pid, "etcd": plane.etcd.members[0].pid, GENERATOR: os.getpid()}
    began = time.monotonic()

    def pids() -> Mapping[str, int]:
        return {name: pid for name, pid in server.items() if pid} | dict(contender.pids())

    try:
        if load == "backlog":
            run = await load_pods(access, pids, pods, None, scheduler=contender.scheduler, began=contender.start)
        else:
            await contender.start()
            run = await load_pods(
                access, pids, pods, rate if load == "basic_1k" else None, scheduler=contender.scheduler
            )
    finally:
        await contender.stop()
    say(
        f"{load:>8} {contender.name:<15} {run.bound}/{run.pods} bound, {_rate(load, run):.0f} pods/s,"
        f" p99 {run.quantile(0.99):.2f} s, CPU ms a pod: {_cpu_words(run)}; {time.monotonic() - began:.0f} s in all"
    )
    return run


def _rate(load: str, run: Load) -> float:
    return run.bound / (run.draining_s if load == "backlog" else run.binding_s)


def _cpu_words(run: Load) -> str:
    spent = sorted(run.cpu_ms.items(), key=lambda entry: -entry[1])
    return ", ".join(f"{name} {value:.2f}" for name, value in spent if value >= 0.01)


def _result(
    parameters: Parameters,
    loads: Sequence[str],
    names: Sequence[str],
    runs: Mapping[tuple[str, str], Sequence[Load]],
    round_s: float,
) -> BenchResult:
    figures: dict[str, float] = {}
    for (load, name), each in runs.items():
        key = f"{load}.{name}"
        figures[f"{key}.pods_per_s"] = statistics.median(_rate(load, run) for run in each)
        figures[f"{key}.bound"] = float(min(run.bound for run in each))
        if load != "backlog":
            figures[f"{key}.p50_s"] = statistics.median(run.quantile(0.5) for run in each)
            figures[f"{key}.p99_s"] = statistics.median(run.quantile(0.99) for run in each)
        figures[f"{key}.cores_busy"] = statistics.median(run.cores_busy for run in each)
        for process in sorted({process for run in each for process in run.cpu_ms}):
            spent = statistics.median(run.cpu_ms.get(process, 0.0) for run in each)
            figures[f"{key}.cpu_ms_per_pod.{process}"] = spent
    figures["round_s"] = round_s
    ratios = {
        f"{load}.{figure}_over_{peer}": figures[f"{load}.koord.{figure}"] / figures[f"{load}.{peer}.{figure}"]
        for load in loads
        for peer in names
        if peer != "koord" and "koord" in names
        for figure in (("pods_per_s",) if load == "backlog" else ("pods_per_s", "p99_s"))
    }
    say("\n".join(table(figures, loads, names)))
    return BenchResult(
        scenario=REALCLUSTER.name,
        parameters=dict(parameters),
        figures=figures,
        published={"basic_1k.koord-scheduler.pods_per_s": _PUBLISHED_PODS_PER_S},
        ratios=ratios,
        bound_by="; ".join(f"{load} {name}: {_bound_by(figures, f'{load}.{name}')}" for load, name in runs),
        ok=all(run.bound == run.pods for (_, name), each in runs.items() if name == "koord" for run in each)
        and all(ratio >= 1.0 for key, ratio in ratios.items() if key.startswith("burst.pods_per_s")),
    )


def _bound_by(figures: Mapping[str, float], key: str) -> str:
    """Who used the cores during a load, and whether these were the bound."""
    cores, busy = os.cpu_count() or 1, figures[f"{key}.cores_busy"]
    own, server = cpu_shares(figures, key)
    whole = own + server + figures[f"{key}.cpu_ms_per_pod.{GENERATOR}"]
    by = "cores" if busy >= _BUSY * cores else "waiting"
    shares = f"itself {own / whole:.0%}, {' and '.join(SERVER)} {server / whole:.0%}"
    return f"{by}, {busy:.2f} of {cores} cores busy ({shares})"


def _node(name: str) -> dict[str, Any]:
    room = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench"}],
        },
    }


REALCLUSTER = Scenario(
    "realcluster",
    "pods from create to nodeName on a real kube-apiserver, beside kube-scheduler and koord-scheduler",
    _run,
    {
        "nodes": 1000,
        "pods": 5000,
        "small_nodes": 100,
        "small_pods": 1000,
        "rate": 100,
        "rounds": 1,
        "loads": ",".join(LOADS),
        "contenders": ",".join(CONTENDERS),
        "binaries": "",
    },
)
