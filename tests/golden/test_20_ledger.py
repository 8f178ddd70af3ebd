"""Golden examples of spec 20 about the ledger: G27-G30, G32-G34 and what of G35 needs no gateway."""

from koord.ledger.model import Advance, ClaimRequest, Ended, NodeSeen, Release, Short
from koord.ledger.nominations import NominateRequest
from koord.localcluster.servers import RedisServer
from tests.ledger.world import World, connected, pod


async def test_g27_ledger_race(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await world.node("n", 4000)
        await world.open()
        first = await world.claim(pod("a", "n", 3000), by=world.s1)
        second = await world.claim(pod("b", "n", 3000), by=world.s2)
        assert first.answer.status == "ok"
        assert await world.free("node/n") == 1000
        assert second.answer.shorts == (Short("node/n", "cpu", "amount", 3000, 1000),)
        [again] = await world.s1.claim([first.request])
        assert again.token == first.answer.token
        assert await world.free("node/n") == 1000


async def test_g28_gang_claim(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        nodes = [f"n{i}" for i in range(4)]
        for node in nodes:
            await world.node(node, 1000)
        await world.open()
        a = await world.claim(*(pod(f"a{i}", nodes[i], 1000) for i in range(3)), by=world.s1)
        b = await world.claim(*(pod(f"b{i}", nodes[i + 1], 1000) for i in range(3)), by=world.s2)
        assert (a.answer.status, b.answer.status) == ("ok", "conflict")
        assert (await world.s1.status()).held == 3
        await world.lapse(a)
        answer = await world.see()
        assert answer.expired == (Ended(a.request.id, ("a0", "a1", "a2"), "expired"),)
        assert [await world.free(f"node/{node}") for node in nodes] == [1000] * 4
        late = await world.advance(a)
        assert (late.status, late.gone) == ("gone", ("a0", "a1", "a2"))


async def test_g29_quota_race(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await world.node("n", 100)
        await world.quota("quota/leaf", cpu=10)
        await world.open()
        await world.bound(pod("old", "n", 8, ("leaf",)))
        first = await world.claim(pod("a", "n", 2, ("leaf",)), by=world.s1)
        node = await world.amounts("node/n")
        second = await world.claim(pod("b", "n", 2, ("leaf",)), by=world.s2)
        assert first.answer.status == "ok"
        assert second.answer.shorts == (Short("quota/leaf", "cpu", "amount", 2, 0),)
        assert await world.amounts("node/n") == node


async def test_g29_lowered_runtime(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await world.node("n", 100)
        await world.quota("quota/leaf", cpu=10)
        await world.open()
        await world.bound(pod("old", "n", 6, ("leaf",)))
        held = await world.claim(pod("a", "n", 3, ("leaf",)))
        await world.quota("quota/leaf", cpu=8)
        assert (await world.advance(held)).status == "ok"
        refused = await world.claim(pod("b", "n", 1, ("leaf",)))
        assert refused.answer.shorts == (Short("quota/leaf", "cpu", "amount", 1, 0),)


async def test_g30_nomination(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await world.node("n", 8000)
        await world.open()
        await world.bound(pod("old", "n", 4000))
        n = pod("N", "n", 3000)
        [offered] = await world.s1.nominate([NominateRequest("o", (n,), 100)])
        assert offered.status == "ok"
        [low] = await world.s2.claim([ClaimRequest("low", (pod("a", "n", 2000),), priority=50)])
        assert low.shorts == (Short("node/n", "cpu", "nomination", 2000, 1000, 0, "N"),)
        [high] = await world.s2.claim([ClaimRequest("high", (pod("b", "n", 2000),), priority=200)])
        assert high.status == "ok"
        await world.s2.release([Release("high", high.token)])
        [own] = await world.s1.claim([ClaimRequest("own", (n,), priority=100)])
        assert own.status == "ok"
        assert [one async for one in world.r.nominations()] == []
        [low] = await world.s2.claim([ClaimRequest("low", (pod("a", "n", 1000),), priority=50)])
        assert low.status == "ok"


async def seven_and_eight(world: World) -> None:
    """Tokens 1 to 6 are used up."""
    await world.node("n", 4000)
    await world.open()
    for i in range(6):
        await world.release(await world.claim(pod(f"x{i}", "n", 1)))


async def test_g32_foreign_bind(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await seven_and_eight(world)
        a = await world.claim(pod("a", "n", 2000))
        b = await world.claim(pod("b", "n", 2000))
        assert (a.answer.token, b.answer.token) == (7, 8)
        answer = await world.bound(pod("f", "n", 2000))
        assert answer.released == (Ended(b.request.id, ("b",), "overcommit"),)
        assert await world.state(a.request.members[0]) == "HELD"
        assert await world.free("node/n") == 0


async def test_g32_foreign_bind_beside_binding(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await seven_and_eight(world)
        a = await world.claim(pod("a", "n", 2000))
        b = await world.claim(pod("b", "n", 2000))
        await world.advance(b)
        answer = await world.bound(pod("f", "n", 2000))
        assert answer.released == (Ended(a.request.id, ("a",), "overcommit"),)
        assert await world.state(b.request.members[0]) == "BINDING"


async def test_g33_crash(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await world.node("n", 4000)
        await world.open()
        held = await world.claim(pod("p", "n", 1000))
        assert (await world.advance(held)).attempt == 1
        # No lease is left that an hour could end.
        assert await world.raw.zcard(world.key + ":leases") == 0
        await world.r.sweep(world.reconciler_epoch)
        assert await world.state(held.request.members[0]) == "BINDING"
        # The next gateway gets the decision again.
        epoch = await world.s2.lead("gateway")
        assert (await world.advance(held, role_epoch=epoch, by=world.s2)).attempt == 2
        await world.bound(held.request.members[0])
        assert await world.amounts("node/n") == (1000, 0)


async def test_g34_wound(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await world.node("n1", 1000)
        await world.node("n2", 1000)
        await world.open()

        def both(name: str, ticket: int, wound: bool) -> ClaimRequest:
            members = tuple(pod(f"{name}{node}", node, 1000) for node in ("n1", "n2"))
            return ClaimRequest(name, members, priority=10, ticket=ticket, wound=wound, strict=False)

        x, y = both("x", 5, False), both("y", 3, True)
        [held] = await world.s1.claim([x])
        [answer] = await world.s2.claim([y])
        assert answer.status == "ok"
        assert [one.claim for one in answer.wounded] == ["x"]
        assert {record.uid async for record in world.r.records()} == {"yn1", "yn2"}
        [late] = await world.g.advance([Advance("x", held.token, held.epoch, "x", ("xn1", "xn2"))], world.gateway_epoch)
        assert late.status == "gone"


async def test_g34_wound_beside_binding(redis_url: str, cluster: str) -> None:
    async with connected(redis_url, cluster) as world:
        await world.node("n1", 1000)
        await world.node("n2", 1000)
        await world.open()
        x = await world.claim(pod("x1", "n1", 1000), pod("x2", "n2", 1000), strict=False)
        await world.advance(x)
        y = ClaimRequest("y", (pod("y1", "n1", 1000), pod("y2", "n2", 1000)), priority=10, ticket=3, wound=True)
        [answer] = await world.s2.claim([y])
        assert answer.status == "conflict"
        assert [await world.state(member) for member in x.request.members] == ["BINDING", "BINDING"]


async def test_g35_restarts_empty(own_redis: RedisServer, cluster: str) -> None:
    async with connected(own_redis.url, cluster) as world:
        await world.node("n", 4000)
        await world.open()
        p1, p2, p3 = [await world.claim(pod(f"p{i}", "n", 1000)) for i in (1, 2, 3)]
        await world.advance(p1)
        await world.bound(p1.request.members[0])
        await world.advance(p2)
        await own_redis.restart(empty=True)
        async with connected(own_redis.url, cluster) as after:
            assert not (await after.s1.status()).open
            assert (await after.claim(pod("p9", "n", 1))).answer.status == "closed"
            await after.r.begin(after.reconciler_epoch)
            await after.see(NodeSeen("node/n", {"cpu": 4000, "pods": 9}, "1"))
            await after.bound(p1.request.members[0])
            await after.open()
            assert [record.uid async for record in after.r.records()] == ["p1"]
            for held in (p2, p3):
                assert (await after.advance(held)).status == "epoch"
            assert await after.free("node/n") == 3000
