"""What ``koord explain job`` reads on a real bus and a real API server, and whose silence it names."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koord.bus.connection import Bus
from koord.bus.directread import Stored, read_stored
from koord.bus.questions import serve
from koord.bus.statepublisher import StatePublisher
from koord.cli import state
from koord.cli.api import connect
from koord.cli.clusters import ClusterFile
from koord.cli.errors import CommandError
from koord.cli.jobreading import read
from koord.cli.state import Reader
from koord.contracts.asks import BindingsSettled, ExplainPod, PodExplanation, SettleBindings
from koord.contracts.codec import encode
from koord.contracts.quota import QuotaRuntime
from koord.kube.resources import BY_TOKEN, ELASTIC_QUOTAS, PODS, QUEUE_UNITS, QUEUES, TFJOBS, Resource
from tests.gateway.conftest import ApiProcess

JOBS = BY_TOKEN["jobs_batch"]
PARENT = "quota.scheduling.koordinator.sh/parent"


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        process = ApiProcess(Path(directory))
        process.start()
        yield process.kubeconfig
        process.kill()


class State:
    """What a gateway published before it went."""

    def __init__(self, bus: Bus, publisher: StatePublisher) -> None:
        self.bus = bus
        self._publisher = publisher
        self._version = 0

    async def put(self, resource: Resource, namespace: str, name: str, type_: Any = "ADDED", **body: Any) -> None:
        self._version += 1
        meta = {"namespace": namespace, "name": name, **body.pop("metadata", {})}
        raw = msgspec.json.encode({"metadata": meta, **body})
        await self._publisher.publish(resource, type_, namespace, name, str(self._version), raw)

    async def waiting_job(self) -> None:
        """A job whose one pod waits, two quotas deep, beside what is not its own."""
        await self.put(JOBS, "ml", "train", spec={"suspend": True})
        await self.put(JOBS, "other", "train")
        await self.put(JOBS, "ml", "gone")
        await self.put(JOBS, "ml", "gone", "DELETED")
        unit = {"queue": "team", "request": {"cpu": "8"}, "consumerRef": {"kind": "Job", "name": "train"}}
        await self.put(QUEUE_UNITS, "ml", "train-job-qu", spec=unit, status={"phase": "Enqueued", "message": "limited"})
        await self.put(QUEUES, "koord-queue", "team")
        await self.put(ELASTIC_QUOTAS, "a", "team", metadata={"labels": {PARENT: "org"}}, spec={"max": {"cpu": "9"}})
        await self.put(ELASTIC_QUOTAS, "b", "org", spec={"max": {"cpu": "7"}})
        owner = {"ownerReferences": [{"kind": "Job", "name": "train"}]}
        await self.put(PODS, "ml", "train-0", metadata=owner, spec={}, status={"phase": "Pending"})
        await self.put(PODS, "other", "train-0", metadata=owner, spec={}, status={"phase": "Pending"})


@pytest.fixture
async def published(nats_url: str, cluster: str) -> AsyncIterator[State]:
    async with await Bus.connect(nats_url, cluster, "gateway") as bus:
        publisher = StatePublisher(bus)
        await publisher.start()
        yield State(bus, publisher)


async def told(nats_url: str, cluster: str, kubeconfig: str = "", name: str = "train") -> dict[str, Any]:
    async with Reader(ClusterFile(kubeconfig, nats_url, "", cluster=cluster)) as reader:
        return await read(reader, "ml", name)


async def test_only_what_belongs_to_the_job_is_read(
    nats_url: str, cluster: str, published: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole(*_: Any) -> Any:
        raise AssertionError("a whole list is read")

    monkeypatch.setattr(state, "StateCache", whole)
    await published.waiting_job()
    answer = await told(nats_url, cluster)
    assert (answer["kind"], answer["phase"], answer["message"]) == ("Job", "Enqueued", "limited")
    assert [(row["name"], row["max"]) for row in answer["quota"]] == [("team", "9"), ("org", "7")]
    assert answer["pods"] == [{"status": "Pending", "count": 1, "example": "ml/train-0"}]


async def test_of_two_jobs_of_a_name_the_one_shown_has_its_own_queue(
    nats_url: str, cluster: str, published: State
) -> None:
    await published.put(TFJOBS, "ml", "train")
    other = {"queue": "others", "request": {"cpu": "1"}, "consumerRef": {"kind": "TFJob", "name": "train"}}
    await published.put(QUEUE_UNITS, "ml", "train-tf-qu", spec=other, status={"phase": "Running"})
    await published.waiting_job()
    answer = await told(nats_url, cluster)
    assert (answer["kind"], answer["queue"]) == ("Job", "team")
    assert [row["name"] for row in answer["quota"]] == ["team", "org"]
    assert "queue team" in answer["notes"]


async def test_what_changes_while_it_is_read_is_there_once_and_what_ends_is_not(
    nats_url: str, cluster: str, published: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("changes", "ends", "stays"):
        await published.put(PODS, "ml", name)
    reads = 0

    async def slowly(*arguments: Any, **named: Any) -> list[Stored]:
        nonlocal reads
        found = await read_stored(*arguments, most=3, **named)
        reads += 1
        if reads == 1:
            assert len(found) == 3
            await published.put(PODS, "ml", "changes", "MODIFIED", spec={"nodeName": "n"})
            await published.put(PODS, "ml", "ends", "DELETED")
        return found

    monkeypatch.setattr(state, "read_stored", slowly)
    for patience in ("_CONNECT_S", "_READ_S"):
        monkeypatch.setattr(state, patience, 60.0)  # no API server is there in the bus' place
    async with Reader(ClusterFile("", nats_url, "", cluster=cluster)) as reader:
        pods = await reader.some(PODS, "ml")
    assert reads >= 2
    assert {pod["metadata"]["name"]: pod.get("spec") for pod in pods} == {"changes": {"nodeName": "n"}, "stays": None}
    assert len(pods) == 2


async def test_what_the_queue_is_held_to_is_read_from_what_was_published_last(
    nats_url: str, cluster: str, published: State
) -> None:
    await published.waiting_job()
    assert (await told(nats_url, cluster))["quota"][0]["now"] == "9"
    bus = published.bus
    # A tree that is gone, or a part, says for ever what was set then.
    for tree, ceiling in (("gone", "2"), ("_", "1"), ("_/1", "1"), ("_", "3/2")):
        message = encode(QuotaRuntime(tree, 1, [], ceiling, by_runtime=False))
        await bus.publish_acked(bus.subjects.quota_runtime(tree), message)
    assert (await told(nats_url, cluster))["quota"][0]["now"] == "13500m"


async def test_whoever_is_silent_is_named(nats_url: str, cluster: str, published: State) -> None:
    await published.waiting_job()
    notes = " | ".join((await told(nats_url, cluster))["notes"])
    assert "no gateway answers; the state shown here is " in notes
    assert "no scheduler answers: the pods wait until one does" in notes

    async def settle(question: SettleBindings) -> BindingsSettled:
        return BindingsSettled([])

    async def explain(question: ExplainPod) -> PodExplanation:
        return PodExplanation(question.namespace, question.name, "unschedulable", message="0/3 nodes are available")

    bus = published.bus
    await serve(bus, "gateway", "settle", SettleBindings, settle)
    await serve(bus, "scheduler", "explain", ExplainPod, explain)
    await bus.nc.flush()
    notes = " | ".join((await told(nats_url, cluster))["notes"])
    assert "no gateway" not in notes and "no scheduler" not in notes
    assert "the scheduler says of pod ml/train-0: 0/3 nodes are available" in notes


async def test_a_scheduler_that_hangs_is_named(
    nats_url: str, cluster: str, published: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_ASK_S", 0.5)
    await published.waiting_job()
    never = asyncio.Event()

    async def hang(question: ExplainPod) -> PodExplanation:
        await never.wait()
        raise AssertionError

    await serve(published.bus, "scheduler", "explain", ExplainPod, hang)
    await published.bus.nc.flush()
    notes = " | ".join((await told(nats_url, cluster))["notes"])
    assert "no scheduler has answered for 0.5 s" in notes


async def test_a_job_that_no_gateway_told_of_is_asked_for_at_the_api(
    nats_url: str, cluster: str, published: State, kubeconfig: str
) -> None:
    await published.waiting_job()
    async with await connect(kubeconfig) as api:
        await api.create("namespaces", None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        container = {"name": "c", "image": "i"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "late"},
            "spec": {"suspend": True, "template": template},
        }
        await api.create("jobs.batch", "ml", body)
    answer = await told(nats_url, cluster, kubeconfig, "late")
    notes = " | ".join(answer["notes"])
    assert (answer["kind"], answer["name"]) == ("Job", "late")
    assert "no gateway answers" in notes
    assert "the API server has it, the bus does not show it yet" in notes
    for name in ("gone", "never"):
        with pytest.raises(CommandError, match=rf"job ml/{name}: no such job.*; no gateway answers; the state"):
            await told(nats_url, cluster, kubeconfig, name)


async def test_without_a_bus_the_api_is_read(kubeconfig: str) -> None:
    with pytest.raises(CommandError, match=r"no such job.*no gateway can be asked, for NATS does not answer"):
        await told("nats://127.0.0.1:1", "c", kubeconfig, "never")
