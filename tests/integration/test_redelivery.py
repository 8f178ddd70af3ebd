"""What is delivered twice is done once: gateways killed between write and acknowledgement, NATS and Redis lost.

The judge is the API's watch history: a pod's node is written once and never changes, the placed pods fit their nodes.
At rest the ledger must equal a recount of the objects, made here from the manifests and not by the code under test.
"""

import asyncio
import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from koord.bus.connection import Bus
from koord.cli.api import connect
from koord.cli.demo.history import History
from koord.kube.resources import PODS as PODS_RESOURCE
from koord.ledger.client import Ledger
from koord.ledger.model import LedgerUnavailable
from koord.localcluster.httpapi import HttpClusterApi
from tests.integration.conftest import Up

pytestmark = pytest.mark.slow

NODES = 7
CPU_MILLI = 500
ROOM = NODES * 32_000 // CPU_MILLI
PODS = ROOM + 32
"""More than there is room for: what is booked twice anywhere shows as one pod too many, or too few."""
STEP = 64
"""As many pods come at a time."""
MEMORY = 1 << 30
QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
GANG = "pod-group.scheduling.sigs.k8s.io"
GANG_SIZE = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("redelivery"), "--nodes", str(NODES))
    try:
        limit = {"cpu": "2000", "memory": "4000Gi"}
        version = "scheduling.sigs.k8s.io/v1alpha1"
        meta = {"name": "crowd", "namespace": "crowd"}
        quota = {"apiVersion": version, "kind": "ElasticQuota", "metadata": meta, "spec": {"min": {}, "max": limit}}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crowd"}}
        up.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, [space, quota])))
        yield up
    finally:
        up.stop()


@pytest.fixture
async def api(cluster: Up) -> AsyncIterator[HttpClusterApi]:
    async with await connect(str(cluster.kubeconfig)) as connected:
        yield connected
        await delete_all(connected)  # what a failed test left would fail the others, too


@pytest.fixture
async def ledger(cluster: Up) -> AsyncIterator[Ledger]:
    connected = await Ledger.connect(cluster.ready["redis"], cluster.ready["cluster"], "test-reader")
    yield connected
    await connected.close()


def pod(name: str, gang: str = "") -> dict[str, Any]:
    """A pod that runs until it is deleted."""
    requests = {"cpu": f"{CPU_MILLI}m", "memory": "1Gi"}
    container = {"name": "main", "image": "x/y:1", "resources": {"requests": requests}}
    labels = {QUOTA_LABEL: "crowd"}
    if gang:
        labels |= {f"{GANG}/name": gang, f"{GANG}/min-available": str(GANG_SIZE)}
    meta = {"name": name, "namespace": "crowd", "labels": labels}
    spec = {"schedulerName": "koord-scheduler", "restartPolicy": "Always", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def crowd(prefix: str, count: int) -> list[dict[str, Any]]:
    """Single pods and gangs of eight, half and half."""
    half = count // 2 // GANG_SIZE * GANG_SIZE
    gangs = [pod(f"{prefix}-g{number}", f"{prefix}-{number // GANG_SIZE}") for number in range(half)]
    return [pod(f"{prefix}-s{number}") for number in range(count - half)] + gangs


class Crowd:
    """Creates the pods of one prefix as they are let in.

    What is not created cannot be bound: a fault is sure to find binding unfinished, however fast the machine is.
    """

    def __init__(self, api: HttpClusterApi, prefix: str) -> None:
        self._api = api
        self._waiting = crowd(prefix, PODS)
        self._gate = asyncio.Semaphore(16)
        self._creating: list[asyncio.Task[None]] = []
        self.let_in = 0

    def up_to(self, count: int) -> None:
        """Begin to create what is missing of so many."""
        self._creating += [asyncio.create_task(self._create(one)) for one in self._waiting[self.let_in : count]]
        self.let_in = max(self.let_in, min(count, PODS))

    async def _create(self, manifest: dict[str, Any]) -> None:
        async with self._gate:
            await self._api.create("pods", "crowd", manifest)

    async def finish(self) -> None:
        self.up_to(PODS)
        await asyncio.gather(*self._creating)

    async def stop(self) -> None:
        """Create no more."""
        for task in self._creating:
            task.cancel()
        await asyncio.gather(*self._creating, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[Any]], what: str, seconds: float = 60) -> Any:
    deadline = asyncio.get_running_loop().time() + seconds
    while not (value := await condition()):
        if asyncio.get_running_loop().time() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        await asyncio.sleep(0.02)
    return value


