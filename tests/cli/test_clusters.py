"""The ready file: whose it is, and what may stand where it is to be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from koord.cli import clusters
from koord.cli.clusters import ClusterFile
from koord.cli.errors import CommandError, UsageProblem


def cluster(process: int) -> ClusterFile:
    return ClusterFile(kubeconfig="k", nats="n", redis="r", pids={"up": process})


def dead_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_what_a_killed_cluster_left_is_removed_before_the_next_one_is_ready(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    clusters.write(path, cluster(dead_process()))
    clusters.reserve(path)
    assert not path.exists()
    clusters.reserve(path)


def test_a_running_cluster_keeps_its_ready_file(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    other = os.getppid()
    clusters.write(path, cluster(other))
    with pytest.raises(UsageProblem, match=f"--ready-file {path}: process {other}"):
        clusters.reserve(path)
    clusters.drop(path)
    assert clusters.read(path).pids == {"up": other}, "not ours to remove"

    clusters.write(path, cluster(os.getpid()))
    clusters.drop(path)
    assert not path.exists()
    clusters.drop(path)


def test_nothing_else_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(UsageProblem, match="not a ready file"):
        clusters.reserve(path)
    assert path.read_text() == "mine"
    empty = tmp_path / "empty"
    empty.touch()
    clusters.reserve(empty)


def test_an_impossible_place_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=f"--ready-file {tmp_path}: is a directory"):
        clusters.reserve(tmp_path)
    with pytest.raises(UsageProblem, match="can be written to"):
        clusters.check_target("--kubeconfig-out", tmp_path / "none" / "kubeconfig")


def test_a_file_that_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    place = tmp_path / "ready.json"
    place.mkdir()  # as a disk that is full: only the attempt shows it
    with pytest.raises(CommandError, match=f"ready file {place}: Is a directory"):
        clusters.write(place, ClusterFile(kubeconfig="", nats="", redis=""))
    assert [path.name for path in tmp_path.iterdir()] == ["ready.json"]


def test_a_file_that_the_variable_names_is_told_by_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(clusters.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(UsageProblem, match=f"^KOORD_CLUSTER {tmp_path}/none: No such file"):
        clusters.find(None)


def test_of_several_running_clusters_the_newest_is_taken_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv(clusters.VARIABLE, raising=False)
    with pytest.raises(UsageProblem, match="no running cluster found"):
        clusters.find(None)
    folder = clusters.runtime_directory()
    for age, (name, process) in enumerate({"old": os.getppid(), "new": os.getpid(), "dead": dead_process()}.items()):
        clusters.write(folder / f"cluster-{name}.json", cluster(process))
        os.utime(folder / f"cluster-{name}.json", (1000 + age, 1000 + age))
    assert clusters.find(None).pids == {"up": os.getpid()}
    assert "newest of 2 running clusters" in capsys.readouterr().err
    (folder / "cluster-old.json").unlink()
    clusters.find(None)
    assert capsys.readouterr().err == ""
