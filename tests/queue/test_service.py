"""The queue service on real NATS and Redis: jobs wait, are admitted, run, fall back and end."""

from typing import Any

from koord.kube.resources import ELASTIC_QUOTAS, JOBS, NAMESPACES, PODS, QUEUE_UNITS, QUEUES, TFJOBS
from koord.queue.backoff import Timeouts
from tests.queue.harness import MiniCluster, batch_job, quota, tfjob, until
from tests.queue.looking import TF, condition, phase, policy, reasons, reserved, resumed, start_queue, status, unit_of


async def test_a_suspended_job_waits_is_admitted_runs_and_ends(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("top", "4"))
    await mini.put(ELASTIC_QUOTAS, quota("leaf", "4", "top"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "leaf", workers=3))
    await mini.put(TFJOBS, tfjob("b", "leaf", workers=2))
    await until(lambda: phase(mini, "a" + TF) == "Dequeued", "a is admitted")
    job = await until(lambda: resumed(mini, "a"), "a is resumed")
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"]
    assert template["annotations"]["koord-queue/related-queueunit"] == "team/a-tf-qu"
    assert template["annotations"]["koord-queue/related-podset-name"] == "worker"
    assert template["annotations"]["gang.scheduling.koordinator.sh/name"] == "a-tf-qu"
    assert template["annotations"]["gang.scheduling.koordinator.sh/min-available"] == "3"
    assert template["labels"]["quota.scheduling.koordinator.sh/name"] == "leaf"
    unit = unit_of(mini, "a" + TF)
    traceparent = unit["metadata"]["annotations"]["koord.sh/traceparent"]
    assert template["annotations"]["koord.sh/traceparent"] == traceparent
    assert unit["status"]["admissions"][0] | {"running": 0} == {
        "name": "worker", "replicas": 3, "running": 0, "resources": {"cpu": "3"}
    }  # fmt: skip
    conditions = {each["type"]: each for each in unit["status"]["conditions"]}
    assert conditions["Admitted"]["status"] == "True"

    text = "limited quotaName:leaf, limited resKey:cpu,"
    await until(lambda: phase(mini, "b" + TF) == "Enqueued" and reserved(mini, "b" + TF)["message"] == text, "b waits")
    assert unit_of(mini, "b" + TF)["status"]["message"] == text
    shown = reserved(mini, "b" + TF)
    assert (shown["status"], shown["reason"]) == ("False", "WaitingForQuota")

    await status(mini, "a", "Running")
    await until(lambda: phase(mini, "a" + TF) == "Running", "a runs")
    await status(mini, "a", "Succeeded")
    await until(lambda: phase(mini, "a" + TF) == "Succeed", "a ends")
    assert unit_of(mini, "a" + TF)["status"]["admissions"] == []
    await until(lambda: phase(mini, "b" + TF) == "Dequeued", "b follows")
    await until(lambda: resumed(mini, "b"), "b is resumed")
    held = (await mini.ledger.items("admitted/"))["admitted/leaf"]
    assert held.used.get("cpu", 0) + held.held.get("cpu", 0) == 2000
    assert {"Scheduled", "Resume", "FailedScheduling"} <= reasons(mini)
    assert not mini.untraced


async def test_a_job_that_waits_shows_it(mini: MiniCluster) -> None:
    def queuing(name: str) -> dict[str, Any]:
        conditions = (mini.get(TFJOBS, f"team/{name}") or {}).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Queuing"), {})

    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: resumed(mini, "a"), "a is let go at once")
    created = {"status": {"conditions": [{"type": "Created", "status": "True"}]}}
    await mini.put(TFJOBS, {**tfjob("b", "q"), **created})
    shown = await until(lambda: queuing("b"), "b shows that it waits")
    assert (shown["status"], shown["message"]) == ("True", "Job Enqueued")
    await mini.delete(TFJOBS, "team/a")
    await until(lambda: resumed(mini, "b"), "b is let go")
    shown = await until(lambda: queuing("b").get("status") == "False" and queuing("b"), "and shows it")
    assert shown["message"] == "Job Dequeued"
    job = mini.get(TFJOBS, "team/b")
    assert job is not None and [each["type"] for each in job["status"]["conditions"]] == ["Created", "Queuing"]


