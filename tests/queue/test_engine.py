"""The engine without wires: what it decides on what it is told."""

import time
from typing import Any

import msgspec

from koord.contracts.decisions import Create, Delete, Patch, RecordEvents
from koord.contracts.results import Result
from koord.kube.meta import ObjectMeta, OwnerReference
from koord.kube.queues import Queue, QueueUnit
from koord.kube.quotas import ElasticQuota
from koord.kube.resources import QUEUE_UNITS, RAYJOBS, TFJOBS
from koord.ledger.model import ClaimAnswer, Item, Short
from koord.queue.engine import Engine
from koord.queue.views import PodBrief
from koord.telemetry.spans import Spans
from tests.queue.harness import tfjob

NAME = "quota.scheduling.koordinator.sh/name"


def made_engine() -> Engine:
    engine = Engine("test", Spans(), {})
    engine.desk.tick(time.time_ns())
    for name in ("koord-queue", "team"):
        engine.on_namespace(name, "1")
    body = {"metadata": {"name": "q", "namespace": "q", "uid": "uid-q"}, "spec": {"max": {"cpu": "4"}}}
    engine.on_quota("q/q", msgspec.convert(body, ElasticQuota))
    labels = {"create-by-koordqueue": "true"}
    meta = {"name": "q", "namespace": "koord-queue", "uid": "uid-queue", "resourceVersion": "1", "labels": labels}
    engine.on_queue("q", msgspec.convert({"metadata": meta, "spec": {"queuePolicy": "Priority"}}, Queue))
    engine.reconcile()
    settle(engine)
    return engine


def settle(engine: Engine) -> list[Any]:
    """Take the decisions of a pass and answer each as done."""
    decisions = [decision for decision, _ in engine.decisions()]
    for decision in decisions:
        engine.on_result(Result(decision.id, "done"))
    return decisions


def put_job(engine: Engine, name: str = "a", version: int = 1, **meta: Any) -> dict[str, Any]:
    job = tfjob(name, "q", **meta)
    job["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(version)}
    engine.on_job(TFJOBS.token, f"team/{name}", job, 1)
    return job


def put_unit(engine: Engine, create: Create, version: int = 1, **status: Any) -> QueueUnit:
    body = msgspec.json.decode(create.body)
    body["metadata"] |= {"uid": f"uid-{create.name}", "resourceVersion": str(version)}
    body["status"] = status
    unit = view(body)
    engine.on_unit(unit.key, unit)
    return unit


def view(body: dict[str, Any]) -> QueueUnit:
    return msgspec.json.decode(msgspec.json.encode(body), type=QueueUnit)


def created(engine: Engine) -> Create:
    engine.reconcile()
    (create,) = [each for each in settle(engine) if isinstance(each, Create)]
    return create


def test_a_job_makes_one_unit_however_often_it_is_seen() -> None:
    engine = made_engine()
    put_job(engine)
    create = created(engine)
    assert (create.namespace, create.name, create.owner_uid) == ("team", "a-tf-qu", "uid-a")
    body = msgspec.json.decode(create.body)
    assert body["spec"]["resource"] == {"cpu": "2"} == body["spec"]["request"]
    assert body["spec"]["queue"] == "q"
    assert body["metadata"]["ownerReferences"][0]["controller"] is True
    put_unit(engine, create)
    put_job(engine, version=2)
    engine.reconcile()
    assert [each for each in settle(engine) if isinstance(each, Create)] == []


def test_a_name_that_another_unit_has_gets_the_hashed_form() -> None:
    engine = made_engine()
    put_job(engine)
    create = created(engine)
    body = msgspec.json.decode(create.body)
    body["metadata"] |= {"uid": "uid-other", "resourceVersion": "1", "ownerReferences": []}
    engine.on_unit("team/a-tf-qu", view(body))
    engine.world.dirty_jobs.add("uid-a")
    engine.desk.tick(time.time_ns() + 10**9)
    second = created(engine)
    assert second.name.startswith("a-tf-qu-") and len(second.name) == len("a-tf-qu-") + 8


def test_a_job_made_anew_waits_for_the_old_unit_to_go() -> None:
    engine = made_engine()
    put_job(engine)
    create = created(engine)
    unit = put_unit(engine, create)
    engine.on_job(TFJOBS.token, "team/a", None, 2)
    job = tfjob("a", "q")
    job["metadata"] |= {"uid": "uid-new", "resourceVersion": "9"}
    engine.on_job(TFJOBS.token, "team/a", job, 3)
    engine.reconcile()
    decisions = settle(engine)
    assert [each.target.uid for each in decisions if isinstance(each, Delete)] == [unit.metadata.uid]
    assert not [each for each in decisions if isinstance(each, Create)]
    engine.on_unit(unit.key, None)
    assert created(engine).owner_uid == "uid-new"


def test_an_answer_that_came_too_late_gives_the_claim_back() -> None:
    engine = made_engine()
    put_job(engine)
    create = created(engine)
    unit = put_unit(engine, create)
    engine.reconcile()
    planned = engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {}, {})})
    assert [one.key for one in planned] == [unit.key]
    engine.on_unit(unit.key, None)
    assert engine.admission.judge(planned, [ClaimAnswer("ok", 7, 1)], 0)
    assert [one.token for one in engine.admission.to_release] == [7]
    assert not engine.admission.in_flight


