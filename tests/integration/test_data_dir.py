"""``koord up --data-dir``: the API server killed among running jobs, and the whole cluster started again."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from koord.cli.api import connect
from koord.cli.demo import scenario
from koord.cli.demo.history import History
from tests.integration.conftest import REAL, Up
from tests.integration.exactly_once import Arriving, create, finished, judge, restarted, until

pytestmark = pytest.mark.skipif(REAL, reason="it is about the embedded API's own store")

JOBS = 30
IN_FLIGHT = 15


@pytest.mark.slow
async def test_jobs_in_flight_finish_exactly_once_over_a_kill_of_the_api_server(
    own_up: Callable[..., Up], tmp_path: Path
) -> None:
    up = await asyncio.to_thread(own_up, "--nodes", "60", "--gpu-nodes", "10", "--data-dir", str(tmp_path / "data"))
    async with await connect(str(up.kubeconfig)) as api:
        history, arriving = History(api), Arriving(api, 2.0)
        await history.start()
        for manifest in [*scenario.namespaces(), *scenario.quotas()]:
            await create(api, manifest)
        await arriving.more(JOBS)
        await arriving.until_over(JOBS // 6)
        before, where = up.ready["pids"]["apiserver"], up.kubeconfig.read_text()
        await arriving.in_flight(IN_FLIGHT)
        up.kill("apiserver")
        await until(restarted(up, "apiserver", before), 60)
        assert await asyncio.to_thread(Path(up.ready["kubeconfig"]).read_text) == where
        await arriving.until_over()
        changes = list(history.changes())
        await history.stop()

    assert history.gaps == 0, "the server no longer held the versions of its earlier life"
    judge(changes, arriving.jobs)


@pytest.mark.slow
async def test_the_whole_cluster_comes_back(own_up: Callable[..., Up], tmp_path: Path) -> None:
    arguments = ("--nodes", "20", "--gpu-nodes", "4", "--data-dir", str(tmp_path / "data"))
    first = await asyncio.to_thread(own_up, *arguments)
    jobs = list(scenario.jobs(JOBS, 4.0))
    async with await connect(str(first.kubeconfig)) as api:
        for manifest in [*scenario.namespaces(), *scenario.quotas()]:
            await create(api, manifest)
        await asyncio.gather(*(create(api, job) for job in jobs))

        async def running() -> bool:
            pods, _ = await api.list("pods")
            return len([pod for pod in pods if pod["status"]["phase"] == "Running"]) >= 5

        await until(running, 90)
    kubeconfig = first.kubeconfig.read_text()
    await asyncio.to_thread(first.stop)

    again = await asyncio.to_thread(own_up, *arguments)
    assert again.kubeconfig.read_text() == kubeconfig
    async with await connect(str(again.kubeconfig)) as api:
        nodes, _ = await api.list("nodes")
        assert len(nodes) == 20
        quotas, _ = await api.list("elasticquotas.scheduling.sigs.k8s.io")
        names = {manifest["metadata"]["name"] for manifest in scenario.quotas() if manifest["kind"] == "ElasticQuota"}
        assert names <= {quota["metadata"]["name"] for quota in quotas}

        async def done() -> bool:
            return await finished(api) == JOBS

        await until(done, 240)


@pytest.mark.slow
def test_a_second_cluster_on_the_directory_is_refused(own_up: Callable[..., Up], tmp_path: Path) -> None:
    up = own_up("--nodes", "2", "--data-dir", str(tmp_path / "data"))
    other = str(tmp_path / "other.json")
    said = up.koord("up", "--ready-file", other, "--data-dir", str(tmp_path / "data"), code=2)
    assert "another API server" in said and "is using it" in said
