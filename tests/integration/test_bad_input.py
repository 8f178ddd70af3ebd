"""Bad input on a running system: each piece is named where its sender looks, and changes nothing else.

Every test runs beside bystanders (a quota, its queue, a job that has run, a pod that runs): their versions must not
move, and no process of the cluster may have been started anew. Afterwards a job still runs to its end.
"""

# ruff: noqa: E501 (a case is a line)

import asyncio
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from koord.bus.client import header_block
from koord.bus.connection import TRACEPARENT, Bus
from koord.bus.errors import AskRefused
from koord.bus.questions import ask, decode_answer
from koord.cli.main import main
from koord.contracts.asks import ExplainPod, PodExplanation
from koord.contracts.codec import decode, encode
from koord.contracts.decisions import (
    Bind,
    BindMember,
    ClaimRef,
    Create,
    Delete,
    EventNote,
    Evict,
    ObjectRef,
    Patch,
    RecordEvents,
)
from koord.contracts.results import Result
from koord.contracts.state import HEADER, format_header
from koord.kube.resources import ELASTIC_QUOTAS, NODES, PODS, QUEUE_UNITS, QUEUES, TFJOBS, WATCHED
from koord.ledger.client import Ledger
from koord.telemetry.context import TraceContext
from tests.integration.conftest import Up

pytestmark = pytest.mark.slow

NODES_N = 20
QUOTA = "quota.scheduling.koordinator.sh/name"
PARENT = "quota.scheduling.koordinator.sh/parent"
GANG = "pod-group.scheduling.sigs.k8s.io"
Manifest = dict[str, Any]


# Manifests ------------------------------------------------------------------------------------------------------------


def template(cpu: str = "1", **resources: str) -> Manifest:
    requests = {"cpu": cpu, **resources}
    container = {"name": "main", "image": "registry.example/x:1", "resources": {"requests": requests}}
    spec = {"schedulerName": "koord-scheduler", "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": {"koord.sh/fake-run-seconds": "0.1"}}, "spec": spec}


def pod(name: str, cpu: str = "1", namespace: str = "default", **labels: str) -> Manifest:
    meta = {"name": name, "namespace": namespace, "labels": {key.replace("__", "/"): labels[key] for key in labels}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template(cpu)["spec"]}


