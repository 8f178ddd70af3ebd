"""Binds against the real API server and the real ledger: every step of spec 20 section 3.12, paragraph G."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from koord.accounting.takes import pod_takes
from koord.contracts.decisions import Bind, BindMember, ClaimRef
from koord.contracts.results import Result
from koord.gateway.access import ApiAccess
from koord.gateway.advancing import Advancer
from koord.gateway.api import Api
from koord.gateway.binding import Binder, NotLeading, TryLater
from koord.gateway.leanclient import LeanClient, NotSent, OutcomeUnknown, Response
from koord.gateway.podindex import PodIndex
from koord.gateway.settling import SETTLED
from koord.kube.resources import PODS
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, NodeSeen, PodSeen, ReleaseAnswer
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans
from tests.gateway.conftest import Kube

REQUEST = {"cpu": 1000}


class Interposer:
    """A lean client that can lose answers, or refuse requests, as the network and the server do."""

    def __init__(self, client: LeanClient) -> None:
        self.client = client
        self.sent: list[tuple[str, str, bytes]] = []
        self.faults: list[Any] = []

    def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json", *, lane: int = 0
    ) -> "asyncio.Future[Response]":
        self.sent.append((method, path, body))
        fault = self.faults.pop(0) if self.faults and path.endswith("/binding") else None
        return asyncio.ensure_future(self._answer(fault, method, path, body, content_type, lane))

    async def _answer(self, fault: Any, method: str, path: str, body: bytes, type_: str, lane: int) -> Response:
        if fault == "lost before":
            raise OutcomeUnknown("connection lost")
        if fault == "not sent":
            raise NotSent("no connection")
        if isinstance(fault, int):
            return Response(fault, b'{"kind":"Status","message":"made up by the test"}', 0.0)
        answer = await self.client.request(method, path, body, type_, lane=lane)
        if fault == "lost after":
            raise OutcomeUnknown("connection lost")
        return answer

    @property
    def bindings(self) -> list[str]:
        return [path for _, path, _ in self.sent if path.endswith("/binding")]


class Bed:
    """Two nodes, a scheduler's, a gateway's and a reconciler's ledger client, and a binder."""

    def __init__(self, kube: Kube, wire: Interposer, ledgers: Sequence[Ledger], epochs: tuple[int, int]) -> None:
        self.kube = kube
        self.wire = wire
        self.scheduler, self.gateway, self.reconciler = ledgers
        self.gateway_epoch, self.reconciler_epoch = epochs
        self.released: list[ReleaseAnswer] = []
        self.pods = PodIndex()
        self.spans = Spans()
        self._claims = itertools.count(1)
        api = Api(wire, ApiAccess("http://unused"), patience_s=5.0)  # type: ignore[arg-type]
        self.binder = Binder(
            api,
            self.pods,
            Advancer(self.gateway, self.gateway_epoch),
            self.gateway,
            self.gateway_epoch,
            self.spans,
            lambda answer, claim: self.released.append(answer),
        )

    async def claim(self, pods: Sequence[dict[str, Any]], node: str, *, strict: bool = True) -> ClaimRef:
        id_ = f"s-{next(self._claims)}"
        members = tuple(
            Member(p["metadata"]["uid"], self.kube.namespace, p["metadata"]["name"], node, self.takes(node))
            for p in pods
        )
        answer = (await self.scheduler.claim([ClaimRequest(id_, members, strict=strict)]))[0]
        assert answer.status == "ok", answer
        return ClaimRef(id_, answer.token, answer.epoch)

    @staticmethod
    def takes(node: str) -> Any:
        return pod_takes(REQUEST, node, (), unit_owned=True)

    def bind(self, claim: ClaimRef, pods: Sequence[dict[str, Any]], node: str, **more: Any) -> Bind:
        members = [
            BindMember(
                p["metadata"]["uid"],
                self.kube.namespace,
                p["metadata"]["name"],
                node,
                {"koord.sh/x": "y"},
                trace=TraceContext.new().traceparent,
                gang="ns/g" if "minimum" in more else "",
            )
            for p in pods
        ]
        return Bind(claim.claim, claim, members, **more)

    async def place(self, name: str, node: str = "n1") -> tuple[dict[str, Any], Bind]:
        pod = await self.kube.pod(name)
        claim = await self.claim([pod], node)
        return pod, self.bind(claim, [pod], node)

    async def node_of(self, name: str) -> Any:
        pod = await self.kube.get_pod(name)
        assert pod is not None
        return pod["spec"].get("nodeName")

    async def state(self, pod: dict[str, Any]) -> str:
        record = await self.scheduler.record(pod["metadata"]["uid"])
        return record.state if record is not None else "none"

    async def held(self, node: str = "n1") -> int:
        return (await self.scheduler.items(f"node/{node}"))[f"node/{node}"].held.get("cpu", 0)


