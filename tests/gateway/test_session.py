"""A whole term of the gateway on real servers: decisions in, API writes and results out, state on the stream."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.accounting.takes import pod_takes, unit_takes
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionPublisher
from koord.bus.statecache import StateCache
from koord.contracts.codec import decode, encode
from koord.contracts.decisions import (
    Bind,
    BindMember,
    ClaimRef,
    Create,
    Decision,
    Delete,
    EventNote,
    ObjectRef,
    Patch,
    RecordEvents,
)
from koord.contracts.results import Result
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.executor import _peek_id
from koord.gateway.following import Following
from koord.gateway.session import Session
from koord.gateway.settings import GatewaySettings
from koord.kube.resources import ELASTIC_QUOTAS, EVENTS, PODS, QUEUE_UNITS
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, LimitSet, Member, NodeSeen, Observation
from koord.localcluster.servers import RedisServer
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans
from tests.gateway.conftest import Kube, until

_ids = itertools.count(1)


class Bed:
    def __init__(self, bus: Bus, kube: Kube, scheduler: Ledger, owner: dict[str, Any]) -> None:
        self.bus = bus
        self.owner = owner
        self.kube = kube
        self.ledger = scheduler
        self.publishers = {name: DecisionPublisher(bus, name) for name in ("scheduler", "queue", "quota")}
        self.trace = TraceContext.new()

    async def settle(self, service: str, decision: Decision) -> Result:
        return await self.publishers[service].settle(decision, self.trace, timeout=60)

    async def raw(self, service: str, kind: str, body: bytes) -> Result:
        """Publish bytes as they are, and wait for whatever is answered."""
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        subscription = self.bus.subscribe_raw(
            self.bus.subjects.results_of(service), lambda subject, reply, headers, data: heard.put_nowait(data)
        )
        await self.bus.publish_acked(
            self.bus.subjects.decision(service, kind), body, ("traceparent", self.trace.traceparent)
        )
        result = decode(Result, await asyncio.wait_for(heard.get(), 10))
        self.bus.unsubscribe_raw(subscription)
        return result

    async def waiting(self) -> int:
        return (await self.bus.js.stream_info(self.bus.subjects.decisions_stream)).state.messages

    def unit_body(self, name: str) -> dict[str, Any]:
        return {
            "apiVersion": QUEUE_UNITS.api_version,
            "kind": "QueueUnit",
            "metadata": {"name": name, "ownerReferences": [self.owner]},
            "spec": {"resource": {"cpu": "2"}},
        }

    async def unit(self, name: str) -> dict[str, Any]:
        body = json.dumps(self.unit_body(name)).encode()
        result = await self.settle(
            "queue", Create(new_id(), QUEUE_UNITS.token, self.kube.namespace, name, body, self.owner["uid"])
        )
        assert result.outcome == "done", result
        found = await self.kube.get(QUEUE_UNITS.path(self.kube.namespace, name))
        assert found is not None
        return found

    async def claim_unit(self, unit: dict[str, Any]) -> ClaimRef:
        meta = unit["metadata"]
        takes = unit_takes({"cpu": 2000}, ("q",))
        request = ClaimRequest(new_id(), (Member(meta["uid"], meta["namespace"], meta["name"], "", takes),))
        answer = (await self.ledger.claim([request]))[0]
        assert answer.status == "ok", answer
        return ClaimRef(request.id, answer.token, answer.epoch)


async def owner_in(kube: Kube) -> dict[str, Any]:
    """A reference to a job that is there: what nobody owns any more is collected."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    made = await kube.call("create", f"/apis/batch/v1/namespaces/{kube.namespace}/jobs", body)
    return {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": made["metadata"]["uid"]}


def new_id() -> str:
    return f"t-{next(_ids)}"


@pytest.fixture
async def bed(
    nats_url: str, redis_url: str, cluster: str, access: ApiAccess, api: Api, kube: Kube
) -> AsyncIterator[Bed]:
    async with leading(nats_url, redis_url, cluster, access, api, kube) as made:
        yield made


@asynccontextmanager
async def leading(
    nats_url: str, redis_url: str, cluster: str, access: ApiAccess, api: Api, kube: Kube
) -> AsyncIterator[Bed]:
    bus = await Bus.connect(nats_url, cluster, "test")
    ledgers = [await Ledger.connect(redis_url, cluster, name, lease_s=3600.0) for name in ("s", "g", "r")]
    epoch = await ledgers[2].lead("reconciler")
    limits: list[Observation] = [
        NodeSeen("node/n1", {"cpu": 8000, "pods": 110}, "1"),
        LimitSet("admitted/q", {"cpu": 4000}),
    ]
    await ledgers[2].observe(limits, role_epoch=epoch)
    await ledgers[2].open(epoch)
    for ledger in ledgers:
        await ledger.status()
    lost = asyncio.Event()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=access.ssl or False)) as http:
        following = Following(bus, access, http)
        await following.start()
        session = Session(bus, ledgers[1], api, following, Spans(), GatewaySettings())
        running = asyncio.create_task(session.run(lost))
        yield Bed(bus, kube, ledgers[0], await owner_in(kube))
        lost.set()
        await asyncio.wait_for(running, 60)
        await following.stop()
    for ledger in ledgers:
        await ledger.close()
    await bus.close()