async def test_queues_follow_their_quotas(mini: MiniCluster) -> None:
    await start_queue(mini)
    body = quota("vision", "48", "research", **{"koord-queue/queue-policy": "Priority"})
    body["metadata"]["annotations"] = {"koord-queue/max-depth": "50"}
    await mini.put(ELASTIC_QUOTAS, body)
    made = await until(lambda: mini.get(QUEUES, "koord-queue/vision"), "the Queue is made")
    assert mini.get(NAMESPACES, "koord-queue") is not None
    assert made["metadata"]["labels"] == {
        "create-by-koordqueue": "true",
        "quota.scheduling.koordinator.sh/parent": "research",
    }
    assert made["metadata"]["annotations"] == {"koord-queue/max-depth": "50"}
    assert made["spec"] == {"queuePolicy": "Priority", "priority": 1000}
    await mini.edit(QUEUES, "koord-queue/vision", {"spec": {"queuePolicy": "FIFO"}})
    await until(lambda: policy(mini, "vision") == "Priority", "the policy is put back")
    await mini.delete(ELASTIC_QUOTAS, "quotas/vision")
    await until(lambda: mini.get(QUEUES, "koord-queue/vision") is None, "the Queue goes with its quota")


async def test_a_policy_that_is_not_built_admits_nothing(mini: MiniCluster) -> None:
    await start_queue(mini)
    await mini.put(ELASTIC_QUOTAS, quota("q", "48", **{"koord-queue/queue-policy": "Lottery"}))
    await until(lambda: condition(mini, "q").get("reason") == "UnknownPolicy", "the Queue says so")
    assert condition(mini, "q")["status"] == "False"
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: "spec.queuePolicy" in unit_of(mini, "a" + TF).get("status", {}).get("message", "")
                if phase(mini, "a" + TF) == "Enqueued" else False, "the unit says so")  # fmt: skip
    await until(lambda: "AddQueueFail" in reasons(mini), "an event tells it")
    await mini.edit(ELASTIC_QUOTAS, "quotas/q", {"metadata": {"labels": {"koord-queue/queue-policy": "Priority"}}})
    await until(lambda: phase(mini, "a" + TF) == "Dequeued", "a known policy admits")


async def test_a_quota_labelled_block_is_held_by_its_head_until_the_label_changes(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "4", **{"koord-queue/queue-policy": "Block"}))
    await start_queue(mini)
    await until(lambda: policy(mini, "q") == "Block" and condition(mini, "q").get("status") == "True", "Block")
    await mini.put(TFJOBS, tfjob("runs", "q", workers=2))
    await until(lambda: phase(mini, "runs" + TF) == "Dequeued", "there is room for two")
    await mini.put(TFJOBS, tfjob("big", "q", workers=4, annotations={"scheduling.x-k8s.io/priority": "9"}))
    await until(lambda: "resKey:cpu" in reserved(mini, "big" + TF).get("message", ""), "big waits")
    await mini.put(TFJOBS, tfjob("small", "q", workers=1))
    await until(lambda: "is blocked" in reserved(mini, "small" + TF).get("message", ""), "small waits behind it")
    await mini.edit(ELASTIC_QUOTAS, "quotas/q", {"metadata": {"labels": {"koord-queue/queue-policy": "Priority"}}})
    await until(lambda: phase(mini, "small" + TF) == "Dequeued", "now it may pass")
    await mini.edit(ELASTIC_QUOTAS, "quotas/q", {"metadata": {"labels": {"koord-queue/queue-policy": "Block"}}})
    await until(lambda: policy(mini, "q") == "Block", "Block again")
    await mini.put(TFJOBS, tfjob("late", "q", workers=1))
    await until(lambda: "is blocked" in reserved(mini, "late" + TF).get("message", ""), "late waits")
    for name in ("runs", "small"):
        await mini.delete(TFJOBS, f"team/{name}")
    await until(lambda: phase(mini, "big" + TF) == "Dequeued", "the head goes first")
    assert phase(mini, "late" + TF) == "Enqueued"


