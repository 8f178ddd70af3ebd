"""What is asked wrongly is told by place and rule, before anything is created or read."""

from pathlib import Path

import pytest

from koord.cli import clusters, manifests
from koord.cli.errors import UsageProblem
from koord.cli.options import split_key

JOB = "apiVersion: batch/v1\nkind: Job\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: v1\nkind: List\nitems: 5\n", "document 1: items: must be a list, is int"),
        ("apiVersion: v1\nkind: List\nitems: [5]\n", r"document 1, items\[0\]: must be an object, is int"),
        (JOB + "metadata: {name: a, namespace: 5}\n", "document 1: metadata.namespace: must be a text"),
        (JOB + "metadata: {name: 2024-01-01}\n", "document 1: metadata.name: must be a non-empty text"),
        (JOB + "metadata: {name: a}\nspec: &own {x: *own}\n", "document 1: cannot be written as JSON: "),
        (JOB + "metadata: {name: a}\nspec: {1.5: {.nan: 1}, ? [a] : 2}\n", "not YAML"),
    ],
)
def test_a_manifest(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UsageProblem, match=f"{file}.*{words}"):
        manifests.read([file], None)


@pytest.mark.parametrize("text", ["*/*", "ml/a b", "ml/>", "_/_", "\u00fc/x", "ml/*", "M/x"])
def test_no_name_is_read_as_a_pattern(text: str) -> None:
    with pytest.raises(UsageProblem, match=r"job '.*' is no name, which is of a-z"):
        split_key(text, "job")
    assert split_key("ml/a.b-1", "job") == ("ml", "a.b-1") and split_key("a", "job") == ("default", "a")


def test_a_place_for_ready_files_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(UsageProblem, match="file/koord: Not a directory; set XDG_RUNTIME_DIR"):
        clusters.runtime_directory()
