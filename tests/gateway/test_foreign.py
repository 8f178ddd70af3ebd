"""Bindings of other schedulers, judged by the ledger: what the API server asks before it makes them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.accounting.takes import pod_takes
from koord.contracts.asks import BindingRecord, SettleBindings
from koord.contracts.decisions import Decision, EventNote, ObjectRef
from koord.gateway import metrics
from koord.gateway.advancing import Advancer
from koord.gateway.api import Api
from koord.gateway.guarantees import Guarantees
from koord.gateway.leanclient import Response
from koord.gateway.settling import FOREIGN, Settler
from koord.kube.resources import PODS
from koord.ledger.client import Ledger
from koord.ledger.model import NodeSeen, PodSeen, Settled
from tests.gateway.conftest import Kube, until
from tests.gateway.foreignbed import Bed, opened


@pytest.fixture
async def bed(kube: Kube, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bed]:
    # A busy machine is no koord that is away.
    monkeypatch.setattr("koord.gateway.foreign.ANSWER_S", 25.0)
    async with opened(kube, redis_url, cluster) as bed:
        yield bed


async def test_what_has_room_is_held_until_it_is_seen_on_its_node(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    assert (await bed.ask(pod, "n1"))["allowed"]
    assert await bed.cpu("n1") == (0, 1000)
    meta = pod["metadata"]
    takes = pod_takes({"cpu": 1000}, "n1", (), unit_owned=True)
    seen = PodSeen(meta["uid"], bed.kube.namespace, meta["name"], "n1", takes, "9")
    await bed.observer.observe([seen], role_epoch=bed.epoch)
    assert await bed.cpu("n1") == (1000, 0)


async def test_what_koord_has_claimed_is_not_there_for_others(bed: Bed) -> None:
    ours = [await bed.kube.pod(f"ours-{number}") for number in range(2)]
    for pod in ours:
        assert (await bed.take(pod, "n1")).status == "ok"
    theirs = await bed.kube.pod("theirs")
    response = await bed.ask(theirs, "n1")
    assert not response["allowed"]
    assert response["status"]["code"] == 409
    assert response["status"]["message"] == (
        "node n1 has not the room (cpu: 1000 needed, 0 left): what koord is binding to it counts, too"
    )
    assert await bed.cpu("n1") == (0, 2000)
    assert (await bed.ask(theirs, "n2"))["allowed"], "its scheduler tries elsewhere"


async def test_the_other_way_round_koord_is_refused(bed: Bed) -> None:
    for number in range(2):
        assert (await bed.ask(await bed.kube.pod(f"theirs-{number}"), "n1"))["allowed"]
    ours = await bed.kube.pod("ours")
    assert (await bed.take(ours, "n1")).status == "conflict"
    wounding = await bed.take(ours, "n1", priority=1000, group="gang", wound=True)
    assert wounding.status == "conflict", "whatever its rank: their Bindings may be under way"


async def test_asked_again_it_holds_once_and_elsewhere_only_there(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    for _ in range(3):
        assert (await bed.ask(pod, "n1"))["allowed"]
    assert await bed.cpu("n1") == (0, 1000)
    assert (await bed.ask(pod, "n2"))["allowed"]
    assert (await bed.cpu("n1"), await bed.cpu("n2")) == ((0, 0), (0, 1000))


async def test_the_next_leader_knows_what_this_one_allowed(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    assert (await bed.ask(pod, "n1"))["allowed"]
    await bed.lead("g2")
    assert (await bed.ask(pod, "n1", required=True))["allowed"]
    assert await bed.cpu("n1") == (0, 1000)
    assert (await bed.ask(pod, "n2"))["allowed"]
    assert (await bed.cpu("n1"), await bed.cpu("n2")) == ((0, 0), (0, 1000)), "held where it was asked for last"


async def test_where_claims_are_required_an_earlier_binding_is_outlived(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    assert (await bed.ask(pod, "n1", required=True))["allowed"]
    response = await bed.ask(pod, "n2", required=True)
    assert not response["allowed"]
    assert response["status"]["message"].endswith("may still be bound to node n1; try again")
    record = await bed.observer.record(pod["metadata"]["uid"])
    assert record is not None
    settled = Settled(record.uid, record.namespace, record.name, record.token, record.attempts)
    await bed.observer.observe([settled], role_epoch=bed.epoch)
    assert (await bed.ask(pod, "n2", required=True))["allowed"], "the reconciler found it unbound"
    assert (await bed.cpu("n1"), await bed.cpu("n2")) == ((0, 0), (0, 1000))


async def test_asked_about_two_nodes_at_once_one_is_held(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    answers = await asyncio.gather(*(bed.ask(pod, node, required=True) for node in ("n1", "n2")))
    assert sorted(answer["allowed"] for answer in answers) == [False, True]
    held = (await bed.cpu("n1"))[1] + (await bed.cpu("n2"))[1]
    assert held == 1000


async def test_what_koord_is_binding_is_not_bound_elsewhere(bed: Bed) -> None:
    pod = await bed.kube.pod("ours")
    assert (await bed.take(pod, "n1")).status == "ok"
    assert not (await bed.ask(pod, "n2"))["allowed"]
    assert (await bed.cpu("n1"), await bed.cpu("n2")) == ((0, 1000), (0, 0))


@pytest.mark.parametrize("required", [False, True])
async def test_what_koord_holds_somebody_else_may_bind_there(bed: Bed, required: bool) -> None:
    """A scheduler extender binds what koord's scheduler has claimed the room for."""
    pod = await bed.kube.pod("ours")
    taken = await bed.take(pod, "n1")
    assert not (await bed.ask(pod, "n2", required=required))["allowed"]
    for _ in range(2):
        assert (await bed.ask(pod, "n1", required=required))["allowed"]
    assert await bed.cpu("n1") == (0, 1000)
    record = await bed.observer.record(pod["metadata"]["uid"])
    assert record is not None
    assert (record.state, record.token) == ("BINDING", taken.token), "no lease ends it now, nor its scheduler"
    assert record.decision.startswith(FOREIGN)