def test_nothing_is_kept_of_a_unit_that_went_while_its_record_was_busy() -> None:
    engine = made_engine()
    put_job(engine)
    unit = put_unit(engine, created(engine))
    engine.reconcile()
    items = {"admitted/q": Item({"cpu": 4000}, {}, {})}
    engine.admission.judge(engine.admission.plan(items), [ClaimAnswer("busy")], 0)
    assert engine.admission.plan(items) == []
    engine.on_unit(unit.key, None)
    assert engine.admission._busy_until == {}


def test_the_ledgers_conflict_is_told_in_the_queues_words() -> None:
    engine = made_engine()
    put_job(engine)
    unit = put_unit(engine, created(engine))
    engine.reconcile()
    planned = engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {}, {})})
    short = Short("admitted/q", "cpu", "amount", 2000, 500)
    engine.admission.judge(planned, [ClaimAnswer("conflict", shorts=(short,))], 0)
    waiting = engine.world.queues["q"].waiting
    held = waiting.get(unit.metadata.uid)
    assert held is not None
    refusal = waiting.refusal(held.shape)
    assert refusal is not None and (refusal.message, refusal.available) == (
        "limited quotaName:q, limited resKey:cpu,",
        500,
    )
    assert not waiting.hopeful()
    assert not engine.on_room(["quota/q", "node/n1"])
    assert engine.on_room(["admitted/q"])
    assert engine.admission.judge([], [], 0)
    closed = engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {}, {})})
    assert not engine.admission.judge(closed, [ClaimAnswer("closed")], 0)


def test_decision_one_carries_the_claim_and_decision_two_follows_the_stream() -> None:
    engine = made_engine()
    job = put_job(engine)
    create = created(engine)
    unit = put_unit(engine, create)
    engine.reconcile()
    planned = engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {}, {})})
    engine.admission.judge(planned, [ClaimAnswer("ok", 7, 3)], 0)
    (first,) = [decision for decision, _ in engine.decisions() if isinstance(decision, Patch)]
    assert first.claim is not None and (first.claim.claim, first.claim.token, first.claim.epoch) == (
        planned[0].claim.id, 7, 3
    )  # fmt: skip
    assert (first.subresource, first.target.uid, first.target.resource_version) == ("status", unit.metadata.uid, "1")
    engine.reconcile()
    assert not [each for each, _ in engine.decisions() if isinstance(each, Patch)]
    engine.on_result(Result(first.id, "done", resource_version="2"))
    put_unit(engine, create, 2, **msgspec.json.decode(first.body)["status"])
    engine.reconcile()
    (second,) = [decision for decision, _ in engine.decisions() if isinstance(decision, Patch)]
    assert second.target.resource == TFJOBS.token and second.target.uid == job["metadata"]["uid"]
    body = msgspec.json.decode(second.body)
    assert body["spec"]["runPolicy"]["suspend"] is False
    allocated = msgspec.json.decode(first.body)["status"]["lastAllocateTime"]
    assert body["metadata"]["annotations"]["koord-queue/job-dequeue-timestamp"] == allocated


