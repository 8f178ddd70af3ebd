"""No message without its trace on a running cluster, and one trace per job attempt with the right parents.

The checker of the bus listens to everything while jobs of the four kinds run, a gang fails to be placed, a quota
changes and the CLI asks. That it can fail is shown by planting messages.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from koord.bus.connection import Bus
from koord.bus.questions import ask
from koord.bus.tracecheck import TraceCheck
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.contracts.catalog import CATALOG
from koord.contracts.codec import encode
from koord.contracts.decisions import RecordEvents
from koord.telemetry.context import TraceContext
from tests.integration.conftest import MANIFESTS, Up

pytestmark = pytest.mark.slow

JOBS = {"mnist-ps": "tfjob", "resnet-ddp": "pytorchjob", "tune-batch": "rayjob", "etl": "job"}
FAULTS = {"SettleBindings", "BindingsSettled", "RaiseBarrier", "BarrierRaised"}
UNSENT = {
    "LiveState",
    "LiveDecision",
    "LiveQuotaRuntime",
    "Evict",
    "Delete",
    "EpochHint",
    "PodExplanation",
    "BindingGuarantees",
    "Refusal",
    *FAULTS,
}
"""Kinds that nothing in these tests is bound to send, or that are replies on inboxes."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("traces"), "--nodes", "12", "--gpu-nodes", "4")
    yield up
    up.stop()


@pytest.fixture
async def bus(cluster: Up) -> AsyncIterator[Bus]:
    ready = cluster.ready
    connected = await Bus.connect(ready["nats"], ready["cluster"], "trace-check")
    yield connected
    await connected.close()


def unplaceable() -> str:
    """Three pods of one gang that fit nowhere."""
    members = []
    for number in range(3):
        container = {"name": "main", "image": "x/y:1", "resources": {"requests": {"cpu": "99"}}}
        labels = {
            "pod-group.scheduling.sigs.k8s.io/name": "wide",
            "pod-group.scheduling.sigs.k8s.io/min-available": "3",
        }
        meta = {"name": f"wide-{number}", "namespace": "ml", "labels": labels}
        spec = {"schedulerName": "koord-scheduler", "containers": [container]}
        members.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return "\n---\n".join(map(json.dumps, members))


def play(up: Up) -> None:
    """Everything that a small cluster sees in a day."""
    up.kubectl("apply", "-f", str(MANIFESTS / "quota.yaml"))
    up.wait(lambda: [item for item in up.objects("queues", "-A") if item["metadata"]["name"] == "ml"], "queue ml")
    for kind in JOBS.values():
        up.kubectl("apply", "-f", str(MANIFESTS / f"{kind}.yaml"))
    up.kubectl("create", "-f", "-", stdin=unplaceable())
    up.kubectl("wait", "-n", "ml", "--for=condition=complete", "job/etl", "--timeout=180s")
    limit = {"spec": {"max": {"cpu": "63"}}}
    up.kubectl("patch", "elasticquota", "ml", "-n", "ml", "--type=merge", "-p", json.dumps(limit))
    up.koord("get", "jobs")
    up.koord("explain", "pod", "ml/wide-0")
    up.wait(lambda: ended_or_running(up) == set(JOBS), "every job runs or has ended")
    up.wait(
        lambda: [
            event
            for event in up.objects("events", "-n", "ml")
            if event["reason"] == "FailedScheduling" and event["involvedObject"]["name"].startswith("wide-")
        ],
        "the gang is told",
    )
    up.kubectl("delete", "pod", "wide-0", "wide-1", "wide-2", "-n", "ml")
    up.kubectl("delete", "pytorchjob", "resnet-ddp", "-n", "ml")


def ended_or_running(up: Up) -> set[str]:
    """The jobs all of whose pods have been seen to run, by their units."""
    phases = {unit["spec"]["consumerRef"]["name"]: unit["status"].get("phase") for unit in up.objects("qu", "-n", "ml")}
    return {name for name, phase in phases.items() if phase in ("Running", "Succeed")}


