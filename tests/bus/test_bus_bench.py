"""The benchmark runs, in small, on the tests' server and on one of its own."""

from importlib.metadata import entry_points

import pytest

from koord.bus.bench import SCENARIO, run

SMALL = {"objects": 200, "decisions": 200, "rounds": 1}


@pytest.mark.parametrize("own", [False, True])
async def test_the_scenario_measures(nats_url: str, own: bool) -> None:
    result = await run({**SMALL, "url": "" if own else nats_url})
    assert result.scenario == SCENARIO.name == "bus"
    assert result.parameters["objects"] == 200
    assert set(result.ratios) <= set(result.figures)
    assert all(value > 0 for value in result.figures.values())


@pytest.mark.parametrize("parameters", [{"objects": 0}, {"objects": "many"}, {"speed": 1}, {"rounds": True}])
async def test_a_bad_parameter_is_named(parameters: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(parameters))):
        await run(parameters)


def test_it_is_found_by_its_entry_point() -> None:
    (point,) = entry_points(group="koord.bench", name="bus")
    assert point.load() is SCENARIO
