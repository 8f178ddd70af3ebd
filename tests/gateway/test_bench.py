"""The benchmark of the lean client measures what it says."""

from koord.gateway.bench import SCENARIO


async def test_both_clients_are_measured() -> None:
    result = await SCENARIO.run({"calls": 800, "at_a_time": 4})  # type: ignore[misc]
    assert result.scenario == "gateway-writes"
    assert all(value > 0 for value in result.figures.values())
    assert result.figures["cpu_us_per_call"] < result.figures["aiohttp_cpu_us_per_call"]
