"""Gates and checks: a check that fails is told once, and never keeps the answer from coming."""

import pytest

from koord.runtime import readiness
from koord.runtime.readiness import Readiness


def test_a_check_that_fails_is_not_met_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(readiness.log, "exception", lambda event, **context: told.append(context["gate"]))
    ready = Readiness()
    broken = {"thing"}

    def probe() -> bool:
        if broken:
            raise KeyError("no such thing")
        return True

    ready.check("thing", probe)
    assert [ready.waiting for _ in range(3)] == [["thing"]] * 3
    broken.clear()
    assert ready.waiting == []
    broken.add("thing")
    assert ready.waiting == ["thing"]
    assert told == ["thing", "thing"]