class Binds:
    """Counts, as they happen, the pods of one prefix that have a node."""

    def __init__(self, api: HttpClusterApi) -> None:
        self._api = api
        self.history = History(api)
        self.bound: set[str] = set()
        self.history.listener = self._see

    def _see(self, change: Any) -> None:
        if change.resource == "pods" and change.type != "DELETED":
            item = json.loads(change.raw)
            if item["spec"].get("nodeName"):
                self.bound.add(item["metadata"]["name"])

    async def in_api(self) -> int:
        """How many pods have a node, by a list of this moment."""
        return sum(1 for item in (await self._api.list("pods", "crowd"))[0] if item["spec"].get("nodeName"))

    def waiting(self, count: int) -> Callable[[], Awaitable[bool]]:
        """Whether so many pods have no node in the API."""

        async def check() -> bool:
            pods, _ = await self._api.list("pods", "crowd")
            return sum(1 for item in pods if not item["spec"].get("nodeName")) >= count

        return check

    def reached(self, prefix: str, count: int) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            return sum(name.startswith(f"{prefix}-") for name in self.bound) >= count

        return check

    def judge(self, prefix: str) -> None:
        """Every bound pod has got one node, once; all room is taken, no node has more; no gang is there in part."""
        nodes: dict[str, list[str]] = defaultdict(list)
        room: dict[str, float] = {}
        for change in self.history.changes():
            item = json.loads(change.raw)
            name = item["metadata"]["name"]
            if change.resource == "nodes":
                room[name] = float(item["status"]["allocatable"]["cpu"]) * 1000
            elif change.resource == "pods" and (node := item["spec"].get("nodeName")) and node not in nodes[name][-1:]:
                nodes[name].append(node)
        assert self.history.gaps == 0
        nodes = {name: held for name, held in nodes.items() if name.startswith(f"{prefix}-")}
        assert {name: held for name, held in nodes.items() if len(held) != 1} == {}
        taken = Counter(held[0] for held in nodes.values())
        assert {node: count for node, count in taken.items() if count * CPU_MILLI != room[node]} == {}
        assert len(nodes) == ROOM
        gangs = Counter(int(name.partition("-g")[2]) // GANG_SIZE for name in nodes if "-g" in name)
        assert set(gangs.values()) <= {GANG_SIZE}, gangs


async def recount(api: HttpClusterApi) -> dict[str, dict[str, int]]:
    """What the ledger must hold, from the API's objects alone: every pod of this module takes the same."""
    pods, _ = await api.list("pods", "crowd")
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"cpu": 0, "memory": 0})
    for item in pods:
        node = item["spec"].get("nodeName")
        if node and item["status"].get("phase") not in ("Succeeded", "Failed"):
            for where in (f"node/{node}", "quota/crowd", "admitted/crowd"):
                found[where]["cpu"] += CPU_MILLI
                found[where]["memory"] += MEMORY
            found[f"node/{node}"]["pods"] = found[f"node/{node}"].get("pods", 0) + 1
    return dict(found)


async def at_rest(api: HttpClusterApi, ledger: Ledger) -> None:
    """No HELD and no BINDING record is left, and the sums equal the recount, item by item."""

    async def differences() -> dict[str, Any]:
        try:
            status, items = await ledger.status(), await ledger.items()
        except LedgerUnavailable as error:
            return {"ledger": str(error)}
        wanted = await recount(api)
        found: dict[str, Any] = {}
        if not status.open or status.held or status.binding:
            found["records"] = status
        for name in items.keys() | wanted.keys():
            item = items.get(name)
            used = {key: amount for key, amount in item.used.items() if amount} if item is not None else {}
            held = {key: amount for key, amount in item.held.items() if amount} if item is not None else {}
            if used != {key: amount for key, amount in wanted.get(name, {}).items() if amount} or held:
                found[name] = (used, held, wanted.get(name))
        return found

    last: dict[str, Any] = {}

    async def same() -> bool:
        nonlocal last
        last = await differences()
        return not last

    try:
        await until(same, "the ledger equals the objects", 60)
    except TimeoutError as error:
        raise AssertionError(f"the ledger differs from the objects: {list(last.items())[:3]}") from error


def pid_changed(up: Up, name: str, before: int) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return bool(up.ready["pids"].get(name, before) != before)

    return check


async def kill(up: Up, name: str) -> None:
    """SIGKILL, and wait until the supervisor has started it anew."""
    before = up.ready["pids"][name]
    up.kill(name)
    await until(pid_changed(up, name, before), f"{name} is started anew", 60)


async def delete_all(api: HttpClusterApi) -> None:
    pods, _ = await api.list("pods", "crowd")
    await asyncio.gather(*(api.delete("pods", "crowd", item["metadata"]["name"]) for item in pods))

    async def gone() -> bool:
        return not (await api.list("pods", "crowd"))[0]

    await until(gone, "the pods are gone")


async def clear(api: HttpClusterApi, ledger: Ledger) -> None:
    """Delete the pods: everything they held is free again, to the last byte."""
    await delete_all(api)
    await at_rest(api, ledger)
    assert (await ledger.status()).observed == 0


Fault = Callable[[Up, Binds, Crowd], Awaitable[None]]


def killing(name: str) -> Fault:
    async def fault(up: Up, binds: Binds, arriving: Crowd) -> None:
        arriving.up_to(arriving.let_in + STEP)
        await kill(up, name)

    return fault


