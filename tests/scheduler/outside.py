"""The world around a scheduler in tests: publishes state, folds it into the ledger, executes binds. Real servers."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from koord.accounting.quotas import QuotaTree
from koord.accounting.requests import amounts, pod_request
from koord.accounting.slots import host_ports, pod_slots
from koord.accounting.takes import pod_takes
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionConsumer, Delivery
from koord.bus.statepublisher import StatePublisher
from koord.contracts.codec import encode
from koord.contracts.decisions import Bind, Delete, EventNote, Evict, Patch, RecordEvents
from koord.contracts.ledger import LedgerHint
from koord.contracts.results import MemberResult, Result
from koord.kube.meta import now_rfc3339
from koord.kube.pods import Pod
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import ELASTIC_QUOTAS, NODES, POD_GROUPS, PODS, WATCHED
from koord.ledger.client import Ledger
from koord.ledger.model import Advance, ItemClosed, LimitSet, NodeSeen, ObserveAnswer, PodGone, PodSeen, Release
from koord.ledger.observations import PodNominated, PodTerminating
from koord.runtime.host import Host
from koord.runtime.settings import CommonSettings
from koord.scheduler.service import SPEC, SchedulerService
from koord.scheduler.settings import SchedulerSettings
from koord.telemetry.setup import Telemetry
from koord.telemetry.spans import Spans


async def until(condition: Callable[[], Any], what: str, timeout: float = 60.0) -> None:
    """Poll ``condition`` until it holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        await asyncio.sleep(0.01)


