"""A small stand-in for API server, gateway and reconciler, against real NATS and Redis.

It holds objects as dicts, publishes every change on the state stream, executes decisions with their preconditions and
claims, and folds QueueUnits into the ledger. What it does not check (schemas, defaults) the real API is for.
"""

import asyncio
import contextlib
import itertools
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from koord.accounting.quotas import QuotaTree, QuotaTreeError
from koord.accounting.requests import amounts
from koord.accounting.takes import unit_takes
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, Delivery
from koord.bus.statepublisher import StatePublisher
from koord.contracts.codec import encode
from koord.contracts.decisions import Create, Decision, Delete, Evict, Patch, RecordEvents
from koord.contracts.ledger import LedgerHint
from koord.contracts.results import Outcome, Result
from koord.kube.meta import now_rfc3339
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import BY_TOKEN, ELASTIC_QUOTAS, QUEUE_UNITS, WATCHED, Resource
from koord.ledger.client import Ledger
from koord.ledger.model import Advance, LedgerUnavailable, Release, UnitGone, UnitSeen, UnitUnbound
from koord.localcluster.api.patches import json_patch, merge_patch
from koord.runtime.host import Host
from koord.runtime.settings import CommonSettings
from koord.telemetry.setup import Telemetry
from koord.telemetry.spans import Spans

Object = dict[str, Any]
PATIENCE_S = 60.0


