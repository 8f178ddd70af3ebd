"""The PodGroup controller in the running scheduler (spec 20 section 3.3): real NATS, real Redis."""

import pytest

from koord.kube.groups import PodGroupStatus
from koord.scheduler.gang.book import GangSettings
from koord.scheduler.gang.phases import changes, stale
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.service import SchedulerService
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, outside, scheduler, until

FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))
MEMBER = {"pod-group.scheduling.sigs.k8s.io": "g"}


async def phase(world: Outside, wanted: str, name: str = "g") -> None:
    await until(lambda: world.phase(name) == wanted, f"{name} is {wanted}, is {world.phase(name)}")


async def test_phases_follow_the_pods(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", 2)
            await phase(world, "Pending")
            await world.pod("g0", labels=MEMBER, owners=("z", "a"))
            await world.pod("g1", labels=MEMBER, owners=("b",))
            await phase(world, "Scheduling")
            assert [told for name, told in world.phases] == ["Pending", "PreScheduling", "Scheduling"]
            status = world.groups["default/g"]["status"]
            assert status["occupiedBy"] == "default/a,default/z"
            started = status["scheduleStartTime"]
            assert started.endswith("Z")
            assert not world.binds
            await world.node("n1", cpu="1")
            await phase(world, "Scheduled")
            assert (status["scheduled"], status.get("running", 0)) == (2, 0)
            await world.run("g0")
            await until(lambda: status.get("running") == 1, "one runs")
            assert world.phase("g") == "Scheduled"
            await world.run("g1")
            await phase(world, "Running")
            await world.run("g1", "Failed")
            await phase(world, "Failed")
            assert (status["running"], status["failed"], status["scheduled"]) == (1, 1, 2)
            assert status["scheduleStartTime"] == started
            for name in ("g0", "g1"):
                await world.delete(name)
            await world.pod_group("other", 1)
            await phase(world, "Pending", "other")
            assert world.phase("g") == "Failed", "terminal"


async def test_a_deleted_gang_is_pending_again(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", 1)
            await world.pod("g0", labels=MEMBER, owners=("job",))
            await phase(world, "Scheduled")
            await world.run("g0")
            await phase(world, "Running")
            await world.delete("g0")
            await phase(world, "Pending")
            assert world.groups["default/g"]["status"]["running"] == 0
            await world.pod("g0", labels=MEMBER)
            await until(lambda: world.node_of("g0"), "the next one is bound")
            await world.run("g0", "Succeeded")
            await phase(world, "Finished")


async def test_gangs_without_a_minimum_stay_pending(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", 0)
            await world.pod("g0", labels=MEMBER)
            await until(lambda: world.node_of("g0"), "it goes alone")
            await world.pod_group("other", 1)
            await world.pod("o0", labels={"pod-group.scheduling.sigs.k8s.io": "other"})
            await phase(world, "Scheduled", "other")
            assert world.phase("g") == "Pending"


async def test_what_a_pod_group_says_badly_is_told_although_nobody_is_its_member(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", 2, groups="[", mode="Loose", match_policy="often")

            def told(*words: str) -> bool:
                return any(all(word in text for word in words) for text in world.told("g", "InvalidGang"))

            keys = [f"gang.scheduling.koordinator.sh/{key}: must be" for key in ("groups", "mode", "match-policy")]
            await until(lambda: all(map(told, keys)), "each is named")
            assert len(world.told("g", "InvalidGang")) == 3
            await world.pod_group("g", "two")  # type: ignore[arg-type]
            await until(lambda: told("$.spec.minMember", "Expected `int`"), "it does not decode")


@pytest.mark.parametrize("minimum", [0, -3])
async def test_no_minimum_means_that_each_goes_alone(nats_url: str, redis_url: str, cluster: str, minimum: int) -> None:
    """Spec 20 section 4: always satisfied, so nobody waits for anybody and no claim stands or falls as a whole."""
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(2):
            await world.node(f"n{number}", cpu="1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", minimum)
            for number in range(3):
                await world.pod(f"g{number}", labels=MEMBER)
            await until(lambda: len(world.bound) == 2, "two have room")
            left = next(name for name in ("g0", "g1", "g2") if not world.node_of(name))
            await until(lambda: world.told(left), "the third is told")
            assert not any(bind.minimum for bind in world.binds)
            await world.node("n2", cpu="1")
            await until(lambda: world.node_of(left), "and goes when there is room")
            await phase(world, "Pending")
            assert [told for _, told in world.phases] == ["Pending"]
            wrong = [f"spec.minMember: must not be negative, got {minimum}; 0 is used"] if minimum else []
            await until(lambda: world.told("g", "InvalidGang") == wrong, "a negative one is named")


async def test_one_replica_writes_and_the_next_takes_over(nats_url: str, redis_url: str, cluster: str) -> None:
    def leading(*services: SchedulerService) -> int:
        return sum(service.writes_pod_groups for service in services)

    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST) as second:
            async with scheduler(nats_url, redis_url, cluster, FAST) as first:
                await until(lambda: leading(first, second) == 1, "one leads")
                await world.pod_group("g", 1)
                await world.pod("g0", labels=MEMBER)
                await phase(world, "Scheduled")
                told = [told for _, told in world.phases]
                assert told[-1] == "Scheduled"
                assert len(told) == len(set(told)), "nothing is written twice"
            await until(lambda: second.writes_pod_groups, "the other leads")
            await world.run("g0")
            await phase(world, "Running")


async def test_a_refused_write_is_made_again(nats_url: str, redis_url: str, cluster: str) -> None:
    """Somebody edits the PodGroup while its status is written: the older version is refused, the newer is written."""
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        await world.pod_group("g", 2)
        world.groups["default/g"]["metadata"]["resourceVersion"] = "newer"
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await until(lambda: world.conflicts >= 2, "refused, and tried again")
            assert world.phase("g") == ""
            await world.pod_group("g", 1)
            await phase(world, "Pending")


async def test_a_restart_does_not_forget_that_a_gang_was_complete(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", 2)
            for number in range(2):
                await world.pod(f"g{number}", labels=MEMBER)
            await until(lambda: len(world.bound) == 2, "bound")
            for number in range(2):
                await world.run(f"g{number}", "Failed")
            await phase(world, "Failed")
        for number in range(2):
            await world.delete(f"g{number}")
        await world.pod("again", labels=MEMBER)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await until(lambda: world.node_of("again"), "a replacement goes alone, as the phase says")


def test_stale_pod_groups() -> None:
    """48 h after creation the original stops looking; by default we do not."""
    status = PodGroupStatus(phase="Scheduled", scheduled=2)
    late = 48 * 3600.0 + 1
    assert stale(2, status, late, 172800.0)
    assert not stale(2, status, late - 1, 172800.0)
    assert not stale(3, status, late, 172800.0)
    assert not stale(2, PodGroupStatus(scheduled=2, running=1), late, 172800.0)
    assert not stale(2, status, None, 172800.0)
    assert not stale(2, status, late, GangSettings().stale_after_s)


def test_a_patch_says_what_differs() -> None:
    old = PodGroupStatus(phase="Running", running=2, scheduled=2)
    new = PodGroupStatus(phase="Pending")
    assert changes(old, new) == {"phase": "Pending", "scheduled": 0, "running": 0}
    assert changes(new, new) == {}
