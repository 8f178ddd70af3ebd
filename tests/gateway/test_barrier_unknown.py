"""A ledger that is lost together with what told of the requests under way: none of them succeeds behind the rebuild.

The decisions' stream, or the notes in the Lease, or both are gone. Whatever is unbound is settled, so a request of
before is refused whenever it comes; it is waited for only if an object cannot be settled.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
import pytest

from koord.bus.decisions import DecisionPublisher
from koord.contracts.decisions import ClaimRef, Decision, ObjectRef, Patch
from koord.gateway import barrier, unbound
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.leanclient import Response
from koord.gateway.ledgerlease import LEASE
from koord.gateway.settings import GatewaySettings
from koord.gateway.settling import SETTLED
from koord.gateway.unbound import settle_unbound
from koord.kube.resources import LEASES, PODS, QUEUE_UNITS
from koord.ledger.model import LedgerUnavailable, LimitSet
from koord.localcluster.servers import NatsServer, RedisServer
from koord.runtime.ending import end
from koord.telemetry.context import TraceContext
from tests.gateway.conftest import Kube, until
from tests.gateway.test_barrier import API_TIMEOUT_S, Cluster, OnServers
from tests.gateway.test_lost_decisions import Wire
from tests.gateway.underway import HoldingWire, UnderWay

TOO_LONG_S = 600.0
"""Whoever waits for requests that take so long does not open the ledger in time."""
Lost = Literal["stream", "Lease", "stream and Lease"]


@pytest.fixture
async def made(
    own_nats: NatsServer, own_redis: RedisServer, cluster: str, access: ApiAccess, kube: Kube
) -> AsyncIterator[Cluster]:
    async with OnServers(own_nats.url, own_redis, cluster, access, kube) as made:
        yield made


async def die_with(made: Cluster, decision: Decision, service: str, ending: str) -> UnderWay:
    """The gateway dies with the request of this decision under way."""
    plain = made.wire
    await made.kill_gateway()
    made.wire = holding = HoldingWire(plain.client, ending)
    await made.follow_gateway()
    publisher = DecisionPublisher(made.bus, service)
    sending = asyncio.create_task(publisher.settle(decision, TraceContext.new(), timeout=TOO_LONG_S))
    await asyncio.wait_for(holding.under_way.reached.wait(), 30)
    await made.kill_gateway()
    await end(sending)
    made.wire = plain
    return holding.under_way


async def lose(made: Cluster, nats: NatsServer, lost: Lost) -> None:
    await nats.kill()
    await made.redis.kill()
    await nats.restart(empty="stream" in lost)
    await made.redis.restart(empty=True)
    if "Lease" in lost:
        await made.kube.call("delete", LEASES.path(made.kube.namespace, LEASE))
    await until(lambda: made.bus.connected, "the bus", 30)


async def claimed(made: Cluster, pod: dict[str, Any]) -> ClaimRef | None:
    try:
        return await made.claim(pod)
    except LedgerUnavailable:
        return None


def settings(made: Cluster, api_timeout_s: float) -> None:
    made.settings = GatewaySettings(lease_namespace=made.kube.namespace, api_timeout_s=api_timeout_s)


@pytest.mark.parametrize("lost", ["stream", "Lease", "stream and Lease"])
async def test_a_binding_under_way_is_refused_and_not_waited_for(
    made: Cluster, own_nats: NatsServer, lost: Lost
) -> None:
    first, second = [await made.kube.pod(name) for name in ("a", "b")]
    assert (await made.bind(first, await made.claim(first))).outcome == "done"
    decision, before = made.decision(second, await made.claim(second)), await made.opened()
    late = await die_with(made, decision, "scheduler", "/b/binding")
    await lose(made, own_nats, lost)
    settings(made, TOO_LONG_S)
    await made.follow_gateway()
    await made.opened(before)
    assert await late.arrive() == 409
    assert await made.shown("b") == ("", True)
    await made.is_right()
    if "stream" in lost:  # else the decision is still in the queue
        claim = await until(lambda: claimed(made, second), "the scheduler to be connected again")
        assert (await made.bind(second, claim)).outcome == "done"
        await until(lambda: made.is_((2000, 0)), "it to be seen")


async def test_an_admission_under_way_is_refused_and_not_waited_for(made: Cluster, own_nats: NatsServer) -> None:
    limit = [LimitSet("admitted/q", {"cpu": 4000})]
    await made.scheduler.observe(limit, role="quota", role_epoch=await made.scheduler.lead("quota"))
    unit = await made.unit("u")
    claim, before = await made.claim_unit(unit), await made.opened()
    body = {"status": {"phase": "Reserved", "admissions": [{"name": "main", "replicas": 1}]}}
    meta = unit["metadata"]
    target = ObjectRef(QUEUE_UNITS.token, meta["namespace"], meta["name"], meta["uid"])
    patch = Patch(claim.claim, target, json.dumps(body).encode(), subresource="status", claim=claim)
    late = await die_with(made, patch, "queue", "/u/status")
    await lose(made, own_nats, "stream and Lease")
    settings(made, TOO_LONG_S)
    await made.follow_gateway()
    await made.opened(before)
    assert await late.arrive() == 409
    shown = await made.kube.get(QUEUE_UNITS.path(made.kube.namespace, "u"))
    assert shown is not None and not shown.get("status", {}).get("admissions")


async def test_who_has_led_for_long_does_not_know_either(made: Cluster, own_nats: NatsServer) -> None:
    """The stream is lost, much later the ledger: who was stopped goes on at any time, its decision is nowhere."""
    settings(made, 0.05)
    first, second = [await made.kube.pod(name) for name in ("a", "b")]
    decision, before = made.decision(second, await made.claim(second)), await made.opened()
    late = await die_with(made, decision, "scheduler", "/b/binding")
    await own_nats.kill()
    await own_nats.restart(empty=True)
    await until(lambda: made.bus.connected, "the bus", 30)
    await made.follow_gateway()
    claim = await until(lambda: claimed(made, first), "the scheduler to be connected", 30)
    assert (await made.bind(first, claim)).outcome == "done"
    led_since = time.monotonic()
    await until(lambda: time.monotonic() > led_since + 0.2, "a term longer than a request")
    await made.lose_redis()
    await made.opened(before)
    assert await late.arrive() == 409
    assert await made.shown("b") == ("", True)
    await made.is_right()


async def test_a_server_that_stands_still_outlives_nothing(
    made: Cluster, own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole wait passes while the API server works on nothing: what is in its socket is carried out afterwards."""
    monkeypatch.setattr(barrier, "_AWAY_S", 0.1)
    settings(made, 0.3)
    pod = await made.kube.pod("b")
    decision, before = made.decision(pod, await made.claim(pod)), await made.opened()
    late = await die_with(made, decision, "scheduler", "/b/binding")
    plain, thawed = made.wire, asyncio.Event()
    frozen_s: list[float] = []

    class Frozen(Wire):
        async def _answer(self, method: str, path: str, body: bytes, content_type: str, lane: int) -> Response:
            if method == "PATCH" and path.endswith("/pods/b") and not frozen_s:
                frozen_s.append(time.monotonic())
            if frozen_s:
                await thawed.wait()
            return await super()._answer(method, path, body, content_type, lane)

    await lose(made, own_nats, "stream and Lease")
    made.wire = Frozen(plain.client)
    await made.follow_gateway()
    await until(lambda: frozen_s and time.monotonic() > frozen_s[0] + 1.0, "the server to stand still for long", 60)
    thawed.set()
    await made.opened(before)
    assert await late.arrive() == 409
    await made.is_right()


