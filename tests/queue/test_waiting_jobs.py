"""Who waits, for what, and who is next: units without a job, what a job is told, priorities edited meanwhile."""

from collections.abc import Awaitable, Callable

from koord.kube.resources import ELASTIC_QUOTAS, JOBS, QUEUE_UNITS, TFJOBS
from tests.queue.harness import MiniCluster, batch_job, quota, tfjob, until
from tests.queue.looking import TF, phase, start_queue, unit_of


async def test_a_unit_that_names_a_job_waits_for_it_and_holds_nothing_without_it(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "4"))
    await start_queue(mini)
    labels = {"quota.scheduling.koordinator.sh/name": "q"}
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "late", "namespace": "team"}
    body = {
        "metadata": {"name": "own", "namespace": "team", "labels": labels},
        "spec": {"request": {"cpu": "2"}, "consumerRef": reference},
    }
    await mini.put(QUEUE_UNITS, body)
    text = "spec.consumerRef: Job team/late does not exist"

    def told() -> bool:
        state = unit_of(mini, "own").get("status", {})
        reserved = [entry for entry in state.get("conditions", ()) if entry["type"] == "QuotaReserved"]
        return state.get("message") == text and bool(reserved) and reserved[0]["reason"] == "Misconfigured"

    async def taken() -> int:
        item = (await mini.ledger.items("admitted/"))["admitted/q"]
        return item.used.get("cpu", 0) + item.held.get("cpu", 0)

    await until(told, "it says what is missing")
    await until(lambda: any(event[2] == "JobNotFound" for event in mini.events), "an event tells it")
    assert phase(mini, "own") == "Enqueued"
    assert await taken() == 0
    # The job comes (one that the queue leaves alone, so that it has no unit of its own), and goes.
    await mini.put(JOBS, batch_job("late", suspend=False))
    await until(lambda: phase(mini, "own") == "Dequeued", "admitted")
    assert await taken() == 2000
    await mini.delete(JOBS, "team/late")
    await until(lambda: phase(mini, "own") == "Enqueued", "it waits again")
    await until(told, "and says so")
    await until(lambda: _nothing(taken), "its room is free")


async def _nothing(taken: Callable[[], Awaitable[int]]) -> bool:
    return await taken() == 0


async def test_a_waiting_job_is_told_what_it_waits_for(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("a", "q", workers=2))
    await until(lambda: phase(mini, "a" + TF) == "Dequeued", "a goes")
    await mini.put(TFJOBS, tfjob("b", "q", workers=2))
    text = "queueUnit team/b-tf-qu: limited quotaName:q, limited resKey:cpu,"

    def told() -> list[tuple[str, str, str, str]]:
        return [event for event in mini.events if event[2] == "Waiting"]

    def of(name: str) -> list[str]:
        return [note for _, _, _, note in told() if name in note]

    await until(lambda: text in of("b-tf-qu"), "b is told")
    # More that waits, and more tries, are no more words for b.
    await mini.put(TFJOBS, tfjob("c", "q", workers=1))
    await until(lambda: of("c-tf-qu"), "c is told")
    await mini.edit(TFJOBS, "team/b", {"metadata": {"annotations": {"scheduling.x-k8s.io/priority": "3"}}})
    await until(lambda: unit_of(mini, "b" + TF)["spec"].get("priority") == 3, "b is looked at again")
    await mini.put(TFJOBS, tfjob("d", "q", workers=1))
    await until(lambda: of("d-tf-qu"), "d is told")
    assert len(of("b-tf-qu")) == len(set(of("b-tf-qu"))) <= 2
    assert {kind for kind, _, reason, _ in mini.events if reason == "Waiting"} == {"TFJob"}


async def test_a_priority_raised_while_waiting_changes_who_is_next(mini: MiniCluster) -> None:
    await mini.put(ELASTIC_QUOTAS, quota("q", "2"))
    await start_queue(mini)
    await mini.put(TFJOBS, tfjob("first", "q", workers=2))
    await until(lambda: phase(mini, "first" + TF) == "Dequeued", "it goes")
    for name, number in (("low", "1"), ("high", "5")):
        await mini.put(TFJOBS, tfjob(name, "q", workers=2, annotations={"scheduling.x-k8s.io/priority": number}))
        await until(lambda name=name: phase(mini, name + TF) == "Enqueued", "it waits")  # type: ignore[misc]
    await mini.edit(TFJOBS, "team/low", {"metadata": {"annotations": {"scheduling.x-k8s.io/priority": "9"}}})
    await until(lambda: unit_of(mini, "low" + TF)["spec"].get("priority") == 9, "the unit follows")
    await mini.delete(TFJOBS, "team/first")
    await until(lambda: phase(mini, "low" + TF) == "Dequeued", "the one that was raised is next")
    assert phase(mini, "high" + TF) == "Enqueued"
