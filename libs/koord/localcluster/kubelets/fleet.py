"""All fake kubelets in one: follows nodes and bound pods, keeps the time, writes statuses.

State lives in the API; a fleet that starts anew takes up pods where their status says they are. What is to be done next
to a pod follows from its stage (`book.py`) when the write is made, so a late timer does no harm.
"""

import asyncio
import math
import time
from typing import Any

import msgspec

from koord.accounting.requests import amounts
from koord.kube import meta
from koord.kube.nodes import Node
from koord.kube.quantity import QuantityError
from koord.localcluster.clusterapi import ApiError, ClusterApi, Object, WatchEvents
from koord.localcluster.following import Key, follow
from koord.localcluster.kubelets.book import PodBook
from koord.localcluster.kubelets.leases import NodeLeases
from koord.localcluster.kubelets.machine import finished_status, rejected_status, running_status, stamp
from koord.localcluster.kubelets.nodes import FAKE_NODE, Room, conditions, host_ip, node_object, room_of
from koord.localcluster.kubelets.options import KubeletOptions
from koord.localcluster.kubelets.podgc import PodCollector
from koord.localcluster.kubelets.state import Kubelet, Run, Stage
from koord.localcluster.recording import EventRecorder, Subject
from koord.localcluster.working import Workers
from koord.telemetry.logs import get_logger

_log = get_logger(__name__)

WRITERS = 8
_RETRY_S = 1.0


