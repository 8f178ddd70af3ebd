"""The tree is what the tools believe it is: one namespace over two roots, nothing unseen, everything in the wheel."""

import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import grimp
import pytest
from mypy.main import process_options

ROOT = Path(__file__).parents[2]
ROOTS = (ROOT / "libs", ROOT / "services")


def python_files(*folders: Path) -> set[Path]:
    return {file for folder in folders for file in folder.rglob("*.py")}


def test_no_init_at_the_top_of_the_namespace() -> None:
    assert [root / "koord" / "__init__.py" for root in ROOTS if (root / "koord" / "__init__.py").exists()] == []


def test_every_room_says_what_it_is_for() -> None:
    silent = []
    for folder in {file.parent for file in python_files(*ROOTS)} - {root / "koord" for root in ROOTS}:
        init = folder / "__init__.py"
        if not init.exists() or not init.read_text().lstrip().startswith('"""'):
            silent.append(str(folder.relative_to(ROOT)))
    assert silent == []


def test_import_linter_sees_every_module() -> None:
    modules = {
        module for module in grimp.build_graph("koord", cache_dir=None).modules if not module.startswith("koord.__")
    }
    on_disk = set()
    for root in ROOTS:
        for file in python_files(root):
            parts = file.relative_to(root).with_suffix("").parts
            on_disk.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    assert on_disk - modules == set()


def test_mypy_sees_every_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    sources, options = process_options([])
    assert options.strict_equality
    assert options.disallow_untyped_defs
    seen = {(ROOT / source.path).resolve() for source in sources if source.path}
    assert python_files(*ROOTS, ROOT / "tests", ROOT / "tools") - seen == set()


def test_the_wheel_holds_both_roots_and_the_package_data(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for root in ROOTS:
        for file in (root / "koord").rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert file.relative_to(root).as_posix() in names


@pytest.mark.parametrize("group", ["koord.services", "koord.bench"])
def test_entry_points_load(group: str) -> None:
    found = [entry for entry in entry_points(group=group) if entry.dist is not None and entry.dist.name == "koord"]
    assert found
    for entry in found:
        entry.load()
