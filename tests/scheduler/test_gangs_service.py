"""Gangs in the running scheduler, case by case (spec 20 sections 3.1, 3.2 and 4): real NATS, real Redis."""

import asyncio

import pytest
from nats.aio.msg import Msg

from koord.bus.questions import ask
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.contracts.codec import decode
from koord.contracts.gang import GangHint
from koord.scheduler.gang.book import GangSettings
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.outside import Outside, outside, scheduler, until

QUICK = QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3)
FAST = SchedulerSettings(queue=QUICK)
PREFIX = "gang.scheduling.koordinator.sh/"
LABEL = "pod-group.scheduling.sigs.k8s.io"


def gang(name: str = "g", minimum: int | str | None = 2, **more: str) -> dict[str, str]:
    keys = {"name": name} | ({} if minimum is None else {"min-available": str(minimum)})
    keys |= {key.replace("_", "-"): value for key, value in more.items()}
    return {PREFIX + key: value for key, value in keys.items()}


async def explained(world: Outside, name: str) -> PodExplanation:
    return await ask(world.bus, "scheduler", "explain", ExplainPod("default", name), PodExplanation)


async def state(world: Outside, name: str, wanted: str, text: str = "") -> None:
    """Wait until the pod is in that state of the scheduler, and its message holds ``text``."""
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        found = await explained(world, name)
        if found.state == wanted and text in found.message:
            return
        assert asyncio.get_running_loop().time() < deadline, (wanted, text, found)
        await asyncio.sleep(0.02)


async def held_cpu(world: Outside) -> int:
    items = await world.ledger.items("node/")
    return sum(item.held.get("cpu", 0) for item in items.values())


async def holds_cpu(world: Outside, wanted: int) -> None:
    """Wait until so much is held: a gang that gave up holds it again at its next attempt."""
    deadline = asyncio.get_running_loop().time() + 60
    while (held := await held_cpu(world)) != wanted:
        assert asyncio.get_running_loop().time() < deadline, held
        await asyncio.sleep(0.01)


async def room(world: Outside, nodes: int, cpu: str = "1") -> None:
    for number in range(nodes):
        await world.node(f"n{number}", cpu=cpu)
    await world.listed()


async def bound(world: Outside, *names: str) -> None:
    await until(lambda: all(world.node_of(name) for name in names), f"{names} are bound, of {sorted(world.pods)}")


# Who is gated, and why ----------------------------------------------------------------------------------------------


async def test_pre_enqueue_texts(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1, "8")
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("late", labels={LABEL: "pg"})
            await state(world, "late", "gated", "gang has not init, gangName: default/pg, podName: default/late")
            await world.pod("bad", annotations=gang("bad", "many"))
            await state(world, "bad", "gated", "gang has not init, gangName: default/bad, podName: default/bad")
            await world.pod("none", annotations=gang("none", None))
            await state(world, "none", "gated", "gang has not init, gangName: default/none, podName: default/none")
            await world.pod("few", annotations=gang("few", 2))
            text = (
                "gangGroup [default/few] basic check: memberGangs [default/few] child pod not collect enough, "
                "current gang: default/few, podName: default/few"
            )
            await state(world, "few", "gated", text)
            groups = '["default/alone","default/never"]'
            await world.pod("alone", annotations=gang("alone", 1, groups=groups))
            text = (
                "gangGroup [default/alone default/never] basic check: memberGangs [default/never] doesn't exists, "
                "current gang: default/alone, podName: default/alone"
            )
            await state(world, "alone", "gated", text)
            await world.pod_group("never", 1)
            await state(world, "alone", "gated", "child pod not collect enough")
            assert not world.binds
            # What was missing comes.
            await world.pod_group("pg", 1)
            await world.pod("few2", annotations=gang("few", 2))
            await bound(world, "late", "few", "few2")