async def test_a_bind_decision_reaches_the_api_and_comes_back_as_state(bed: Bed) -> None:
    cache = StateCache(bed.bus, PODS, msgspec.Raw)
    await cache.start()
    pod = await bed.kube.pod("a")
    uid = pod["metadata"]["uid"]
    takes = pod_takes({"cpu": 1000}, "n1", (), unit_owned=True)
    request = ClaimRequest(new_id(), (Member(uid, bed.kube.namespace, "a", "n1", takes),))
    answer = (await bed.ledger.claim([request]))[0]
    claim = ClaimRef(request.id, answer.token, answer.epoch)
    decision = Bind(request.id, claim, [BindMember(uid, bed.kube.namespace, "a", "n1")])
    result = await bed.settle("scheduler", decision)
    assert result.outcome == "done", result
    key = f"{bed.kube.namespace}/a"
    await until(lambda: key in cache.items and b'"nodeName":"n1"' in bytes(cache.items[key]), "the bound pod as state")
    # Once more: answered from memory.
    assert await bed.settle("scheduler", decision) == result
    await until(lambda: _empty(bed), "everything acknowledged")
    await cache.close()


async def _empty(bed: Bed) -> bool:
    return await bed.waiting() == 0


async def test_create_patch_and_delete(bed: Bed) -> None:
    unit = await bed.unit("u")
    target = ObjectRef(QUEUE_UNITS.token, bed.kube.namespace, "u", uid=unit["metadata"]["uid"])
    patched = await bed.settle(
        "queue", Patch(new_id(), target, b'{"status":{"phase":"Enqueued"}}', subresource="status")
    )
    assert patched.outcome == "done"
    found = await bed.kube.get(QUEUE_UNITS.path(bed.kube.namespace, "u"))
    assert found is not None
    assert (found["status"]["phase"], found["metadata"]["resourceVersion"]) == ("Enqueued", patched.resource_version)
    stale = msgspec.structs.replace(target, resource_version=unit["metadata"]["resourceVersion"])
    conflict = await bed.settle("queue", Patch(new_id(), stale, b'{"metadata":{"labels":{"a":"b"}}}'))
    assert (conflict.outcome, "resourceVersion is" in conflict.reason) == ("conflict", True)
    other = msgspec.structs.replace(target, uid="another")
    assert (await bed.settle("queue", Delete(new_id(), other))).outcome == "gone"
    assert (await bed.settle("queue", Delete(new_id(), target))).outcome == "done"
    gone = await bed.settle("queue", Patch(new_id(), target, b'{"metadata":{"labels":{"a":"b"}}}'))
    assert (gone.outcome, "u" in gone.reason) == ("gone", True)
    assert (await bed.settle("queue", Delete(new_id(), target))).outcome == "gone"


async def test_create_again_is_done_for_the_same_owner_and_a_conflict_for_another(bed: Bed) -> None:
    await bed.unit("u")
    body = json.dumps(bed.unit_body("u")).encode()
    again = Create(new_id(), QUEUE_UNITS.token, bed.kube.namespace, "u", body, bed.owner["uid"])
    assert (await bed.settle("queue", again)).outcome == "done"
    foreign = Create(new_id(), QUEUE_UNITS.token, bed.kube.namespace, "u", body, "somebody-else")
    assert (await bed.settle("queue", foreign)).outcome == "conflict"


