"""A cluster of a test's own: real NATS and Redis, an embedded API, and each service started and killed by itself.

A service runs in the test's process, so that it can be killed at a point and not only at a time: :attr:`Bed.request`
stands before and after the gateway's requests, :attr:`Bed.advance` around its advances.

With ``CONFORMANCE=real`` the API is a real kube-apiserver, one for all tests (:mod:`tests.failures.conftest`) and
without controllers, so that what changes there is the test's doing; each test begins with it emptied.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import aiohttp

from koord.accounting.takes import Take, pod_takes
from koord.bus.connection import Bus
from koord.bus.decisions import DecisionPublisher
from koord.bus.questions import ask
from koord.bus.streams import ensure_streams
from koord.cli import crds
from koord.cli.api import connect
from koord.contracts.asks import BarrierRaised, BindingsSettled, RaiseBarrier, SettleBindings
from koord.contracts.decisions import Bind, BindMember, ClaimRef
from koord.gateway.access import ApiAccess
from koord.gateway.api import Api
from koord.gateway.following import Following
from koord.gateway.foreign import ForeignBindings
from koord.gateway.guarantees import Guarantees
from koord.gateway.kubeconfig import load_access
from koord.gateway.leanclient import LeanClient, Response
from koord.gateway.session import Session
from koord.gateway.settings import GatewaySettings
from koord.ledger.client import Ledger
from koord.ledger.model import Advance, AdvanceAnswer, ClaimRequest, Member, Record
from koord.localcluster.api.cluster import Cluster
from koord.localcluster.api.inprocess import InProcessApi
from koord.localcluster.api.server import ApiServer, load_crds
from koord.localcluster.clusterapi import ClusterApi, Object
from koord.reconciler.hints import Hints
from koord.reconciler.settings import ReconcilerSettings
from koord.reconciler.term import Term
from koord.reconciler.world import World
from koord.runtime.ending import end
from koord.scheduler.service import SchedulerService
from koord.telemetry.context import TraceContext
from koord.telemetry.spans import Spans
from tests.scheduler.outside import scheduler

NAMESPACE = "default"
REAL_KUBECONFIG: list[Path] = []
"""That of the real API server, if tests have one."""
FAST = ReconcilerSettings(sweep_s=0.05, binding_s=0.4)
GANG = "gang.scheduling.koordinator.sh/"

_numbers = itertools.count(1)

Around = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Does something around a call, which it may make, or never make."""


async def untouched(call: Callable[[], Awaitable[Any]]) -> Any:
    """Only the call."""
    return await call()


class _Wire:
    """In the place of the gateway's lean client: Bindings pass :attr:`Bed.request`."""

    def __init__(self, bed: "Bed") -> None:
        self._bed = bed

    def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json", *, lane: int = 0
    ) -> "asyncio.Future[Response]":
        bed = self._bed

        is_binding = method == "POST" and path.endswith("/binding")
        sent = _without_preconditions(body) if is_binding and bed.guarantees is not None else body

        async def answer() -> Response:
            def send() -> Awaitable[Response]:
                return bed.client.request(method, path, sent, content_type, lane=lane)

            if not is_binding:
                return await send()
            bed.bindings.append(path.split("/")[-2])
            found: Response = await bed.request(send)
            return found

        return asyncio.ensure_future(answer())


def _without_preconditions(body: bytes) -> bytes:
    """What a server of before Kubernetes 1.23 reads of a Binding."""
    binding = json.loads(body)
    for field in ("uid", "resourceVersion"):
        binding["metadata"].pop(field, None)
    return json.dumps(binding).encode()


class _GatewayLedger(Ledger):
    """The gateway's: advances pass :attr:`Bed.advance`."""

    bed: "Bed"

    async def advance(self, items: Sequence[Advance], role_epoch: int) -> list[AdvanceAnswer]:
        call = super().advance
        answers: list[AdvanceAnswer] = await self.bed.advance(lambda: call(items, role_epoch))
        return answers


