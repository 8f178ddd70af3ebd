"""What a command says: nothing of it is lost, and what is asked wrongly is told before anything starts."""

import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from koord.cli import main
from koord.cli.errors import UsageProblem
from koord.cli.output import table

WORDS = 'Job "a" is invalid: [metadata.name: Invalid value: "a": must be shorter, spec.x: Required value]'


def test_an_error_with_brackets_is_told_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: Any) -> Any:
        raise UsageProblem(WORDS)

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert WORDS in capsys.readouterr().err


def test_an_error_of_several_lines_is_told_in_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: Any) -> Any:
        raise UsageProblem("kubeconfig k: while parsing\n  in line 2\n")

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit):
        main.main()
    assert capsys.readouterr().err == "error: kubeconfig k: while parsing in line 2\n"


def test_a_cell_with_brackets_is_shown_whole() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table({"name": "NAME", "message": "MESSAGE"}, [{"name": "a", "message": WORDS}]))
    assert WORDS in captured.get()


@pytest.mark.parametrize("name", ["a.b", "ü", "", "x>", "A"])
def test_a_cluster_name_that_no_subject_can_carry(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "koord.cli.main", "up", "--name", name], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 2
    assert "--name" in done.stderr and "DNS label" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nonsense"], "error: No such command 'nonsense': see koord -h"),
        (["up", "--nods", "3"], "error: No such option: --nods (Possible options: --gpu-nodes, --nodes, --redis): see"),
        (["up", "--nodes", "x"], "error: Invalid value for '--nodes': Input should be a valid integer"),
        (["up", "--nodes"], "error: Option '--nodes' requires an argument"),
        (["submit"], "error: Missing argument 'FILE...': see koord submit -h"),
        (["explain", "nope"], "error: No such command 'nope': see koord explain -h"),
    ],
)
def test_a_misused_command_says_so_in_one_line(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["koord", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    [told] = err.splitlines()
    assert told.startswith(line)
