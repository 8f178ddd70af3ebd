"""Every benchmark runs, small, and prints the one object that is promised. What it measures here says nothing."""

import json
import subprocess
import sys

import pytest

from koord.cli.commands.bench import scenarios

# Small enough for a test; the thresholds hold for the checked-in sizes only.
SMALL: dict[str, dict[str, int | str]] = {
    "apiserver": {"nodes": 10, "pods": 200},
    "bus": {"objects": 500, "object_bytes": 300, "decisions": 300, "rounds": 1},
    "endtoend": {"nodes": 10, "pods": 40},
    "engine-basic": {"nodes": 50, "pods": 100, "classes": 5, "unique_pods": 40, "runs": 1},
    "engine-identical": {"nodes": 50, "pods": 200, "runs": 1},
    "engine-unschedulable": {"nodes": 50, "pods": 20},
    "gateway-writes": {"calls": 200, "at_a_time": 4},
    "koordinator-basic-1k": {"nodes": 10, "pods": 40, "rate": 40},
    "memory": {"nodes": 10, "pods": 40, "rate": 20, "seconds": 5, "sample_s": 1},
    "ledger": {"claims": 200, "rounds": 1, "nodes": 10, "singles": 20, "gangs": 2, "gang_size": 10},
    "quota-tree": {"quotas": 60, "rounds": 1, "changes": 5},
    "throttle": {"nodes": 5, "rate": 20, "seconds": 2, "misfits": 5, "per_s": 30, "reports": 5, "events_s": 8},
    "upstream-basic": {"nodes": 50, "init_pods": 10, "pods": 200, "runs": 1},
    "recovery": {"nodes": 10, "pods": 40, "rate": 30, "warm_s": 1, "rounds": 1, "faults": "scheduler,redis"},
}
FIGURES = {
    "apiserver": {"creates_per_s", "binds_per_s", "merge_patches_per_s", "watch_events_per_s", "rss_mib"},
    "bus": {"replay_s", "replay_objects_per_s", "decisions_per_s"},
    "endtoend": {"pods_per_s", "p50_s", "p99_s", "cpu_ms_per_pod", "cpu_ms_per_pod.scheduler"},
    "engine-basic": {"decisions_per_s", "unique_decisions_per_s"},
    "engine-identical": {"decisions_per_s"},
    "engine-unschedulable": {"p50_ms", "p99_ms"},
    "upstream-basic": {"decisions_per_s", "decisions_per_cpu_s"},
    "ledger": {"claims_per_s"},
    "memory": {"peak_mib", "mib.all", "mib.gateway", "mib_per_h.all", "restarted", "lost", "double", "drift"},
    "koordinator-basic-1k": {"pods_per_s", "p99_s", "binding_over_creation"},
    "gateway-writes": set[str](),
    "quota-tree": {"full_ms", "incremental_ms", "incremental_p99_ms", "build_ms"},
    "throttle": {
        "calm.bind_p99_s",
        "weather.bind_p99_s",
        "crowded.bind_p99_s",
        "crowded.event_lag_p50_s",
        "crowded.metric_lag_p50_s",
    },
    "recovery": {"fault.scheduler.p99_s", "fault.scheduler.gap_s", "lost", "double", "drift"},
}

# realcluster needs a real control plane: tests/realcluster/test_bench.py runs it. test_upstream.py runs the others.
ELSEWHERE = {"realcluster"} | ({one for one in scenarios() if one.startswith("upstream-")} - set(SMALL))
NEVER = ("lost", "double", "drift", "restarted")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "koord.cli.main", "bench", *arguments], capture_output=True, text=True, timeout=500
    )


def test_every_scenario_is_covered_here() -> None:
    assert set(scenarios()) == set(SMALL) | ELSEWHERE
    assert {row["name"] for row in json.loads(bench("--list", "--json").stdout)} == set(SMALL) | ELSEWHERE


@pytest.mark.parametrize("name", sorted(SMALL))
def test_prints_one_object(name: str) -> None:
    done = bench(name, "--json", *(part for key, value in SMALL[name].items() for part in ("-p", f"{key}={value}")))
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert set(result) == {"scenario", "parameters", "figures", "published", "ratios", "bound_by", "ok"}
    assert result["scenario"] == name
    assert SMALL[name].items() <= result["parameters"].items()
    assert set(result["figures"]) >= FIGURES[name]
    assert all(isinstance(value, int | float) for value in result["figures"].values())
    assert result["bound_by"]
    # Times and sizes say nothing here, these do: they must hold at any size.
    assert {key: result["figures"].get(key, 0) for key in NEVER} == dict.fromkeys(NEVER, 0), done.stderr
    assert done.returncode == (0 if result["ok"] else 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such",), "scenario 'no-such': unknown"),
        (("engine-basic", "-p", "nodez=3"), "nodez"),
        (("engine-basic", "-p", "nodes=many"), "nodes"),
        (("engine-basic", "-p", "nodes"), "KEY=VALUE"),
        (("endtoend", "-p", "pods=0"), "pods"),
        (("bus", "-p", "objects=-1"), "objects"),
        (("ledger", "-p", "claims=x"), "claims"),
        (("quota-tree", "-p", "quotas=0"), "quotas"),
        (("recovery", "-p", "faults=gateway,moon"), "'moon'"),
        (("memory", "-p", "seconds=0"), "seconds"),
    ],
)
def test_bad_requests_are_named(arguments: tuple[str, ...], message: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
