"""``koord demo``, small: it ends well, says what is promised, and a violation fails it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from koord.cli.demo import play as playing
from koord.cli.main import main
from tests.integration.conftest import KOORD


@pytest.mark.slow
def test_a_small_demo_ends_well(tmp_path: Path) -> None:
    file = tmp_path / "demo.json"
    command = [*KOORD, "demo", "--with-parent", "--nodes", "20", "--jobs", "8", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 of 8 jobs finished" in done.stdout
    assert "no violations in the API's watch history" in done.stdout
    summary = json.loads(file.read_text())
    assert {"jobs", "finished", "queues", "quotas", "scheduler", "violations", "wall_s"} <= set(summary)
    assert (summary["jobs"], summary["finished"], summary["violations"]) == (8, 8, [])
    assert {queue["name"]: queue["finished"] for queue in summary["queues"]} == {"vision": 4, "language": 4}
    quotas = {quota["name"]: quota for quota in summary["quotas"]}
    for name in ("research", "vision", "language"):
        assert 0 < quotas[name]["peak"]["cpu"] <= float(quotas[name]["max"]["cpu"])
    group = summary["gang_group"]
    assert (group["parts"], group["bound"], group["bound_early"]) == ({"prefill": 2, "decode": 4}, 6, 0)
    assert summary["scheduler"]["pods_bound"] >= 8 * 2


@pytest.mark.parametrize(
    ("violations", "failed", "bound_early", "words"),
    [
        ([{"rule": "bound twice", "subject": "pod a/b", "detail": "first to n, then to m"}], 0, 0, "1 violations"),
        ([], 1, 0, "1 failed jobs"),
        ([], 0, 1, "1 pods of a gang group bound in part"),
    ],
)
def test_a_violation_or_a_failed_job_fails_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    violations: list[dict[str, str]],
    failed: int,
    bound_early: int,
    words: str,
) -> None:
    """The run is made up, the judgement of it is not."""

    async def run(*_: object) -> playing.Summary:
        figures = playing.SchedulerSummary(2, 1.0, 0.1, 0.2)
        group = playing.GangGroupSummary({"a": 1, "b": 1}, 2, 0.1, 0.1, bound_early)
        return playing.Summary(2, 2 - failed, failed, [], [], group, figures, violations, 1.0)

    file = tmp_path / "demo.json"
    monkeypatch.setattr(playing, "play", run)
    monkeypatch.setattr(sys, "argv", ["koord", "demo", "--json", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    told = capsys.readouterr()
    assert words in told.err
    assert ("no violations" in told.out) is not bool(violations)
    assert json.loads(file.read_text())["violations"] == violations
