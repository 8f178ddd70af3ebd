"""Quota and queue together on real NATS and Redis: lending, borrowing, taking back, scarcity, profiles."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from koord.accounting.takes import pod_takes
from koord.contracts.decisions import Evict
from koord.kube.resources import ELASTIC_QUOTA_PROFILES, ELASTIC_QUOTAS, NODES, PODS, QUEUE_UNITS, TFJOBS
from koord.ledger.model import ClaimAnswer, ClaimRequest, Member, NodeSeen
from koord.queue.service import QueueService
from koord.queue.settings import QueueSettings
from koord.quota import service as module
from koord.quota.service import QuotaService
from koord.quota.settings import QuotaSettings
from tests.queue.harness import MiniCluster, Object, node, quota, running, tfjob, until

PREFIX = "quota.scheduling.koordinator.sh/"


@pytest.fixture
async def mini(nats_url: str, redis_url: str, cluster: str) -> AsyncIterator[MiniCluster]:
    async with running(nats_url, redis_url, cluster) as made:
        yield made


async def start(mini: MiniCluster, cpu: str = "20", **settings: Any) -> QuotaService:
    await mini.put(NODES, node("n", cpu))
    service = QuotaService(await mini.host("quota"), QuotaSettings(**settings))
    await service.start()
    await QueueService(await mini.host("queue"), QueueSettings()).start()
    return service


def quota_of(name: str, most: str, least: str = "0", parent: str = "", **labels: str) -> Object:
    body = quota(name, most, parent, **labels)
    body["spec"]["min"] = {"cpu": least}
    return body


async def limit(mini: MiniCluster, item: str) -> int | None:
    items = await mini.ledger.items(item)
    return items[item].limits.get("cpu") if item in items and items[item].open else None


async def is_limit(mini: MiniCluster, item: str, wanted: int) -> None:
    async def there() -> bool:
        return await limit(mini, item) == wanted

    try:
        await until(there, f"{item} {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{item} is {await limit(mini, item)}, not {wanted}") from error


def runs(mini: MiniCluster, name: str) -> bool:
    job = mini.get(TFJOBS, f"team/{name}")
    return job is not None and job["spec"]["runPolicy"].get("suspend") is False


async def ends(mini: MiniCluster, name: str) -> None:
    condition = {"type": "Succeeded", "status": "True"}
    await mini.edit(TFJOBS, f"team/{name}", {"status": {"conditions": [condition]}})


def shown(mini: MiniCluster, name: str, key: str) -> str:
    annotations = (mini.get(ELASTIC_QUOTAS, f"quotas/{name}") or {}).get("metadata", {}).get("annotations", {})
    return str(annotations.get(PREFIX + key, ""))


def pod(name: str, quota_name: str, cpu: str, **spec: Any) -> Object:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": {"name": name, "namespace": "team", "labels": {PREFIX + "name": quota_name}},
        "spec": {"nodeName": "n", "containers": containers, **spec},
        "status": {"phase": "Running"},
    }


async def test_idle_room_is_lent_and_goes_back_as_jobs_end(mini: MiniCluster) -> None:
    for name in "ab":
        await mini.put(ELASTIC_QUOTAS, quota_of(name, "20", "10"))
    await start(mini)
    for number in range(6):
        await mini.put(TFJOBS, tfjob(f"a{number}", "a", workers=4))
    await until(lambda: sum(runs(mini, f"a{n}") for n in range(6)) == 5, "a borrows all of b")
    await is_limit(mini, "admitted/a", 20000)
    assert await limit(mini, "admitted/b") == 10000  # b's min is there without asking
    await until(lambda: shown(mini, "a", "runtime") == '{"cpu":"20"}', "the runtime is shown")
    await mini.put(TFJOBS, tfjob("b0", "b", workers=8))
    await until(lambda: runs(mini, "b0"), "the lender is served at once")
    await is_limit(mini, "admitted/a", 12000)  # b asks for 8 of its 10
    running_now = [f"a{n}" for n in range(6) if runs(mini, f"a{n}")]
    for name in running_now[:2]:
        await ends(mini, name)
    await until(lambda: shown(mini, "a", "request") == '{"cpu":"16"}', "two of a have ended")
    assert sum(runs(mini, f"a{n}") for n in range(6)) == 5  # 12 are taken, nothing is borrowed any more
    await ends(mini, running_now[2])
    await until(lambda: all(runs(mini, f"a{n}") for n in range(6)), "within its share a goes on")


async def test_mins_are_scaled_when_nodes_go(mini: MiniCluster) -> None:
    await mini.put(NODES, node("m", "20"))
    for name in "ab":
        await mini.put(ELASTIC_QUOTAS, quota_of(name, "40", "20", **{PREFIX + "allow-lent-resource": "false"}))
    service = await start(mini)
    await is_limit(mini, "quota/a", 20000)
    await mini.delete(NODES, "m")
    await is_limit(mini, "quota/a", 10000)
    assert await limit(mini, "admitted/a") == 20000
    await mini.put(NODES, node("m", "40"))
    await is_limit(mini, "quota/b", 20000)
    await service.drain()


async def test_jobs_larger_than_their_shares_take_turns(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota_of("top", "20"))
    for name in "ab":
        await mini.put(ELASTIC_QUOTAS, quota_of(name, "20", parent="top"))
    await start(mini, "100")
    for number in range(2):
        for name in "ab":
            await mini.put(TFJOBS, tfjob(f"{name}{number}", name, workers=12))
    jobs = ["a0", "a1", "b0", "b1"]
    order: list[str] = []
    while len(order) < 4:
        await until(lambda: any(runs(mini, job) for job in jobs if job not in order), "one of them runs")
        (now,) = [job for job in jobs if runs(mini, job) and job not in order]
        await until(lambda job=now: mini.get(QUEUE_UNITS, f"team/{job}-tf-qu")["status"]["admissions"], "admitted")  # type: ignore[misc,index]
        order.append(now)
        if len(order) < 4:  # what it has beyond its share stays with it, but is not its own to take again
            await is_limit(mini, f"admitted/{now[0]}", 10000)
            assert await limit(mini, f"quota/{now[0]}") == 12000
        await ends(mini, now)
    assert {order[0][0], order[1][0]} == {order[2][0], order[3][0]} == {"a", "b"}


async def test_the_first_job_of_an_idle_quota_does_not_wait_for_a_tick(
    mini: MiniCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mini.put(ELASTIC_QUOTAS, quota_of("a", "10"))
    await start(mini)
    await is_limit(mini, "admitted/a", 0)
    await until(lambda: mini.get(ELASTIC_QUOTAS, "koord-system/koordinator-root-quota"), "settled")
    # The next tick would come in an hour.
    monkeypatch.setattr(module, "PERIOD_S", 3600.0)
    for number in range(5):
        await mini.put(TFJOBS, tfjob(f"j{number}", "a", workers=1))
        await until(lambda name=f"j{number}": runs(mini, name), "runs")  # type: ignore[misc]
        await ends(mini, f"j{number}")
        await is_limit(mini, "admitted/a", 0)


async def test_with_max_as_limit_nothing_is_shared(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota_of("a", "30"))
    await start(mini, queue_limit="max", oversell_rate="1.5")
    await is_limit(mini, "admitted/a", 45000)
    await mini.put(TFJOBS, tfjob("big", "a", workers=40))
    await until(lambda: runs(mini, "big"), "oversold")
    await mini.put(TFJOBS, tfjob("bigger", "a", workers=50))

    def reason() -> str:
        unit = mini.get(QUEUE_UNITS, "team/bigger-tf-qu") or {}
        conditions = unit.get("status", {}).get("conditions", [])
        return str(next((each["reason"] for each in conditions if each["type"] == "QuotaReserved"), ""))

    await until(lambda: reason() == "ExceedsMaxQuota", "the queue knows the rate")


REVOKING: dict[str, Any] = {"monitor_all_quotas": True, "delay_evict_s": 0.2, "revoke_interval_s": 0.05}


async def test_nothing_is_taken_back_while_frozen(mini: MiniCluster) -> None:
    """Two intervals from the start on nobody knows yet whether what the bus shows is whole."""
    for name in "ab":
        await mini.put(ELASTIC_QUOTAS, quota_of(name, "20", "10"))
    for number in range(5):
        await mini.put(PODS, pod(f"a{number}", "a", "4", priority=number))
    await start(mini, **REVOKING, freeze_interval_s=3600.0)
    await is_limit(mini, "quota/a", 20000)
    pending = pod("b0", "b", "10")
    pending["spec"]["nodeName"] = ""
    await mini.put(PODS, pending)
    await until(lambda: shown(mini, "a", "runtime") == '{"cpu":"10"}', "overused")
    for request in ("9", "8", "7"):  # each is written back by a later pass, which looks at overuse, too
        pending["spec"]["containers"][0]["resources"]["requests"]["cpu"] = request
        await mini.put(PODS, pending)
        await until(lambda cpu=request: shown(mini, "b", "request") == f'{{"cpu":"{cpu}"}}', "a later pass")  # type: ignore[misc]
    assert not any(isinstance(each, Evict) for _, each in mini.decisions)


async def test_overuse_is_taken_back(mini: MiniCluster) -> None:
    for name in "ab":
        await mini.put(ELASTIC_QUOTAS, quota_of(name, "20", "10"))
    for number in range(5):
        await mini.put(PODS, pod(f"a{number}", "a", "4", priority=number))
    kept = pod("kept", "a", "1", priority=-5)
    kept["metadata"]["labels"][PREFIX + "preemptible"] = "false"
    await mini.put(PODS, kept)
    await start(mini, **REVOKING, freeze_interval_s=0.01)
    await is_limit(mini, "quota/a", 20000)
    assert mini.get(PODS, "team/a0") is not None
    pending = pod("b0", "b", "10")
    pending["spec"]["nodeName"] = ""
    await mini.put(PODS, pending)
    await until(lambda: not any(mini.get(PODS, f"team/a{n}") for n in range(3)), "three have to go")
    assert [mini.get(PODS, f"team/a{n}") is not None for n in range(5)] == [False, False, False, True, True]
    assert mini.get(PODS, "team/kept") is not None
    await until(lambda: any(reason == "QuotaRevoked" for _, _, reason, _ in mini.events), "told")
    assert sum(isinstance(each, Evict) for _, each in mini.decisions) == 3


async def test_a_profile_makes_a_tree(mini: MiniCluster) -> None:
    pool = node("p1", "8", memory="16Gi")
    pool["metadata"]["labels"] = {"pool": "gpu"}
    await mini.put(NODES, pool)
    spec = {"quotaName": "gpu-root", "resourceRatio": "0.5", "nodeSelector": {"matchLabels": {"pool": "gpu"}}}
    await mini.put(ELASTIC_QUOTA_PROFILES, {"metadata": {"name": "gpu", "namespace": "quotas"}, "spec": spec})
    await start(mini)

    def root() -> Object:
        return mini.get(ELASTIC_QUOTAS, "quotas/gpu-root") or {}

    await until(lambda: root().get("spec", {}).get("min") == {"cpu": "4", "memory": "8Gi"}, "made")
    tree = root()["metadata"]["labels"][PREFIX + "tree-id"]
    await until(
        lambda: mini.get(ELASTIC_QUOTA_PROFILES, "quotas/gpu")["metadata"].get("labels") == {PREFIX + "tree-id": tree},  # type: ignore[index]
        "the profile is labelled",
    )
    leaf = quota_of("leaf", "100", parent="gpu-root", **{PREFIX + "tree-id": tree})
    await mini.put(ELASTIC_QUOTAS, leaf)
    await mini.put(TFJOBS, tfjob("j", "leaf", workers=50))
    await is_limit(mini, "admitted/leaf", 4000)
    pool["status"]["allocatable"]["cpu"] = "16"
    await mini.put(NODES, pool)
    await is_limit(mini, "admitted/leaf", 8000)
    rival = {"quotaName": "gpu-root", "resourceRatio": "1"}
    young = {"name": "young", "namespace": "quotas", "creationTimestamp": "2999-01-01T00:00:00Z"}
    await mini.put(ELASTIC_QUOTA_PROFILES, {"metadata": young, "spec": rival})
    words = "ElasticQuotaProfile quotas/young: spec.quotaName: quota gpu-root is already that of profile quotas/gpu"
    await until(lambda: any(note == words for *_, note in mini.events), "the rival is told")
    bad = {"quotaName": "x", "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}
    await mini.put(ELASTIC_QUOTA_PROFILES, {"metadata": {"name": "bad", "namespace": "quotas"}, "spec": bad})
    await until(lambda: any(reason == "InvalidProfile" for _, _, reason, _ in mini.events), "told")


async def test_what_is_wrong_is_told_and_what_is_shown_is_put_right(mini: MiniCluster) -> None:
    lost = quota_of("lost", "5", parent="nowhere")
    lost["metadata"]["annotations"] = {PREFIX + "request": "{broken", PREFIX + "runtime": "[1]"}
    await mini.put(ELASTIC_QUOTAS, lost)
    await mini.put(PODS, pod("p", "lost", "2"))
    await start(mini)
    await until(lambda: shown(mini, "lost", "request") == shown(mini, "lost", "runtime") == '{"cpu":"2"}', "rewritten")
    await until(lambda: any(reason == "ParentNotFound" for _, _, reason, _ in mini.events), "told")
    (note,) = [note for _, _, reason, note in mini.events if reason == "ParentNotFound"]
    assert note.startswith(f"ElasticQuota quotas/lost: metadata.labels[{PREFIX}parent]: there is no quota 'nowhere'")


async def test_the_ledger_holds_pods_that_must_not_be_preempted_to_min(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota_of("a", "20", "4"))
    await mini.put(
        PODS, {**pod("asks", "a", "20"), "spec": {"containers": pod("asks", "a", "20")["spec"]["containers"]}}
    )
    await start(mini)
    await is_limit(mini, "quota/a", 20000)
    await is_limit(mini, "guaranteed/a", 4000)
    await mini.ledger.observe([NodeSeen("node/n", {"cpu": 20000, "pods": 99}, "1")], role_epoch=mini.reconciler_epoch)

    async def claim(uid: str, cpu: int, *, preemptible: bool) -> ClaimAnswer:
        takes = pod_takes({"cpu": cpu}, "n", ("a",), unit_owned=False, preemptible=preemptible)
        request = ClaimRequest(f"c-{uid}", (Member(uid, "team", uid, "n", takes),))
        return (await mini.ledger.claim([request]))[0]

    assert (await claim("p1", 3000, preemptible=False)).status == "ok"
    refused = await claim("p2", 2000, preemptible=False)
    assert [(short.item, short.needed, short.available) for short in refused.shorts] == [("guaranteed/a", 2000, 1000)]
    assert (await claim("p3", 9000, preemptible=True)).status == "ok"