def test_odd_conditions_of_a_job_are_left_alone() -> None:
    engine = made_engine()
    job = put_job(engine)
    put_unit(engine, created(engine), 2, phase="Enqueued")
    for version, odd in enumerate(([7, {"type": "Created", "status": "True"}], {"type": "Created"}, "x"), 3):
        job = {**job, "metadata": {**job["metadata"], "resourceVersion": str(version)}, "status": {"conditions": odd}}
        engine.on_job(TFJOBS.token, "team/a", job, 1)
        engine.reconcile()
        written = [each for each in settle(engine) if isinstance(each, Patch)]
        assert [each for each in written if each.target.resource == TFJOBS.token] == []


def test_a_finished_rayjob_holds_its_room_while_its_cluster_lives() -> None:
    engine = made_engine()
    job = {
        "metadata": {"name": "r", "namespace": "team", "uid": "uid-r", "resourceVersion": "1", "labels": {NAME: "q"}},
        "spec": {"suspend": False, "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": []}}}}},
        "status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
    }
    owner = OwnerReference(api_version="ray.io/v1", kind="RayJob", name="r", uid="uid-r", controller=True)
    cluster = ObjectMeta(name="r-x", namespace="team", uid="uid-c", owner_references=[owner])
    engine.on_cluster("team/r-x", cluster, 1)
    engine.on_job(RAYJOBS.token, "team/r", job, 1)
    facts = engine.world.jobs["uid-r"].facts
    assert facts is not None and facts.status == "Running"
    engine.on_cluster("team/r-x", None, 2)
    facts = engine.world.jobs["uid-r"].facts
    assert facts is not None and facts.status == "Succeeded"


def test_the_namespace_of_queues_is_written_once_and_made_again_when_it_goes() -> None:
    engine = Engine("test", Spans(), {})
    engine.desk.tick(time.time_ns())
    engine.mark_all()
    ((create, _),) = engine.decisions()
    assert isinstance(create, Create) and create.name == "koord-queue"
    engine.on_result(Result(create.id, "done", resource_version="7"))
    engine.on_namespace("koord-queue", "7")
    engine.desk.tick(time.time_ns() + 60_000_000_000)
    assert engine.decisions() == []
    assert engine.desk.outbox.next_overdue_s() is None

    # The result comes after the object was seen.
    engine.on_namespace("koord-queue", None)
    engine.queues.ensure_namespace()
    ((again, _),) = engine.decisions()
    assert isinstance(again, Create) and again.id != create.id
    engine.on_namespace("koord-queue", "9")
    engine.on_result(Result(again.id, "done", resource_version="9"))
    assert len(engine.desk.outbox) == 0


def test_who_stands_by_keeps_nothing_of_what_came_and_went() -> None:
    leader, standby = made_engine(), made_engine()
    for number in range(5):
        job = put_job(leader, f"j{number}")
        create = created(leader)
        standby.on_job(TFJOBS.token, f"team/j{number}", job, 1)
        unit = put_unit(standby, create)
        pod = {"metadata": {"name": "p", "annotations": {"koord-queue/related-queueunit": unit.key}}}
        standby.reporter.put(f"team/p{number}", msgspec.convert(pod, PodBrief))
        if number:
            standby.on_job(TFJOBS.token, f"team/j{number}", None, 2)
            standby.on_unit(unit.key, None)
            standby.reporter.drop(f"team/p{number}")
    standby.stand_by(time.time_ns())
    world = standby.world
    assert (world.dirty_jobs, world.dirty_units) == ({"uid-j0"}, {"team/j0-tf-qu"})
    assert standby.reporter._dirty.keys() == {"team/j0-tf-qu"}


