"""Disruption budgets become items of the ledger, by which a nomination is judged; nobody waits for them."""

from typing import Any

from koord.accounting.takes import Take
from koord.kube.resources import POD_DISRUPTION_BUDGETS
from koord.ledger.model import BudgetSeen, ItemClosed, Member
from koord.ledger.nominations import NominateRequest, Victim
from koord.reconciler.folding import Folder
from koord.reconciler.sights import BudgetSight, BudgetStatusSight, GenerationSight
from tests.reconciler.test_catching_up import bed as bed
from tests.reconciler.test_term import Bed, opened, reconciling, until

ITEM = "pdb/ns/db"


def sight(allowed: int, version: str, *, generation: int = 1, observed: int = 1) -> BudgetSight:
    meta = GenerationSight("db", "ns", "u", version, generation=generation)
    return BudgetSight(meta, BudgetStatusSight(allowed, observed))


def test_a_budget_is_told_when_what_it_allows_changes() -> None:
    folder = Folder()
    first, same, fewer = sight(2, "1"), sight(2, "2"), sight(1, "3")
    assert folder.budget(None, first, "1") == [BudgetSeen(ITEM, 2, "1")]
    assert folder.budget(first, same, "2") == []
    assert folder.budget(same, fewer, "3") == [BudgetSeen(ITEM, 1, "3")]
    # The API evicts nobody before the new spec was looked at, and neither number is below zero.
    unseen = sight(5, "4", generation=2)
    assert folder.budget(fewer, unseen, "4") == [BudgetSeen(ITEM, 0, "4")]
    assert folder.budget(unseen, sight(-3, "5"), "5") == []
    assert folder.budget(fewer, None, "6") == [ItemClosed(ITEM, "6")]
    assert folder.everything([], [], [], 0.0, [first]) == [BudgetSeen(ITEM, 2, "1")]


async def budget(bed: Bed, allowed: int, *, gone: bool = False) -> dict[str, Any]:
    meta = {"name": "db", "namespace": "ns", "uid": "uid-db", "generation": 1}
    status = {"disruptionsAllowed": allowed, "observedGeneration": 1}
    return await bed.cluster.put(POD_DISRUPTION_BUDGETS, {"metadata": meta, "status": status}, gone=gone)


async def nominate(bed: Bed, name: str, *victims: str) -> str:
    member = Member(f"uid-{name}", "ns", name, "n1", (Take("node/n1", {"cpu": 1000}),))
    offered = NominateRequest(name, (member,), 9, victims=tuple(Victim(uid, (ITEM,)) for uid in victims))
    [answer] = await bed.ledger.nominate([offered])
    return answer.shorts[0].kind if answer.shorts else answer.status


async def test_a_nomination_is_judged_by_what_the_budget_allows(bed: Bed, redis_url: str) -> None:
    await bed.cluster.node()
    for name in ("a", "b", "c"):
        await bed.cluster.pod(name, node="n1", phase="Running", cpu="2")
    async with reconciling(bed.cluster.bus, redis_url, "r1"):  # opens although nobody lists budgets
        await opened(bed)
        assert await nominate(bed, "x", "uid-a") == "closed"
        await budget(bed, 2)
        await bed.cluster._publisher.listed(POD_DISRUPTION_BUDGETS, "1")

        async def told(allowed: int) -> bool:
            item = await bed.item(ITEM)
            return item is not None and item.limits == {"disruptions": allowed}

        await until(lambda: told(2), "the budget", 60)
        assert await nominate(bed, "x", "uid-a", "uid-b") == "ok"
        assert await nominate(bed, "y", "uid-c") == "amount"
        await budget(bed, 3)
        await until(lambda: told(3), "the larger budget", 60)
        assert await nominate(bed, "y", "uid-c") == "ok"
    await budget(bed, 3, gone=True)  # while nobody reconciles

    async def closed() -> bool:
        item = await bed.item(ITEM)
        return item is None or not item.open

    async with reconciling(bed.cluster.bus, redis_url, "r2"):
        await until(closed, "the budget to close", 60)
    assert bed.cluster.barriers == 1