async def test_bad_values_are_replaced_by_defaults(nats_url: str, redis_url: str, cluster: str) -> None:
    """Broken groups: alone. Unknown mode: Strict. Unknown policy: the setting's. Bad waits: the setting's."""
    settings = SchedulerSettings(queue=QUICK, coscheduling=GangSettings(default_match_policy="only-waiting"))
    bad = gang(groups="[", mode="Loose", match_policy="often", waiting_time="abc", total_number="-1")
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1)
        async with scheduler(nats_url, redis_url, cluster, settings):
            for number in range(2):
                await world.pod(f"g{number}", annotations=bad)
            await until(lambda: world.told("g0") and world.told("g1"), "it does not fit")
            assert await held_cpu(world) == 0, "Strict holds nothing"
            notes = [note for n in range(2) for note in world.told(f"g{n}", "InvalidGang")]
            for key in ("groups", "mode", "match-policy", "waiting-time", "total-number"):
                assert any(note.startswith(PREFIX + key) for note in notes), (key, notes)
            await world.node("n1", cpu="1")
            await bound(world, "g0", "g1")
            await world.node("n2", cpu="1")
            await world.pod("more", annotations=bad)
            await state(world, "more", "unschedulable", "too few members: default/g has 1 of 2")


async def test_minimum_zero_goes_one_by_one(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("g0", annotations=gang(minimum=0))
            await bound(world, "g0")
            await world.pod("g1", annotations=gang(minimum=0))
            await until(lambda: world.told("g1"), "no room")
            await world.node("n1", cpu="1")
            await bound(world, "g1")


async def test_asymmetric_groups_are_refused(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1, "8")
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("b", 1)
            await world.pod("a", annotations=gang("a", 1, groups='["default/a","default/b"]'))
            await world.pod("c", annotations=gang("c", 1, groups='["default/b"]'))
            await world.pod("b", labels={LABEL: "b"})
            await bound(world, "b")  # nobody is held up by what others say
            await state(world, "a", "gated", "default/b lists [default/b], current gang: default/a")
            await state(world, "c", "gated", "default/c is not among them")
            await world.pod_group("b", 1, groups='["default/b","default/a"]')
            await bound(world, "a")


async def test_gangs_that_may_never_start_are_told(nats_url: str, redis_url: str, cluster: str) -> None:
    settings = SchedulerSettings(queue=QUICK, coscheduling=GangSettings(gated_event_after_s=0.2))
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1, "8")
        async with scheduler(nats_url, redis_url, cluster, settings):
            await world.pod("bad", annotations=gang("bad", "many"))
            await world.pod("none", annotations=gang("none", None))
            await world.pod("late", labels={LABEL: "pg"})
            await world.pod_group("b", 1, groups='["default/b","default/never"]')
            await world.pod("b0", labels={LABEL: "b"})
            await world.pod("ok")
            await bound(world, "ok")
            await until(lambda: all(world.told(name) for name in ("bad", "none", "late", "b0")), "each is told")
            assert world.told("late") == ["gang has not init, gangName: default/pg, podName: default/late"]
            missing = (
                "gangGroup [default/b default/never] basic check: memberGangs [default/never] doesn't exists, "
                "current gang: default/b"
            )
            assert world.told("b0") == [f"{missing}, podName: default/b0"]
            await until(lambda: world.told("b", "GangNotReady"), "the PodGroup, too")
            assert world.told("b", "GangNotReady") == [missing]
            [event] = [event for event in world.events if event.reason == "GangNotReady"]
            assert (event.kind, event.api_version) == ("PodGroup", "scheduling.sigs.k8s.io/v1alpha1")
            for name, text in (("bad", 'must be a 32-bit integer, got "many"'), ("none", "missing, must be")):
                [note] = world.told(name, "InvalidGang")
                assert text in note
            assert any(patch.target.name == "b0" for patch in world.patches), "PodScheduled=False says so"


async def test_hints_follow_a_gang(nats_url: str, redis_url: str, cluster: str) -> None:
    hints: list[GangHint] = []

    async def heard(message: Msg) -> None:
        hint = decode(GangHint, message.data)
        assert message.subject.endswith(f".gang.{hint.event}.default.g")
        hints.append(hint)

    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1)
        await world.bus.subscribe(f"{world.bus.subjects.root}.gang.>", heard)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(2):
                await world.pod(f"g{number}", annotations=gang())
            await until(lambda: len(hints) == 2, "ready and rejected")
            assert [(hint.event, hint.members, hint.minimum) for hint in hints] == [("ready", 2, 2), ("rejected", 2, 2)]
            assert "Insufficient cpu" in hints[1].reason
            await world.node("n1", cpu="1")
            await bound(world, "g0", "g1")
            await until(lambda: hints[-1].event == "satisfied", "satisfied")
            assert hints[-1].group == "default/g"


