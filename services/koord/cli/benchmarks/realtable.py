"""The figures of ``koord bench realcluster`` as a Markdown table: one row per load and contender.

koord bench realcluster --json > result.json
python -m koord.cli.benchmarks.realtable result.json
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = ("apiserver", "etcd")
GENERATOR = "generator"
_HEAD = ("", "pods/s", "p50", "p99", "CPU ms a pod: its own", "the server's", "cores busy")


def table(figures: Mapping[str, float], loads: Sequence[str], names: Sequence[str]) -> list[str]:
    """The lines of the table; what was not measured is left empty."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD))]
    for load in loads:
        for name in names:
            key = f"{load}.{name}"
            if f"{key}.pods_per_s" in figures:
                lines.append(_line([f"`{load}` {name}", *_cells(figures, key)]))
    return lines


def cpu_shares(figures: Mapping[str, float], key: str) -> tuple[float, float]:
    """CPU milliseconds per pod of the contender ``<load>.<name>``, and of API server and etcd."""
    prefix = f"{key}.cpu_ms_per_pod."
    spent = {name.removeprefix(prefix): value for name, value in figures.items() if name.startswith(prefix)}
    server = sum(spent.pop(name, 0.0) for name in SERVER)
    spent.pop(GENERATOR, None)
    return sum(spent.values()), server


def _cells(figures: Mapping[str, float], key: str) -> list[str]:
    own, server = cpu_shares(figures, key)
    return [
        f"{figures[f'{key}.pods_per_s']:.0f}",
        *(_said(figures.get(f"{key}.{name}"), " s") for name in ("p50_s", "p99_s")),
        f"{own:.2f}",
        f"{server:.2f}",
        _said(figures.get(f"{key}.cores_busy"), ""),
    ]


def _said(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.2f}{unit}"


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def main(path: str) -> None:
    """Print the table of a saved result."""
    result = json.loads(Path(path).read_text())
    figures: dict[str, float] = result["figures"]
    keys = [name.split(".")[:2] for name in figures if name.endswith(".pods_per_s")]
    loads, names = (list(dict.fromkeys(key[place] for key in keys)) for place in (0, 1))
    print("\n".join(table(figures, loads, names)))


if __name__ == "__main__":
    main(sys.argv[1])