@pytest.fixture(scope="module")
def checked(cluster: Up) -> TraceCheck:
    """The checker, after it has listened to all of it."""

    async def listen() -> TraceCheck:
        bus = await Bus.connect(cluster.ready["nats"], cluster.ready["cluster"], "trace-check")
        check = TraceCheck(bus)
        await bus.barrier()
        await asyncio.to_thread(play, cluster)
        await bus.barrier()
        check.close()
        await bus.close()
        return check

    return asyncio.run(listen())


def test_no_message_without_its_trace(checked: TraceCheck) -> None:
    assert checked.violations == []
    sent = {kind.name for kind in CATALOG} - UNSENT
    assert sent <= set(checked.seen), f"never seen: {sorted(sent - set(checked.seen))}; seen: {checked.seen}"


async def test_the_check_fails_on_planted_messages(cluster: Up, bus: Bus) -> None:
    """Without a trace, with a broken one, with a header that is not known, on a subject that is not known."""
    check = TraceCheck(bus)
    await bus.barrier()
    subjects, body = bus.subjects, encode(RecordEvents("planted", []))
    event = subjects.decision("planted", "event")
    await bus.publish(event, body)
    await bus.publish(event, body, {"traceparent": "00-zz-1-01"})
    await bus.publish(event, body, {"traceparent": TraceContext.new().traceparent, "X-Secret": "1"})
    await bus.publish(f"{subjects.root}.gossip.planted", b"", {"traceparent": TraceContext.new().traceparent})
    await bus.publish(event, body, {"traceparent": TraceContext.new().traceparent})
    async with asyncio.timeout(60):
        while check.seen.get("RecordEvents", 0) < 4 or len(check.violations) < 4:
            await bus.barrier()
    planted = [line for line in check.violations if "planted" in line]
    assert planted == [
        f"{event}: RecordEvents without traceparent",
        f"{event}: RecordEvents with traceparent '00-zz-1-01', which is not valid",
        f"{event}: RecordEvents carries the header X-Secret",
        f"{subjects.root}.gossip.planted: not in the catalogue of messages",
    ]
    # Nobody may be disturbed by them either.
    answer = await ask(bus, "scheduler", "explain", ExplainPod("ml", "none"), PodExplanation)
    assert answer.state == "unknown"
    check.close()


PARENTS = {
    "queue.enqueue": {""},
    "queue.admit": {"queue.enqueue"},
    "queue.resume": {"queue.admit"},
    "scheduler.plan": {"queue.enqueue"},
    "ledger.claim": {"queue.admit", "scheduler.plan"},
    "gateway.bind": {"ledger.claim"},
    "pod.running": {"queue.enqueue"},
}
"""Which span each hangs below. A pod carries the attempt's context, so what is told of a pod hangs below its root."""


@pytest.mark.parametrize("job", ["mnist-ps", "tune-batch", "etl"])
def test_one_trace_from_enqueue_to_running(cluster: Up, checked: TraceCheck, job: str) -> None:
    def complete() -> list[dict[str, Any]]:
        spans: list[dict[str, Any]] = json.loads(cluster.koord("trace", "job", f"ml/{job}", "--json"))
        return spans if set(PARENTS) <= {span["name"] for span in spans} else []

    spans = cluster.wait(complete, f"the trace of {job} is in the store", 30)
    assert len({span["trace_id"] for span in spans}) == 1
    by_id = {span["span_id"]: span for span in spans}
    assert len(by_id) == len(spans), "a span id is used twice"
    for span in spans:
        parent = by_id.get(span.get("parent_id", ""))
        name = parent["name"] if parent is not None else ""
        refused = span["name"] == "ledger.claim" and "ok" not in span["attributes"].values()
        wanted = {"queue.enqueue"} if refused else PARENTS.get(span["name"], {name})
        assert name in wanted, f"{span['name']} below {name or 'nothing'}: {span}"
        if parent is not None:
            assert span["start_ns"] >= parent["start_ns"] - 50_000_000, f"{span['name']} began before {name}"
    claims = {by_id[span["parent_id"]]["name"] for span in spans if span["name"] == "ledger.claim"}
    assert claims - {"queue.enqueue"} == {"queue.admit", "scheduler.plan"}, (
        "admission and placement claim, each in its own place"
    )
    services = {span["name"]: span["service"] for span in spans}
    assert services["queue.admit"].endswith("queue")
    assert services["gateway.bind"].endswith("gateway")
    assert services["pod.running"].endswith("reconciler")
