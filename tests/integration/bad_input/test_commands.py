"""What the command line is given: files, options and settings."""

# ruff: noqa: E501 (a case is a line)

import json
import re
from pathlib import Path

import pytest

from koord.cli.main import main
from tests.integration.bad_input.looking import (
    documents,
    job,
)
from tests.integration.conftest import Up

pytestmark = pytest.mark.slow

TEST_SETTINGS = ("CONFORMANCE", "REALCLUSTER", "REAL_KUBECONFIG", "CONTROLPLANE_BIN", "CONFORMANCE_SINCE")


def cli(up: Up, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The CLI's own main, in this process (a new one costs a second each): exit code 2, standard error."""
    for name in TEST_SETTINGS:  # they choose tests, and are no settings of koord's
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["koord", *arguments])
    monkeypatch.setenv("KOORD_CLUSTER", str(up.ready_file))
    monkeypatch.setenv("COLUMNS", "250")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    answer = capsys.readouterr()
    assert ended.value.code == 2, answer
    assert not answer.out
    return answer.err


FILES = [
    ("no-yaml", "kind: [unclosed", r"file\.yaml: not YAML: "),
    ("binary", "\0\1\2", r"file\.yaml: not YAML: "),
    ("empty", "# nothing\n---\n", "the files hold no objects"),
    ("text", "just words", r"file\.yaml, document 1: must be an object, is str"),
    ("kindless", json.dumps(job("x") | {"kind": None}), r"file\.yaml, document 1: kind: must be a non-empty text"),
    ("versionless", json.dumps(job("x") | {"apiVersion": 1}), r"document 1: apiVersion: must be a non-empty text"),
    ("nameless", json.dumps(job("x") | {"metadata": {}}), r"document 1: metadata\.name: must be a non-empty text"),
    ("unknown", json.dumps(job("x") | {"kind": "Jobb"}), r"document 1: Jobb: the server does not serve Jobb in /apis/batch/v1"),
    ("group", json.dumps(job("x") | {"apiVersion": "nobody.io/v1"}), r"document 1: Job: "),
    ("second", documents([job("first"), job("x") | {"kind": "Jobb"}]), r"document 2: Jobb: the server does not serve"),
    ("item", json.dumps({"kind": "List", "apiVersion": "v1", "items": [job("first"), 7]}), r"document 1, items\[1\]: must be an object"),
    ("refused", json.dumps(job("minus", "-1")), r"document 1: Job minus: .*resources\.requests(\.cpu|\[cpu\]): Invalid value"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "pattern"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_submit_names_file_document_and_rule_and_creates_nothing(
    cluster: Up,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    pattern: str,
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    before = {item["metadata"]["name"] for item in cluster.objects("jobs", "-A")}
    answer = cli(cluster, monkeypatch, capsys, "submit", str(file))
    assert re.search(pattern, answer), answer
    assert len(answer.strip().splitlines()) == 1, "one line says it"
    assert {item["metadata"]["name"] for item in cluster.objects("jobs", "-A")} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "no-such-file.yaml"), "no-such-file.yaml: No such file or directory"),
        (("submit", "x.yaml", "--until", "lunch"), "--until 'lunch': must be running or finished"),
        (("get", "unicorns"), "unicorns"),
        (("get", "queues", "--no-such-option"), "--no-such-option"),
        (("trace", "job", "a/b/c"), "a/b/c"),
        (("up", "--nodes", "2", "--gpu-nodes", "3"), "--gpu-nodes 3: must not exceed --nodes 2"),
        (("up", "--nodes", "-1"), "'--nodes': Input should be greater than or equal to 0"),
        (("up", "--kubeconfig", "nowhere"), "--kubeconfig nowhere: no such file"),
        (("up", "--install-crds"), "--install-crds and --operators go with --kubeconfig"),
        (("up", "--kubeconfig", __file__, "--operators", "Job"), "--operators go with --nodes"),
        (
            ("up", "--kubeconfig", __file__, "--nodes", "1", "--operators", "Job,Cron"),
            "'Cron' is not one of Job, TFJob",
        ),
        (("bench", "no-such-scenario"), "no-such-scenario"),
        (("run", "toaster"), "toaster"),
        (("run", "scheduler", "--set", "scheduler.fooo=1"), "scheduler.fooo (flag): unknown setting; known: "),
        (("run", "scheduler", "--set", "scheduler.batch=many"), "scheduler.batch"),
        (("run", "scheduler", "--set", "scheduler.batch=0"), "batch: 0 is not in 1..4096"),
        (("run", "queue", "--set", "nats.url"), "--set 'nats.url': write it as KEY=VALUE"),
        (("run", "quota", "--set", "quota.oversell_rate=-1"), "quota.oversell_rate: must be a number above 0"),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, tuple) else None,
)
def test_options_and_settings(
    cluster: Up,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    answer = " ".join(cli(cluster, monkeypatch, capsys, *arguments).split())
    assert words in answer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nats: {url: 7}", "nats.url"),
        ("scheduler: {nmaes: [a]}", "scheduler.nmaes"),
        ("toaster: {heat: 3}", "toaster"),
        ("- a list", "settings.yaml"),
        ("nats: [unclosed", "settings.yaml"),
    ],
)
def test_settings_files(
    cluster: Up,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    words: str,
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    answer = cli(cluster, monkeypatch, capsys, "run", "scheduler", "--config", str(file))
    assert words in answer
    assert len(answer.strip().splitlines()) == 1
