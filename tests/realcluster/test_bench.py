"""`koord bench realcluster`, small: each contender that was built binds everything, and is measured."""

import inspect
from pathlib import Path

import pytest

from koord.cli.benchmarks.realcluster import LOADS, REALCLUSTER
from koord.cli.errors import UsageProblem
from tests.realcluster import binaries


@pytest.mark.since("1.34", "resource.k8s.io/v1, which the koord-scheduler of the bed waits for")
async def test_each_contender_binds_all_loads() -> None:
    if binaries.running_cluster() is not None:
        pytest.skip("it starts a control plane of its own")
    folder = binaries.folder()
    small = {"nodes": 20, "pods": 60, "small_nodes": 10, "small_pods": 30, "binaries": str(folder)}
    made = REALCLUSTER.run(REALCLUSTER.defaults | small)
    assert inspect.isawaitable(made)
    result = await made
    names = {"koord"} | {name for name in ("kube-scheduler", "koord-scheduler") if binaries.has(name)}
    for name in names:
        for load in LOADS:
            assert result.figures[f"{load}.{name}.bound"] == (30 if load == "basic_1k" else 60), (load, name)
            assert result.figures[f"{load}.{name}.pods_per_s"] > 0
            assert result.figures[f"{load}.{name}.cores_busy"] > 0
            assert f"{load} {name}: " in result.bound_by
    assert len(result.ratios) == 5 * (len(names) - 1)


async def test_a_folder_without_binaries_is_named(tmp_path: Path) -> None:
    made = REALCLUSTER.run(REALCLUSTER.defaults | {"binaries": str(tmp_path)})
    assert inspect.isawaitable(made)
    with pytest.raises(UsageProblem, match=f"{tmp_path}: etcd and kube-apiserver not there"):
        await made