async def test_a_labelled_job_is_charged_even_beyond_max(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "1"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("loose", "q", workers=4, suspend=False))
    await until(lambda: phase(mini, "loose" + TF) == "Dequeued", "charged at once")
    await until(lambda: "ResumedOutsideQueue" in reasons(mini), "told")
    item = (await mini.ledger.items("admitted/"))["admitted/q"]
    assert item.used.get("cpu", 0) + item.held.get("cpu", 0) == 4000
    await mini.put(TFJOBS, tfjob("plain", suspend=False))
    await mini.put(TFJOBS, {**tfjob("foreign", "q"), "spec": {**tfjob("foreign", "q")["spec"],
                   "runPolicy": {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue"}}})  # fmt: skip
    await mini.put(TFJOBS, tfjob("later", "q"))
    await until(lambda: phase(mini, "later" + TF) == "Enqueued", "later waits")
    assert phase(mini, "plain" + TF) == phase(mini, "foreign" + TF) == "none"


async def test_an_unknown_queue_is_told_once_and_healed(mini: MiniCluster) -> None:
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "nowhere"))
    unit = await until(lambda: phase(mini, "a" + TF) == "Enqueued" and unit_of(mini, "a" + TF), "a waits")
    assert unit["status"]["message"] == "queue nowhere not found for queueUnit team/a-tf-qu"
    reserved = {each["type"]: each for each in unit["status"]["conditions"]}["QuotaReserved"]
    assert (reserved["status"], reserved["reason"]) == ("False", "Misconfigured")
    await until(lambda: "QueueNotFound" in reasons(mini), "told")
    await mini.put(ELASTIC_QUOTAS, quota("nowhere", "8"))
    await until(lambda: phase(mini, "a" + TF) == "Dequeued", "admitted once the quota exists")
    assert len([one for one in mini.events if one[2] == "QueueNotFound"]) == 1


async def test_more_than_max_is_told_apart_and_cured_by_an_edit(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "1"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("big", "q", workers=4))
    await until(lambda: reserved(mini, "big" + TF).get("reason") == "ExceedsMaxQuota", "big waits for an edit")
    assert reserved(mini, "big" + TF)["status"] == "False"
    await mini.edit(ELASTIC_QUOTAS, "quotas/q", {"spec": {"max": {"cpu": "8"}}})
    await until(lambda: phase(mini, "big" + TF) == "Dequeued", "an edit cures it")


async def test_pending_too_long_falls_back_and_returns_under_a_new_trace(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "8"))
    await start_queue(mini, timeouts={"TFJob": Timeouts(running=3.0, backoff=0.5)})
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: resumed(mini, "a"), "resumed")
    first = unit_of(mini, "a" + TF)["metadata"]["annotations"]["koord.sh/traceparent"]
    await until(lambda: phase(mini, "a" + TF) == "TimeoutBackoff", "falls back")
    fallen = unit_of(mini, "a" + TF)["status"]
    assert fallen["message"] == "Backoff due to running timeout"
    assert fallen["admissions"] == []
    assert fallen["requeueState"]["count"] == 1
    await until(lambda: mini.get(TFJOBS, "team/a")["spec"]["runPolicy"]["suspend"] is True, "suspended again")  # type: ignore[index]
    await until(lambda: resumed(mini, "a"), "resumed again")
    second = unit_of(mini, "a" + TF)["metadata"]["annotations"]["koord.sh/traceparent"]
    assert first[3:35] != second[3:35]
    await status(mini, "a", "Running")
    await until(lambda: phase(mini, "a" + TF) == "Running", "runs")
    assert "requeueState" not in unit_of(mini, "a" + TF)["status"]


async def test_a_running_job_that_its_user_suspends_gives_its_room_back(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: resumed(mini, "a"), "resumed")
    await status(mini, "a", "Running")
    await until(lambda: phase(mini, "a" + TF) == "Running", "runs")
    await mini.put(TFJOBS, tfjob("b", "q", annotations={"scheduling.x-k8s.io/priority": "9"}))
    await until(lambda: phase(mini, "b" + TF) == "Enqueued", "b waits")
    await mini.edit(TFJOBS, "team/a", {"spec": {"runPolicy": {"suspend": True}}, "status": {"conditions": []}})
    await until(lambda: phase(mini, "a" + TF) == "Enqueued", "a goes back")
    await until(lambda: phase(mini, "b" + TF) == "Dequeued", "b gets the room")


