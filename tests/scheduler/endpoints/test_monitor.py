"""Attempts that take too long are counted and told; how long gangs waited is measured. By a running service."""

import msgspec
import pytest

from koord.scheduler.monitor import Monitor, MonitorSettings
from koord.scheduler.settings import SchedulerSettings
from koord.telemetry import logs
from koord.telemetry.metrics import REGISTRY
from tests.scheduler.clusters import Bed
from tests.scheduler.outside import outside, scheduler, until

GANG = "gang.scheduling.koordinator.sh"
TIMEOUTS = "scheduler_scheduling_timeout"


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_a_gang_that_waits_is_told_and_measured(
    nats_url: str, redis_url: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("scheduler", format_="json")
    settings = SchedulerSettings(monitor=MonitorSettings(period_s=0.1, timeout_s=0.2))
    late = sample(TIMEOUTS, profile="koord-scheduler")
    waited = sample("scheduler_permit_wait_duration_seconds_count", result="success")
    tries = sample("scheduler_pod_scheduling_attempts_count")
    marks = {f"{GANG}/name": "g", f"{GANG}/min-available": "2", f"{GANG}/mode": "NonStrict"}
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="2")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings) as service:
            for name in ("a", "b"):
                await world.pod(name, cpu="2", annotations=marks)
            await until(lambda: sample(TIMEOUTS, profile="koord-scheduler") >= late + 2, "told at two looks")
            told = capsys.readouterr().err
            [uid, *_] = [uid for flight in service._binds.flights for uid in flight.members]
            name = service._world.pending[uid].ref.name
            assert f"!!!CRITICAL TIMEOUT!!! scheduling pod default/{name}({uid}) took longer" in told
            await world.node("n1", cpu="2")
            await until(lambda: world.node_of("a") and world.node_of("b"), "whole")
            assert sample("scheduler_permit_wait_duration_seconds_count", result="success") == waited + 1
            assert sample("scheduler_pod_scheduling_attempts_count") >= tries + 2
    logs.configure("test")


def test_what_ends_late_is_told_without_a_look() -> None:
    bed = Bed()
    pod = bed.pod("slow")
    monitor = Monitor(logs.get_logger("koord.test"), "test-monitor")
    monitor.ended(pod, 100.0, 129.9)
    monitor.ended(pod, 0.0, 500.0)  # nobody knows when it began
    name = pod.class_.profile.scheduler_name or "test-monitor"
    before = sample(TIMEOUTS, profile=name)
    monitor.ended(pod, 100.0, 130.5)
    assert sample(TIMEOUTS, profile=name) == before + 1


@pytest.mark.parametrize("field", ["period_s", "timeout_s"])
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=rf"monitor\.{field}: 0\.0 must be greater than 0"):
        msgspec.convert({"monitor": {field: 0}}, SchedulerSettings)
