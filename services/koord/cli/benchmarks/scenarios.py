"""The end-to-end scenarios, with what others publish for the same work."""

from koord.cli.benchmarks.podload import Load, run_load
from koord.cli.errors import CommandError
from koord.contracts.bench import BenchResult, Parameters, Scenario

_MIN_PODS_PER_S = 600.0
_PUBLISHED_PODS_PER_S = 45.6
_PUBLISHED_P99_S = 13.0
_LATE = 1.05


async def _endtoend(parameters: Parameters) -> BenchResult:
    chosen = _numbers(parameters)
    load = await _load(chosen["nodes"], chosen["pods"], None)
    rate = load.bound / load.binding_s
    return BenchResult(
        scenario=ENDTOEND.name,
        parameters=dict(chosen),
        figures=_figures(load) | {"pods_per_s": rate},
        published={},
        ratios={"pods_per_s": rate / _MIN_PODS_PER_S},
        bound_by=_bound_by(load),
        ok=load.bound == load.pods and rate >= _MIN_PODS_PER_S,
    )


async def _basic_1k(parameters: Parameters) -> BenchResult:
    chosen = _numbers(parameters)
    load = await _load(chosen["nodes"], chosen["pods"], float(chosen["rate"]))
    creation_s = chosen["pods"] / chosen["rate"]
    p99 = load.quantile(0.99)
    rate = load.bound / load.binding_s
    return BenchResult(
        scenario=BASIC_1K.name,
        parameters=dict(chosen),
        figures=_figures(load) | {"pods_per_s": rate, "binding_over_creation": load.binding_s / creation_s},
        published={"pods_per_s": _PUBLISHED_PODS_PER_S, "p99_s": _PUBLISHED_P99_S},
        ratios={"pods_per_s": rate / _PUBLISHED_PODS_PER_S, "p99_s": p99 / _PUBLISHED_P99_S},
        bound_by="the rate of creation (a fixed arrival of pods)",
        ok=load.bound == load.pods and load.binding_s <= creation_s * _LATE and p99 < 1.0,
    )


async def _load(nodes: int, pods: int, rate: float | None) -> Load:
    log: list[str] = []
    try:
        return await run_load(nodes, pods, rate, log)
    except (CommandError, RuntimeError) as error:
        raise CommandError("\n".join([*log[-20:], str(error)])) from error


def _figures(load: Load) -> dict[str, float]:
    figures: dict[str, float] = {
        "bound": float(load.bound),
        "creating_s": load.creating_s,
        "binding_s": load.binding_s,
        "p50_s": load.quantile(0.5),
        "p99_s": load.quantile(0.99),
        "cpu_ms_per_pod": sum(load.cpu_ms.values()),
    }
    return figures | {f"cpu_ms_per_pod.{name}": value for name, value in sorted(load.cpu_ms.items())}


def _bound_by(load: Load) -> str:
    name, most = max(load.cpu_ms.items(), key=lambda entry: entry[1])
    busy = sum(load.cpu_ms.values()) * load.pods / 1000 / load.binding_s
    return f"CPU: {busy:.2f} of 2 cores busy; most by {name}, {most:.2f} ms a pod ('up' is the load generator)"


def _numbers(parameters: Parameters) -> dict[str, int]:
    return {key: int(str(value)) for key, value in parameters.items()}


ENDTOEND = Scenario(
    "endtoend",
    "plain pods from create to nodeName, everything on this machine",
    _endtoend,
    {"nodes": 1000, "pods": 5000},
)
BASIC_1K = Scenario(
    "koordinator-basic-1k",
    "1,000 pods at 100 a second on 100 nodes, as Koordinator measures",
    _basic_1k,
    {"nodes": 100, "pods": 1000, "rate": 100},
)
SCENARIOS = (ENDTOEND, BASIC_1K)
