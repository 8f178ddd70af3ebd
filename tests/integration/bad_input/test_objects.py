"""Objects that the API takes and that make no sense, and pods that fit nowhere."""

# ruff: noqa: E501 (a case is a line)

import asyncio
import json
import re
from collections import Counter, defaultdict

import pytest

from koord.ledger.client import Ledger
from tests.integration.bad_input.looking import (
    GANG,
    NODES_N,
    QUOTA,
    Manifest,
    documents,
    events,
    job,
    pod,
    queue,
    quota,
    rayjob,
    template,
    tfjob,
    told,
)
from tests.integration.conftest import REAL, Up

pytestmark = pytest.mark.slow

UNREAD = r"(in version \"v1\" cannot be handled as a|\S* is invalid: ).*quantit"
"""What is no quantity at all is found while the body is read, before any rule, by name or not."""

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
    ("manifest", "pattern"),
    [
        (job("job-words", "many"), rf"Job {UNREAD}"),
        (
            job("job-minus", "-1"),
            r'Job.* "job-minus" .*spec\.template\.spec\.containers\[0\]\.resources\.requests\S*cpu.*greater than or equal to',
        ),
        (pod("pod-words", "12cores"), rf"Pod {UNREAD}"),
        (pod("Pod_Name"), r'"Pod_Name".*metadata\.name: .*a lowercase RFC 1123 subdomain must consist of'),
        (
            pod("pod-label", **{QUOTA.replace("/", "__"): "not a value"}),
            r'"pod-label".*metadata\.labels: .*a valid label must be',
        ),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else None,
)
def test_what_the_api_refuses_names_object_field_and_rule(cluster: Up, manifest: Manifest, pattern: str) -> None:
    answer = cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest), code=1)
    assert re.search(pattern, answer), answer


@pytest.mark.usefixtures("bystanders")
def test_a_job_of_more_than_can_be_counted_is_named(cluster: Up) -> None:
    """A real API server takes it: it rounds such amounts down to the largest that it can hold. koord counts no such."""
    up = cluster
    body = json.dumps(job("job-huge", "1e30"))
    try:
        up.kubectl("create", "-f", "-", stdin=body)
    except AssertionError as error:
        assert not REAL and "quantit" in str(error), "only the embedded API may refuse it"
        return
    told(up, "Job", "job-huge", "InvalidJob", r"requests\[cpu\]: quantity .* must not exceed")
    up.kubectl("delete", "job", "job-huge", "-n", "team", "--wait=false")


@pytest.mark.usefixtures("bystanders")
def test_quotas_that_make_no_sense_are_named_and_not_in_force(cluster: Up) -> None:
    up = cluster
    bad = [
        quota("q-min", min={"cpu": "5"}, max={"cpu": "3"}),
        quota("q-minus", max={"cpu": "-3"}),
        quota("q-first", parent="q-second", max={"cpu": "3"}),
        quota("q-second", parent="q-first", max={"cpu": "3"}),
        quota("q-orphan", parent="nobody", max={"cpu": "3"}),
    ]
    for name, limit, pattern in (
        ("q-words", {"cpu": "lots"}, r"spec\.max\.cpu: Invalid value: \"lots\""),
        ("q-list", ["cpu"], r"spec\.max: Invalid value: \"array\""),
    ):  # their definition says what a quantity is, so the API refuses them
        # Not kubectl, which looks itself where the server does not say what it drops (before Kubernetes 1.25).
        body = json.dumps(quota(name, max=limit))
        answer = up.kubectl("create", "--validate=ignore", "-f", "-", stdin=body, code=1)
        assert re.search(f'"{name}" is invalid: {pattern}', answer), answer
    up.kubectl("create", "-f", "-", stdin=documents(bad))
    told(
        up,
        "ElasticQuota",
        "q-min",
        "InvalidQuota",
        r"^ElasticQuota team/q-min: spec\.min\[cpu\]: resourceKey cpu of quota q-min min 5 > max 3: ",
    )
    told(up, "ElasticQuota", "q-minus", "InvalidQuota", r'^ElasticQuota team/q-minus: spec\.max\[cpu\]: quantity "-3"')
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
    up.kubectl("wait", "-n", "team", "--for=condition=complete", "job/meanwhile", "--timeout=180s")
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
        text = (
            f"^0/{NODES_N} nodes are available: {NODES_N} Insufficient cpu. preemption: 0/{NODES_N} nodes are available: "
            f"{NODES_N} Preemption is not helpful for scheduling.$"
        )
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