async def test_a_job_that_its_user_lets_go_is_charged_and_left_alone(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: phase(mini, "a" + TF) == "Dequeued", "a holds the room")
    await mini.put(TFJOBS, tfjob("b", "q"))
    await until(lambda: phase(mini, "b" + TF) == "Enqueued", "b waits")
    await mini.edit(TFJOBS, "team/b", {"spec": {"runPolicy": {"suspend": False}}})
    await until(lambda: phase(mini, "b" + TF) == "Dequeued", "charged at once")
    assert unit_of(mini, "b" + TF)["status"]["message"] == "Dequeued because the job runs outside the queue"
    await status(mini, "b", "Running")
    await until(lambda: phase(mini, "b" + TF) == "Running", "runs")
    await until(lambda: "ResumedOutsideQueue" in reasons(mini), "an event tells it")
    job = mini.get(TFJOBS, "team/b")
    assert job is not None and job["spec"]["runPolicy"]["suspend"] is False
    item = (await mini.ledger.items("admitted/"))["admitted/q"]
    assert item.used.get("cpu", 0) + item.held.get("cpu", 0) == 4000


async def test_an_admitted_job_that_is_suspended_again_falls_back(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini, timeouts={"TFJob": Timeouts(backoff=0.3)})
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: resumed(mini, "a"), "resumed")
    await mini.edit(TFJOBS, "team/a", {"spec": {"runPolicy": {"suspend": True}}})
    await until(lambda: unit_of(mini, "a" + TF)["status"].get("requeueState", {}).get("count") == 1, "falls back")
    await until(lambda: resumed(mini, "a"), "and is let go again")
    assert phase(mini, "a" + TF) == "Dequeued"


async def test_a_deactivated_job_is_suspended_and_gives_its_room_back_with_its_pods(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: resumed(mini, "a"), "resumed")
    await status(mini, "a", "Running")
    await until(lambda: phase(mini, "a" + TF) == "Running", "runs")
    annotations = {"koord-queue/related-queueunit": "team/a-tf-qu", "koord-queue/related-podset-name": "worker"}
    metadata = {"name": "a-0", "namespace": "team", "annotations": annotations}
    await mini.put(PODS, {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}})
    await until(lambda: unit_of(mini, "a" + TF)["status"]["podState"]["running"] == 1, "the pod is counted")
    await mini.put(TFJOBS, tfjob("b", "q"))
    await until(lambda: phase(mini, "b" + TF) == "Enqueued", "b waits")
    active = "scheduling.x-k8s.io/active"
    await mini.edit(TFJOBS, "team/a", {"metadata": {"annotations": {active: "false"}}})
    await until(lambda: phase(mini, "a" + TF) == "Enqueued", "a is evicted")
    job = mini.get(TFJOBS, "team/a")
    assert job is not None and job["spec"]["runPolicy"]["suspend"] is True
    await until(lambda: "Deactivated" in reasons(mini), "an event tells it")
    item = (await mini.ledger.items("admitted/"))["admitted/q"]
    assert item.used.get("cpu", 0) > 0
    await mini.delete(PODS, "team/a-0")
    await until(lambda: phase(mini, "b" + TF) == "Dequeued", "b gets the room when the pod is gone")
    assert unit_of(mini, "a" + TF)["status"]["admissions"] == []
    await mini.edit(TFJOBS, "team/a", {"metadata": {"annotations": {active: "true"}}})
    await until(lambda: "active again" in reserved(mini, "a" + TF).get("message", ""), "a waits again")
    await mini.delete(TFJOBS, "team/b")
    await until(lambda: resumed(mini, "a"), "a is resumed again")


