"""The workload auditor through the service: what it is told, and that nobody is told anything while it is off."""

from koord.kube.protocol.scheduler import SCHEDULE_ADMISSION
from koord.scheduler.auditor.record import Event
from koord.scheduler.auditor.settings import AuditorSettings
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.service import SchedulerService
from koord.scheduler.settings import SchedulerSettings
from koord.telemetry.metrics import render
from tests.scheduler.outside import outside, scheduler, until

SETTINGS = SchedulerSettings(
    queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3),
    auditor=AuditorSettings(enabled=True, metric_labels={"team": "example.com/team"}),
)
TEAM = {"example.com/team": "red"}


def counted(name: str, *labels: str) -> float:
    lines = [
        line
        for line in render().decode().splitlines()
        if line.startswith(f"scheduler_workload_auditor_{name}") and all(label in line for label in labels)
    ]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def events(service: SchedulerService, name: str) -> dict[Event, int]:
    """What the record of a workload has counted; nothing if there is none."""
    audit = service.audit
    assert audit is not None
    for key, record in audit.records.items():
        if key.startswith(f"default/{name}/") or key == f"default/{name}":
            return dict(record.counts)
    return {}


async def test_a_pod_that_waits_and_is_scheduled(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS) as service:
            await world.pod("p0", labels=TEAM, cpu="2")
            await until(lambda: Event.PREEMPT_FAILURE in events(service, "p0"), "it finds no place")
            assert events(service, "p0")[Event.CREATE] == 1
            assert Event.FAILURE not in events(service, "p0"), "the same attempt is told once"
            before = counted("scheduling_events_before_outcome_count", 'outcome="scheduled"', 'team="red"')
            await world.node("n1", cpu="4")
            await until(lambda: world.node_of("p0") and not events(service, "p0"), "the record is removed")
            after = counted("scheduling_events_before_outcome_count", 'outcome="scheduled"', 'team="red"')
            assert after >= before + 3, "create, failure, scheduled"
            await world.pod("p1", labels=TEAM, cpu="64")
            await until(lambda: Event.CREATE in events(service, "p1"), "it waits")
            await world.delete("p1")
            await until(lambda: not events(service, "p1"), "the record is removed")
            assert counted("scheduling_events_before_outcome_count", 'outcome="deleted"', 'team="red"') >= 1


async def test_a_preemption_and_its_cycle(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        world.graceful = True
        await world.node("n0", cpu="2")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS) as service:
            await world.pod("low", cpu="2", priority=10)
            await until(lambda: world.node_of("low"), "the victim runs")
            before = counted("preemption_to_victim_deleted_seconds_count")
            await world.pod("high", cpu="2", priority=1000)
            await until(lambda: Event.NOMINATED in events(service, "high"), "somebody goes for it")
            assert Event.FAILURE not in events(service, "high"), "the attempt is told as what came of it"
            await until(lambda: world.deletions, "the victim is told to go")
            await world.delete("low")
            await until(lambda: world.node_of("high"), "it has its room")
            await until(lambda: not events(service, "high"), "the record is removed")
            assert counted("preemption_to_victim_deleted_seconds_count") == before + 1
            assert counted("victim_reschedule_duration_seconds_count") >= 1


async def test_a_gang_is_one_workload(nats_url: str, redis_url: str, cluster: str) -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS) as service:
            await world.pod("g0", annotations=gang)
            await until(lambda: Event.CREATE in events(service, "g"), "it is known")
            assert Event.GANG_SATISFIED not in events(service, "g")
            await world.pod("g1", annotations=gang)
            await until(lambda: Event.GANG_ATTEMPTED in events(service, "g"), "all were tried")
            counts = events(service, "g")
            assert (counts[Event.CREATE], counts[Event.GANG_SATISFIED]) == (1, 1)
            await world.node("n1", cpu="4")
            await until(lambda: world.node_of("g0") and world.node_of("g1"), "bound")
            await until(lambda: not events(service, "g"), "the record is removed with its last member")


async def test_admission(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS) as service:
            await world.pod("p0", cpu="2", labels={SCHEDULE_ADMISSION: "true"})
            await until(lambda: Event.GATED in events(service, "p0"), "it is held")
            body = world.pods["default/p0"]
            del body["metadata"]["labels"][SCHEDULE_ADMISSION]
            await world.show(body)
            await until(lambda: Event.PREEMPT_FAILURE in events(service, "p0"), "it is tried")
            counts = events(service, "p0")
            assert [counts[event] for event in (Event.CREATE, Event.GATED, Event.ADMITTED)] == [1, 1, 1]


async def test_off_by_default(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster) as service:
            assert service.audit is None
            await world.pod("p0")
            await until(lambda: world.node_of("p0"), "bound")
