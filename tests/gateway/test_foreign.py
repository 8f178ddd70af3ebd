"""Bindings of other schedulers, judged by the ledger: what the API server asks before it makes them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.accounting.takes import pod_takes
from koord.gateway.api import Api
from koord.gateway.foreign import ForeignBindings
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, NodeSeen, PodSeen
from tests.gateway.conftest import Kube


class Bed:
    def __init__(self, kube: Kube, foreign: ForeignBindings, koord: Ledger, observer: Ledger, epoch: int) -> None:
        self.kube = kube
        self.foreign = foreign
        self.koord = koord
        self.observer = observer
        self.epoch = epoch

    async def ask(self, pod: dict[str, Any], node: str, **request: Any) -> dict[str, Any]:
        """The answer to the API server's question about one Binding."""
        name, namespace = pod["metadata"]["name"], self.kube.namespace
        binding = {"metadata": {"name": name, "namespace": namespace}, "target": {"kind": "Node", "name": node}}
        asked = {"uid": "r-1", "name": name, "namespace": namespace, "object": binding, **request}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})
        review = json.loads(await self.foreign.answer(body.encode()))
        assert (review["kind"], review["response"]["uid"]) == ("AdmissionReview", "r-1")
        response: dict[str, Any] = review["response"]
        return response

    async def cpu(self, node: str) -> tuple[int, int]:
        """Milli-cpu used and held."""
        item = (await self.koord.items(f"node/{node}"))[f"node/{node}"]
        return item.used.get("cpu", 0), item.held.get("cpu", 0)

    async def take(self, pod: dict[str, Any], node: str) -> None:
        """Claim room for a pod of koord's."""
        takes = pod_takes({"cpu": 1000}, node, (), unit_owned=True)
        member = Member(pod["metadata"]["uid"], self.kube.namespace, pod["metadata"]["name"], node, takes)
        [answer] = await self.koord.claim([ClaimRequest(f"{self.koord.incarnation}-{member.uid}", (member,))])
        assert answer.status == "ok"


@pytest.fixture
async def bed(api: Api, kube: Kube, redis_url: str, cluster: str) -> AsyncIterator[Bed]:
    """Nodes of 2 and of 8 cpu in an open ledger."""
    ledgers = [await Ledger.connect(redis_url, cluster, name) for name in ("g-f", "s", "r")]
    asking, koord, observer = ledgers
    epoch = await observer.lead("reconciler")
    rooms = [NodeSeen(f"node/{name}", {"cpu": cpu, "pods": 110}, "1") for name, cpu in (("n1", 2000), ("n2", 8000))]
    await observer.observe(rooms, role_epoch=epoch)
    await observer.open(epoch)
    for ledger in ledgers:
        await ledger.status()
    yield Bed(kube, ForeignBindings(api, asking, 60.0), koord, observer, epoch)
    for ledger in ledgers:
        await ledger.close()


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
        await bed.take(pod, "n1")
    theirs = await bed.kube.pod("theirs")
    response = await bed.ask(theirs, "n1")
    assert not response["allowed"]
    assert response["status"]["code"] == 409
    assert response["status"]["message"] == (
        "node n1 has not the room (cpu: 1000 needed, 0 left): other pods are being bound to it by koord"
    )
    assert await bed.cpu("n1") == (0, 2000)
    assert (await bed.ask(theirs, "n2"))["allowed"], "its scheduler tries elsewhere"


async def test_the_other_way_round_koord_is_refused(bed: Bed) -> None:
    for number in range(2):
        assert (await bed.ask(await bed.kube.pod(f"theirs-{number}"), "n1"))["allowed"]
    ours = await bed.kube.pod("ours")
    with pytest.raises(AssertionError):
        await bed.take(ours, "n1")


async def test_asked_again_it_holds_once_and_elsewhere_only_there(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    for _ in range(3):
        assert (await bed.ask(pod, "n1"))["allowed"]
    assert await bed.cpu("n1") == (0, 1000)
    assert (await bed.ask(pod, "n2"))["allowed"]
    assert (await bed.cpu("n1"), await bed.cpu("n2")) == ((0, 0), (0, 1000))


async def test_a_dry_run_and_what_the_server_refuses_itself_hold_nothing(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    assert (await bed.ask(pod, "n1", dryRun=True))["allowed"]
    assert (await bed.ask({"metadata": {"name": "nobody"}}, "n1"))["allowed"]
    assert (await bed.ask(pod, ""))["allowed"]
    assert await bed.cpu("n1") == (0, 0)


async def test_a_node_that_the_ledger_does_not_know_is_refused(bed: Bed) -> None:
    response = await bed.ask(await bed.kube.pod("theirs"), "n3")
    assert not response["allowed"]
    assert response["status"]["message"].startswith("node n3 has not the room (")


async def test_a_closed_ledger_stops_nobody_unless_required(bed: Bed) -> None:
    pod = await bed.kube.pod("theirs")
    await bed.observer.shut(bed.epoch)
    assert (await bed.ask(pod, "n1"))["allowed"]
    bed.foreign._required = True
    response = await bed.ask(pod, "n1")
    assert not response["allowed"], "unless it has to be claimed"
    assert "try again" in response["status"]["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request": {"name": 7}}', b"[" * 100_000])
async def test_what_is_no_review_is_said(bed: Bed, body: bytes) -> None:
    with pytest.raises(ValueError, match="AdmissionReview: "):
        await bed.foreign.answer(body)
