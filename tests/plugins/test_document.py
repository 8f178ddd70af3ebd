"""The page for plugin authors shows the code that runs: each of its blocks is in the example, or runs here."""

import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from licenseseats.args import PRODUCT
from licenseseats.plugin import LICENSE_POOLS, LicenseSeats

from koord.gateway.settings import GatewaySettings
from koord.scheduler.config.reading import read
from koord.scheduler.engine.placement import Placed
from koord.scheduler.framework import contract
from koord.scheduler.plugins.profile import third_party_points
from koord.scheduler.testkit.bench import PluginBench
from koord.scheduler.testkit.contract import check
from tests.plugins.conftest import PACKAGE

PAGE = (Path(__file__).parents[2] / "docs" / "scheduler-plugins.md").read_text(encoding="utf-8")
SOURCES = "\n".join(file.read_text(encoding="utf-8") for file in sorted((PACKAGE / "src").rglob("*.py")))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", [each for each in blocks("python")[1:] if "def test_" not in each])
def test_code_is_the_examples(block: str) -> None:
    assert block in SOURCES


def test_the_first_plugin_is_whole() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    bench = PluginBench(names["QuietNodes"]({}))
    for number in range(8):
        bench.node(f"n{number}", labels={names["LOUD"]: "yes"} if number else {})
    for _ in range(2):
        placed = bench.place(bench.pod(annotations={names["QUIET"]: ""}))
        assert isinstance(placed, Placed)
        assert placed.node == "n0"
    check(bench, bench.pod(annotations={names["QUIET"]: ""}))
    with pytest.raises(ValueError, match="takes no arguments"):
        names["QuietNodes"]({"loud": 1})


def test_the_test_on_the_page_runs() -> None:
    names: dict[str, Any] = {
        "PRODUCT": PRODUCT,
        "LICENSE_POOLS": LICENSE_POOLS,
        "LicenseSeats": LicenseSeats,
        "PluginBench": PluginBench,
        "Placed": Placed,
        "check": check,
    }
    [block] = [each for each in blocks("python") if "def test_" in each]
    exec(textwrap.dedent(block), names)
    names["test_seats_are_taken"]()


def test_the_files_on_the_page_are_taken(installed: Path) -> None:
    assert blocks("toml") == [(PACKAGE / "pyproject.toml").read_text(encoding="utf-8")]
    configuration, gateway = blocks("yaml")
    [profile] = read(configuration, third_party_points(), source="the page").profiles
    assert profile.args["LicenseSeats"] == {"scoringStrategy": "LeastFree"}
    assert [use.weight for use in profile.points["score"] if use.name == "LicenseSeats"] == [2]
    settings = msgspec.convert(yaml.safe_load(gateway)["gateway"], GatewaySettings)
    assert settings.also_watch == (LICENSE_POOLS,)


def test_every_point_is_on_the_page() -> None:
    points = [name for name in contract.__all__ if name.endswith("Plugin") and name != "Plugin"]
    assert [name for name in points if f"`{name}`" not in PAGE] == []