async def test_what_cannot_be_settled_is_waited_for(made: Cluster, own_nats: NatsServer) -> None:
    pod = await made.kube.pod("b")
    decision, before = made.decision(pod, await made.claim(pod)), await made.opened()
    late = await die_with(made, decision, "scheduler", "/b/binding")
    plain, refused = made.wire, asyncio.Event()
    arrived: list[int] = []

    async def arrives() -> None:
        """Within the time that the API server works on a request."""
        await refused.wait()
        await asyncio.sleep(API_TIMEOUT_S / 3)
        arrived.append(await late.arrive())

    class Refusing(Wire):
        async def _answer(self, method: str, path: str, body: bytes, content_type: str, lane: int) -> Response:
            if method == "PATCH" and path.endswith("/pods/b"):
                refused.set()
                return Response(403, b'{"message":"no"}', 0.0)
            return await super()._answer(method, path, body, content_type, lane)

    await lose(made, own_nats, "stream and Lease")
    made.wire = Refusing(plain.client)
    arriving = asyncio.create_task(arrives())
    await made.follow_gateway()
    await made.opened(before)
    await arriving
    await made.is_right()
    assert arrived == [201] and await made.record(pod) == ("OBSERVED", "")


async def test_only_what_can_still_be_written_is_settled(api: Api, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unbound, "PAGE", 2)
    await kube.node(f"n-{kube.namespace}")
    for name in ("a", "b", "c", "bound", "over", "ends"):
        await kube.pod(name, finalizers=["koord.test/kept"] if name == "ends" else [])
    pods = PODS.path(kube.namespace)
    await kube.call("create", f"{pods}/bound/binding", {"target": {"name": f"n-{kube.namespace}"}})
    merge = "application/merge-patch+json"
    await kube.call("patch", f"{pods}/over/status", {"status": {"phase": "Failed"}}, merge)
    await kube.call("delete", f"{pods}/ends")
    containers = [{"name": "c", "image": "i"}]
    spec = {"schedulerName": "koord-scheduler", "schedulingGates": [{"name": "x/y"}], "containers": containers}
    await kube.call("create", pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"}, "spec": spec})
    for name, status in (("open", {}), ("admitted", {"admissions": [{"name": "main", "replicas": 1}]})):
        body = {"apiVersion": QUEUE_UNITS.api_version, "kind": "QueueUnit", "metadata": {"name": name}, "spec": {}}
        await kube.call("create", QUEUE_UNITS.path(kube.namespace), body)
        await kube.call("patch", QUEUE_UNITS.path(kube.namespace, name, "status"), {"status": status}, merge)

    count, refused = await settle_unbound(api)
    assert count >= 4 and refused == []  # the server may have others' objects
    settled = set()
    for resource in (PODS, QUEUE_UNITS):
        listing = await kube.get(resource.path(kube.namespace))
        assert listing is not None
        settled |= {
            item["metadata"]["name"] for item in listing["items"] if SETTLED in item["metadata"].get("annotations", {})
        }
    assert settled == {"a", "b", "c", "open"}
    await kube.call("patch", f"{pods}/ends", {"metadata": {"finalizers": []}}, merge)


async def test_a_list_that_breaks_is_begun_again(api: Api, kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that ran out, a server that is away: what was settled is not settled again."""
    monkeypatch.setattr(unbound, "PAGE", 1)
    for name in ("a", "b", "c"):
        await kube.pod(name)
    patched: list[str] = []

    class Breaking:
        broken = 0

        async def call(self, verb: Any, path: str, *arguments: Any, **named: Any) -> Response:
            if "continue=" in path and self.broken < 2:
                self.broken += 1
                return Response(410, msgspec.json.encode({"message": "too old"}), 0.0)
            if verb == "patch":
                patched.append(path)
            return await api.call(verb, path, *arguments, **named)

    breaking = Breaking()
    told: list[tuple[int, int]] = []
    settled, refused = await settle_unbound(breaking, lambda done, of: told.append((done, of)))  # type: ignore[arg-type]
    assert (breaking.broken, refused) == (2, [])
    assert settled >= 3 and told == [(done + 1, settled) for done in range(settled)], "how far it is"
    assert len(patched) == len(set(patched)) and {PODS.path(kube.namespace, name) for name in "abc"} <= set(patched)
