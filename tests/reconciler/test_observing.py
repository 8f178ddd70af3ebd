"""What no ledger would take is left out of a call and named; everybody else is told."""

import pytest

from koord.accounting.takes import Take
from koord.ledger.model import BudgetSeen, ItemClosed, Observation, PodGone, PodNominated, PodSeen
from koord.reconciler.observing import Observing
from koord.reconciler.world import World
from koord.telemetry.spans import Spans
from tests.reconciler.test_catching_up import bed as bed
from tests.reconciler.test_term import Bed

TAKES = (Take("node/n1", {"cpu": 1000}),)
MANY_BITS = 2**70


@pytest.mark.parametrize(
    ("bad", "name", "rule"),
    [
        (PodSeen("u", "ns", "bad", "n1", TAKES, "one"), "ns/bad", "u: resourceVersion 'one' is not a whole number"),
        (PodGone("u", "ns", "bad", "1e5"), "ns/bad", "u: resourceVersion '1e5' is not a whole number"),
        (ItemClosed("node/bad", "one"), "node/bad", "resourceVersion 'one' is not a whole number"),
        (BudgetSeen("pdb/ns/bad", MANY_BITS, "1"), "pdb/ns/bad", "more than 64 bits"),
        (PodNominated("u", "ns", "bad", "n1", TAKES, MANY_BITS, "1"), "ns/bad", "more than 64 bits"),
    ],
)
async def test_what_cannot_be_told_is_left_out_and_named(
    bed: Bed, capsys: pytest.CaptureFixture[str], bad: Observation, name: str, rule: str
) -> None:
    observing = Observing(bed.ledger, World(bed.cluster.bus, Spans()), await bed.ledger.lead("reconciler"))
    before, after = (PodSeen(uid, "ns", uid, "n1", TAKES, "1") for uid in ("before", "after"))
    answer = await observing.tell([before, bad, after])
    assert (answer.status, answer.observed) == ("ok", ("before", "after"))
    told = capsys.readouterr()
    [line] = [line for line in (told.out + told.err).splitlines() if "left out" in line]
    assert name in line and rule in line
