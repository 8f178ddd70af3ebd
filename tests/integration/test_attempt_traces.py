"""A trace per attempt of a job, each linked to the one before and complete, also after a kill in the middle.

The pods fit nowhere at first: the job is resumed, times out, is suspended, waits and is resumed again. In the middle of
it the queue, the scheduler or the gateway is killed. A span is lost only if its process is killed before it exported it
(twice a second) and no successor can know it again; the kills here come when nothing of that sort is under way.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import Up

pytestmark = pytest.mark.slow

NAMESPACE = "attempts"
PODS = 3
SETTINGS = "queue: {timeouts: {Job: {running: 5, backoff: 0.5}}}\n"
JOB_SPANS = {"queue.enqueue", "queue.admit", "queue.resume"}
POD_SPANS = {"scheduler.plan", "gateway.bind", "pod.running"}
Span = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("attempts")
    (directory / "settings.yaml").write_text(SETTINGS)
    up = Up(directory, "--nodes", "3", "--config", str(directory / "settings.yaml"))
    try:
        version = "scheduling.sigs.k8s.io/v1alpha1"
        meta = {"name": NAMESPACE, "namespace": NAMESPACE}
        quota = {"apiVersion": version, "kind": "ElasticQuota", "metadata": meta, "spec": {"max": {"cpu": "64"}}}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        up.kubectl("create", "-f", "-", stdin=f"{json.dumps(space)}\n---\n{json.dumps(quota)}")
        yield up
    finally:
        up.stop()


def submit(up: Up, name: str) -> None:
    """A job whose pods wait for a node with its label."""
    container = {"name": "main", "image": "x/y:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "schedulerName": "koord-scheduler",
        "restartPolicy": "Never",
        "nodeSelector": {"for": name},
        "containers": [container],
    }
    template = {"metadata": {"annotations": {"koord.sh/fake-run-seconds": "0.5"}}, "spec": spec}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"suspend": True, "parallelism": PODS, "completions": PODS, "template": template},
    }
    up.kubectl("create", "-f", "-", stdin=json.dumps(job))


def traceparent(up: Up, name: str) -> str:
    units = up.objects("qu", "-n", NAMESPACE)
    found = [unit for unit in units if unit["metadata"]["name"] == name]
    return str(found[0]["metadata"]["annotations"]["koord.sh/traceparent"]) if found else ""


def resumed(up: Up, name: str, not_in: str = "") -> str:
    """The trace of the attempt in which the job is resumed now; empty while it is not, or in the attempt ``not_in``."""
    (job,) = up.objects("job", name, "-n", NAMESPACE)
    trace = traceparent(up, name)
    shown = job["spec"]["template"]["metadata"]["annotations"].get("koord.sh/traceparent")
    return trace if not job["spec"]["suspend"] and shown == trace != not_in else ""


def attempts(up: Up, name: str) -> list[list[Span]]:
    """The spans of all attempts, the last one first, once the last one is complete."""

    def last() -> list[Span]:
        spans: list[Span] = json.loads(up.koord("trace", "job", f"{NAMESPACE}/{name}", "--json"))
        return spans if missing(spans) == set() else []

    def shown() -> str:
        return str(missing(json.loads(up.koord("trace", "job", f"{NAMESPACE}/{name}", "--json"))))

    try:
        found = [up.wait(last, f"the last trace of {name} is complete", 60)]
    except AssertionError as error:
        raise AssertionError(f"the last trace of {name} lacks {shown()}") from error
    while linked(found[-1]):
        before = str(len(found))
        found.append(json.loads(up.koord("trace", "job", f"{NAMESPACE}/{name}", "--json", "--before", before)))
    return found


def linked(spans: list[Span]) -> list[str]:
    return [link for span in spans for link in span.get("links", ())]


def missing(spans: list[Span]) -> set[str]:
    """What a complete attempt has and this one does not: the job's spans, and of every pod those of its way."""
    names = {span["name"] for span in spans}
    lacks = (JOB_SPANS | POD_SPANS) - names
    for name in ("gateway.bind", "pod.running"):
        pods = {span["attributes"]["pod"] for span in spans if span["name"] == name}
        if len(pods) != PODS:
            lacks.add(f"{name} of {PODS - len(pods)} pods")
    planned = {span["span_id"] for span in spans if span["name"] == "scheduler.plan"}
    if not any(span["name"] == "ledger.claim" and span["parent_id"] in planned for span in spans):
        lacks.add("the scheduler's ledger.claim")
    return lacks


def judge(found: list[list[Span]], wanted: int = 2) -> None:
    assert len(found) >= wanted, f"{len(found)} attempts"
    for number, spans in enumerate(found):
        by_name: dict[str, list[Span]] = {}
        for span in spans:
            by_name.setdefault(span["name"], []).append(span)
        ids = {span["span_id"]: span["name"] for span in spans}
        assert len(ids) == len(spans), "a span id is there twice"
        assert len({span["trace_id"] for span in spans}) == 1
        for name, parent in (("queue.enqueue", ""), ("queue.admit", "queue.enqueue"), ("queue.resume", "queue.admit")):
            assert len(by_name.get(name, ())) == 1, f"{number} attempts before the last: {name}: {sorted(by_name)}"
            assert ids.get(by_name[name][0].get("parent_id", ""), "") == parent
        (root,) = by_name["queue.enqueue"]
        older = found[number + 1 :]
        assert root.get("links", []) == ([older[0][0]["trace_id"]] if older else []), "linked to the one before"
    assert len({spans[0]["trace_id"] for spans in found}) == len(found)


def complete(up: Up, name: str) -> None:
    up.kubectl("wait", "-n", NAMESPACE, "--for=condition=complete", f"job/{name}", "--timeout=180s")


def kill(up: Up, service: str) -> None:
    before = up.ready["pids"][service]
    up.kill(service)
    up.wait(lambda: up.ready["pids"].get(service, before) != before, f"{service} runs again")


def test_every_attempt_has_a_trace_linked_to_the_one_before(cluster: Up) -> None:
    up, name = cluster, "plain"
    submit(up, name)
    first = up.wait(lambda: resumed(up, name), "the first attempt")
    up.wait(lambda: resumed(up, name, first), "the second attempt", 60)
    up.kubectl("label", "node", "node-00001", f"for={name}", "--overwrite")
    complete(up, name)
    found = attempts(up, name)
    judge(found)
    error = up.koord("trace", "job", f"{NAMESPACE}/{name}", "--before", "99", code=1)
    assert f"--before 99: attempts before the last: {len(found) - 1}" in error


@pytest.mark.parametrize("service", ["queue", "scheduler", "gateway"])
def test_complete_after_a_kill_in_the_middle(cluster: Up, service: str) -> None:
    """Killed in the first attempt as the job is resumed, and in a later one before its pods are placed."""
    up, name = cluster, f"killed-{service}"
    submit(up, name)
    first = up.wait(lambda: resumed(up, name), "the first attempt")
    kill(up, service)
    up.wait(lambda: resumed(up, name, first), "the second attempt", 60)
    kill(up, service)
    up.kubectl("label", "node", "node-00002", f"for={name}", "--overwrite")
    complete(up, name)
    judge(attempts(up, name))
