"""``koord up --nats-servers``: a cluster of real servers, supervised, named in the ready file."""

import os
import signal

import pytest

from koord.cli.commands.up import up
from koord.cli.errors import UsageProblem
from koord.cli.local import LocalCluster, LocalOptions
from tests.bus.conftest import until


@pytest.mark.parametrize("number", [0, 2, 7])
def test_other_numbers_are_wrong_usage(number: int) -> None:
    with pytest.raises(UsageProblem, match=f"--nats-servers {number}: must be 1, 3 or 5"):
        up(nats_servers=number)


async def test_three_servers_are_started_named_and_restarted() -> None:
    async with LocalCluster(LocalOptions(nats_servers=3, nodes=1, services=()), sink=lambda _: None) as cluster:
        file = cluster.file()
        assert {"nats-1", "nats-2", "nats-3"} <= set(file.pids) and "nats-server" not in file.pids
        assert file.nats.count("nats://") == 3
        assert cluster.environment()["KOORD_NATS__REPLICAS"] == "3"
        assert cluster.environment()["KOORD_NATS__URL"] == file.nats
        os.kill(file.pids["nats-2"], signal.SIGKILL)
        await until(lambda: cluster.restarts["nats-2"] == 1, timeout=60)
        await until(lambda: cluster.pids.get("nats-2", file.pids["nats-2"]) != file.pids["nats-2"], timeout=60)
        assert cluster.file().nats == file.nats
    for name in ("nats-1", "nats-3"):
        with pytest.raises(ProcessLookupError):
            os.kill(file.pids[name], 0)