async def kill_with_acknowledgements_unread(up: Up, binds: Binds, arriving: Crowd) -> None:
    """The gateway writes Bindings, NATS never reads their acknowledgements, and both die.

    The API server is stopped until the gateway has Bindings in hand, and NATS before it goes on: what is bound then is
    certainly written and not acknowledged when NATS comes back with its data.
    """
    pids = up.ready["pids"]
    api_server = up.plane.apiservers[0].pid if up.plane is not None else pids["apiserver"]
    assert api_server is not None and arriving.let_in < ROOM
    stopped: set[int] = set()

    def stop(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        stopped.add(pid)

    def go_on(pid: int) -> None:
        os.kill(pid, signal.SIGCONT)
        stopped.discard(pid)

    async with (
        await Ledger.connect(up.ready["redis"], up.ready["cluster"], "test-watcher") as ledger,
        await Bus.connect(up.ready["nats"], up.ready["cluster"], "test-watcher") as bus,
    ):
        try:
            await until(binds.reached("ack", arriving.let_in), "all that came is bound")
            await until(lambda: _under_way(ledger, False), "all of it is known to be bound")
            stop(pids["scheduler"])
            before = await binds.in_api()
            arriving.up_to(arriving.let_in + STEP)
            await until(lambda: _published(bus, arriving), "they can be decided on")
            stop(api_server)
            go_on(pids["scheduler"])
            await until(lambda: _under_way(ledger, True), "the gateway has Bindings in hand")
            stop(pids["nats-server"])
            go_on(api_server)

            async def grown() -> bool:
                return await binds.in_api() > before

            await until(grown, "the Bindings are written")
            os.kill(pids["gateway"], signal.SIGKILL)
            os.kill(pids["nats-server"], signal.SIGKILL)
        finally:
            for pid in stopped - {pids["nats-server"]}:
                os.kill(pid, signal.SIGCONT)
    await asyncio.gather(
        *(until(pid_changed(up, name, pids[name]), f"{name} is back", 60) for name in ("gateway", "nats-server"))
    )


async def _under_way(ledger: Ledger, wanted: bool) -> bool:
    """Whether a Binding may be under way, or none and no room is held for one."""
    status = await ledger.status()
    return status.binding > 0 if wanted else not status.held + status.binding


async def _published(bus: Bus, arriving: Crowd) -> bool:
    """Whether everything that was let in is in the state stream."""
    prefix = bus.subjects.state(PODS_RESOURCE.token, "crowd", "ack-")
    subjects = prefix.rpartition(".")[0] + ".*"
    info = await bus.js.stream_info(bus.subjects.state_stream, subjects_filter=subjects)
    return sum(name.startswith(prefix) for name in info.state.subjects or ()) >= arriving.let_in


async def run(up: Up, api: HttpClusterApi, ledger: Ledger, prefix: str, faults: list[tuple[int, Fault]]) -> None:
    """Create more pods than there is room for; when so many are bound, do that to the cluster; judge the end."""
    binds, arriving = Binds(api), Crowd(api, prefix)
    await binds.history.start()
    try:
        for count, fault in faults:
            arriving.up_to(count + STEP)
            await until(binds.reached(prefix, count), f"{count} pods of {prefix} are bound", 60)
            await fault(up, binds, arriving)
        await arriving.finish()
        await until(binds.reached(prefix, ROOM), f"all room is taken by {prefix}", 90)
        await at_rest(api, ledger)
        binds.judge(prefix)
    finally:
        await arriving.stop()
        await binds.history.stop()
    await clear(api, ledger)


def others(up: Up, *names: str) -> dict[str, int]:
    """The process ids of all but these."""
    return {name: pid for name, pid in up.ready["pids"].items() if name not in names}


async def test_gateway_killed_again_and_again_while_it_binds(cluster: Up, api: HttpClusterApi, ledger: Ledger) -> None:
    """Whatever was written and not acknowledged comes again and is recognised."""
    pids = others(cluster, "gateway")
    await run(cluster, api, ledger, "gw", [(count, killing("gateway")) for count in (20, 150, 300)])
    assert others(cluster, "gateway") == pids, "a service died of it"


async def test_gateway_killed_between_write_and_acknowledgement(
    cluster: Up, api: HttpClusterApi, ledger: Ledger
) -> None:
    pids = others(cluster, "gateway", "nats-server")
    await run(cluster, api, ledger, "ack", [(50, kill_with_acknowledgements_unread)])
    assert others(cluster, "gateway", "nats-server") == pids, "a service died of it"


async def test_nats_restarted_with_its_data(cluster: Up, api: HttpClusterApi, ledger: Ledger) -> None:
    pids = others(cluster, "nats-server")
    await run(cluster, api, ledger, "nats", [(100, killing("nats-server"))])
    assert others(cluster, "nats-server") == pids, "a service died of it"


async def test_redis_restarted_empty(cluster: Up, api: HttpClusterApi, ledger: Ledger) -> None:
    """The reconciler fills and opens the ledger anew; placement goes on; nothing is booked twice."""
    pids, epoch = others(cluster, "redis-server"), (await ledger.status()).epoch
    await run(cluster, api, ledger, "redis", [(100, killing("redis-server"))])
    assert (await ledger.status()).epoch > epoch
    assert others(cluster, "redis-server") == pids, "a service died of it"