async def test_a_job_that_ran_as_long_as_it_may_is_evicted(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    limit = {"scheduling.x-k8s.io/max-exec-time-seconds": "1"}
    await mini.put(TFJOBS, tfjob("a", "q", annotations=limit))
    await until(lambda: resumed(mini, "a"), "resumed")
    await status(mini, "a", "Running")
    await until(lambda: "MaximumExecutionTimeExceeded" in reasons(mini), "told")
    await until(lambda: phase(mini, "a" + TF) == "Enqueued", "evicted")
    await until(lambda: unit_of(mini, "a" + TF)["status"]["admissions"] == [], "there are no pods to wait for")
    assert unit_of(mini, "a" + TF)["spec"]["active"] is False


async def test_a_running_job_is_charged_for_the_pods_it_has(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "4"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q", workers=3))
    await until(lambda: resumed(mini, "a"), "resumed")
    annotations = {"koord-queue/related-queueunit": "team/a-tf-qu", "koord-queue/related-podset-name": "worker"}

    async def pod(name: str) -> None:
        metadata = {"name": name, "namespace": "team", "annotations": annotations}
        await mini.put(PODS, {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}})

    async def used() -> int:
        return (await mini.ledger.items("admitted/"))["admitted/q"].used.get("cpu", 0)

    async def charged(amount: int) -> bool:
        return await used() == amount

    for name in ("a-0", "a-1", "a-2"):
        await pod(name)
    await status(mini, "a", "Running")
    await until(lambda: unit_of(mini, "a" + TF)["status"]["podState"].get("running") == 3, "all run")
    assert await used() == 3000
    await mini.put(TFJOBS, tfjob("b", "q", workers=2))
    await until(lambda: "resKey:cpu" in reserved(mini, "b" + TF).get("message", ""), "b does not fit")

    # Scaled down: what is not needed any more goes to b.
    await mini.edit(TFJOBS, "team/a", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}})
    await mini.delete(PODS, "team/a-2")
    await until(lambda: phase(mini, "b" + TF) == "Dequeued", "b gets the room")
    assert unit_of(mini, "a" + TF)["spec"]["resource"] == {"cpu": "2"}
    await until(lambda: unit_of(mini, "a" + TF)["status"]["admissions"] == [
        {"name": "worker", "replicas": 2, "running": 2, "resources": {"cpu": "2"}}], "admissions follow")  # fmt: skip

    # Scaled up: charged at once, even beyond max.
    await mini.edit(TFJOBS, "team/a", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 4}}}})
    for name in ("a-2", "a-3"):
        await pod(name)
    await until(lambda: charged(6000), "four of a and two of b")
    await until(lambda: unit_of(mini, "a" + TF)["status"]["admissions"][0]["replicas"] == 4, "replicas rise")

    # Sent back, it waits with all that its job asks for, not with what it had.
    await mini.delete(PODS, "team/a-0")
    await mini.edit(TFJOBS, "team/a", {"spec": {"runPolicy": {"suspend": True}}, "status": {"conditions": []}})
    await until(lambda: phase(mini, "a" + TF) == "Enqueued", "a goes back")
    await until(lambda: unit_of(mini, "a" + TF)["spec"]["resource"] == {"cpu": "4"}, "and asks for four")
    await until(lambda: charged(2000), "only b is charged")


async def test_running_pods_are_counted(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "4"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q", workers=2))
    await until(lambda: resumed(mini, "a"), "resumed")
    annotations = {"koord-queue/related-queueunit": "team/a-tf-qu", "koord-queue/related-podset-name": "worker"}
    for name, node_name in (("a-0", "n1"), ("a-1", "")):
        metadata = {"name": name, "namespace": "team", "annotations": annotations}
        await mini.put(PODS, {"metadata": metadata, "spec": {"nodeName": node_name}, "status": {"phase": "Pending"}})
    await mini.put(PODS, {"metadata": {"name": "foreign", "namespace": "team"}, "spec": {"nodeName": "n1"}})
    state = await until(
        lambda: (found := unit_of(mini, "a" + TF)["status"]).get("podState") == {"running": 1, "pending": 1} and found
    )
    assert state["admissions"][0]["running"] == 1
    assert state["admissions"][0]["replicas"] == 2


async def test_a_unit_without_a_job_is_admitted_too(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "4"))
    await start_queue(mini)
    labels = {"quota.scheduling.koordinator.sh/name": "q"}
    body = {"metadata": {"name": "own", "namespace": "team", "labels": labels}, "spec": {"request": {"cpu": "2"}}}
    await mini.put(QUEUE_UNITS, body)
    await until(lambda: phase(mini, "own") == "Dequeued", "admitted")
    broken = {"metadata": {"name": "odd", "namespace": "team", "labels": labels}, "spec": {"request": {"cpu": "2x"}}}
    await mini.put(QUEUE_UNITS, broken)
    await until(lambda: "2x" in unit_of(mini, "odd").get("status", {}).get("message", ""), "told why not")
    await until(lambda: "InvalidQueueUnit" in reasons(mini), "an event tells it")


async def test_the_unit_follows_its_job_while_it_waits(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "1"))
    await mini.put(ELASTIC_QUOTAS, quota("other", "9"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q", workers=4))
    await until(lambda: phase(mini, "a" + TF) == "Enqueued", "waits")
    await mini.edit(TFJOBS, "team/a", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}},
                    "metadata": {"annotations": {"scheduling.x-k8s.io/priority": "7"}}})  # fmt: skip
    await until(lambda: unit_of(mini, "a" + TF)["spec"].get("resource") == {"cpu": "3"}, "counts")
    await until(lambda: unit_of(mini, "a" + TF)["spec"].get("priority") == 7, "priority")
    await mini.edit(TFJOBS, "team/a", {"metadata": {"labels": {"quota.scheduling.koordinator.sh/name": "other"}}})
    await until(lambda: phase(mini, "a" + TF) == "Dequeued", "admitted in the other quota")
    item = (await mini.ledger.items("admitted/"))["admitted/other"]
    assert item.used.get("cpu", 0) + item.held.get("cpu", 0) == 3000