class Outside:
    """API server, gateway and reconciler in one."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        self.bus = bus
        self.ledger = ledger
        self.publisher = StatePublisher(bus)
        self.pods: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.phases: list[tuple[str, str]] = []
        self.conflicts = 0
        self.binds: list[Bind] = []
        self.bound: dict[str, str] = {}
        self.events: list[EventNote] = []
        self.patches: list[Patch] = []
        self.evictions: list[Evict] = []
        self.deletions: list[Delete] = []
        self.graceful = False
        """Whether deleted pods that have a node take their time (until :meth:`delete`)."""
        self.refuse_eviction: Callable[[Evict], bool] = lambda evict: False
        self.traces: list[str] = []
        self.decide: Callable[[Bind], str] = lambda bind: "bind"
        self.tree = QuotaTree()
        self._version = 0
        self._consumer = DecisionConsumer(bus)
        self._task: asyncio.Task[None] | None = None
        self._gateway = 0
        self._reconciler = 0

    async def start(self) -> None:
        await self.publisher.start()
        self._reconciler = await self.ledger.lead("reconciler")
        self._gateway = await self.ledger.lead("gateway")
        await self.ledger.begin(self._reconciler)
        await self.ledger.open(self._reconciler)
        await self._consumer.start()
        self._task = asyncio.create_task(self._run())

    async def close_ledger(self) -> None:
        await self.ledger.begin(self._reconciler)

    async def open_ledger(self) -> None:
        for body in self.pods.values():
            await self.observe(msgspec.json.encode(body), self.version())
        await self.ledger.open(self._reconciler)

    async def sweep(self) -> None:
        """End the claims whose lease is over, and say so."""
        answer = await self.ledger.sweep(self._reconciler)
        if answer.freed:
            hint = LedgerHint("expired", list(answer.freed))
            await self.bus.publish(self.bus.subjects.ledger("claim.expired"), encode(hint))

    async def listed(self) -> None:
        for resource in WATCHED:
            await self.publisher.listed(resource, "1")

    async def stop(self) -> None:
        await self._consumer.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    # State ----------------------------------------------------------------------------------------------------------

    def version(self) -> str:
        self._version += 1
        return str(self._version)

    async def node(
        self,
        name: str,
        *,
        cpu: str = "4",
        memory: str = "16Gi",
        pods: str = "110",
        more: Mapping[str, str] | None = None,
        **meta: Any,
    ) -> None:
        """A node, new or changed; ``more`` of its allocatable."""
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **(more or {})}
        body = {"metadata": {"name": name, "uid": f"uid-{name}", **meta}, "status": {"allocatable": allocatable}}
        version = self.version()
        seen = NodeSeen(f"node/{name}", amounts(allocatable), version)
        await self.ledger.observe([seen], role_epoch=self._reconciler)
        await self.publisher.publish(NODES, "ADDED", "", name, version, msgspec.json.encode(body))

    async def node_gone(self, name: str) -> ObserveAnswer:
        """The node is deleted; what that ended is told as the reconciler tells it."""
        version = self.version()
        answer = await self.ledger.observe([ItemClosed(f"node/{name}", version)], role_epoch=self._reconciler)
        body = {"metadata": {"name": name, "uid": f"uid-{name}"}}
        await self.publisher.publish(NODES, "DELETED", "", name, version, msgspec.json.encode(body))
        uids = [uid for ended in answer.released for uid in ended.uids]
        hint = LedgerHint("released", list(answer.freed), uids, [ended.claim for ended in answer.released])
        await self.bus.publish(self.bus.subjects.ledger("claim.released"), encode(hint))
        return answer

    async def quota(self, name: str, limits: Mapping[str, str], parent: str = "") -> None:
        body = {
            "metadata": {
                "name": name,
                "namespace": "koordinator-system",
                "uid": f"uid-{name}",
                "labels": {"quota.scheduling.koordinator.sh/parent": parent} if parent else {},
            },
            "spec": {"max": dict(limits)},
        }
        raw = msgspec.json.encode(body)
        self.tree.set(msgspec.json.decode(raw, type=ElasticQuota))
        await self.ledger.observe([LimitSet(f"quota/{name}", amounts(limits))], role_epoch=self._reconciler)
        await self.publisher.publish(ELASTIC_QUOTAS, "ADDED", "koordinator-system", name, self.version(), raw)

    async def pod_group(
        self, name: str, minimum: int, namespace: str = "default", *, timeout_s: int | None = None, **gang: str
    ) -> None:
        """A PodGroup made anew, or with another spec; ``gang``: annotations by the last part of their key."""
        key = f"{namespace}/{name}"
        known = self.groups.get(key)
        meta = {"name": name, "namespace": namespace, "uid": f"pg-{name}-{self._version}"}
        body: dict[str, Any] = known or {"metadata": meta, "status": {}}
        body["metadata"]["annotations"] = {
            f"gang.scheduling.koordinator.sh/{part.replace('_', '-')}": value for part, value in gang.items()
        }
        body["spec"] = {"minMember": minimum}
        if timeout_s is not None:
            body["spec"]["scheduleTimeoutSeconds"] = timeout_s
        self.groups[key] = body
        await self._show_group(body, "MODIFIED" if known else "ADDED")

    async def delete_group(self, name: str, namespace: str = "default") -> None:
        await self._show_group(self.groups.pop(f"{namespace}/{name}"), "DELETED")

    async def _show_group(self, body: dict[str, Any], type_: Any) -> None:
        meta = body["metadata"]
        version = meta["resourceVersion"] = self.version()
        raw = msgspec.json.encode(body)
        await self.publisher.publish(POD_GROUPS, type_, meta["namespace"], meta["name"], version, raw)

    async def _patch_group(self, patch: Patch, trace: str) -> None:
        """As the gateway and the API server do: the version named must be the present one."""
        target = patch.target
        body = self.groups.get(f"{target.namespace}/{target.name}")
        if body is None or body["metadata"]["uid"] != target.uid:
            self._consumer.answer("scheduler", Result(patch.id, "gone"), trace)
        elif body["metadata"]["resourceVersion"] != target.resource_version:
            self.conflicts += 1
            self._consumer.answer("scheduler", Result(patch.id, "conflict", "resourceVersion"), trace)
        else:
            change = msgspec.json.decode(patch.body)
            assert set(change) == {"status"}, change
            body["status"].update(change["status"])
            self.phases.append((target.name, body["status"]["phase"]))
            await self._show_group(body, "MODIFIED")
            self._consumer.answer("scheduler", Result(patch.id, "done"), trace)

    def phase(self, name: str, namespace: str = "default") -> str:
        return str(self.groups[f"{namespace}/{name}"]["status"].get("phase", ""))

    async def run(self, name: str, phase: str = "Running", namespace: str = "default") -> None:
        """A bound pod's kubelet tells its phase."""
        body = self.pods[f"{namespace}/{name}"]
        body["status"]["phase"] = phase
        await self.show(body)

    async def pod(
        self,
        name: str,
        *,
        cpu: str = "1",
        memory: str = "1Gi",
        namespace: str = "default",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        owners: Sequence[str] = (),
        **spec: Any,
    ) -> str:
        uid = f"uid-{namespace}-{name}-{self._version}"
        body: dict[str, Any] = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "labels": dict(labels or {}),
                "annotations": dict(annotations or {}),
                "ownerReferences": [{"name": owner} for owner in owners],
                "creationTimestamp": now_rfc3339(time.time()),
            },
            "spec": {
                "schedulerName": "koord-scheduler",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
                **spec,
            },
            "status": {"phase": "Pending"},
        }
        self.pods[f"{namespace}/{name}"] = body
        await self.show(body, "ADDED")
        return uid

    async def show(self, body: dict[str, Any], type_: Any = "MODIFIED") -> None:
        """Publish a pod and fold it into the ledger."""
        meta = body["metadata"]
        version = meta["resourceVersion"] = self.version()
        raw = msgspec.json.encode(body)
        await self.observe(raw, version)
        await self.publisher.publish(PODS, type_, meta["namespace"], meta["name"], version, raw)

    async def observe(self, raw: bytes, version: str) -> None:
        pod = msgspec.json.decode(raw, type=Pod)
        meta = pod.metadata
        if pod.terminal:
            await self._hint([PodGone(meta.uid, meta.namespace, meta.name, version)])
        elif pod.spec.node_name:
            quota = self.tree.quota_of_pod(meta.labels, meta.namespace)
            chain = self.tree.chain(quota) if quota in self.tree else ()
            takes = pod_takes(pod_request(pod.spec), pod.spec.node_name, chain, unit_owned=False)
            node, ports = pod.spec.node_name, host_ports(pod.spec.containers, pod.spec.init_containers)
            claims = [v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim]
            slots = pod_slots(node, meta.namespace, ports, claims, meta.annotations)
            seen = PodSeen(meta.uid, meta.namespace, meta.name, node, takes, version, slots=slots)
            await self._hint([seen])

    async def delete(self, name: str, namespace: str = "default") -> None:
        body = self.pods.pop(f"{namespace}/{name}")
        meta = body["metadata"]
        version = self.version()
        await self._hint([PodGone(meta["uid"], namespace, name, version)])
        await self.publisher.publish(PODS, "DELETED", namespace, name, version, msgspec.json.encode(body))
        self.bound.pop(meta["uid"], None)

    async def _hint(self, observations: list[Any]) -> None:
        answer = await self.ledger.observe(observations, role_epoch=self._reconciler)
        if answer.freed:
            hint = LedgerHint("released", list(answer.freed))
            await self.bus.publish(self.bus.subjects.ledger("claim.released"), encode(hint))

    # Decisions ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        async for batch in self._consumer.batches():
            for delivery in batch:
                await self._execute(delivery)

    async def _execute(self, delivery: Delivery) -> None:
        decision = delivery.decision
        assert decision is not None, delivery.error
        trace = delivery.trace
        assert trace is not None, "every decision carries a trace"
        if isinstance(decision, RecordEvents):
            self.events.extend(decision.events)
        elif isinstance(decision, Patch) and decision.target.resource == POD_GROUPS.token:
            await self._patch_group(decision, trace.traceparent)
        elif isinstance(decision, Patch):
            self.patches.append(decision)
            await self._nominate(decision)
        elif isinstance(decision, Delete):
            await self._delete(decision, trace.traceparent)
        elif isinstance(decision, Bind):
            self.binds.append(decision)
            self.traces.append(trace.traceparent)
            await self._bind(decision, trace.traceparent)
        elif isinstance(decision, Evict):
            await self._evict(decision, trace.traceparent)
        delivery.ack()

    async def _nominate(self, patch: Patch) -> None:
        """A patch that says for which node a pod waits is shown, and that it has to go with its deletion; what else is
        patched nobody here reads."""
        status = msgspec.json.decode(patch.body).get("status", {})
        body = self.pods.get(f"{patch.target.namespace}/{patch.target.name}")
        told = [one for one in status.get("conditions", ()) if one["type"] == "DisruptionTarget"]
        if body is not None and body["metadata"]["uid"] == patch.target.uid and told:
            body["status"]["conditions"] = [*body["status"].get("conditions", ()), *told]
        if body is not None and body["metadata"]["uid"] == patch.target.uid and "nominatedNodeName" in status:
            node = body["status"]["nominatedNodeName"] = status["nominatedNodeName"] or ""
            pod = msgspec.convert(body, Pod)
            meta, priority = pod.metadata, pod.spec.priority or 0
            takes = pod_takes(pod_request(pod.spec), node, (), unit_owned=False) if node else ()
            await self._hint([PodNominated(meta.uid, meta.namespace, meta.name, node, takes, priority, self.version())])
            await self.show(body)

    async def _delete(self, deletion: Delete, trace: str) -> None:
        target = deletion.target
        body = self.pods.get(f"{target.namespace}/{target.name}")
        if body is None or body["metadata"]["uid"] != target.uid:
            self.deletions.append(deletion)
            self._consumer.answer("scheduler", Result(deletion.id, "gone"), trace)
            return
        if self.graceful and body["spec"].get("nodeName"):
            body["metadata"]["deletionTimestamp"] = now_rfc3339(time.time())
            await self._hint([PodTerminating(target.uid, target.namespace, target.name)])
            await self.show(body)
        else:
            await self.delete(target.name, target.namespace)
        self.deletions.append(deletion)
        self._consumer.answer("scheduler", Result(deletion.id, "done"), trace)

    async def _evict(self, evict: Evict, trace: str) -> None:
        self.evictions.append(evict)
        target = evict.target
        body = self.pods.get(f"{target.namespace}/{target.name}")
        if body is None or body["metadata"]["uid"] != target.uid:
            self._consumer.answer("scheduler", Result(evict.id, "gone"), trace)
        elif self.refuse_eviction(evict):
            self._consumer.answer("scheduler", Result(evict.id, "conflict", "disruption budget", 429), trace)
        else:
            await self.delete(target.name, target.namespace)
            self._consumer.answer("scheduler", Result(evict.id, "done"), trace)

    async def _bind(self, bind: Bind, trace: str) -> None:
        what = self.decide(bind)
        if what == "drop":
            return
        uids = tuple(member.uid for member in bind.members)
        ref = bind.claim
        [answer] = await self.ledger.advance(
            [Advance(ref.claim, ref.token, ref.epoch, bind.id, uids)], role_epoch=self._gateway
        )
        if answer.status != "ok":
            self._consumer.answer("scheduler", Result(bind.id, "rejected", f"claim gone: {answer.status}"), trace)
            return
        refused = what.removeprefix("all but ") if what.startswith("all but ") else ""
        if refused:
            [lost] = [member.uid for member in bind.members if member.name == refused]
            await self.ledger.release([Release(ref.claim, ref.token, (lost,), by="gateway", role_epoch=self._gateway)])
        elif what != "bind":
            release = Release(ref.claim, ref.token, uids, by="gateway", role_epoch=self._gateway)
            await self.ledger.release([release])
            members = [MemberResult(uid, "rejected", what) for uid in uids]
            self._consumer.answer("scheduler", Result(bind.id, "rejected", what, members=members), trace)
            return
        for member in bind.members:
            body = self.pods.get(f"{member.namespace}/{member.name}")
            if body is None or body["metadata"]["uid"] != member.uid or member.uid in answer.gone:
                continue
            if member.name == refused:
                continue
            assert member.uid not in self.bound, f"{member.name} bound twice"
            self.bound[member.uid] = member.node
            body["spec"]["nodeName"] = member.node
            body["metadata"]["annotations"].update(member.annotations)
            await self.show(body)
        if refused:
            outcomes = [
                MemberResult(member.uid, "rejected", "denied")
                if member.name == refused
                else MemberResult(member.uid, "done")
                for member in bind.members
            ]
            self._consumer.answer("scheduler", Result(bind.id, "rejected", "denied", members=outcomes), trace)
            return
        self._consumer.answer("scheduler", Result(bind.id, "done"), trace)

    # Reading --------------------------------------------------------------------------------------------------------

    def node_of(self, name: str, namespace: str = "default") -> str | None:
        body = self.pods.get(f"{namespace}/{name}")
        return None if body is None else body["spec"].get("nodeName")

    def told(self, name: str, reason: str = "FailedScheduling") -> list[str]:
        return [event.note for event in self.events if event.target.name == name and event.reason == reason]