@pytest.fixture
async def bed(redis_url: str, cluster: str, kube: Kube, access: ApiAccess) -> AsyncIterator[Bed]:
    ledgers = [await Ledger.connect(redis_url, cluster, name, lease_s=3600.0) for name in ("s", "g", "r")]
    epoch = await ledgers[2].lead("reconciler")
    nodes = [NodeSeen(f"node/n{i}", {"cpu": 8000, "pods": 110}, "1") for i in (1, 2)]
    await ledgers[2].observe(nodes, role_epoch=epoch)
    await ledgers[2].open(epoch)
    for ledger in ledgers:
        await ledger.status()
    client = LeanClient(access)
    yield Bed(kube, Interposer(client), ledgers, (await ledgers[1].lead("gateway"), epoch))
    await client.close()
    for ledger in ledgers:
        await ledger.close()


def only(result: Result) -> tuple[str, str]:
    assert len(result.members) == 1
    return result.members[0].outcome, result.members[0].reason


async def test_a_pod_is_bound_with_its_annotations_in_one_request(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    result = await bed.binder.bind(decision)
    assert (result.outcome, only(result)) == ("done", ("done", ""))
    stored = await bed.kube.get_pod("a")
    assert stored is not None
    assert (stored["spec"]["nodeName"], stored["metadata"]["annotations"]["koord.sh/x"]) == ("n1", "y")
    assert await bed.state(pod) == "BINDING"
    assert len(bed.wire.bindings) == 1
    body = json.loads(bed.wire.sent[-1][2])
    assert body["metadata"]["uid"] == pod["metadata"]["uid"]
    assert body["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
    spans = bed.spans.take(0)
    assert [span.name for span in spans] == ["gateway.bind"]
    assert spans[0].parent is not None and spans[0].parent.traceparent == decision.members[0].trace


async def test_the_same_decision_again_binds_nothing_twice(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    await bed.binder.bind(decision)
    assert (await bed.binder.bind(decision)).outcome == "done"
    assert len(bed.wire.bindings) == 1
    seen = PodSeen(pod["metadata"]["uid"], bed.kube.namespace, "a", "n1", bed.takes("n1"), "5")
    await bed.reconciler.observe([seen], role_epoch=bed.reconciler_epoch)
    assert (await bed.binder.bind(decision)).outcome == "done"  # OBSERVED on the target
    assert len(bed.wire.bindings) == 1


async def test_a_claim_that_is_gone_makes_no_api_call(bed: Bed) -> None:
    from koord.ledger.model import Release

    _, decision = await bed.place("a")
    await bed.scheduler.release([Release(decision.claim.claim, decision.claim.token)])
    result = await bed.binder.bind(decision)
    assert (result.outcome, only(result)) == ("rejected", ("rejected", "claim gone"))
    assert bed.wire.bindings == []
    assert await bed.node_of("a") is None


async def test_a_stale_version_is_read_again(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    bed.pods.observe("ADDED", f"{bed.kube.namespace}/a", brief(pod))
    await bed.kube.call(
        "patch",
        PODS.path(bed.kube.namespace, "a"),
        {"metadata": {"labels": {"touched": "1"}}},
        "application/merge-patch+json",
    )
    assert (await bed.binder.bind(decision)).outcome == "done"
    assert len(bed.wire.bindings) == 2  # the first was refused by the precondition
    assert await bed.node_of("a") == "n1"


def brief(pod: dict[str, Any]) -> Any:
    from koord.gateway.objects import read_object

    return read_object(json.dumps(pod).encode(), kind="Pod", api_version="v1", pod=True)


async def test_a_deleted_pod_is_gone_and_its_room_given_back(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    bed.pods.observe("ADDED", f"{bed.kube.namespace}/a", brief(pod))
    await bed.kube.call("delete", PODS.path(bed.kube.namespace, "a"), {"gracePeriodSeconds": 0})
    result = await bed.binder.bind(decision)
    assert result.outcome == "gone"
    assert f"{bed.kube.namespace}/a" in only(result)[1] or "not found" in only(result)[1]
    assert (await bed.state(pod), await bed.held()) == ("none", 0)
    assert bed.released[0].released == (pod["metadata"]["uid"],)


async def test_another_pod_of_the_same_name_is_not_bound(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    bed.pods.observe("ADDED", f"{bed.kube.namespace}/a", brief(pod))
    await bed.kube.call("delete", PODS.path(bed.kube.namespace, "a"), {"gracePeriodSeconds": 0})
    await bed.kube.pod("a")
    assert (await bed.binder.bind(decision)).outcome == "gone"
    assert await bed.node_of("a") is None
    assert await bed.held() == 0


async def test_a_pod_that_another_scheduler_bound_is_a_conflict(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    target = {"target": {"kind": "Node", "name": "n2"}, "metadata": {"name": "a"}}
    await bed.kube.call("bind", PODS.path(bed.kube.namespace, "a", "binding"), target)
    result = await bed.binder.bind(decision)
    assert (result.outcome, "n2" in only(result)[1]) == ("conflict", True)
    assert (await bed.state(pod), await bed.held()) == ("none", 0)


@pytest.mark.parametrize("fault", ["lost after", "lost before", "not sent", 429, 500, 503])
async def test_an_unknown_outcome_is_read_and_never_released(bed: Bed, fault: Any) -> None:
    pod, decision = await bed.place("a")
    bed.wire.faults = [fault]
    assert (await bed.binder.bind(decision)).outcome == "done"
    assert await bed.node_of("a") == "n1"
    assert len(bed.wire.bindings) == (1 if fault == "lost after" else 2)
    assert await bed.state(pod) == "BINDING"
    assert bed.released == []


async def test_no_final_answer_goes_back_to_the_queue_with_the_room_still_held(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    bed.wire.faults = ["lost before"] * 20
    with pytest.raises(TryLater):
        await bed.binder.bind(decision)
    assert (await bed.state(pod), await bed.held()) == ("BINDING", 1000)
    bed.wire.faults = []
    assert (await bed.binder.bind(decision)).outcome == "done"


async def test_a_definite_refusal_at_the_first_attempt_is_released_at_once(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    bed.wire.faults = [422]
    result = await bed.binder.bind(decision)
    assert (result.outcome, only(result)[1]) == ("rejected", "made up by the test")
    assert (await bed.state(pod), await bed.held()) == ("none", 0)
    stored = await bed.kube.get_pod("a")
    assert stored is not None
    assert SETTLED not in stored["metadata"].get("annotations", {})


async def test_a_refusal_after_an_unknown_outcome_settles_first(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    bed.wire.faults = ["lost before", 422]
    assert (await bed.binder.bind(decision)).outcome == "rejected"
    stored = await bed.kube.get_pod("a")
    assert stored is not None
    assert SETTLED in stored["metadata"]["annotations"]
    assert (await bed.state(pod), await bed.held()) == ("none", 0)
    # The lost request, should it arrive late, fails on its version.
    late = next(sent for sent in bed.wire.sent if sent[1].endswith("/binding"))
    answer = await bed.wire.client.request("POST", late[1], late[2])
    assert answer.status == 409
    assert await bed.node_of("a") is None


async def test_a_redelivery_after_a_crash_between_advance_and_write_binds(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    await Advancer(bed.gateway, bed.gateway_epoch).advance(decision.claim, decision.id, [pod["metadata"]["uid"]])
    assert (await bed.binder.bind(decision)).outcome == "done"
    assert await bed.node_of("a") == "n1"


async def test_a_redelivery_that_is_refused_settles_because_the_crashed_one_may_be_under_way(bed: Bed) -> None:
    pod, decision = await bed.place("a")
    await Advancer(bed.gateway, bed.gateway_epoch).advance(decision.claim, decision.id, [pod["metadata"]["uid"]])
    bed.wire.faults = [403]
    assert (await bed.binder.bind(decision)).outcome == "rejected"
    stored = await bed.kube.get_pod("a")
    assert stored is not None
    assert SETTLED in stored["metadata"]["annotations"]


async def test_an_older_gateway_is_fenced(bed: Bed, redis_url: str, cluster: str) -> None:
    _, decision = await bed.place("a")
    async with await Ledger.connect(redis_url, cluster, "newer") as newer:
        await newer.lead("gateway")
    with pytest.raises(NotLeading):
        await bed.binder.bind(decision)
    assert bed.wire.bindings == []


async def test_a_gang_whose_minimum_is_out_of_reach_is_not_begun(bed: Bed) -> None:
    pods = [await bed.kube.pod(f"g{i}") for i in range(3)]
    claim = await bed.claim(pods, "n1")
    await bed.kube.call("delete", PODS.path(bed.kube.namespace, "g1"), {"gracePeriodSeconds": 0})
    result = await bed.binder.bind(bed.bind(claim, pods, "n1", minimum={"ns/g": 3}))
    assert [member.outcome for member in result.members] == ["rejected", "gone", "rejected"]
    assert "at least 3" in result.members[0].reason
    assert bed.wire.bindings == []
    assert await bed.held() == 0


async def test_a_gang_that_can_still_stand_is_bound_without_the_missing(bed: Bed) -> None:
    pods = [await bed.kube.pod(f"g{i}") for i in range(3)]
    claim = await bed.claim(pods, "n1")
    await bed.kube.call("delete", PODS.path(bed.kube.namespace, "g1"), {"gracePeriodSeconds": 0})
    result = await bed.binder.bind(bed.bind(claim, pods, "n1", minimum={"ns/g": 2}))
    assert [member.outcome for member in result.members] == ["done", "gone", "done"]
    assert result.outcome == "gone"
    assert await bed.held() == 2000


async def test_nothing_is_sent_once_a_barrier_has_begun(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two windows of a large decision, too: what a barrier waits for was sent before it."""
    pods = [await bed.kube.pod(f"p{i}") for i in range(3)]
    decision = bed.bind(await bed.claim(pods, "n1"), pods, "n1")
    advancer, advance = bed.binder._advancer, bed.binder._advancer.advance

    async def then_stopped(*arguments: Any) -> Any:
        answer = await advance(*arguments)
        advancer.stopped = True
        return answer

    monkeypatch.setattr(advancer, "advance", then_stopped)
    with pytest.raises(TryLater, match="the ledger is closed"):
        await bed.binder.bind(decision)
    assert bed.wire.bindings == []
    monkeypatch.undo()
    advancer.stopped = False
    assert (await bed.binder.bind(decision)).outcome == "done"
