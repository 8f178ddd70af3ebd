"""What a term held is gone when it is over, at once: a service collects cycles so rarely that they count as leaks."""

import asyncio
import gc

import pytest

from koord.accounting.takes import Take
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable, PodSeen
from koord.reconciler.folding import Folder
from koord.runtime.ending import end
from tests.reconciler.test_catching_up import bed as bed
from tests.reconciler.test_folding import folder as folder
from tests.reconciler.test_folding import pod
from tests.reconciler.test_term import Bed, reconciling, until

PODS = 200


def observations() -> int:
    return sum(isinstance(one, PodSeen) for one in gc.get_objects())


@pytest.mark.parametrize("ends", ["by an error", "cancelled"])
async def test_a_rebuild_that_does_not_end_keeps_nothing(
    bed: Bed, redis_url: str, monkeypatch: pytest.MonkeyPatch, collected_never: None, ends: str
) -> None:
    tries = 0

    async def observe(self: Ledger, *arguments: object, **named: object) -> None:
        nonlocal tries
        tries += 1
        if tries == 3 and ends == "cancelled":
            await asyncio.Event().wait()
        raise LedgerUnavailable("away")

    before = observations()  # other tests' examples
    for number in range(PODS):
        await bed.cluster.pod(f"p{number}", node="n1", phase="Running")
    monkeypatch.setattr(Ledger, "observe", observe)

    async def tried() -> bool:
        return tries >= 3

    async with reconciling(bed.cluster.bus, redis_url, "r") as term:
        await until(tried, "three tries", 60)
        # Those of the present try, at most: none is left of the ones before.
        assert observations() - before <= PODS
        await end(term)
        assert observations() == before


def test_pods_of_one_template_share_what_they_take(folder: Folder) -> None:
    def takes_of(uid: str, node: str, **more: str) -> tuple[Take, ...]:
        [seen] = folder.pod(None, pod(uid=uid, node=node, **more), "", 0.0)
        assert isinstance(seen, PodSeen)
        return seen.takes

    first, second = takes_of("a", "n1", quota="leaf"), takes_of("b", "n2", quota="leaf")
    assert [take.item for take in first[:2]] == ["node/n1", "quota/leaf"]
    assert second[0].item == "node/n2"
    assert first[0].amounts is second[0].amounts
    assert all(one is other for one, other in zip(first[1:], second[1:], strict=True))
    # Whatever differs in what they are charged with is kept apart.
    others = [
        takes_of("c", "n1", quota="top"),
        takes_of("d", "n1", quota="leaf", unit="j"),
        takes_of("e", "n1", quota="leaf", cpu="2"),
        takes_of("f", "n1", quota="leaf", cpu="0"),
        takes_of("g", "n1", quota="top", cpu="0"),
    ]
    assert len({str(takes) for takes in (first, *others)}) == 6
