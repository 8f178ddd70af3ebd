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
    def fail() -> Any:
        raise UsageProblem(WORDS)

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert WORDS in capsys.readouterr().err


def test_a_cell_with_brackets_is_shown_whole() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table({"name": "NAME", "message": "MESSAGE"}, [{"name": "a", "message": WORDS}]))
    assert WORDS in captured.get()


@pytest.mark.parametrize("name", ["a.b", "ü", "", "x>", "A"])
def test_a_cluster_name_that_no_subject_can_carry(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "koord.cli.main", "up", "--name", name], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert "--name" in done.stderr and "DNS label" in done.stderr
