"""Who counts as dead, and that only what the dead held is given back."""

from collections.abc import AsyncIterator

import pytest

from koord.accounting.takes import Take
from koord.bus.presence import GONE_S
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, NodeSeen
from koord.scheduler.retiring import Retiring

OWNERS = ("scheduler-own", "scheduler-lives", "scheduler-dead", "queue-dead")


@pytest.fixture
async def ledger(redis_url: str, cluster: str) -> AsyncIterator[Ledger]:
    """An open ledger in which each of OWNERS holds a pod."""
    async with await Ledger.connect(redis_url, cluster, OWNERS[0]) as ledger:
        epoch = await ledger.lead("reconciler")
        await ledger.begin(epoch)
        await ledger.observe([NodeSeen("node/n1", {"cpu": 8000}, "1")], role_epoch=epoch)
        await ledger.open(epoch)
        for owner in OWNERS:
            async with await Ledger.connect(redis_url, cluster, owner) as theirs:
                member = Member(owner, "ns", owner, "n1", (Take("node/n1", {"cpu": 1000}),))
                [answer] = await theirs.claim([ClaimRequest(f"{owner}-1", (member,))])
                assert answer.status == "ok"
        yield ledger


async def held(ledger: Ledger) -> set[str]:
    return {record.owner async for record in ledger.records()}


async def test_a_lock_proves_death_at_once(ledger: Ledger) -> None:
    retiring = Retiring(ledger, "scheduler", lambda: OWNERS[:2], lambda owner: owner.endswith("dead"))
    answer = await retiring.look(0.0, connected=True)
    assert answer is not None and [ended.uids for ended in answer.ended] == [("scheduler-dead",)]
    assert await held(ledger) == set(OWNERS) - {"scheduler-dead"}
    assert await retiring.look(1.0, connected=True) is None


async def test_who_was_met_and_is_gone_is_dead(ledger: Ledger) -> None:
    members = list(OWNERS[:3])
    retiring = Retiring(ledger, "scheduler", lambda: members, lambda owner: False)
    assert await retiring.look(0.0, connected=True) is None
    members.remove("scheduler-dead")
    assert await retiring.look(1.0, connected=True) is not None
    assert await held(ledger) == set(OWNERS) - {"scheduler-dead"}


async def test_who_was_never_heard_of_is_dead_after_a_while(ledger: Ledger) -> None:
    """A living one says so every second; one that is cut off from the others has not heard them."""
    retiring = Retiring(ledger, "scheduler", lambda: OWNERS[:2], lambda owner: False)
    for now, connected in ((0.0, True), (GONE_S - 0.1, True), (GONE_S, False), (GONE_S + 1, True), (2 * GONE_S, True)):
        assert await retiring.look(now, connected=connected) is None
    assert await held(ledger) == set(OWNERS)
    assert await retiring.look(2 * GONE_S + 1.1, connected=True) is not None
    assert await held(ledger) == set(OWNERS) - {"scheduler-dead"}