# Gang groups --------------------------------------------------------------------------------------------------------


async def test_a_strict_group_goes_whole(nats_url: str, redis_url: str, cluster: str) -> None:
    groups = '["default/a","default/b"]'
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 3)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for name in ("a0", "a1", "b0"):
                await world.pod(name, annotations=gang(name[0], 2, groups=groups))
            await state(world, "a0", "gated", "child pod not collect enough")
            await world.pod("b1", annotations=gang("b", 2, groups=groups))
            await until(lambda: all(world.told(name) for name in ("a0", "a1", "b0", "b1")), "three of four fit")
            assert not world.binds
            assert await held_cpu(world) == 0
            await world.node("n3", cpu="1")
            await bound(world, "a0", "a1", "b0", "b1")
            [bind] = world.binds
            assert bind.minimum == {"default/a": 2, "default/b": 2}
            annotations = bind.members[0].annotations
            assert annotations["internal.scheduling.koordinator.sh/bind-gang-group-id"] == "default/a,default/b"
            assert annotations["internal.scheduling.koordinator.sh/bind-gang-member-count"] == "4"
            # The group was complete once: a late member of one of its gangs goes alone.
            await world.node("n4", cpu="1")
            await world.pod("late", annotations=gang("b", 2, groups=groups))
            await bound(world, "late")


async def test_a_nonstrict_group_holds_until_its_members_fit(nats_url: str, redis_url: str, cluster: str) -> None:
    groups = '["default/a","default/b"]'
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 3)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for name in ("a0", "a1", "b0", "b1"):
                await world.pod(name, annotations=gang(name[0], 2, groups=groups, mode="NonStrict"))
            await until(lambda: any(world.told(name) for name in ("a0", "a1", "b0", "b1")), "three of four fit")
            assert await held_cpu(world) == 3000
            assert not world.binds
            await world.node("n3", cpu="1")
            await bound(world, "a0", "a1", "b0", "b1")


async def test_a_nonstrict_gang_gives_up_after_its_time(nats_url: str, redis_url: str, cluster: str) -> None:
    """Its room is free for others then; a PodGroup's scheduleTimeoutSeconds is that time."""
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", 2, timeout_s=1, mode="NonStrict", waiting_time="1h")
            for number in range(2):
                await world.pod(f"g{number}", labels={LABEL: "g"})
            await until(lambda: world.told("g0") or world.told("g1"), "one does not fit")
            await holds_cpu(world, 1000)
            await world.pod("next", priority=10)
            await bound(world, "next")
            text = "gang group default/g waited too long for its members"
            await until(lambda: text in world.told("g0") + world.told("g1"), "told")


async def test_a_lower_minimum_completes_what_waits(nats_url: str, redis_url: str, cluster: str) -> None:
    for mode in ("NonStrict", "Strict"):
        async with outside(nats_url, redis_url, f"{cluster}-{mode.lower()}") as world:
            await room(world, 1)
            async with scheduler(nats_url, redis_url, f"{cluster}-{mode.lower()}", FAST):
                await world.pod_group("g", 2, mode=mode)
                for number in range(2):
                    await world.pod(f"g{number}", labels={LABEL: "g"})
                await until(lambda: world.told("g0") or world.told("g1"), "one does not fit")
                assert not world.bound
                await world.pod_group("g", 1, mode=mode)
                await until(lambda: len(world.bound) == 1, "what has its place is enough now")


