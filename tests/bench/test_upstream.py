"""Every workload of upstream's runs, small: all of its pods are placed and claimed. The rates here say nothing."""

import inspect

import pytest

from koord.contracts.bench import Scenario
from koord.scheduler.upstream.scenarios import SCENARIOS

SMALL = {
    "nodes": 60,
    "namespaces": 2,
    "names": 25,
    "init_pods": 20,
    "pods": 30,
    "gated_pods": 30,
    "deleted_pods": 40,
    "runs": 1,
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_places_all_its_pods(scenario: Scenario) -> None:
    parameters = scenario.defaults | {key: value for key, value in SMALL.items() if key in scenario.defaults}
    made = scenario.run(parameters)
    result = await made if inspect.isawaitable(made) else made
    assert result.scenario == scenario.name
    assert result.parameters == parameters
    assert result.figures["decisions_per_s"] > 0
    assert result.ratios
    for key, published in result.published.items():
        assert result.ratios[key] == pytest.approx(result.figures[key] / published)
    # One value for each parameter of every workload: a new parameter must be made small here.
    assert not scenario.defaults.keys() - SMALL.keys()