async def test_deleting_a_job_removes_its_unit_and_frees_its_room(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    await mini.put(JOBS, batch_job("a", "q", pods=2))
    await until(lambda: phase(mini, "a") == "Dequeued", "admitted")
    await mini.put(JOBS, batch_job("b", "q", pods=2))
    await until(lambda: phase(mini, "b") == "Enqueued", "b waits")
    await mini.delete(JOBS, "team/a")
    await until(lambda: phase(mini, "a") == "none", "the unit goes")
    await until(lambda: phase(mini, "b") == "Dequeued", "b gets the room")


async def test_a_malformed_job_is_named_and_nothing_is_made(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    bad = tfjob("bad", "q")
    bad["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = "many"
    worse = tfjob("worse", "q", cpu="one")
    await mini.put(TFJOBS, bad)
    await mini.put(TFJOBS, worse)
    await mini.put(TFJOBS, tfjob("good", "q"))
    await until(lambda: phase(mini, "good" + TF) == "Dequeued", "others go on")
    notes = await until(
        lambda: len(found := [note for _, _, reason, note in mini.events if reason == "InvalidJob"]) == 2 and found
    )
    assert any("replicas" in note and "many" in note for note in notes)
    assert any("cpu" in note and "one" in note for note in notes)
    assert phase(mini, "bad" + TF) == phase(mini, "worse" + TF) == "none"


async def test_impossible_amounts_are_named_and_do_not_stop_the_others(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "8"))
    service = await start_queue(mini)
    huge = tfjob("huge", "q")
    container = huge["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"]["requests"] = {"memory": "9E"}
    await mini.put(TFJOBS, huge)
    labels = {"quota.scheduling.koordinator.sh/name": "q"}
    body = {"metadata": {"name": "vast", "namespace": "team", "labels": labels}, "spec": {"request": {"memory": "9E"}}}
    await mini.put(QUEUE_UNITS, body)
    await mini.put(QUEUE_UNITS, {"metadata": {"name": "odd", "namespace": "team"}, "spec": {"request": 7}})
    empty = tfjob("empty", "q")
    empty["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"] = {}
    await mini.put(TFJOBS, empty)
    await until(lambda: resumed(mini, "empty"), "what asks for nothing fits")
    notes = await until(
        lambda: {"InvalidJob", "InvalidQueueUnit", "InvalidObject"} <= reasons(mini) and mini.events, "three are told"
    )
    assert any(kind == "TFJob" and "memory" in note and "2^53" in note for kind, _, _, note in notes)
    assert any(key == "team/odd" and "spec.request" in note for _, key, _, note in notes)
    assert phase(mini, "huge" + TF) == "none"
    assert service._lease.held


async def test_positions_are_published(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "1"))
    for name, priority in (("a", "10"), ("b", "20"), ("c", "15")):
        await mini.put(TFJOBS, tfjob(name, "q", annotations={"scheduling.x-k8s.io/priority": priority}))
    await start_queue(mini)
    details = await until(
        lambda: len(found := (mini.get(QUEUES, "koord-queue/q") or {}).get("status", {})
                    .get("queueItemDetails", {}).get("active", [])) == 3 and found,
        "three positions", timeout=40,
    )  # fmt: skip
    assert [(each["name"], each["position"]) for each in details] == [("b-tf-qu", 1), ("c-tf-qu", 2), ("a-tf-qu", 3)]


async def test_a_refused_status_write_is_planned_again(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    failures = iter(["conflict", "rejected", "gone"])

    def refuse(decision: Any) -> Any:
        return next(failures, None) if getattr(decision, "claim", None) is not None else None

    mini.refuse = refuse
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q"))
    await until(lambda: resumed(mini, "a"), "resumed in the end")
    item = (await mini.ledger.items("admitted/"))["admitted/q"]
    assert item.used.get("cpu", 0) + item.held.get("cpu", 0) == 2000
