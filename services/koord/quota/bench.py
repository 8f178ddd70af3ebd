"""What the runtime of a large quota tree costs: all of it anew, and what one changed leaf costs.

A tree of five levels whose tops ask for more than there is, two resources, requests of leaves at random. ``full`` is
the computation when every leaf's request changed; ``build`` makes the columns, which happens when a quota is created,
edited or deleted. ``incremental`` is one leaf's new request, which is summed up its path and fills every group whose
outcome it may change; where its quota and those above it ask for more than they get, that is little, and where it is
not, the siblings share anew and the change spreads: ``incremental_p99`` tells how far. Half of the changes are small.

``idle`` is the second pass, :mod:`koord.quota.idle`, in the same tree with jobs waiting in every leaf, most of them
larger than its share, after one line in a hundred changed; ``idle_first`` follows a change of the tree.
"""

import random
import statistics
import time

import numpy as np

from koord.contracts.bench import BenchResult, Parameters, Scenario
from koord.quota.idle import IdleRoom
from koord.quota.runtime import RuntimeTree
from koord.quota.shape import QuotaRow
from koord.quota.standing import Order
from koord.quota.waiting import Lines, Rank, Waiting

DEPTH = 5
FULL_MS = 50.0
INCREMENTAL_MS = 5.0
IDLE_MS = 50.0
_GIB = 2**30


def tree_of(quotas: int, rng: random.Random) -> tuple[list[QuotaRow], list[str]]:
    """Rows of a tree of :data:`DEPTH` levels, and the names of its leaves; each level has several times the one above.

    The deepest level has what the others leave of ``quotas``; every parent there has about seven children.
    """
    fan = max(2, round(quotas ** (1 / DEPTH)))
    levels: list[list[str]] = []
    rows: list[QuotaRow] = []
    left = quotas
    for depth in range(DEPTH):
        above = levels[-1] if levels else []
        size = min(left, fan ** (depth + 1)) if depth < DEPTH - 1 else left
        level = [f"q{depth}-{i:05}" for i in range(size)]
        left -= size
        share = 64_000 * fan ** (DEPTH - 1 - depth)
        for i, name in enumerate(level):
            least = rng.randrange(share // 4, share)
            most = least * rng.randrange(2, 5)
            amounts = {"cpu": most, "memory": most * 4 * _GIB // 1000}
            rows.append(
                QuotaRow(
                    name,
                    above[i * len(above) // size] if above else "",
                    {"cpu": least, "memory": least * 4 * _GIB // 1000},
                    amounts,
                    amounts,
                    lends=rng.random() < 0.9,
                )
            )
        levels.append(level)
    return rows, levels[-1] or [row.name for row in rows]


def _asked(most: int, rng: random.Random) -> dict[str, int]:
    cpu = rng.randrange(most * 2)
    return {"cpu": cpu, "memory": cpu * rng.randrange(1, 8) * _GIB // 1000}


def run(parameters: Parameters) -> BenchResult:
    """Build, compute all, change one leaf at a time; times are medians over the rounds, in milliseconds."""
    quotas, rounds, changes = (int(str(parameters[key])) for key in ("quotas", "rounds", "changes"))
    for name, value in (("quotas", quotas), ("rounds", rounds), ("changes", changes)):
        if value < 1:
            raise ValueError(f"{name}: must be at least 1, got {value}")
    rng = random.Random(20)
    rows, leaves = tree_of(quotas, rng)
    limits = {row.name: row.max["cpu"] for row in rows}
    tops = sum(row.min["cpu"] for row in rows if not row.parent)
    build, full, renewed, incremental, touched = [], [], [], [], []
    tree = RuntimeTree(())
    for _ in range(rounds):
        begun = time.perf_counter()
        tree = RuntimeTree(rows)
        build.append(_since(begun))
    tree.set_total("", {"cpu": tops * 3 // 2, "memory": tops * 5 * _GIB // 1000})
    asked = {name: _asked(limits[name], rng) for name in leaves}
    for _ in range(rounds):
        asked = {name: _asked(limits[name], rng) for name in leaves}
        tree.set_all_own(asked, {})
        begun = time.perf_counter()
        renewed.append(len(tree.compute()))
        full.append(_since(begun))
    for i in range(changes):
        leaf = rng.choice(leaves)
        if i % 2:
            asked[leaf] = _asked(limits[leaf], rng)
        else:
            asked[leaf] = {"cpu": asked[leaf]["cpu"] + 1000, "memory": asked[leaf]["memory"] + 4 * _GIB}
        begun = time.perf_counter()
        tree.set_own(leaf, asked[leaf], {})
        touched.append(len(tree.compute()))
        incremental.append(_since(begun))
    incremental.sort()
    first, idle = _idle(tree, leaves, limits, rounds, rng)
    figures = {
        "full_ms": statistics.median(full),
        "full_quotas_changed": statistics.mean(renewed),
        "incremental_ms": statistics.median(incremental),
        "incremental_p99_ms": incremental[len(incremental) * 99 // 100],
        "incremental_quotas_changed": statistics.mean(touched),
        "build_ms": statistics.median(build),
        "idle_ms": statistics.median(idle),
        "idle_first_ms": first,
    }
    return BenchResult(
        "quota-tree",
        dict(parameters),
        figures,
        ratios={
            "full_ms": figures["full_ms"] / FULL_MS,
            "incremental_ms": figures["incremental_ms"] / INCREMENTAL_MS,
            "incremental_p99_ms": figures["incremental_p99_ms"] / INCREMENTAL_MS,
            "idle_ms": figures["idle_ms"] / IDLE_MS,
        },
        bound_by="one core",
        ok=figures["full_ms"] < FULL_MS
        and figures["incremental_p99_ms"] < INCREMENTAL_MS
        and figures["idle_ms"] < IDLE_MS,
    )


def _idle(
    tree: RuntimeTree, leaves: list[str], limits: dict[str, int], rounds: int, rng: random.Random
) -> tuple[float, list[float]]:
    """What idle shares cost at first, and after changes of a hundredth of the lines, in milliseconds."""
    lines = Lines()
    for number, name in enumerate(leaves):
        jobs = [_asked(limits[name] // 2, rng) for _ in range(rng.randrange(1, 4))]
        used = {"cpu": rng.randrange(limits[name] // 4), "memory": 0}
        used["memory"] = used["cpu"] * 4 * _GIB // 1000
        for i, asked in enumerate(jobs):
            lines.put(name, Waiting(Rank(0, f"{number}"), f"unit {name}-{i}", tuple(sorted(asked.items())), name))
        tree.set_occupied(name, used)
        tree.set_own(name, {key: used[key] + sum(job[key] for job in jobs) for key in used}, used)
    tree.compute()
    room, took = IdleRoom(), []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        below, _ = tree.up(tree.occupied, np.zeros_like(tree.occupied))
        room.share(tree, below, lines, lambda queue, quota: Order(), 0.0)
        took.append(_since(begun))
        for name in rng.sample(leaves, max(1, len(leaves) // 100)):
            lines.put(name, Waiting(Rank(1), f"unit {name}", tuple(sorted(_asked(limits[name], rng).items())), name))
    return took[0], took[1:]


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1e3


SCENARIO = Scenario(
    "quota-tree",
    "runtime of a quota tree of five levels: all of it anew, after one changed leaf, and its idle room handed on",
    run,
    {"quotas": 10_000, "rounds": 9, "changes": 400},
)