async def test_a_gateway_that_missed_a_rebuild_asks_again(bed: Bed) -> None:
    await bed.observer.begin(bed.epoch)
    room = NodeSeen("node/n1", {"cpu": 2000, "pods": 110}, "1")
    await bed.observer.observe([room], role_epoch=bed.epoch)
    await bed.observer.open(bed.epoch)
    assert (await bed.ask(await bed.kube.pod("theirs"), "n1", required=True))["allowed"]


async def test_who_does_not_lead_judges_nothing(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    other = await Ledger.connect(bed.redis_url, bed.asking.cluster, "g3")
    try:
        await other.lead("gateway")
        response = await bed.ask(pod, "n1", required=True)
        assert not response["allowed"], "its epoch is over"
        bed.foreign.lead(None)
        assert not (await bed.ask(pod, "n1", required=True))["allowed"]
        assert (await bed.ask(pod, "n1"))["allowed"]
        assert await bed.cpu("n1") == (0, 0)
    finally:
        await other.close()


async def test_an_answer_that_comes_too_late_holds_nothing(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server has refused by then, and its scheduler may go elsewhere at once."""
    monkeypatch.setattr("koord.gateway.foreign.ANSWER_S", 0.0)
    pod = await bed.kube.pod("theirs")
    assert not (await bed.ask(pod, "n1", required=True))["allowed"]
    await until(lambda: not bed.foreign._late, "the late answer came")
    assert await bed.cpu("n1") == (0, 0)
    assert (await bed.ask(pod, "n1"))["allowed"]
    await until(lambda: not bed.foreign._late, "the late answer came")
    assert await bed.cpu("n1") == (0, 1000), "allowed unasked, it is held all the same"


async def test_a_pod_that_may_not_be_read_is_not_judged(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forbidden(*_: Any) -> Response:
        return Response(403, b"{}", 0.0)

    pod = await bed.kube.pod("theirs")
    monkeypatch.setattr(bed.kube.api, "call", forbidden)
    assert (await bed.ask(pod, "n1"))["allowed"]
    assert not (await bed.ask(pod, "n1", required=True))["allowed"]


async def test_a_binding_posted_without_the_pod_in_its_path_is_asked_about_too(bed: Bed) -> None:
    """``POST .../bindings``: the name is in the object only."""
    pod = await bed.kube.pod("theirs")
    assert (await bed.ask(pod, "n1", name=""))["allowed"]
    assert await bed.cpu("n1") == (0, 1000)


async def test_a_dry_run_and_what_the_server_refuses_itself_hold_nothing(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    assert (await bed.ask(pod, "n1", dryRun=True))["allowed"]
    assert (await bed.ask({"metadata": {"name": "nobody"}}, "n1"))["allowed"]
    assert (await bed.ask(pod, ""))["allowed"]
    assert await bed.cpu("n1") == (0, 0)


async def test_a_node_that_the_ledger_does_not_know_is_refused(bed: Bed) -> None:
    response = await bed.ask(await bed.kube.pod("theirs"), "n3")
    assert not response["allowed"]
    assert response["status"]["message"].startswith(
        "node n3 has not the room (the ledger of koord does not know the node"
    )


async def test_the_pod_is_told_what_was_refused_and_every_outcome_is_counted(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[EventNote] = []
    bed.foreign.lead(Advancer(bed.asking, await bed.asking.lead("gateway")), lambda note, now: told.append(note))
    before = {verdict: _counted(verdict) for verdict in ("claimed", "passed", "refused", "not judged", "late")}
    first, second = [await bed.kube.pod(name) for name in ("first", "second")]
    for pod in (first, first):  # claimed, and then there is nothing more to claim
        assert (await bed.ask(pod, "n1"))["allowed"]
    assert (await bed.take(await bed.kube.pod("ours"), "n1")).status == "ok"
    refused = (await bed.ask(second, "n1"))["status"]["message"]
    assert "node n1" in refused and "cpu: 1000 needed, 0 left" in refused
    [note] = told
    assert (note.note, note.reason, note.type) == (refused, "BindingRefused", "Warning")
    assert (note.target.name, note.target.uid) == ("second", second["metadata"]["uid"])
    await bed.observer.shut(bed.epoch)
    closed = await bed.ask(second, "n2", required=True)
    assert closed["status"]["message"] == (
        "node n2: the ledger of koord cannot say what is taken (it is closed: being rebuilt); try again"
    )
    monkeypatch.setattr("koord.gateway.foreign.ANSWER_S", 0.0)
    late = await bed.ask(second, "n2", required=True)
    assert "(no answer in 0 s)" in late["status"]["message"]
    await until(lambda: not bed.foreign._late, "the late answer came")
    counted = {verdict: _counted(verdict) - count for verdict, count in before.items()}
    assert counted == {"claimed": 1, "passed": 1, "refused": 1, "not judged": 2, "late": 1}
    assert told == [note], "what cannot be judged says nothing about the pod"


def _counted(verdict: str) -> float:
    return float(metrics.FOREIGN.labels(verdict)._value.get())


async def test_a_closed_ledger_stops_nobody_unless_required(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    await bed.observer.shut(bed.epoch)
    assert (await bed.ask(pod, "n1"))["allowed"]
    response = await bed.ask(pod, "n1", required=True)
    assert not response["allowed"], "unless it has to be claimed"
    assert "try again" in response["status"]["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request": {"name": 7}}', b"[" * 100_000])
async def test_what_is_no_review_is_said(bed: Bed, body: bytes) -> None:
    with pytest.raises(ValueError, match="AdmissionReview: "):
        await bed.foreign.answer(body)


async def test_a_binding_without_a_version_is_settled_when_none_can_be_under_way(api: Api, kube: Kube) -> None:
    """What the reconciler has watched for less than that is busy, whatever its own patience is."""
    pod = await kube.pod("theirs")
    target = ObjectRef(PODS.token, kube.namespace, "theirs", pod["metadata"]["uid"])

    async def queued() -> AsyncIterator[list[Decision]]:
        for page in list[list[Decision]]():
            yield page

    settler = Settler(api, set, queued, Guarantees.full(30.0))
    states = []
    for decision, age_s in ((f"{FOREIGN}c-1", 29.0), (f"{FOREIGN}c-1", 31.0), ("c-1", 1.0)):
        record = BindingRecord(target, "c-1", decision, age_s)
        [answer] = (await settler.answer(SettleBindings([record]))).records
        states.append(answer.state)
    assert states == ["busy", "unbound", "unbound"]
