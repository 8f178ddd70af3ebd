"""What the documents say exists does, and nothing of the machine they were written on is in the tree."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("gateway", "reconciler", "queue", "quota", "scheduler")
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)]*))?\)")
_PLACE = re.compile(r"`((?:tests|libs|services|proto|docs|tools)/[\w./*-]+)`")
_METRIC = re.compile(r'(?:counter|gauge|histogram)\(\s*"([a-z0-9_]+)"')


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


DOCUMENTS = tracked("*.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_places_exist(document: Path) -> None:
    text = document.read_text()
    broken = [
        target
        for target, _ in _LINK.findall(text)
        if not target.startswith("http") and not (document.parent / target).exists()
    ]
    broken += [place for place in _PLACE.findall(text) if not list(ROOT.glob(place.rstrip("/")))]
    assert broken == []


@pytest.mark.parametrize("service", SERVICES)
def test_every_metric_of_a_service_is_on_its_pages(service: str) -> None:
    source = "\n".join(file.read_text() for file in (ROOT / "services" / "koord" / service).rglob("*.py"))
    pages = (ROOT / "docs" / f"{service}.md", *(ROOT / "docs").glob(f"{service}-*.md"))
    page = "\n".join(each.read_text() for each in pages)
    named = _METRIC.findall(source)
    assert named, "no metric was found: the pattern no longer fits the code"
    assert sorted(name for name in set(named) if name not in page) == []


def test_nothing_of_a_machine_is_in_the_tree() -> None:
    """Neither where this checkout lies nor its user's home is written anywhere."""
    paths = (f"{ROOT}/", f"{Path.home()}/")
    found = []
    for file in tracked():
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if any(path in line for path in paths):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def test_requirements_are_pinned_by_hash_and_name_no_index() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        lines = file.read_text().splitlines()
        pins = [number for number, line in enumerate(lines) if re.match(r"[A-Za-z0-9]", line)]
        assert pins
        for number, end in zip(pins, [*pins[1:], len(lines)], strict=True):
            assert re.match(r"[\w.-]+(\[[\w,]+\])?==\S+", lines[number]), f"{file.name}: {lines[number]}"
            assert any("--hash=sha256:" in line for line in lines[number:end]), f"{file.name}: {lines[number]}"
        assert not [line for line in lines if re.match(r"\s*(-i|--index-url|--extra-index-url|--find-links)\b", line)]
        assert "://" not in file.read_text()