async def test_a_generated_name_comes_from_the_decision(bed: Bed) -> None:
    body = bed.unit_body("x")
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "gen-"
    decision = Create(new_id(), QUEUE_UNITS.token, bed.kube.namespace, "", json.dumps(body).encode(), bed.owner["uid"])
    assert (await bed.settle("queue", decision)).outcome == "done"
    listing = await bed.kube.get(QUEUE_UNITS.path(bed.kube.namespace))
    assert listing is not None
    names = [item["metadata"]["name"] for item in listing["items"]]
    assert len(names) == 1 and names[0].startswith("gen-")


async def test_an_admission_advances_its_claim_first(bed: Bed) -> None:
    unit = await bed.unit("u")
    claim = await bed.claim_unit(unit)
    uid = unit["metadata"]["uid"]
    target = ObjectRef(QUEUE_UNITS.token, bed.kube.namespace, "u", uid=uid)
    body = b'{"status":{"admissions":[{"name":"main","replicas":1}]}}'
    decision = Patch(new_id(), target, body, subresource="status", claim=claim)
    assert (await bed.settle("queue", decision)).outcome == "done"
    record = await bed.ledger.record(uid)
    assert record is not None and (record.state, record.decision) == ("BINDING", decision.id)
    # A claim that was given back admits nothing.
    void = Patch(new_id(), target, body, subresource="status", claim=ClaimRef("s-0", 7, claim.epoch))
    assert (await bed.settle("queue", void)).outcome == "done"  # what it asks for is there already
    other = msgspec.structs.replace(void, id=new_id(), body=b'{"status":{"phase":"Dequeued"}}')
    result = await bed.settle("queue", other)
    assert (result.outcome, result.reason) == ("rejected", "claim gone")


