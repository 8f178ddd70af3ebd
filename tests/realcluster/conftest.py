"""Without a real control plane the tests here are skipped together, all but those of the module files and the build."""

from pathlib import Path

import pytest

from tests.realcluster import binaries

_HERE = Path(__file__).parent
_NEEDS_NONE = {"test_modules.py", "test_since.py"}


def _why_not() -> str | None:
    """Why no control plane can run; None also when that must fail a test."""
    if binaries.mode() == "required" or binaries.running_cluster() is not None:
        return None
    try:
        binaries.folder()
    except binaries.Absent as absent:
        return str(absent)
    return None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """`make test` has none of them, not even as skipped."""
    if binaries.mode() == "off" and collection_path.name.startswith("test_"):
        return collection_path.name not in _NEEDS_NONE
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Elsewhere one line a file says what is missing."""
    reason = _why_not()
    if reason is None:
        return
    for item in items:
        if item.path.is_relative_to(_HERE) and item.path.name not in _NEEDS_NONE:
            item.add_marker(pytest.mark.skip(reason=reason))
