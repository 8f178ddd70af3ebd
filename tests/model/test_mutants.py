"""That the model can fail: with ``KOORD_MODEL_MUTANTS=1`` it must find each defect, by an interleaving or by a run.

The interleavings are tried first, one after the other, then the runs that are checked in. Not part of the usual run, it
takes minutes; ``-s`` prints what found which defect.
"""

import asyncio
import os
from collections.abc import Callable

import pytest

from koord.localcluster.servers import RedisServer
from tests.model import test_interleavings, test_services
from tests.model.mutants import MUTANTS
from tests.model.test_model import Machine, run_machine

asked = pytest.mark.skipif("KOORD_MODEL_MUTANTS" not in os.environ, reason="KOORD_MODEL_MUTANTS is not set")


@asked
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", MUTANTS)
def test_is_found(name: str) -> None:
    failed: list[int] = []
    with MUTANTS[name]():
        by = "" if "KOORD_MODEL_RUNS_ONLY" in os.environ else _interleaving_that_fails()
        if not by:
            with pytest.raises(BaseException) as found:  # whatever it is that it breaks
                run_machine(failed)
            by = f"run {failed[0]}: {str(found.value)[:300]!r}"
    print(f"\n{name}: found by {by}")


def _interleaving_that_fails() -> str:
    """The name of the first one; empty if none does."""
    server, plain = RedisServer(), asyncio.new_event_loop()
    plain.run_until_complete(server.start())
    try:
        for module in (test_interleavings, test_services):
            for name, test in vars(module).items():
                if name.startswith("test_") and _fails(test, server):
                    return name
        return ""
    finally:
        plain.run_until_complete(server.stop())
        plain.close()


def _fails(test: Callable[[Machine], None], server: RedisServer) -> bool:
    machine = type("Bound", (Machine,), {"server": server, "tell": staticmethod(lambda text: None)})()
    try:
        try:
            machine.start()
            test(machine)
        finally:
            machine.teardown()
    except Exception:
        return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_can_be_made(name: str) -> None:
    """What it changes is still there."""
    with MUTANTS[name]():
        pass