class Fleet:
    """The fake kubelets of one cluster; at most `writers` of their writes are under way at a time."""

    def __init__(self, api: ClusterApi, options: KubeletOptions, writers: int = WRITERS) -> None:
        self.options = options
        self._writers = writers
        self._api = api
        self._events = EventRecorder(api, "kubelet")
        self._kubelets: dict[str, Kubelet] = {}
        self._book = PodBook(self._kubelets, options, self._at, self._tell)
        self._workers: Workers[Run | Kubelet] = Workers("kubelets", self._handle, writers)
        self._tasks: list[asyncio.Task[Any]] = []
        self._asides: set[asyncio.Task[None]] = set()
        self._synced = asyncio.Event()
        self._nodes_synced = asyncio.Event()
        # Addresses are not handed back; a new fleet begins elsewhere so that its first pods share none with the old.
        self._next_ip = int(time.time()) * 64
        self.transitions = 0

    async def start(self) -> None:
        """Register the nodes (those that exist are kept) and take over the pods bound to them."""
        await self._register()
        self._tasks = [
            asyncio.create_task(self._follow_nodes(), name="kubelets: nodes"),
            asyncio.create_task(self._follow_pods(), name="kubelets: pods"),
            *self._workers.tasks(),
        ]
        if self.options.gc_delay_s > 0:
            collector = PodCollector(self._api, self._book, self.options.gc_delay_s)
            self._tasks.append(asyncio.create_task(collector.run(), name="kubelets: pod collector"))
        if self.options.lease_s > 0:
            leases = NodeLeases(self._api, self._kubelets.values, self.options.lease_s)
            self._tasks.append(asyncio.create_task(self._keep_leases(leases), name="kubelets: leases"))
        synced = asyncio.create_task(self._synced.wait())
        done, _ = await asyncio.wait({synced, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        if synced not in done:
            synced.cancel()
            await self.stop()
            raise next(error for task in done if (error := task.exception()) is not None)

    async def stop(self) -> None:
        """Stop; nodes and pods stay as they are."""
        tasks = [*self._tasks, *self._asides]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._tasks = []

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """The running tasks; one that ends is a defect of ours."""
        return self._tasks

    def counts(self) -> dict[str, int]:
        """How many nodes and pods, pods by stage."""
        counts = {"nodes": sum(kubelet.alive for kubelet in self._kubelets.values()), "pods": len(self._book.runs)}
        for stage in Stage:
            counts[stage.name.lower()] = 0
        for run in self._book.runs.values():
            counts[run.stage.name.lower()] += 1
        return counts

    # Nodes --------------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        numbers = iter(range(1, self.options.nodes + 1))

        async def some() -> None:
            for number in numbers:
                try:
                    await self._api.create("nodes", None, node_object(number, self.options, time.time()))
                except ApiError as error:
                    if error.code != 409:
                        raise
                if number % 32 == 0:
                    await asyncio.sleep(0)

        await asyncio.gather(*(some() for _ in range(self._writers)))

    async def _keep_leases(self, leases: NodeLeases) -> None:
        await self._nodes_synced.wait()
        await leases.run()

    async def _follow_nodes(self) -> None:
        await follow(
            self._api,
            "nodes",
            on_events=self._on_nodes,
            on_complete=self._on_all_nodes,
            label_selector=f"{FAKE_NODE}=true",
        )

    def _on_nodes(self, events: WatchEvents) -> None:
        now = time.time()
        for event in events:
            if event.type == "DELETED":
                self._retire(event.name)
            elif event.type != "BOOKMARK":
                try:
                    node = meta.decode(Node, event.raw)
                    status = node.status
                    allocatable = amounts(status.allocatable)
                except (msgspec.ValidationError, QuantityError) as error:
                    _log.warning("node not understood", node=event.name, error=str(error))
                    continue
                kubelet = self._kubelets.get(event.name)
                if kubelet is None:
                    kubelet = Kubelet(event.name, len(self._kubelets) + 1, Room(allocatable), now)
                    self._kubelets[event.name] = kubelet
                else:
                    kubelet.room.allocatable = allocatable
                kubelet.uid = node.metadata.uid
                if not kubelet.alive:
                    self._come_alive(kubelet, now)
                    if not status.allocatable or all(condition.type != "Ready" for condition in status.conditions):
                        self._introduce(kubelet, sized=bool(status.allocatable))

    def _introduce(self, kubelet: Kubelet, *, sized: bool) -> None:
        """A node that somebody else created is ready at once, with the usual room if it names none."""
        status: Object = {"conditions": conditions(kubelet.since_s, kubelet.since_s)}
        if not sized:
            status |= {"capacity": room_of(self.options), "allocatable": room_of(self.options)}
        task = asyncio.create_task(self._write_node(kubelet, status))
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    def _come_alive(self, kubelet: Kubelet, now: float) -> None:
        kubelet.alive = True
        kubelet.since_s = now
        # First heartbeats are spread evenly over the period (golden ratio); from then on each keeps its phase.
        kubelet.beat_s = now + (kubelet.number * 0.6180339887 % 1.0) * self.options.heartbeat_s
        self._workers.at(kubelet.beat_s, kubelet)
        self._book.take_orphans(kubelet, now)

    def _retire(self, name: str) -> None:
        kubelet = self._kubelets.get(name)
        if kubelet is not None:
            kubelet.alive = False

    def _on_all_nodes(self, seen: set[Key]) -> None:
        for name in self._kubelets:
            if ("", name) not in seen:
                self._retire(name)
        self._nodes_synced.set()

    # Pods ---------------------------------------------------------------------------------------------------------

    async def _follow_pods(self) -> None:
        await self._nodes_synced.wait()
        await follow(
            self._api,
            "pods",
            on_events=lambda events: self._book.on_events(events, time.time()),
            on_complete=self._on_all_pods,
            field_selector="spec.nodeName!=",
        )

    def _on_all_pods(self, seen: set[Key]) -> None:
        self._book.on_complete(seen, time.time())
        self._synced.set()

    def _tell(self, run: Run, problems: tuple[str, ...]) -> None:
        subject = Subject("v1", "Pod", run.namespace, run.name, run.uid)
        task = asyncio.create_task(
            self._events.record(subject, "Warning", "InvalidFakeAnnotation", "; ".join(problems))
        )
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    # Time and writing ---------------------------------------------------------------------------------------------

    def _at(self, run: Run, due_s: float) -> None:
        run.due_s = due_s
        self._workers.at(due_s, run)

    async def _handle(self, item: Run | Kubelet) -> None:
        if isinstance(item, Kubelet):
            await self._beat(item)
        elif not item.busy:
            # A pod in another worker's hands is looked at again by that worker, which sees its new stage.
            item.busy = True
            try:
                await self._advance(item)
            finally:
                item.busy = False

    async def _advance(self, run: Run) -> None:
        """Make the writes that are due by the pod's stage."""
        while self._book.runs.get((run.namespace, run.name)) is run and run.stage is not Stage.ENDED:
            now = time.time()
            # The wheel rounds up and floats round down: a timer may look a hair early.
            if run.due_s > now + 0.001:
                return
            stage = run.stage
            try:
                await self._carry_out(run, stage, now)
            except ApiError as error:
                if error.code == 404 or (error.code == 409 and stage is Stage.STOPPING):
                    return  # gone, or another pod has its name now; the watch tells the rest
                _log.warning("pod status not written", pod=f"{run.namespace}/{run.name}", error=error.message)
                self._at(run, now + _RETRY_S)
                return
            except OSError as error:
                _log.warning("pod status not written", pod=f"{run.namespace}/{run.name}", error=str(error))
                self._at(run, now + _RETRY_S)
                return
            self.transitions += 1
            if stage is Stage.STOPPING:
                return

    async def _carry_out(self, run: Run, stage: Stage, now: float) -> None:
        text = stamp(now)
        if stage is Stage.STOPPING:
            await self._api.delete("pods", run.namespace, run.name, uid=run.uid, grace_period_seconds=0)
            return
        if stage is Stage.STARTING:
            # The same again if the answer was lost: addresses are merged, and a pod has one of each family.
            run.ip = run.ip or self._address()
            patch = running_status(
                run.containers,
                uid=run.uid,
                pod_ip=run.ip,
                host_ip=host_ip(run.kubelet.number),
                started=stamp(run.started_s),
                now=text,
            )
        elif stage is Stage.REJECTED:
            assert run.shortage is not None
            patch = rejected_status(run.shortage, text)
        else:
            patch = finished_status(
                run.containers,
                uid=run.uid,
                succeeded=run.plan.succeeds,
                started=stamp(run.started_s),
                now=text,
            )
        await self._api.patch("pods", run.namespace, run.name, patch, kind="strategic", subresource="status")
        if run.stage is not stage:
            return  # deleted meanwhile
        if stage is Stage.STARTING:
            run.stage = Stage.RUNNING
            run.started_s = now
            run.due_s = math.inf
            if run.plan.run_s is not None:
                self._at(run, now + run.plan.run_s)
        else:
            run.stage = Stage.ENDED
            run.release()

    def _address(self) -> str:
        self._next_ip = number = (self._next_ip + 1) & 0x3FFFFF
        return f"10.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"

    async def _beat(self, kubelet: Kubelet) -> None:
        now = time.time()
        if not kubelet.alive or kubelet.beat_s > now + 1.0:
            return  # gone, or come back meanwhile with a timer of its own
        await self._write_node(kubelet, {"conditions": conditions(now, kubelet.since_s)})
        kubelet.beat_s = max(kubelet.beat_s + self.options.heartbeat_s, now)
        self._workers.at(kubelet.beat_s, kubelet)

    async def _write_node(self, kubelet: Kubelet, status: Object) -> None:
        try:
            await self._api.patch(
                "nodes", None, kubelet.name, {"status": status}, kind="strategic", subresource="status"
            )
        except (ApiError, OSError) as error:
            _log.warning("status of the node not written", node=kubelet.name, error=str(error))