class Bed:
    """Services by name: ``start`` and ``kill``; what users do; what is there."""

    def __init__(self, urls: tuple[str, str], cluster: str, api: ClusterApi, access: ApiAccess, bus: Bus) -> None:
        self.nats_url, self.redis_url = urls
        self.cluster = cluster
        self.api = api
        self.access = access
        self.bus = bus
        self.client = LeanClient(access, connections=8, timeout_s=10)
        # Notes of another test's cluster would tell of decisions that are lost.
        self.settings = GatewaySettings(lease_namespace=f"koord-system-{cluster}")
        self.request: Around = untouched
        self.advance: Around = untouched
        self.stands = asyncio.Event()
        self.guarantees: Guarantees | None = None
        """Those of a server that ignores preconditions of Bindings, and then it does; None: it honours them."""
        self.foreign: ForeignBindings | None = None
        """The running gateway's, or the last one's."""
        self.bindings: list[str] = []
        """Names of the pods for which a Binding was sent."""
        self.publisher = DecisionPublisher(bus, "scheduler")
        self.ledger: Ledger
        self._lives: dict[str, AsyncExitStack] = {}
        self._killed = asyncio.Event()

    # Services -------------------------------------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        """Start what is named: ``gateway``, ``reconciler``."""
        for name in names:
            assert name not in self._lives, f"{name} runs"
            stack = self._lives[name] = AsyncExitStack()
            await (self._gateway if name == "gateway" else self._reconciler)(stack)

    async def kill(self, *names: str) -> None:
        """End what is named at once; nothing of it goes on, and nobody hears of it again."""
        for name in names:
            killed, self._killed = self._killed, asyncio.Event()
            killed.set()
            await self._lives.pop(name).aclose()
        self.request = self.advance = untouched

    async def stand(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """In place of :attr:`request` or :attr:`advance`: the call is never made, until its maker is killed."""
        killed = self._killed
        self.stands.set()
        await killed.wait()
        raise asyncio.CancelledError

    async def made_and_stand(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The call is made, its answer never heard."""
        await call()
        return await self.stand(call)

    async def close(self) -> None:
        await self.kill(*list(self._lives))
        self.publisher.close()
        await self.client.close()

    async def _gateway(self, stack: AsyncExitStack) -> None:
        ledger = await stack.enter_async_context(
            await _GatewayLedger.connect(self.redis_url, self.cluster, f"g{next(_numbers)}")
        )
        ledger.bed = self
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.access.ssl or False))
        )
        bus = await Bus.connect(self.nats_url, self.cluster, "gateway")
        following = Following(bus, self.access, http)
        await following.start()
        stack.push_async_callback(following.stop)
        api = Api(_Wire(self), self.access, patience_s=5.0)  # type: ignore[arg-type]
        self.foreign = foreign = ForeignBindings(api, ledger)
        stack.push_async_callback(foreign.close)
        session = Session(
            bus, ledger, api, following, Spans(), self.settings, guarantees=self.guarantees, foreign=foreign
        )
        task = asyncio.create_task(session.run(asyncio.Event()))
        stack.push_async_callback(end, task)
        # First of all its connection: what it would still say of its decisions is not heard.
        stack.push_async_callback(bus.close)

    async def _reconciler(self, stack: AsyncExitStack) -> None:
        ledger = await stack.enter_async_context(
            await Ledger.connect(self.redis_url, self.cluster, f"r{next(_numbers)}")
        )
        world = World(self.bus, Spans())
        await asyncio.wait_for(world.start(lambda token: None), 60)
        stack.push_async_callback(world.close)

        async def settle(question: SettleBindings) -> BindingsSettled:
            return await ask(self.bus, "gateway", "settle", question, BindingsSettled, timeout=5)

        async def barrier(question: RaiseBarrier) -> BarrierRaised:
            return await ask(self.bus, "gateway", "barrier", question, BarrierRaised, timeout=5)

        epoch = await ledger.lead("reconciler")
        term = Term(ledger, world, Hints(self.bus), settle, barrier, epoch, FAST, lambda is_open: None)
        task = asyncio.create_task(term.run())
        stack.push_async_callback(end, task)

    @asynccontextmanager
    async def scheduling(self) -> AsyncIterator[SchedulerService]:
        """A scheduler that runs meanwhile."""
        async with scheduler(self.nats_url, self.redis_url, self.cluster) as service:
            yield service

    async def opened(self) -> None:
        """Wait until the ledger can be claimed from."""

        async def is_open() -> bool:
            return (await self.ledger.status()).open

        await until(is_open, "the ledger is open")

    # A scheduler that dies ------------------------------------------------------------------------------------------

    async def claim(self, node: str, *pods: Object, by: Ledger | None = None) -> Bind:
        """Claim room for pods as one Strict claim, and answer the decision that spends it; nobody publishes it."""
        ledger = by or self.ledger
        members = tuple(
            Member(pod["metadata"]["uid"], NAMESPACE, pod["metadata"]["name"], node, takes(node)) for pod in pods
        )
        request = ClaimRequest(f"{ledger.incarnation}-{next(_numbers)}", members)
        [answer] = await ledger.claim([request])
        assert answer.status == "ok", answer
        claim = ClaimRef(request.id, answer.token, answer.epoch)
        return Bind(
            request.id, claim, [BindMember(one.uid, one.namespace, one.name, one.node) for one in request.members]
        )

    @asynccontextmanager
    async def mortal(self, lease_s: float) -> AsyncIterator[Ledger]:
        """The ledger of a scheduler whose leases are over soon, because it renews none."""
        async with await Ledger.connect(self.redis_url, self.cluster, f"dead{next(_numbers)}", lease_s=lease_s) as one:
            await one.status()
            yield one

    async def publish(self, bind: Bind) -> None:
        await self.publisher.publish(bind, TraceContext.new())

    # What users and the cluster do ----------------------------------------------------------------------------------

    async def node(self, name: str, cpu: int) -> None:
        allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}
        await self.api.create("nodes", None, body)

    async def pod(
        self,
        name: str,
        *,
        gang: tuple[str, int] | None = None,
        labels: dict[str, str] | None = None,
        scheduler: str = "koord-scheduler",
    ) -> Object:
        """A pod of 1 cpu; ``gang``: name and minimum of its Strict gang."""
        annotations = {GANG + "name": gang[0], GANG + "min-available": str(gang[1])} if gang is not None else {}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations, "labels": labels or {}},
            "spec": {"schedulerName": scheduler, "containers": [container]},
        }
        made: Object = json.loads(await self.api.create("pods", NAMESPACE, body))
        return made

    async def bind_foreign(self, name: str, node: str) -> None:
        """Another scheduler binds a pod."""
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding"
        answer = await self.client.request("POST", path, json.dumps(body).encode())
        assert answer.status < 300, answer

    async def delete(self, resource: str, name: str) -> None:
        namespace = None if resource == "nodes" else NAMESPACE
        await self.api.delete(resource, namespace, name, grace_period_seconds=0)

    # What is there --------------------------------------------------------------------------------------------------

    async def nodes_of(self, *names: str) -> list[str]:
        """Where the API shows these pods; empty for one that waits."""
        return [(await self.api.get("pods", NAMESPACE, name))["spec"].get("nodeName", "") for name in names]

    async def bound(self, *names: str, to: str | None = None, within: float = 60.0) -> None:
        """Wait until these pods are bound (to a node)."""

        async def all_bound() -> bool:
            nodes = await self.nodes_of(*names)
            return all(nodes) if to is None else set(nodes) == {to}

        await until(all_bound, f"{names} are bound to {to or 'any node'}", within)

    async def states(self, *pods: Object) -> list[str]:
        """The states of these pods' records; ``-`` for none."""
        records: list[Record | None] = [await self.ledger.record(pod["metadata"]["uid"]) for pod in pods]
        return [record.state if record is not None else "-" for record in records]

    async def become(self, state: str, *pods: Object) -> None:
        """Wait until all records are in a state."""

        async def there() -> bool:
            return set(await self.states(*pods)) == {state}

        await until(there, f"records are {state}")

    async def amounts(self, node: str) -> tuple[int, int]:
        """Milli-cpu used and held of a node."""
        item = (await self.ledger.items_named([f"node/{node}"])).get(f"node/{node}")
        return (item.used.get("cpu", 0), item.held.get("cpu", 0)) if item is not None else (0, 0)

    async def amounts_become(self, node: str, used: int, held: int) -> None:
        async def there() -> bool:
            return await self.amounts(node) == (used, held)

        await until(there, f"{node}: used {used}, held {held}")


def takes(node: str) -> tuple[Take, ...]:
    """What each pod of these tests takes."""
    return pod_takes({"cpu": 1000}, node, (), unit_owned=False)


async def until(condition: Callable[[], Awaitable[bool]], what: str, timeout: float = 60.0) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + timeout
    while not await condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def made(nats_url: str, redis_url: str, cluster: str, folder: Path) -> AsyncIterator[Bed]:
    """A bed on which nothing runs yet but the servers."""
    serving = _real(REAL_KUBECONFIG[0]) if REAL_KUBECONFIG else _embedded(folder)
    async with serving as (api, access), await Bus.connect(nats_url, cluster, "test") as bus:
        await ensure_streams(bus)
        bed = Bed((nats_url, redis_url), cluster, api, access, bus)
        async with await Ledger.connect(redis_url, cluster, f"t{next(_numbers)}", lease_s=3600.0) as bed.ledger:
            try:
                yield bed
            finally:
                await bed.close()


@asynccontextmanager
async def _embedded(folder: Path) -> AsyncIterator[tuple[ClusterApi, ApiAccess]]:
    """An API server of the test's own, in its process."""
    state = Cluster()
    with as_file(files("koord.kube") / "crds") as folder_of_crds:
        load_crds(state, [folder_of_crds])
    server = ApiServer(state, folder)
    ready = await server.start()
    try:
        yield InProcessApi(server.cluster), await load_access(ready.kubeconfig)
    finally:
        await server.stop()


@asynccontextmanager
async def _real(kubeconfig: Path) -> AsyncIterator[tuple[ClusterApi, ApiAccess]]:
    """The real API server of all tests, with nothing in it of the one before."""
    async with await connect(str(kubeconfig)) as api:
        await crds.install(api, await crds.missing(api))
        await _empty(api)
        yield api, await load_access(str(kubeconfig))


async def _empty(api: ClusterApi) -> None:
    for resource in ("pods", "events", "nodes", "elasticquotas.scheduling.sigs.k8s.io"):
        items, _ = await api.list(resource)
        for item in items:
            meta = item["metadata"]
            await api.delete(resource, meta.get("namespace"), meta["name"], grace_period_seconds=0)
        assert not (await api.list(resource))[0]