def test_who_stands_by_does_not_tell_later_what_the_leader_has_told() -> None:
    standby, begun_ns = made_engine(), time.time_ns()
    for minute in range(10):
        standby.stand_by(begun_ns + minute * 60 * 10**9)
        standby.desk.warn(QUEUE_UNITS, ObjectMeta(name=f"bad-{minute}", namespace="team"), "InvalidObject", "spec: no")
    standby.desk.tick(begun_ns + 10 * 60 * 10**9)
    [notes] = [decision.events for decision, _ in standby.decisions() if isinstance(decision, RecordEvents)]
    told = [note.target.name for note in notes]
    assert told == [f"bad-{minute}" for minute in range(5, 10)]
    assert [note.time_ns // 10**9 - begun_ns // 10**9 for note in notes] == [300, 360, 420, 480, 540]


def test_a_unit_that_is_being_written_keeps_its_turn() -> None:
    engine = made_engine()
    put_job(engine, "a")
    put_unit(engine, created(engine))
    engine.reconcile()
    engine.units.write_text("team/a-tf-qu")
    assert [each for each, _ in engine.decisions() if isinstance(each, Patch)]
    put_job(engine, "b")
    put_unit(engine, created(engine))
    engine.reconcile()
    assert engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {"cpu": 2000}, {})}) == []
    engine.on_room(["admitted/q"])
    planned = engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {}, {})})
    assert [one.key for one in planned] == ["team/b-tf-qu"]


def waits(engine: Engine, name: str, cpu: int, priority: int, quota: str = "q") -> None:
    """A unit without a job waits in the queue of a quota."""
    meta = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": {NAME: quota},
    }
    body = {"metadata": meta, "spec": {"resource": {"cpu": str(cpu)}, "priority": priority}}
    engine.on_unit(f"team/{name}", view(body))


def set_policy(engine: Engine, policy: str, version: int) -> None:
    meta = {"name": "q", "namespace": "koord-queue", "uid": "uid-queue", "resourceVersion": str(version)}
    engine.on_queue("q", msgspec.convert({"metadata": meta, "spec": {"queuePolicy": policy}}, Queue))


def test_a_depth_that_is_no_number_is_named_where_it_was_written() -> None:
    engine = made_engine()
    deep = {"koord-queue/max-depth": "deep"}

    def told() -> list[tuple[str, str, str]]:
        notes = [note for each in settle(engine) if isinstance(each, RecordEvents) for note in each.events]
        return [(note.kind, note.target.name, note.note) for note in notes if note.reason == "InvalidAnnotation"]

    def queue_shows(version: str) -> None:
        meta = {"name": "q", "namespace": "koord-queue", "uid": "uid-queue", "resourceVersion": version}
        body = {"metadata": meta | {"annotations": deep}, "spec": {"queuePolicy": "Priority"}}
        engine.on_queue("q", msgspec.convert(body, Queue))

    text = 'annotation koord-queue/max-depth: must be a 64-bit integer, got "deep"; it is left out'
    queue_shows("2")
    assert told() == [("Queue", "q", text)]
    meta = {"name": "q", "namespace": "q", "uid": "uid-q", "resourceVersion": "2", "annotations": deep}
    engine.on_quota("q/q", msgspec.convert({"metadata": meta, "spec": {"max": {"cpu": "4"}}}, ElasticQuota))
    queue_shows("3")
    assert told() == [("ElasticQuota", "q", text)]
    queue_shows("4")
    assert told() == []
    assert engine.world.queue("q").max_depth == -1


