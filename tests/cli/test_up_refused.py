"""``koord up`` with settings that a service refuses: it ends at once and says so, instead of trying again for ever."""

from pathlib import Path

import pytest

from koord.cli.errors import UsageProblem
from koord.cli.local import LocalCluster, LocalOptions


async def test_a_service_that_refuses_its_settings_ends_the_start(tmp_path: Path) -> None:
    config = tmp_path / "koord.yaml"
    config.write_text("scheduler:\n  nosuch: 1\n")
    lines: list[str] = []
    cluster = LocalCluster(LocalOptions(nodes=1, services=("scheduler",), config=config), sink=lines.append)
    with pytest.raises(UsageProblem, match="scheduler refuses its settings"):
        async with cluster:
            pytest.fail("it started")
    assert any("[scheduler]" in line and "scheduler.nosuch" in line and "unknown setting" in line for line in lines)
    assert not (cluster.pids.keys() - {"up"}), "nothing is left"