def job(name: str, cpu: str = "1", quota: str = "team", count: int = 2) -> Manifest:
    spec = {"suspend": True, "parallelism": count, "completions": count, "template": template(cpu)}
    meta = {"name": name, "namespace": "team", "labels": {QUOTA: quota}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def tfjob(name: str, roles: Any) -> Manifest:
    meta = {"name": name, "namespace": "team", "labels": {QUOTA: "team"}}
    spec = {"runPolicy": {"suspend": True}} | ({} if roles is None else {"tfReplicaSpecs": roles})
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": meta, "spec": spec}


def rayjob(name: str, **spec: Any) -> Manifest:
    meta = {"name": name, "namespace": "team", "labels": {QUOTA: "team"}}
    spec = {"suspend": True, "entrypoint": "python x.py"} | spec
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": spec}


def quota(name: str, namespace: str = "team", parent: str = "", **spec: Any) -> Manifest:
    meta = {"name": name, "namespace": namespace, "labels": {PARENT: parent} if parent else {}}
    version = "scheduling.sigs.k8s.io/v1alpha1"
    return {"apiVersion": version, "kind": "ElasticQuota", "metadata": meta, "spec": spec}


def queue(name: str, policy: str) -> Manifest:
    meta = {"name": name, "namespace": "koord-queue"}
    version = "scheduling.x-k8s.io/v1alpha1"
    return {"apiVersion": version, "kind": "Queue", "metadata": meta, "spec": {"queuePolicy": policy}}


def documents(manifests: list[Manifest]) -> str:
    return "\n---\n".join(json.dumps(manifest) for manifest in manifests)


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


# The cluster and its bystanders ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("bad-input"), "--nodes", str(NODES_N))
    try:
        limit = {"cpu": "64", "memory": "256Gi"}
        good = [
            namespace("team"),
            namespace("calm"),
            quota("team", min={"cpu": "20"}, max=limit),
            quota("calm", "calm", min={"cpu": "4"}, max=limit),
        ]
        up.kubectl("apply", "-f", "-", stdin=documents(good))
        wait_for_queues(up, {"team", "calm"})
        resident = pod("resident", namespace="calm")
        resident["spec"]["restartPolicy"] = "Always"
        finished = job("finished", quota="calm", count=1)
        finished["metadata"]["namespace"] = "calm"
        up.kubectl("create", "-f", "-", stdin=documents([resident, finished]))
        up.wait(lambda: phase(up, "calm", "resident") == "Running", "the bystander runs")
        up.kubectl("wait", "-n", "calm", "--for=condition=complete", "job/finished", "--timeout=60s")
        at_rest(up)
        yield up
    finally:
        up.stop()


def wait_for_queues(up: Up, names: set[str]) -> None:
    up.wait(lambda: names <= {item["metadata"]["name"] for item in up.objects("queues", "-A")}, f"queues {names}")


def phase(up: Up, where: str, name: str) -> str:
    return str(up.objects("pod", name, "-n", where)[0]["status"].get("phase", ""))


def versions(up: Up) -> dict[str, Manifest]:
    """Every bystander as it is; equal means that nobody wrote it, for each write makes a new version."""
    items = up.objects("pods,jobs,queueunits,elasticquotas", "-n", "calm")
    (calm,) = up.objects("queue", "calm", "-n", "koord-queue")
    # The list of who waits is written up to 15 s late, on purpose.
    del calm["metadata"]["resourceVersion"]
    calm["status"].pop("queueItemDetails", None)
    items.append(calm)
    return {f"{item['kind']} {item['metadata']['name']}": item for item in items}


def at_rest(up: Up) -> None:
    """Wait until every write that follows from the bystanders' own lives has been made."""
    last, since = versions(up), time.monotonic()

    def still() -> bool:
        nonlocal last, since
        now = versions(up)
        if now != last:
            last, since = now, time.monotonic()
        (unit,) = up.objects("queueunits", "-n", "calm")
        return unit["status"].get("phase") == "Succeed" and time.monotonic() - since > 2.5

    up.wait(still, "the bystanders are at rest")


@pytest.fixture
def bystanders(cluster: Up) -> Iterator[None]:
    """Nothing but what the test sends may have changed, and nobody may have died."""
    pids, before = cluster.ready["pids"], versions(cluster)
    yield
    assert cluster.ready["pids"] == pids, "a process was started anew"
    assert versions(cluster) == before


@pytest.fixture(autouse=True, scope="module")
def canary(cluster: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After all of it nothing has died or changed, and a job still goes its whole way."""
    pids, before = cluster.ready["pids"], versions(cluster)
    yield
    file = tmp_path_factory.mktemp("canary") / "job.json"
    file.write_text(json.dumps(job("canary")))
    (row,) = json.loads(cluster.koord("submit", str(file), "--wait", "--timeout", "60", "--json"))
    assert row["stage"] == "succeeded"
    assert cluster.ready["pids"] == pids, "a process was started anew"
    assert versions(cluster) == before


def told(up: Up, kind: str, name: str, reason: str, pattern: str, where: str = "team") -> Manifest:
    """Wait for an Event on an object, with this reason and words."""

    def look() -> list[Manifest]:
        return [event for event in events(up, kind, name, reason, where) if re.search(pattern, event["message"])]

    try:
        return dict(up.wait(look, f"{kind} {name} is told {reason}: {pattern}", 20)[0])
    except AssertionError as error:
        seen = {(event["reason"], event["message"]) for event in events(up, kind, name, "", where)}
        raise AssertionError(f"{kind} {name}: nothing like {reason}: {pattern}, but {seen}") from error


def events(up: Up, kind: str, name: str, reason: str, where: str) -> list[Manifest]:
    return [
        event
        for event in up.objects("events", "-n", where)
        if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
        and (not reason or event["reason"] == reason)
    ]


def logged(up: Up, *words: str) -> str:
    """Wait for a line of the cluster's log that holds all of the words."""

    def look() -> list[str]:
        lines = up.log.read_text(errors="replace").splitlines()
        return [line for line in lines if all(word in line for word in words)]

    return str(up.wait(look, f"the log names {words}", 20)[0])


# Objects that the API takes and that make no sense --------------------------------------------------------------------

INVALID_JOBS = [
    (tfjob("tf-text", {"Worker": {"replicas": "x", "template": template()}}), r"^spec\.tfReplicaSpecs\.Worker\.replicas: must be an integer >= 0, got \"x\"$"),
    (tfjob("tf-negative", {"Worker": {"replicas": -1, "template": template()}}), r"^spec\.tfReplicaSpecs\.Worker\.replicas: must be an integer >= 0, got -1$"),
    (tfjob("tf-huge", {"Worker": {"replicas": 10**12, "template": template()}}), r"^spec\.tfReplicaSpecs\.Worker\.replicas: must be at most 2147483647, got 1000000000000$"),
    (tfjob("tf-none", None), r"^spec\.tfReplicaSpecs: must have at least one of the roles Chief, Master, PS, Worker"),
    (tfjob("tf-empty", {}), r"^spec\.tfReplicaSpecs: must have at least one of the roles Chief, Master, PS, Worker"),
    (tfjob("tf-list", []), r"^spec\.tfReplicaSpecs: must be an object, got \[\]$"),
    (tfjob("tf-bare", {"Worker": {"replicas": 1}}), r"^spec\.tfReplicaSpecs\.Worker\.template: is required$"),
    (tfjob("tf-words", {"Worker": {"replicas": 1, "template": template("many")}}), r"requests\[cpu\]: quantity \"many\": must match"),
    (tfjob("tf-minus", {"Worker": {"replicas": 1, "template": template("-1")}}), r"requests\[cpu\]: quantity \"-1\": must not be negative"),
    (rayjob("ray-managed", managedBy={"a": 1}), r"^spec\.managedBy: must be a string, got \{\"a\":1\}$"),
    (rayjob("ray-none"), r"^spec\.rayClusterSpec: is required$"),
    (rayjob("ray-headless", rayClusterSpec={"workerGroupSpecs": []}), r"^spec\.rayClusterSpec\.headGroupSpec\.template: is required$"),
    (rayjob("ray-groups", rayClusterSpec={"headGroupSpec": {"template": template()}, "workerGroupSpecs": [7]}), r"^spec\.rayClusterSpec\.workerGroupSpecs\[0\]: must be an object, got 7$"),
]  # fmt: skip


@pytest.mark.usefixtures("bystanders")
def test_malformed_jobs_are_named_and_never_admitted(cluster: Up) -> None:
    up = cluster
    up.kubectl("create", "-f", "-", stdin=documents([manifest for manifest, _ in INVALID_JOBS]))
    for manifest, pattern in INVALID_JOBS:
        event = told(up, manifest["kind"], manifest["metadata"]["name"], "InvalidJob", pattern)
        assert event["type"] == "Warning"
    assert not [unit for unit in up.objects("queueunits", "-n", "team") if "canary" not in unit["metadata"]["name"]]
    assert up.objects("pods", "-n", "team") == []
    for item in up.objects("tfjobs,rayjobs", "-n", "team"):
        spec = item["spec"]
        assert spec.get("suspend", spec.get("runPolicy", {}).get("suspend")) is True, "it was resumed"


@pytest.mark.parametrize(
    ("manifest", "field", "rule"),
    [
        (job("job-words", "many"), "spec.template.spec.containers[0].resources.requests.cpu", 'quantity "many": must'),
        (job("job-minus", "-1"), "spec.template.spec.containers[0].resources.requests.cpu", "greater than or equal to"),
        (job("job-huge", "1e30"), "spec.template.spec.containers[0].resources.requests.cpu", "must not exceed 2^63-1"),
        (pod("pod-words", "12cores"), "spec.containers[0].resources.requests.cpu", 'quantity "12cores": must match'),
        (pod("Pod_Name"), "metadata.name", "a lowercase RFC 1123 subdomain must consist of"),
        (pod("pod-label", **{QUOTA.replace("/", "__"): "not a value"}), "metadata.labels", "a valid label must be"),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else None,
)
def test_what_the_api_refuses_names_object_field_and_rule(
    cluster: Up, manifest: Manifest, field: str, rule: str
) -> None:
    answer = cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest), code=1)
    for words in (manifest["kind"], manifest["metadata"]["name"], field, rule):
        assert words in answer


@pytest.mark.usefixtures("bystanders")
def test_quotas_that_make_no_sense_are_named_and_not_in_force(cluster: Up) -> None:
    up = cluster
    bad = [
        quota("q-min", min={"cpu": "5"}, max={"cpu": "3"}),
        quota("q-minus", max={"cpu": "-3"}),
        quota("q-words", max={"cpu": "lots"}),
        quota("q-list", max=["cpu"]),
        quota("q-first", parent="q-second", max={"cpu": "3"}),
        quota("q-second", parent="q-first", max={"cpu": "3"}),
        quota("q-orphan", parent="nobody", max={"cpu": "3"}),
    ]
    up.kubectl("create", "-f", "-", stdin=documents(bad))
    told(
        up,
        "ElasticQuota",
        "q-min",
        "InvalidQuota",
        r"^ElasticQuota team/q-min: spec\.min\[cpu\]: resourceKey cpu of quota q-min min 5 > max 3: ",
    )
    told(up, "ElasticQuota", "q-minus", "InvalidQuota", r'^ElasticQuota team/q-minus: spec\.max\[cpu\]: quantity "-3"')
    told(
        up, "ElasticQuota", "q-words", "InvalidQuota", r'^ElasticQuota team/q-words: spec\.max\[cpu\]: quantity "lots"'
    )
    # Whichever closes the circle is refused.
    cycle = "metadata.labels[quota.scheduling.koordinator.sh/parent]: the parents form a cycle: q-"
    up.wait(
        lambda: [
            event
            for name in ("q-first", "q-second")
            for event in events(up, "ElasticQuota", name, "InvalidQuota", "team")
            if cycle in event["message"]
        ],
        "the cycle is named",
        20,
    )
    logged(up, "team/q-list", "Expected `object`, got `array` - at `$.spec.max`")

    # Jobs of such quotas wait, and say why.
    names = ("q-min", "q-minus", "q-words", "q-list")
    jobs = [job(f"in-{name}", quota=name) for name in (*names, "q-first", "q-orphan", "nowhere")]
    up.kubectl("create", "-f", "-", stdin=documents(jobs))
    for name in (*names, "nowhere"):
        text = f"^queue {name} not found for queueUnit team/in-{name}$"
        told(up, "QueueUnit", f"in-{name}", "QueueNotFound", text)
    missing = (
        "^CheckUsage found quota not exist, item:team/in-q-orphan, quotaName:nobody, visited quota: q-orphan,nobody$"
    )
    told(up, "QueueUnit", "in-q-orphan", "FailedScheduling", missing)
    told(
        up, "QueueUnit", "in-q-first", "FailedScheduling", "^CheckUsage found (cycle reference|quota not exist), item:"
    )
    for unit in up.objects("queueunits", "-n", "team"):
        if unit["metadata"]["name"].startswith("in-"):
            conditions = {entry["type"]: entry for entry in unit["status"]["conditions"]}
            assert unit["status"]["phase"] == "Enqueued"
            assert conditions["QuotaReserved"]["status"] == "False"
            assert conditions["QuotaReserved"]["reason"] == "Misconfigured", conditions
            assert re.match("^(queue|CheckUsage found) ", conditions["QuotaReserved"]["message"])
    up.kubectl("delete", "-f", "-", "--wait=false", stdin=documents([*jobs, *bad]))


@pytest.mark.usefixtures("bystanders")
def test_a_bad_edit_of_a_good_quota_changes_nothing_in_force(cluster: Up) -> None:
    up = cluster
    edit = {"spec": {"min": {"cpu": "999"}}}
    up.kubectl("patch", "elasticquota", "team", "-n", "team", "--type=merge", "-p", json.dumps(edit))
    told(
        up,
        "ElasticQuota",
        "team",
        "InvalidQuota",
        r"^ElasticQuota \S+/team: spec\.min\[cpu\]: resourceKey cpu of quota team min 999 > max 64: ",
    )
    up.kubectl("create", "-f", "-", stdin=documents([job("meanwhile"), job("meanwhile-big", "33", count=2)]))
    up.kubectl("wait", "-n", "team", "--for=condition=complete", "job/meanwhile", "--timeout=60s")
    told(up, "QueueUnit", "meanwhile-big", "FailedScheduling", "limited quotaName:team, limited resKey:cpu")
    edit = {"spec": {"min": {"cpu": "20"}}}
    up.kubectl("patch", "elasticquota", "team", "-n", "team", "--type=merge", "-p", json.dumps(edit))
    up.kubectl("delete", "job", "meanwhile", "meanwhile-big", "-n", "team", "--wait=false")


@pytest.mark.usefixtures("bystanders")
def test_an_unknown_policy_is_a_condition_of_the_queue(cluster: Up) -> None:
    up = cluster
    up.kubectl("create", "-f", "-", stdin=json.dumps(queue("lottery", "Lottery")))
    text = "queue lottery: spec.queuePolicy: 'Lottery' is unknown; built: Priority, Block"
    told(up, "Queue", "lottery", "AddQueueFail", f"^{re.escape(text)}$", "koord-queue")

    def condition() -> list[Manifest]:
        (item,) = up.objects("queue", "lottery", "-n", "koord-queue")
        return list((item.get("status") or {}).get("conditions") or ())

    (active,) = up.wait(condition, "condition Active")
    assert (active["type"], active["status"], active["reason"]) == ("Active", "False", "UnknownPolicy")
    assert active["message"] == text
    up.kubectl("delete", "queue", "lottery", "-n", "koord-queue")


@pytest.mark.usefixtures("bystanders")
def test_more_than_the_whole_quota_chain_is_told_once_and_for_all(cluster: Up) -> None:
    up = cluster
    up.kubectl("create", "-f", "-", stdin=json.dumps(job("too-much", "40")))
    told(up, "QueueUnit", "too-much", "FailedScheduling", "^limited quotaName:team, limited resKey:cpu,")

    def reserved() -> list[Manifest]:
        (unit,) = up.objects("queueunit", "too-much", "-n", "team")
        conditions = (unit.get("status") or {}).get("conditions") or ()
        return [entry for entry in conditions if entry["type"] == "QuotaReserved"]

    (condition,) = up.wait(reserved, "condition QuotaReserved")
    assert (condition["status"], condition["reason"]) == ("False", "ExceedsMaxQuota")
    up.kubectl("delete", "job", "too-much", "-n", "team", "--wait=false")


# Pods that fit nowhere ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("bystanders")
def test_a_pod_larger_than_any_node(cluster: Up) -> None:
    up = cluster
    manifests = [
        pod("giant", "33"),
        pod("absurd", "9000000000000000"),
        pod("lost", **{QUOTA.replace("/", "__"): "nowhere"}),
    ]
    up.kubectl("create", "-f", "-", stdin=documents(manifests))
    for name in ("giant", "absurd"):
        text = f"^0/{NODES_N} nodes are available: {NODES_N} Insufficient cpu.$"
        told(up, "Pod", name, "FailedScheduling", text, "default")
        (condition,) = scheduled_condition(up, name)
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    # A pod whose quota nobody knows is the default quota's (spec 20 section 3.7), not an error.
    up.wait(lambda: up.objects("pod", "lost", "-n", "default")[0]["spec"].get("nodeName"), "the pod is bound")
    up.kubectl("delete", "pod", "giant", "absurd", "lost", "-n", "default", "--wait=false")


def scheduled_condition(up: Up, name: str) -> list[Manifest]:
    (item,) = up.objects("pod", name, "-n", "default")
    return [entry for entry in item["status"].get("conditions", ()) if entry["type"] == "PodScheduled"]


@pytest.mark.usefixtures("bystanders")
def test_a_gang_value_that_is_no_number(cluster: Up) -> None:
    up = cluster
    member = pod("odd-gang", **{GANG: "odd"})
    member["metadata"]["annotations"] = {"gang.scheduling.koordinator.sh/min-available": "zero"}
    up.kubectl("create", "-f", "-", stdin=json.dumps(member))
    text = r'^gang\.scheduling\.koordinator\.sh/min-available: must be a 32-bit integer, got "zero"'
    told(up, "Pod", "odd-gang", "InvalidGang", text, "default")
    assert "nodeName" not in up.objects("pod", "odd-gang", "-n", "default")[0]["spec"]
    up.kubectl("delete", "pod", "odd-gang", "-n", "default", "--wait=false")


@pytest.mark.usefixtures("bystanders")
async def test_a_gang_larger_than_the_cluster(cluster: Up) -> None:
    up, size = cluster, NODES_N + 10
    labels = {f"{GANG}__name": "mob", f"{GANG}__min-available": str(size)}
    members = [pod(f"mob-{number}", "25", **labels) for number in range(size)]
    await asyncio.to_thread(up.kubectl, "create", "-f", "-", stdin=documents(members))

    def failures() -> dict[str, list[Manifest]]:
        found: dict[str, list[Manifest]] = defaultdict(list)
        for event in up.objects("events", "-n", "default"):
            name = event["involvedObject"]["name"]
            if event["reason"] == "FailedScheduling" and name.startswith("mob-"):
                found[name].append(event)
        return found

    by_pod = await asyncio.to_thread(
        up.wait, lambda: found if len(found := failures()) == size else None, "every member is told", 30
    )
    assert {len(told_) for told_ in by_pod.values()} == {1}, "each member has one Event"
    texts = Counter(re.sub(r"mob-\d+", "mob-N", told_[0]["message"]) for told_ in by_pod.values())
    own = f'0/{NODES_N} nodes are available: {NODES_N} Insufficient cpu. Gang "default/mob" gets rejected due to'
    others = (
        f'0/{NODES_N} nodes are available: GangGroup "default/mob" gets rejected due to member Pod "default/mob-N" is'
    )
    assert sorted(texts.values()) == [1, size - 1], texts
    for text, count in texts.items():
        assert text.startswith(own if count == 1 else others), text
    assert all(
        "nodeName" not in item["spec"]
        for item in up.objects("pods", "-n", "default")
        if "mob" in item["metadata"]["name"]
    )
    ledger = await Ledger.connect(up.ready["redis"], up.ready["cluster"], "test-reader")
    async with ledger:
        status = await ledger.status()
        assert (status.held, status.binding) == (0, 0)
    await asyncio.to_thread(up.kubectl, "delete", "-f", "-", "--wait=false", stdin=documents(members))


# Straight to NATS -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def bus(cluster: Up) -> AsyncIterator[Bus]:
    ready = cluster.ready
    connected = await Bus.connect(ready["nats"], ready["cluster"], "hostile")
    yield connected
    await connected.close()


class Answers:
    """Publishes bytes on a decision subject, and hears every result of the cluster."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.heard: list[tuple[str, Result]] = []
        self._news = asyncio.Event()
        self._subscription = bus.subscribe_raw(f"{bus.subjects.root}.result.>", self._receive)

    def _receive(self, subject: bytes, reply: bytes, headers: bytes | None, body: bytes) -> None:
        self.heard.append((subject.decode().split(".")[3], decode(Result, body)))
        self._news.set()

    async def send(self, service: str, kind: str, body: bytes) -> None:
        header = header_block((TRACEPARENT, TraceContext.new().traceparent))
        await self._bus.acks.publish(self._bus.subjects.decision(service, kind), body, header)

    async def result(self, service: str, id_: str, count: int = 1) -> list[Result]:
        async with asyncio.timeout(20):
            while True:
                found = [result for who, result in self.heard if (who, result.id) == (service, id_)]
                if len(found) >= count:
                    return found
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def answers(bus: Bus) -> Answers:
    made = Answers(bus)
    await bus.barrier()
    return made


def create(
    id_: str, name: str = "made", resource: str = QUEUES.token, body: Any = None, where: str = "koord-queue"
) -> Create:
    raw = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    return Create(id_, resource, where, name, raw)


GHOST = ObjectRef(PODS.token, "default", "ghost", "0b0b0b0b-0000-4000-8000-000000000000")
CLAIM = ClaimRef("nobody-1", 7, 1)
DEEP = b"\x83\xa4kind\xa6create\xa2id\xa6h-deep\xa1x" + b"\x91" * 100_000 + b"\xc0"

UNREADABLE = [
    ("queue", "create", encode(create("h-cut"))[:-7], "h-cut", "Decision: Input data was truncated"),
    ("queue", "create", b"", "unreadable", "Decision: Input data was truncated"),
    ("queue", "patch", b"\xc1\xff\x00 garbage", "unreadable", "Decision: "),
    ("scheduler", "bind", b'{"kind":"bind","id":"h-json"}', "unreadable", "Decision: "),
    ("queue", "create", DEEP, "h-deep", "Decision: maximum recursion depth exceeded"),
    ("queue", "create", b"\x82\xa4kind\xa6create\xa2id\xa3\xff\xfe\xfd", None, "Decision: Invalid UTF-8"),
    ("queue", "delete", encode(create("h-kind")), "h-kind", "subject says 'delete', body says 'create' - $.kind"),
    ("queue", "explode", encode(create("h-verb")), "h-verb", "subject says 'explode', body says 'create' - $.kind"),
    ("scheduler", "bind", b"\x82\xa4kind\xa4bind\xa2id\xa6h-bind", "h-bind", "Decision: Object missing required field `claim`"),
]  # fmt: skip


@pytest.mark.usefixtures("bystanders")
async def test_unreadable_decisions_are_answered_and_logged(cluster: Up, answers: Answers) -> None:
    for service, kind, body, id_, words in UNREADABLE:
        before = len(answers.heard)
        await answers.send(service, kind, body)
        if id_ is not None:
            subject = f"koord.local.decision.{service}.{kind}"
            result = (
                await answers.result(
                    service, id_, sum((who, r.id) == (service, id_) for who, r in answers.heard[:before]) + 1
                )
            )[-1]
            assert result.outcome == "rejected"
            assert result.reason.startswith(f"unreadable message on {subject}: "), result.reason
            assert words in result.reason
        await asyncio.to_thread(logged, cluster, "[gateway]", f"decision.{service}.{kind}", words)


REFUSED: list[tuple[str, Bind | Create | Patch | Delete | Evict, str, str]] = [
    ("queue", create("h-widget", resource="widgets_example_com"), "rejected", "unknown resource: 'widgets_example_com' (known: "),
    ("queue", create("h-node", resource=NODES.token, where=""), "rejected", "not allowed: queue may not create nodes_core (nodes_core made)"),
    ("quota", create("h-unit", resource=QUEUE_UNITS.token, where="team"), "rejected", "not allowed: quota may not create queueunits_scheduling_x-k8s_io"),
    ("intruder", create("h-who"), "rejected", "not allowed: intruder may not create queues_scheduling_x-k8s_io (queues_scheduling_x-k8s_io koord-queue/made)"),
    ("queue", Bind("h-qbind", CLAIM, [BindMember("u", "default", "ghost", "node-00001")]), "rejected", "not allowed: queue may not bind pods"),
    ("scheduler", Bind("h-empty", CLAIM, []), "rejected", "invalid: bind h-empty: members: empty"),
    ("scheduler", Bind("h-path", CLAIM, [BindMember("u", "default", "a/../b", "node-00001")]), "rejected", "invalid: bind h-path: members[0].name: 'a/../b' is not an object name"),
    ("scheduler", Bind("h-claim", CLAIM, [BindMember(GHOST.uid, "default", "ghost", "node-00001")]), "rejected", "claim gone"),
    ("queue", Delete("h-uid", ObjectRef(QUEUES.token, "koord-queue", "calm")), "rejected", "invalid: queues_scheduling_x-k8s_io koord-queue/calm: target.uid: required"),
    ("queue", Delete("h-gone", ObjectRef(QUEUES.token, "koord-queue", "calm", GHOST.uid)), "gone", f"queues_scheduling_x-k8s_io koord-queue/calm: uid {GHOST.uid} does not exist any more"),
    ("queue", Evict("h-evict", GHOST), "rejected", "not allowed: queue may not evict pods_core"),
    ("queue", create("h-body", body=b"not json"), "rejected", "invalid: create queues_scheduling_x-k8s_io: body: "),
    ("queue", create("h-array", body=[1]), "rejected", "invalid: create queues_scheduling_x-k8s_io: body: not a JSON object"),
    ("queue", create("h-nest", body=b"[" * 100_000), "rejected", "invalid: create queues_scheduling_x-k8s_io: body: "),
    ("queue", create("h-other", body={"kind": "Pod"}), "rejected", "invalid: create queues_scheduling_x-k8s_io: body.kind: 'Pod' is not 'Queue'"),
    ("queue", create("h-label", body={"metadata": {"labels": {"a": 7}}}), "rejected", "Queue in the request cannot be handled: Expected `str`, got `int` - at `$.metadata.labels[...]`"),
    ("queue", create("h-upper", name="Upper"), "rejected", 'Queue.scheduling.x-k8s.io "Upper" is invalid: metadata.name: Invalid value: "Upper"'),
    ("queue", create("h-lost", where="no-such-namespace"), "gone", 'namespaces "no-such-namespace" not found'),
    ("queue", create("h-twice", name="calm"), "conflict", '"calm" already exists'),
    ("scheduler", Patch("h-ghost", GHOST, b'{"metadata":{"labels":{"a":"b"}}}'), "gone", 'pods "ghost" not found'),
    ("queue", Patch("h-merge", ObjectRef(TFJOBS.token, "team", "any"), b"[]"), "rejected", "invalid: tfjobs_kubeflow_org team/any: body: a merge patch is an object"),
    ("queue", Patch("h-sub", ObjectRef(TFJOBS.token, "team", "any"), b"{}", subresource="binding"), "rejected", "invalid: tfjobs_kubeflow_org team/any: subresource: 'binding' is not status or scale"),
    ("queue", Evict("h id\0\r\n.>*", GHOST), "rejected", "not allowed: queue may not evict pods_core"),
    ("queue", Evict("h" * 5000, GHOST), "rejected", "not allowed: queue may not evict pods_core"),
    ("quota", Patch("h-none", ObjectRef(ELASTIC_QUOTAS.token, "", "calm"), b"{}"), "rejected", "invalid: elasticquotas_scheduling_sigs_k8s_io calm: namespace: missing"),
]  # fmt: skip


@pytest.mark.usefixtures("bystanders")
async def test_refused_decisions_name_object_field_and_rule(answers: Answers) -> None:
    for service, decision, _, _ in REFUSED:
        await answers.send(service, type(decision).__name__.lower(), encode(decision))
    for service, decision, outcome, words in REFUSED:
        (result,) = await answers.result(service, decision.id)
        assert (result.outcome, words in result.reason) == (outcome, True), (decision.id, result)


@pytest.mark.usefixtures("bystanders")
async def test_a_decision_for_a_deleted_object_spares_its_successor(cluster: Up, answers: Answers) -> None:
    up = cluster
    await asyncio.to_thread(up.kubectl, "create", "-f", "-", stdin=documents([pod("fleeting", "33")]))
    (first,) = await asyncio.to_thread(up.objects, "pod", "fleeting", "-n", "default")
    await asyncio.to_thread(up.kubectl, "delete", "pod", "fleeting", "-n", "default")
    target = ObjectRef(PODS.token, "default", "fleeting", first["metadata"]["uid"])
    patch = Patch("h-late", target, b'{"metadata":{"labels":{"touched":"yes"}}}')
    await answers.send("scheduler", "patch", encode(patch))
    (result,) = await answers.result("scheduler", "h-late")
    assert (result.outcome, result.reason) == ("gone", 'pods "fleeting" not found')

    await asyncio.to_thread(up.kubectl, "create", "-f", "-", stdin=documents([pod("fleeting", "33")]))
    await answers.send("scheduler", "patch", encode(Patch("h-later", target, patch.body)))
    (result,) = await answers.result("scheduler", "h-later")
    assert result.outcome == "gone"
    assert result.reason.startswith(f"pods_core default/fleeting: uid {target.uid} was replaced by ")
    (second,) = await asyncio.to_thread(up.objects, "pod", "fleeting", "-n", "default")
    assert "touched" not in second["metadata"].get("labels", {})
    await asyncio.to_thread(up.kubectl, "delete", "pod", "fleeting", "-n", "default", "--wait=false")


@pytest.mark.usefixtures("bystanders")
async def test_a_decision_sent_twice_is_carried_out_once(cluster: Up, answers: Answers) -> None:
    body = encode(create("h-double", name="h-double", body={"spec": {"queuePolicy": "Priority"}}))
    await answers.send("queue", "create", body)
    await answers.result("queue", "h-double")
    (before,) = await asyncio.to_thread(cluster.objects, "queue", "h-double", "-n", "koord-queue")
    await answers.send("queue", "create", body)
    first, second = await answers.result("queue", "h-double", 2)
    assert first.outcome == "done"
    assert first == second, "the second is answered as the first was"
    (after,) = await asyncio.to_thread(cluster.objects, "queue", "h-double", "-n", "koord-queue")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await asyncio.to_thread(cluster.kubectl, "delete", "queue", "h-double", "-n", "koord-queue")


@pytest.mark.usefixtures("bystanders")
async def test_events_on_impossible_objects_hold_up_nobody(cluster: Up, answers: Answers) -> None:
    def note(name: str, reason: str = "Hostile", type_: Any = "Warning") -> EventNote:
        return EventNote(ObjectRef(PODS.token, "default", name), "Pod", "v1", type_, reason, f"about {name}")

    bad = RecordEvents("h-events", [note("../../secrets"), note(""), note("no good")])
    await answers.send("scheduler", "event", encode(bad))
    wrong = RecordEvents("h-type", [note("fine", type_="Loud")])
    await answers.send("scheduler", "event", encode(wrong))
    (result,) = await answers.result("scheduler", "h-type")
    assert "Invalid enum value 'Loud' - at `$.events[0].type`" in result.reason.replace('"', "'")
    await answers.send("scheduler", "event", encode(RecordEvents("h-good", [note("good")])))
    await asyncio.to_thread(told, cluster, "Pod", "good", "Hostile", "^about good$", "default")
    hostile = [
        event for event in await asyncio.to_thread(cluster.objects, "events", "-A") if event["reason"] == "Hostile"
    ]
    assert [event["involvedObject"]["name"] for event in hostile] == ["good"]


@pytest.mark.usefixtures("bystanders")
async def test_garbage_on_state_subjects_keeps_the_last_good_version(cluster: Up, bus: Bus) -> None:
    """Bodies, headers and subjects that no gateway would write, for objects that exist and for ones that do not."""
    subjects, stream = bus.subjects, (await bus.js.stream_info(bus.subjects.state_stream)).config
    assert stream.name == subjects.state_stream
    good = format_header("MODIFIED", "999999999999", "no-such-life")
    deep = b"[" * 100_000
    for resource in WATCHED:
        space = "garbage" if resource.namespaced else ""
        for name, body in (
            ("bytes", b"\x00\xff\xfe"),
            ("half", b'{"metadata":{"name":"half"'),
            ("deep", deep),
            ("list", b"[]"),
        ):
            await bus.publish_acked(subjects.state(resource.token, space, name), body, (HEADER, good))
    # An object that exists, and a tombstone and headers that are none.
    await bus.publish_acked(subjects.state(PODS.token, "calm", "resident"), b'{"metadata":', (HEADER, good))
    await bus.publish_acked(subjects.state(PODS.token, "garbage", "tomb"), b"", (HEADER, "DELETED 1 x"))
    await bus.publish_acked(subjects.state(PODS.token, "garbage", "worded"), b"{}", (HEADER, "EXPLODED 1 x"))
    await bus.publish_acked(subjects.state(PODS.token, "garbage", "headless"), b"{}", None)
    for service in ("scheduler", "quota", "reconciler"):
        for name in ("bytes", "half", "deep", "list", "tomb", "worded", "headless"):
            await asyncio.to_thread(
                logged,
                cluster,
                f"[{service}]",
                "pods_core" if name in ("bytes", "half") else f"garbage/{name}",
                f"garbage/{name}",
            )
        await asyncio.to_thread(logged, cluster, f"[{service}]", "calm/resident", "Input data was truncated")
    for name in ("bytes", "half", "deep", "list"):
        await asyncio.to_thread(logged, cluster, "[queue]", f"garbage/{name}", "tfjobs_kubeflow_org")
    # What was known of the object stands: the scheduler still counts the pod on its node.
    explained = await ask(bus, "scheduler", "explain", ExplainPod("calm", "resident"), PodExplanation)
    assert explained.node


@pytest.mark.usefixtures("bystanders")
async def test_garbage_on_hints_results_and_questions(cluster: Up, bus: Bus) -> None:
    subjects = bus.subjects
    for subject in (
        subjects.ledger("claim.released"),
        subjects.ledger("epoch"),
        subjects.result("scheduler", "h-1"),
        subjects.result("queue", "h-1"),
        subjects.result("quota", "h-1"),
        subjects.quota_runtime("_"),
    ):
        for body in (b"", b"\xff\xfe garbage", DEEP):
            await bus.publish(subject, body)
    for body in (b"", b"\xff\xfe garbage", DEEP, encode(Result("h-1", "done"))):
        answer = await bus.ask(
            subjects.ask("scheduler", "explain"), body, 5.0, traceparent=TraceContext.new().traceparent
        )
        with pytest.raises(AskRefused, match="ExplainPod: "):
            decode_answer(PodExplanation, answer)
    unknown = await ask(bus, "scheduler", "explain", ExplainPod("default", "nobody"), PodExplanation)
    assert unknown.error.startswith("the pod is not known")
    await asyncio.to_thread(logged, cluster, "[scheduler]", "result")


def cli(up: Up, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The CLI's own main, in this process (a new one costs a second each): exit code 2, standard error."""
    monkeypatch.setattr("sys.argv", ["koord", *arguments])
    monkeypatch.setenv("KOORD_CLUSTER", str(up.ready_file))
    monkeypatch.setenv("COLUMNS", "250")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    answer = capsys.readouterr()
    assert ended.value.code == 2, answer
    assert not answer.out
    return answer.err


# The command line -----------------------------------------------------------------------------------------------------

FILES = [
    ("no-yaml", "kind: [unclosed", r"file\.yaml: not YAML: "),
    ("binary", "\0\1\2", r"file\.yaml: not YAML: "),
    ("empty", "# nothing\n---\n", "the files hold no objects"),
    ("text", "just words", r"file\.yaml, document 1: must be an object, is str"),
    ("kindless", json.dumps(job("x") | {"kind": None}), r"file\.yaml, document 1: kind: must be a non-empty text"),
    ("versionless", json.dumps(job("x") | {"apiVersion": 1}), r"document 1: apiVersion: must be a non-empty text"),
    ("nameless", json.dumps(job("x") | {"metadata": {}}), r"document 1: metadata\.name: must be a non-empty text"),
    ("unknown", json.dumps(job("x") | {"kind": "Jobb"}), r"document 1: Jobb: the server does not serve Jobb in /apis/batch/v1"),
    ("group", json.dumps(job("x") | {"apiVersion": "nobody.io/v1"}), r"document 1: Job: "),
    ("second", documents([job("first"), job("x") | {"kind": "Jobb"}]), r"document 2: Jobb: the server does not serve"),
    ("item", json.dumps({"kind": "List", "apiVersion": "v1", "items": [job("first"), 7]}), r"document 1, items\[1\]: must be an object"),
    ("refused", json.dumps(job("minus", "-1")), r"document 1: Job minus: .*resources\.requests\.cpu: Invalid value"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "pattern"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_submit_names_file_document_and_rule_and_creates_nothing(
    cluster: Up,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    pattern: str,
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    before = {item["metadata"]["name"] for item in cluster.objects("jobs", "-A")}
    answer = cli(cluster, monkeypatch, capsys, "submit", str(file))
    assert re.search(pattern, answer), answer
    assert len(answer.strip().splitlines()) == 1, "one line says it"
    assert {item["metadata"]["name"] for item in cluster.objects("jobs", "-A")} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "no-such-file.yaml"), "no-such-file.yaml: No such file or directory"),
        (("submit", "x.yaml", "--until", "lunch"), "--until 'lunch': must be running or finished"),
        (("get", "unicorns"), "unicorns"),
        (("get", "queues", "--no-such-option"), "--no-such-option"),
        (("trace", "job", "a/b/c"), "a/b/c"),
        (("up", "--nodes", "2", "--gpu-nodes", "3"), "--gpu-nodes 3: must not exceed --nodes 2"),
        (("up", "--nodes", "-1"), "'--nodes': Input should be greater than or equal to 0"),
        (("up", "--kubeconfig", "nowhere"), "--kubeconfig nowhere: no such file"),
        (("bench", "no-such-scenario"), "no-such-scenario"),
        (("run", "toaster"), "toaster"),
        (("run", "scheduler", "--set", "scheduler.fooo=1"), "scheduler.fooo (flag): unknown setting; known: "),
        (("run", "scheduler", "--set", "scheduler.batch=many"), "scheduler.batch"),
        (("run", "scheduler", "--set", "scheduler.batch=0"), "batch: 0 is not in 1..4096"),
        (("run", "queue", "--set", "nats.url"), "--set 'nats.url': write it as KEY=VALUE"),
        (("run", "quota", "--set", "quota.oversell_rate=-1"), "quota.oversell_rate: must be a number above 0"),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, tuple) else None,
)
def test_options_and_settings(
    cluster: Up,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    answer = " ".join(cli(cluster, monkeypatch, capsys, *arguments).replace("│", " ").split())
    assert words in answer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nats: {url: 7}", "nats.url"),
        ("scheduler: {nmaes: [a]}", "scheduler.nmaes"),
        ("toaster: {heat: 3}", "toaster"),
        ("- a list", "settings.yaml"),
        ("nats: [unclosed", "settings.yaml"),
    ],
)
def test_settings_files(
    cluster: Up,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    words: str,
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    answer = cli(cluster, monkeypatch, capsys, "run", "scheduler", "--config", str(file))
    assert words in answer
    assert len(answer.strip().splitlines()) == 1
