"""No golden example of spec 10 section 6 is without its test."""

import re
from pathlib import Path

LAST = 43
_NAMES = re.compile(r"^def test_g([0-9]+)(?:_to_g([0-9]+))?_", re.MULTILINE)


def test_g1_to_g43_are_all_tested() -> None:
    found: set[int] = set()
    for file in [*Path(__file__).parent.glob("test_10_*.py"), *Path(__file__).parent.glob("test_numa_*.py")]:
        for first, last in _NAMES.findall(file.read_text(encoding="utf-8")):
            found.update(range(int(first), int(last or first) + 1))
    assert set(range(1, LAST + 1)) <= found