async def until(condition: Callable[[], Any], what: str = "", timeout: float = PATIENCE_S) -> Any:
    """Poll until ``condition`` is truthy; its value."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or condition}")
        await asyncio.sleep(0.01)


class MiniCluster:
    """Objects, and who writes them."""

    def __init__(self, nats_url: str, redis_url: str, cluster: str) -> None:
        self.nats_url = nats_url
        self.redis_url = redis_url
        self.cluster = cluster
        self.objects: dict[tuple[str, str], Object] = {}
        self.events: list[tuple[str, str, str, str]] = []
        self.decisions: list[tuple[str, Decision]] = []
        self.untraced: list[str] = []
        self.refuse: Callable[[Decision], Outcome | None] = lambda decision: None
        self._versions = itertools.count(1)
        self._tasks: list[asyncio.Task[Any]] = []
        self._hosts: list[Host] = []

    async def start(self) -> None:
        self.bus = await Bus.connect(self.nats_url, self.cluster, "harness")
        self.publisher = StatePublisher(self.bus)
        await self.publisher.start()
        self.ledger = await Ledger.connect(self.redis_url, self.cluster, f"harness-{time.time_ns()}")
        self.gateway_epoch = await self.ledger.lead("gateway")
        self.reconciler_epoch = await self.ledger.lead("reconciler")
        await self.ledger.begin(self.reconciler_epoch)
        await self.ledger.open(self.reconciler_epoch)
        for resource in WATCHED:
            await self.publisher.listed(resource, "1")
        self.consumer = DecisionConsumer(self.bus)
        await self.consumer.start()
        self._tasks.append(asyncio.create_task(self._execute()))

    async def stop(self) -> None:
        for host in self._hosts:
            await host.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.consumer.close()
        await self.ledger.close()
        await self.bus.close()

    # Services -----------------------------------------------------------------------------------------------------

    async def host(self, name: str) -> Host:
        """Surroundings for one service, with its own connections."""
        common = CommonSettings(cluster=self.cluster)
        host = Host(name, common, Telemetry(Spans(), None))
        host.attach(bus=await Bus.connect(self.nats_url, self.cluster, name))
        host.attach(ledger=await Ledger.connect(self.redis_url, self.cluster, host.incarnation))
        self._hosts.append(host)
        return host

    async def kill(self, host: Host) -> None:
        """End a service without a goodbye."""
        self._hosts.remove(host)
        for task in list(host._tasks):
            task.cancel()
        await host.ledger.close()
        await host.bus.close()

    # The API ------------------------------------------------------------------------------------------------------

    def get(self, resource: Resource, key: str) -> Object | None:
        return self.objects.get((resource.token, key))

    def all(self, resource: Resource) -> list[Object]:
        return [found for (token, _), found in self.objects.items() if token == resource.token]

    async def put(self, resource: Resource, body: Object) -> Object:
        """Create or replace as a user would; status is kept unless given."""
        meta = body["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if resource.namespaced else meta["name"]
        old = self.objects.get((resource.token, key))
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        number = next(self._versions)
        full["metadata"] = {
            "uid": f"uid-{resource.plural}-{number}" if old is None else old["metadata"]["uid"],
            "creationTimestamp": now_rfc3339(time.time()) if old is None else old["metadata"]["creationTimestamp"],
            **meta,
            "resourceVersion": str(number),
        }
        return await self._store(resource, key, full, "ADDED" if old is None else "MODIFIED")

    async def edit(self, resource: Resource, key: str, patch: Object) -> Object:
        """A merge patch by somebody else."""
        old = self.objects[resource.token, key]
        new = merge_patch(old, patch)
        new["metadata"] = {**new["metadata"], "resourceVersion": str(next(self._versions))}
        return await self._store(resource, key, new, "MODIFIED")

    async def delete(self, resource: Resource, key: str) -> None:
        old = self.objects.pop((resource.token, key))
        namespace, _, name = key.rpartition("/")
        version = str(next(self._versions))
        await self.publisher.publish(resource, "DELETED", namespace, name, version, msgspec.json.encode(old))
        if resource is QUEUE_UNITS:
            await self._fold_unit(old, gone=True)

    async def _store(self, resource: Resource, key: str, body: Object, kind: Any) -> Object:
        self.objects[resource.token, key] = body
        namespace, _, name = key.rpartition("/")
        version = body["metadata"]["resourceVersion"]
        await self.publisher.publish(resource, kind, namespace, name, version, msgspec.json.encode(body))
        if resource is QUEUE_UNITS:
            await self._fold_unit(body, gone=False)
        return body

    # The gateway --------------------------------------------------------------------------------------------------

    async def _execute(self) -> None:
        async for batch in self.consumer.batches():
            for delivery in batch:
                try:
                    await self._one(delivery)
                except LedgerUnavailable:
                    delivery.nak(0.2)
                except Exception:
                    traceback.print_exc()  # a test that waits for this decision shows why it waits in vain
                    raise

    async def _one(self, delivery: Delivery) -> None:
        decision = delivery.decision
        assert decision is not None, delivery.error
        if delivery.trace is None:
            self.untraced.append(delivery.subject)
        self.decisions.append((delivery.service, decision))
        refused = self.refuse(decision)
        if refused is not None:
            result = Result(decision.id, refused, "refused by the test")
        elif isinstance(decision, RecordEvents):
            self.events += [
                (e.kind, f"{e.target.namespace}/{e.target.name}", e.reason, e.note) for e in decision.events
            ]
            result = Result(decision.id, "done")
        elif isinstance(decision, Create):
            result = await self._create(decision)
        elif isinstance(decision, Delete):
            result = await self._delete(decision)
        elif isinstance(decision, Patch):
            result = await self._patch(decision)
        elif isinstance(decision, Evict):
            result = await self._evict(decision)
        else:
            raise AssertionError(f"unexpected {decision}")
        self.consumer.answer(delivery.service, result, delivery.trace or "")
        delivery.ack()

    async def _create(self, decision: Create) -> Result:
        resource = BY_TOKEN[decision.resource]
        key = f"{decision.namespace}/{decision.name}" if decision.namespace else decision.name
        old = self.objects.get((resource.token, key))
        if old is not None:
            owners = [owner["uid"] for owner in old["metadata"].get("ownerReferences", [])]
            same = not decision.owner_uid or decision.owner_uid in owners
            return Result(decision.id, "done" if same else "conflict", "already exists", 409)
        made = await self.put(resource, msgspec.json.decode(decision.body))
        return Result(decision.id, "done", resource_version=made["metadata"]["resourceVersion"])

    async def _delete(self, decision: Delete) -> Result:
        target = decision.target
        key = f"{target.namespace}/{target.name}" if target.namespace else target.name
        old = self.objects.get((target.resource, key))
        if old is None or old["metadata"]["uid"] != target.uid:
            return Result(decision.id, "gone", code=404)
        await self.delete(BY_TOKEN[target.resource], key)
        return Result(decision.id, "done")

    async def _evict(self, decision: Evict) -> Result:
        key = f"{decision.target.namespace}/{decision.target.name}"
        old = self.objects.get((decision.target.resource, key))
        if old is None or old["metadata"]["uid"] != decision.target.uid:
            return Result(decision.id, "gone", code=404)
        await self.delete(BY_TOKEN[decision.target.resource], key)
        return Result(decision.id, "done")

    async def _patch(self, decision: Patch) -> Result:
        target = decision.target
        resource = BY_TOKEN[target.resource]
        key = f"{target.namespace}/{target.name}" if target.namespace else target.name
        old = self.objects.get((resource.token, key))
        if decision.claim is not None:
            claim = decision.claim
            advance = Advance(claim.claim, claim.token, claim.epoch, decision.id, (target.uid,))
            answer = (await self.ledger.advance([advance], self.gateway_epoch))[0]
            if answer.status != "ok" or answer.gone or answer.observed:
                return Result(decision.id, "rejected", "claim gone")
        result = await self._apply(decision, resource, key, old)
        if decision.claim is not None and result.outcome != "done":
            claim = decision.claim
            release = Release(claim.claim, claim.token, (target.uid,), by="gateway", role_epoch=self.gateway_epoch)
            freed = (await self.ledger.release([release]))[0]
            await self._hint(freed.items)
        return result

    async def _apply(self, decision: Patch, resource: Resource, key: str, old: Object | None) -> Result:
        target = decision.target
        if old is None or (target.uid and old["metadata"]["uid"] != target.uid):
            return Result(decision.id, "gone", code=404)
        if target.resource_version and old["metadata"]["resourceVersion"] != target.resource_version:
            return Result(decision.id, "conflict", "the object has been modified", 409)
        body = msgspec.json.decode(decision.body)
        new = json_patch(old, body) if decision.patch == "json" else merge_patch(old, body)
        if decision.subresource == "status":
            new = {**old, "status": new.get("status", {})}
        elif resource is not ELASTIC_QUOTAS:
            new = {**new, "status": old.get("status", {})}
        new["metadata"] = {**new["metadata"], "resourceVersion": str(next(self._versions))}
        await self._store(resource, key, new, "MODIFIED")
        return Result(decision.id, "done", resource_version=new["metadata"]["resourceVersion"])

    # The reconciler -----------------------------------------------------------------------------------------------

    def tree(self) -> QuotaTree:
        tree = QuotaTree()
        for body in self.all(ELASTIC_QUOTAS):
            with contextlib.suppress(ValueError):
                tree.set(msgspec.convert(body, ElasticQuota))
        return tree

    async def rebuild(self) -> None:
        """The ledger came back empty: fill it anew, as the reconciler does."""

        async def begun() -> bool:
            try:
                self.gateway_epoch = await self.ledger.lead("gateway")
                self.reconciler_epoch = await self.ledger.lead("reconciler")
                await self.ledger.begin(self.reconciler_epoch)
            except LedgerUnavailable:
                return False
            return True

        await until(begun, "the ledger answers")
        for body in self.all(QUEUE_UNITS):
            await self._fold_unit(body, gone=False)
        await self.ledger.open(self.reconciler_epoch)

    async def _fold_unit(self, body: Object, *, gone: bool) -> None:
        meta = body["metadata"]
        uid, namespace, name, version = meta["uid"], meta["namespace"], meta["name"], meta["resourceVersion"]
        status = body.get("status", {})
        if gone or status.get("phase") in ("Succeed", "Failed"):
            seen: Any = UnitGone(uid, namespace, name, "" if gone else version)
        elif status.get("admissions"):
            tree = self.tree()
            try:
                chain = tree.chain(tree.quota_of_unit(meta.get("labels", {}), namespace))
            except QuotaTreeError:
                chain = ()
            total = amounts(body["spec"].get("resource") or body["spec"].get("request") or {})
            seen = UnitSeen(uid, namespace, name, unit_takes(total, chain), version)
        else:
            seen = UnitUnbound(uid, namespace, name, version)
        try:
            answer = await self.ledger.observe([seen], role_epoch=self.reconciler_epoch)
        except LedgerUnavailable:
            return  # a later rebuild folds it
        if answer.status in ("closed", "epoch"):
            return  # empty after a restart: the rebuild that comes folds it
        assert answer.status == "ok", answer
        await self._hint(answer.freed)

    async def _hint(self, items: tuple[str, ...]) -> None:
        if items:
            await self.bus.publish(
                self.bus.subjects.ledger("claim.released"), encode(LedgerHint("released", list(items)))
            )


@contextlib.asynccontextmanager
async def running(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[MiniCluster]:
    """A started cluster."""
    mini = MiniCluster(nats_url, redis_url, cluster)
    await mini.start()
    try:
        yield mini
    finally:
        await mini.stop()


def node(name: str, cpu: str = "1000", **more: str) -> Object:
    """A node with room."""
    status = {"allocatable": {"cpu": cpu, **more}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def quota(name: str, cpu: str, parent: str = "", namespace: str = "quotas", **labels: str) -> Object:
    """An ElasticQuota with a max of ``cpu``."""
    keys = {"quota.scheduling.koordinator.sh/parent": parent} if parent else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {**keys, **labels}},
        "spec": {"max": {"cpu": cpu}},
    }


def tfjob(
    name: str, quota_name: str = "", workers: int = 2, cpu: str = "1", *, suspend: bool = True, **meta: Any
) -> Object:
    """A TFJob of ``workers`` pods."""
    labels = {"quota.scheduling.koordinator.sh/name": quota_name} if quota_name else {}
    container = {"name": "tensorflow", "image": "tf", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels, **meta},
        "spec": {
            "runPolicy": {"suspend": suspend},
            "tfReplicaSpecs": {"Worker": {"replicas": workers, "template": {"spec": {"containers": [container]}}}},
        },
    }


def batch_job(name: str, quota_name: str = "", pods: int = 1, cpu: str = "1", *, suspend: bool = True) -> Object:
    """A batch Job of ``pods`` pods."""
    labels = {"quota.scheduling.koordinator.sh/name": quota_name} if quota_name else {}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {
            "suspend": suspend,
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"containers": [container]}},
        },
    }
