"""The table of `koord bench realcluster`, from its figures and from a saved result; which loads and contenders run."""

import json
from pathlib import Path

import pytest

from koord.cli.benchmarks.realcluster import CONTENDERS, LOADS, REALCLUSTER
from koord.cli.benchmarks.realtable import cpu_shares, main, table

FIGURES = {
    "burst.koord.pods_per_s": 296.4,
    "burst.koord.p50_s": 0.431,
    "burst.koord.p99_s": 0.9,
    "burst.koord.cores_busy": 1.96,
    "burst.koord.cpu_ms_per_pod.gateway": 0.5,
    "burst.koord.cpu_ms_per_pod.scheduler": 0.4,
    "burst.koord.cpu_ms_per_pod.apiserver": 3.0,
    "burst.koord.cpu_ms_per_pod.etcd": 0.75,
    "burst.koord.cpu_ms_per_pod.generator": 0.3,
    "backlog.kube-scheduler.pods_per_s": 393.0,
    "backlog.kube-scheduler.cpu_ms_per_pod.kube-scheduler": 2.0,
}
ROWS = [
    "| `burst` koord | 296 | 0.43 s | 0.90 s | 0.90 | 3.75 | 1.96 |",
    "| `backlog` kube-scheduler | 393 | | | 2.00 | 0.00 | |",
]


def test_the_server_and_the_generator_are_not_the_contenders_own() -> None:
    assert cpu_shares(FIGURES, "burst.koord") == pytest.approx((0.9, 3.75))


def test_what_was_not_measured_is_left_empty() -> None:
    assert table(FIGURES, LOADS, CONTENDERS)[2:] == ROWS


def test_a_saved_result_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"figures": FIGURES}))
    main(str(path))
    assert capsys.readouterr().out.splitlines()[2:] == ROWS


@pytest.mark.parametrize(("key", "value"), [("loads", "burst,flood"), ("contenders", "volcano"), ("loads", ",")])
async def test_unknown_names_are_refused_before_anything_starts(tmp_path: Path, key: str, value: str) -> None:
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch()
    made = REALCLUSTER.run(REALCLUSTER.defaults | {"binaries": str(tmp_path), key: value})
    with pytest.raises(ValueError, match=f"{key}: .* known are "):
        await made  # type: ignore[misc]  # it is one of those that are awaited
