"""That the model can fail: with ``KOORD_MODEL_MUTANTS=1`` it must find each defect within the runs that are checked in.

Not part of the usual run, it takes minutes. ``-s`` prints after how many runs.
"""

import os

import pytest

from tests.model.mutants import MUTANTS
from tests.model.test_model import run_machine

asked = pytest.mark.skipif("KOORD_MODEL_MUTANTS" not in os.environ, reason="KOORD_MODEL_MUTANTS is not set")


@asked
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", MUTANTS)
def test_is_found(name: str) -> None:
    failed: list[int] = []
    with MUTANTS[name](), pytest.raises(BaseException) as found:  # whatever it is that it breaks
        run_machine(failed)
    print(f"\n{name}: found in run {failed[0]}: {str(found.value)[:300]!r}")


@pytest.mark.parametrize("name", MUTANTS)
def test_can_be_made(name: str) -> None:
    """What it changes is still there."""
    with MUTANTS[name]():
        pass