async def test_a_refused_admission_gives_the_room_back(bed: Bed) -> None:
    unit = await bed.unit("u")
    claim = await bed.claim_unit(unit)
    meta = unit["metadata"]
    path = QUEUE_UNITS.path(bed.kube.namespace, "u")
    await bed.kube.call("patch", path, {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
    target = ObjectRef(QUEUE_UNITS.token, bed.kube.namespace, "u", meta["uid"], meta["resourceVersion"])
    decision = Patch(new_id(), target, b'{"status":{"phase":"Dequeued"}}', subresource="status", claim=claim)
    assert (await bed.settle("queue", decision)).outcome == "conflict"
    assert await bed.ledger.record(meta["uid"]) is None
    assert (await bed.ledger.items("admitted/q"))["admitted/q"].held.get("cpu", 0) == 0


async def test_events_are_aggregated(bed: Bed) -> None:
    pod = await bed.kube.pod("a")
    target = ObjectRef(PODS.token, bed.kube.namespace, "a", pod["metadata"]["uid"])
    note = EventNote(target, "Pod", "v1", "Warning", "FailedScheduling", "0/1 nodes are available", controller="koord")
    publisher = bed.publishers["scheduler"]
    for _ in range(3):
        await publisher.publish(RecordEvents(new_id(), [note, note]), bed.trace)

    async def events() -> Any:
        listing = await bed.kube.get(EVENTS.path(bed.kube.namespace))
        assert listing is not None
        return listing["items"]

    await until(lambda: _total(events), "six notes in one event")
    found = await events()
    assert len(found) == 1
    assert found[0]["involvedObject"]["uid"] == pod["metadata"]["uid"]
    assert (found[0]["reason"], found[0]["message"]) == ("FailedScheduling", "0/1 nodes are available")


async def _total(events: Any) -> bool:
    return bool(sum(event["count"] for event in await events()) == 6)


async def test_a_service_may_not_ask_for_what_is_not_its_own(bed: Bed) -> None:
    pod = await bed.kube.pod("a")
    uid = pod["metadata"]["uid"]
    result = await bed.settle(
        "queue", Bind(new_id(), ClaimRef("c", 1, 1), [BindMember(uid, bed.kube.namespace, "a", "n1")])
    )
    assert (result.outcome, result.reason) == ("rejected", "not allowed: queue may not bind pods")
    target = ObjectRef(ELASTIC_QUOTAS.token, bed.kube.namespace, "q")
    result = await bed.settle("scheduler", Patch(new_id(), target, b"{}"))
    assert result.reason.startswith("not allowed: scheduler may not patch elasticquotas_scheduling_sigs_k8s_io")
    result = await bed.settle("queue", Patch(new_id(), ObjectRef("gizmos_example_org", "x", "y"), b"{}"))
    assert result.reason.startswith("unknown resource: 'gizmos_example_org'")
    assert await bed.kube.get_pod("a") == pod
    await until(lambda: _empty(bed), "nothing stays in the queue")


@pytest.mark.parametrize("body", [b"[]", b"{", b"7", b'{"metadata":[]}'])
async def test_a_patch_body_that_is_none_is_named(bed: Bed, body: bytes) -> None:
    unit = await bed.unit("u")
    target = ObjectRef(QUEUE_UNITS.token, bed.kube.namespace, "u", uid=unit["metadata"]["uid"])
    result = await bed.settle("queue", Patch(new_id(), target, body))
    assert result.outcome == "rejected"
    assert result.reason.startswith(f"invalid: queueunits_scheduling_x-k8s_io {bed.kube.namespace}/u: body:")


async def test_a_create_body_for_something_else_is_refused(bed: Bed) -> None:
    body = {**bed.unit_body("u"), "kind": "Queue"}
    result = await bed.settle(
        "queue", Create(new_id(), QUEUE_UNITS.token, bed.kube.namespace, "u", json.dumps(body).encode())
    )
    assert (result.outcome, "body.kind: 'Queue' is not 'QueueUnit'" in result.reason) == ("rejected", True)
    body = bed.unit_body("u")
    body["metadata"]["namespace"] = "kube-system"
    result = await bed.settle(
        "queue", Create(new_id(), QUEUE_UNITS.token, bed.kube.namespace, "u", json.dumps(body).encode())
    )
    assert (result.outcome, "metadata.namespace" in result.reason) == ("rejected", True)


async def test_truncated_messages_are_answered_and_ended(bed: Bed) -> None:
    target = ObjectRef(QUEUE_UNITS.token, bed.kube.namespace, "u", uid="u")
    body = encode(Patch("cut-1", target, b"{}"))
    for length in (len(body) - 1, len(body) // 2):
        result = await bed.raw("queue", "patch", body[:length])
        assert (result.id, result.outcome) == ("cut-1", "rejected")
        assert "decision.queue.patch" in result.reason and "truncated" in result.reason
    result = await bed.raw("queue", "patch", b"\x00nonsense")
    assert (result.id, result.outcome) == ("unreadable", "rejected")
    await until(lambda: _empty(bed), "nothing stays in the queue")
    assert (await bed.unit("after"))["metadata"]["name"] == "after"


async def test_without_the_ledger_nothing_is_bound_and_old_claims_are_void_after_it(
    nats_url: str, own_redis: RedisServer, cluster: str, access: ApiAccess, api: Api, kube: Kube
) -> None:
    async with leading(nats_url, own_redis.url, cluster, access, api, kube) as bed:
        pod = await kube.pod("a")
        uid = pod["metadata"]["uid"]
        takes = pod_takes({"cpu": 1000}, "n1", (), unit_owned=True)
        request = ClaimRequest(new_id(), (Member(uid, kube.namespace, "a", "n1", takes),))
        answer = (await bed.ledger.claim([request]))[0]
        await bed.unit("first")  # the gateway leads
        await own_redis.kill()
        claim = ClaimRef(request.id, answer.token, answer.epoch)
        decision = Bind(request.id, claim, [BindMember(uid, kube.namespace, "a", "n1")])
        settling = asyncio.create_task(bed.settle("scheduler", decision))
        # What needs no room goes on.
        await bed.unit("u")
        await own_redis.restart(empty=True)
        assert not settling.done()
        async with await Ledger.connect(own_redis.url, cluster, "r2") as reconciler:
            epoch = await reconciler.lead("reconciler")
            await reconciler.begin(epoch, at_least=answer.epoch + 1)
            await reconciler.open(epoch)
        result = await settling
        assert (result.outcome, result.members[0].reason.startswith("claim gone")) == ("rejected", True)
        assert await kube.get_pod("a") == pod


@given(st.binary(max_size=80))
def test_no_bytes_make_reading_an_id_fail(body: bytes) -> None:
    assert _peek_id(body)


@given(st.text(min_size=1, max_size=60), st.integers(min_value=0))
def test_the_id_of_a_truncated_decision_is_found_unless_it_is_cut_itself(id_: str, cut: int) -> None:
    body = encode(Patch(id_, ObjectRef(PODS.token, "ns", "a"), b"{}"))
    # The id's own place: right after its key, whatever else of the message holds the same letters.
    at = body.index(id_.encode(), body.index(b"\xa2id") + 3) + len(id_.encode())
    keep = at + cut % (len(body) - at)
    assert _peek_id(body[:keep]) == id_