@contextlib.asynccontextmanager
async def outside(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[Outside]:
    """A running outside world."""
    async with (
        await Bus.connect(nats_url, cluster, "outside") as bus,
        await Ledger.connect(redis_url, cluster, "outside") as ledger,
    ):
        world = Outside(bus, ledger)
        await world.start()
        try:
            yield world
        finally:
            await world.stop()


@contextlib.asynccontextmanager
async def scheduler(
    nats_url: str,
    redis_url: str,
    cluster: str,
    settings: SchedulerSettings | None = None,
    *,
    spans: Spans | None = None,
    scheduler_names: tuple[str, ...] = (),
) -> AsyncIterator[SchedulerService]:
    """A running scheduler service."""
    common = CommonSettings(cluster=cluster)
    if scheduler_names:
        common = msgspec.structs.replace(common, scheduler_names=scheduler_names)
    host = Host("scheduler", common, Telemetry(spans or Spans(enabled=False), None))
    host.attach(
        bus=await Bus.connect(nats_url, cluster, "scheduler"),
        ledger=await Ledger.connect(redis_url, cluster, host.incarnation),
    )
    service = SPEC.build(host, settings or SchedulerSettings())
    assert isinstance(service, SchedulerService)
    try:
        await service.start()
        await until(lambda: host.ready.ready, "the scheduler is ready")
        yield service
        if host.failed.done():
            host.failed.result()
    finally:
        await service.drain()
        await host.close()
