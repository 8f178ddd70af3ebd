"""Tests of claims."""

import pytest

from koord.scheduler.dra import trying


@pytest.fixture(autouse=True)
def slices_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the first look at a device may take longer than a slice; tests of slices set their own."""
    monkeypatch.setattr(trying, "SLICE_S", 60.0)
