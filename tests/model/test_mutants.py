"""That the model can fail: each planted defect makes the interleaving that is for it fail, and the model says why.

``KOORD_MODEL_MUTANTS=1`` also asks which of the defects the checked-in runs would find by themselves; that takes
minutes, and no run comes to some of them.
"""

import os

import pytest

from koord.localcluster.servers import RedisServer
from tests.model.mutants import MUTANTS
from tests.model.test_model import Machine, run_machine


@pytest.mark.parametrize("name", MUTANTS)
def test_is_found(name: str, server: RedisServer) -> None:
    defect = MUTANTS[name]
    with defect.planted(), pytest.raises(AssertionError) as found:
        machine = type("Bound", (Machine,), {"server": server, "tell": staticmethod(print)})()
        try:
            machine.start()
            defect.shown_by(machine)
        finally:
            machine.teardown()
    assert defect.says in str(found.value)


@pytest.mark.skipif("KOORD_MODEL_MUTANTS" not in os.environ, reason="KOORD_MODEL_MUTANTS is not set")
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", MUTANTS)
def test_is_found_by_a_run(name: str) -> None:
    failed: list[int] = []
    with MUTANTS[name].planted():
        try:
            run_machine(failed)
        except Exception as error:  # whatever it is that it breaks
            print(f"\n{name}: found by run {failed[0]}: {str(error)[:300]!r}")
            return
    pytest.xfail("no run comes to it")