def test_only_the_quotas_of_those_who_may_be_let_in_are_read() -> None:
    engine = made_engine()
    for name, parent in (("top", ""), ("leaf", "top"), ("other", "top")):
        labels = {"quota.scheduling.koordinator.sh/parent": parent} if parent else {}
        meta = {"name": name, "namespace": "q", "uid": f"uid-{name}", "labels": labels}
        engine.on_quota(f"q/{name}", msgspec.convert({"metadata": meta, "spec": {"max": {"cpu": "4"}}}, ElasticQuota))
        meta = {"name": name, "namespace": "koord-queue", "uid": f"uid-queue-{name}", "resourceVersion": "1"}
        engine.on_queue(name, msgspec.convert({"metadata": meta, "spec": {"queuePolicy": "Priority"}}, Queue))
    assert engine.admission.looked_at() == set()
    waits(engine, "a", 2, 1, "leaf")
    engine.reconcile()
    assert engine.admission.looked_at() == {"leaf", "top"}
    # The level above is full: nobody needs to be asked about it again before room comes free there.
    items = {"admitted/leaf": Item({"cpu": 4000}, {}, {}), "admitted/top": Item({"cpu": 4000}, {"cpu": 3000}, {})}
    assert engine.admission.plan(items) == []
    assert engine.admission.looked_at() == set()
    waits(engine, "b", 1, 1, "other")
    waits(engine, "nowhere", 1, 1, "none")
    engine.reconcile()
    assert engine.admission.looked_at() == {"other", "top"}
    engine.on_room(["admitted/top"])
    assert engine.admission.looked_at() == {"leaf", "other", "top"}
    assert [one.key for one in engine.admission.plan(items)] == ["team/b"]
    waits(engine, "runs", 1, 1)
    engine.admission.charges["team/runs"] = None
    assert engine.admission.looked_at() == {"other", "top", "q"}


def test_a_policy_is_changed_in_place() -> None:
    engine = made_engine()
    set_policy(engine, "Block", 2)
    waits(engine, "big", 4, 9)
    waits(engine, "small", 1, 1)
    engine.reconcile()
    items = {"admitted/q": Item({"cpu": 4000}, {"cpu": 2000}, {})}
    assert engine.admission.plan(items) == []
    engine.world.texts_wanted.update(("team/big", "team/small"))
    engine.after_admission()
    patches = [d for d, _ in engine.decisions() if isinstance(d, Patch) and d.target.resource == QUEUE_UNITS.token]
    told = {each.target.name: msgspec.json.decode(each.body)["status"]["message"] for each in patches}
    assert told["big"] == "limited quotaName:q, limited resKey:cpu,"
    assert told["small"] == "quota q is blocked: a unit of it that comes first does not fit"
    engine.world.admission_wanted = False
    set_policy(engine, "Priority", 3)
    assert engine.world.admission_wanted
    engine.desk.outbox.gone(f"{QUEUE_UNITS.token} team/small")
    assert [one.key for one in engine.admission.plan(items)] == ["team/small"]
    set_policy(engine, "Block", 4)
    assert engine.admission.plan(items) == []
    engine.on_room(["admitted/q"])
    engine.desk.outbox.gone(f"{QUEUE_UNITS.token} team/big")
    free = {"admitted/q": Item({"cpu": 4000}, {}, {})}
    assert [one.key for one in engine.admission.plan(free)] == ["team/big"]


def test_who_the_ledger_refuses_holds_back_those_behind_it_in_the_same_call() -> None:
    engine = made_engine()
    set_policy(engine, "Block", 2)
    waits(engine, "first", 3, 9)
    waits(engine, "second", 1, 1)
    engine.reconcile()
    planned = engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {}, {})})
    assert [one.key for one in planned] == ["team/first", "team/second"]
    short = Short("admitted/q", "cpu", "amount", 3000, 1500)
    engine.admission.judge(planned, [ClaimAnswer("conflict", shorts=(short,)), ClaimAnswer("ok", 8, 1)], 0)
    assert [one.token for one in engine.admission.to_release] == [8]
    assert engine.admission.in_flight == {}
    assert engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {"cpu": 2500}, {})}) == []
    set_policy(engine, "Priority", 3)
    planned = engine.admission.plan({"admitted/q": Item({"cpu": 4000}, {"cpu": 2500}, {})})
    assert [one.key for one in planned] == ["team/second"]