async def test_a_higher_minimum_gates_what_waits(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", 2)
            for number in range(2):
                await world.pod(f"g{number}", labels={LABEL: "g"})
            await state(world, "g0", "unschedulable")
            await world.pod_group("g", 3)
            await state(world, "g0", "gated", "child pod not collect enough")
            await world.node("n0")
            await world.pod("g2", labels={LABEL: "g"})
            await bound(world, "g0", "g1", "g2")


async def test_a_pod_group_deleted_while_its_gang_waits(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod_group("g", 2, mode="NonStrict")
            for number in range(2):
                await world.pod(f"g{number}", labels={LABEL: "g"})
            await until(lambda: world.told("g0") or world.told("g1"), "one does not fit")
            assert await held_cpu(world) == 1000
            await world.delete_group("g")
            for number in range(2):
                await state(world, f"g{number}", "gated", "gang has not init")
            await world.pod("other")
            await bound(world, "other")
            await world.node("n1", cpu="1")
            await world.node("n2", cpu="1")
            await world.pod_group("g", 2)
            await bound(world, "g0", "g1")


async def test_a_pod_group_moves_its_gang_to_another_group(nats_url: str, redis_url: str, cluster: str) -> None:
    """The original keeps the group of the first look."""
    groups = '["default/a","default/b"]'
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1, "8")
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for name in ("a", "b"):
                await world.pod_group(name, 1, groups=groups)
            await world.pod("a0", labels={LABEL: "a"})
            await state(world, "a0", "gated", "child pod not collect enough")
            await world.pod_group("a", 1)
            await bound(world, "a0")


async def test_a_held_member_that_goes_gives_its_room_back(nats_url: str, redis_url: str, cluster: str) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for number in range(2):
                await world.pod(f"g{number}", annotations=gang(mode="NonStrict"))
            await until(lambda: world.told("g0") or world.told("g1"), "one does not fit")
            held = "g1" if world.told("g0") else "g0"
            other = "g0" if held == "g1" else "g1"
            await state(world, held, "planned")
            await world.delete(held)
            await state(world, other, "gated", "child pod not collect enough")
            await world.pod("next")
            await bound(world, "next")


# Match policies after a gang was complete ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["once-satisfied", "waiting-and-running", "only-waiting"])
async def test_a_member_deleted_after_the_gang_was_complete(
    nats_url: str, redis_url: str, cluster: str, policy: str
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 8)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            member = gang(minimum=3, match_policy=policy)
            for number in range(3):
                await world.pod(f"g{number}", annotations=member)
            await bound(world, "g0", "g1", "g2")
            await world.delete("g0")
            await world.pod("g0", annotations=member)
            if policy != "only-waiting":
                await bound(world, "g0")
                return
            await state(world, "g0", "unschedulable", "too few members: default/g has 1 of 3")
            for number in range(3, 5):
                await world.pod(f"g{number}", annotations=member)
            await bound(world, "g0", "g3", "g4")


async def test_stragglers_by_policy(nats_url: str, redis_url: str, cluster: str) -> None:
    """One more than the minimum, and no room for it at first."""
    policies = ("once-satisfied", "waiting-and-running", "only-waiting")
    async with outside(nats_url, redis_url, cluster) as world:
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            for policy in policies:
                await world.node(f"n-{policy}", cpu="2", labels={"for": policy})
                for number in range(3):
                    member = gang(policy, 2, match_policy=policy)
                    await world.pod(f"{policy}-{number}", annotations=member, nodeSelector={"for": policy})
            await until(lambda: len(world.bound) == 6, "the minimum of each")
            for policy in policies:
                await world.node(f"m-{policy}", cpu="2", labels={"for": policy})
            await until(lambda: len(world.bound) == 8, "two of the stragglers")
            late = [name.removeprefix("default/") for name in world.pods if not world.node_of(name[8:])]
            assert len(late) == 1
            assert late[0].startswith("only-waiting")
            await state(world, late[0], "unschedulable", "too few members: default/only-waiting has 1 of 2")


async def test_bound_members_of_others_count_as_running(nats_url: str, redis_url: str, cluster: str) -> None:
    """Under waiting-and-running a member that somebody else bound completes what is held."""
    async with outside(nats_url, redis_url, cluster) as world:
        await room(world, 1)
        async with scheduler(nats_url, redis_url, cluster, FAST):
            member = gang(mode="NonStrict", match_policy="waiting-and-running")
            for number in range(2):
                await world.pod(f"g{number}", annotations=member)
            await until(lambda: world.told("g0") or world.told("g1"), "one does not fit")
            refused, held = ("g0", "g1") if world.told("g0") else ("g1", "g0")
            await world.node("n9", cpu="1", labels={"a": "b"})
            body = world.pods[f"default/{refused}"]
            if not world.node_of(refused):
                body["spec"]["nodeName"] = "n9"
                await world.show(body)
            await bound(world, held)
