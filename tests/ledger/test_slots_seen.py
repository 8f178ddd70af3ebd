"""Slots of pods that run, told by whoever sees them: a ledger that was lost knows again who has what."""

from koord.accounting.slots import HostPort, pod_slots, port_slot
from koord.kube.protocol.numa import RESOURCE_STATUS
from koord.ledger.model import Advance, ClaimRequest, PodGone, PodSeen, Slot
from tests.ledger.world import World, pod

CPU = "cpu/n1/3"


def seen(name: str, version: str = "5", *slots: str) -> PodSeen:
    member = pod(name, "n1", 100)
    return PodSeen(member.uid, member.namespace, member.name, "n1", member.takes, version, slots=slots)


async def wants(world: World, name: str, slot: str = CPU) -> str:
    request = ClaimRequest(f"{world.s1.incarnation}-{name}", (pod(name, "n1", 100),), (Slot(slot, name),))
    [answer] = await world.s1.claim([request])
    return answer.shorts[0].holder if answer.shorts else answer.status


async def slots_of(world: World, uid: str) -> tuple[str, ...]:
    record = await world.r.record(uid)
    assert record is not None
    return record.slots


async def test_a_running_pod_has_its_slots_until_it_ends(world: World) -> None:
    await world.node("n1", 4000)
    await world.see(seen("a", "5", CPU))
    assert await wants(world, "b") == "a"
    await world.see(PodGone("a", "ns", "a"))
    assert await wants(world, "b") == "ok"


async def test_what_a_claim_holds_ends_for_one_that_runs(world: World) -> None:
    await world.node("n1", 4000)
    assert await wants(world, "held") == "ok"
    answer = await world.see(seen("a", "5", CPU))
    assert [ended.uids for ended in answer.released] == [("held",)]
    assert await slots_of(world, "a") == (CPU,)
    assert await wants(world, "b") == "a"


async def test_what_is_being_bound_stays(world: World) -> None:
    await world.node("n1", 4000)
    request = ClaimRequest("s1-b", (pod("b", "n1", 100),), (Slot(CPU, "b"),))
    [answer] = await world.s1.claim([request])
    [moved] = await world.g.advance([Advance("s1-b", answer.token, answer.epoch, "d", ("b",))], world.gateway_epoch)
    assert moved.status == "ok"
    await world.see(seen("a", "5", CPU))
    assert await slots_of(world, "a") == ()
    await world.see(seen("b", "6", CPU))
    assert await slots_of(world, "b") == (CPU,)


async def test_a_pod_that_got_something_later(world: World) -> None:
    await world.node("n1", 4000)
    await world.see(seen("a"))
    assert await wants(world, "b", "cpu/n1/1") == "ok"
    await world.see(seen("a", "6", CPU))
    assert await wants(world, "c") == "a"
    await world.see(PodGone("a", "ns", "a"))
    assert await wants(world, "c") == "ok"
    assert [fault async for fault in world.r.faults(["slots"])] == []


async def test_a_rebuild_gives_them_back(world: World) -> None:
    await world.node("n1", 4000)
    await world.see(seen("a", "5", CPU))
    await world.r.begin(world.reconciler_epoch)
    await world.node("n1", 4000)
    await world.see(seen("a", "5", CPU), seen("second", "6", CPU))
    await world.open()
    assert await wants(world, "b") == "a"
    await world.see(PodGone("second", "ns", "second"))
    assert await wants(world, "b") == "a"


def test_what_a_pod_has() -> None:
    ports = (HostPort("TCP", 80, "0.0.0.0"), HostPort("UDP", 53, "10.0.0.1"))
    status = {RESOURCE_STATUS: '{"cpuset":"0-1,8"}'}
    assert pod_slots("n", "ns", ports, ("data",), status) == (
        "port/n/TCP/80",
        "port/n/UDP/53/10.0.0.1",
        "claim/ns/data",
        "cpu/n/0",
        "cpu/n/1",
        "cpu/n/8",
    )
    assert pod_slots("n", "ns", (), (), {RESOURCE_STATUS: "{"}) == ()
    assert port_slot("n", ports[0]) == "port/n/TCP/80"
