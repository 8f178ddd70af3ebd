"""Ten thousand bent objects and messages: no service dies, each bad one is named, good ones in between still work.

A bent object is refused by the API with the field's name, or it is accepted: then it is in force, or an Event, a
condition or a log line names it and the field or a rule. Where its one bend surely makes it bad (``known``), only an
Event or a condition with the field's name will do. A bent message is answered (decisions, questions), or a log line
names its subject and the rule. Everything runs beside bystanders whose versions must not move.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from koord.bus.connection import Bus
from koord.cli.api import connect
from koord.contracts.subjects import Subjects
from koord.ledger.client import Ledger
from koord.localcluster.httpapi import HttpClusterApi, object_path
from tests.fuzz.bending import TOTAL
from tests.fuzz.messages import MessageCase, message_cases
from tests.fuzz.objects import FAKE_NODES, NAMESPACE, QUOTA, Manifest, ObjectCase, object_cases
from tests.fuzz.sending import Accepted, Messages, Posts
from tests.fuzz.watching import Cluster
from tests.integration.conftest import Up

NODES_N = 20
PATIENCE_S = 300.0
SHOWN = 12
ROUNDS = 4
BAD_LOG = re.compile(r"Traceback|\[critical|a task crashed|ended with code|cannot be looked at")


def good_job(name: str) -> Manifest:
    container = {"name": "main", "image": "x/y:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "schedulerName": "koord-scheduler",
        "restartPolicy": "Never",
        "nodeSelector": dict(FAKE_NODES),
        "containers": [container],
    }
    template = {"metadata": {"annotations": {"koord.sh/fake-run-seconds": "0.1"}}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "calm", "labels": {"quota.scheduling.koordinator.sh/name": "calm"}},
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": template},
    }


def resident() -> Manifest:
    container = {"name": "main", "image": "x/y:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "koord-scheduler", "nodeSelector": dict(FAKE_NODES), "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "resident", "namespace": "calm"}, "spec": spec}


def quota(name: str, cpu: str) -> Manifest:
    version = "scheduling.sigs.k8s.io/v1alpha1"
    limit = {"cpu": cpu, "memory": "64Gi"}
    meta = {"name": name, "namespace": name}
    return {
        "apiVersion": version,
        "kind": "ElasticQuota",
        "metadata": meta,
        "spec": {"min": {"cpu": "1"}, "max": limit},
    }


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def create(api: HttpClusterApi, manifest: Manifest) -> None:
    place = await api.resource_of_kind(manifest["apiVersion"], manifest["kind"])
    await api.create_at(object_path(place, manifest["metadata"].get("namespace")), manifest)


async def until(condition: Callable[[], Awaitable[Any]], what: str, seconds: float = PATIENCE_S) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := await condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.1)
    return value


class Calm:
    """The bystanders: a pod that runs, a job that has run, their quota and its queue."""

    def __init__(self, api: HttpClusterApi) -> None:
        self._api = api
        self._lived_s = 0.0

    async def make(self) -> None:
        for name, cpu in (("calm", "32"), (NAMESPACE, "100")):
            await create(self._api, namespace(name))
            await create(self._api, quota(name, cpu))
        await until(self._queues, "the queues are there")
        begun = time.monotonic()
        await create(self._api, resident())
        await self.job("finished")
        await until(self._runs, "the bystander runs")
        self._lived_s = time.monotonic() - begun

    async def _queues(self) -> bool:
        items, _ = await self._api.list("queues.scheduling.x-k8s.io")
        return {"calm", QUOTA} <= {item["metadata"]["name"] for item in items}

    async def _runs(self) -> bool:
        items, _ = await self._api.list("pods", "calm")
        return any(pod["metadata"]["name"] == "resident" and pod["status"].get("phase") == "Running" for pod in items)

    async def job(self, name: str) -> None:
        """A good job goes its whole way."""
        await create(self._api, good_job(name))

        async def complete() -> bool:
            items, _ = await self._api.list("jobs.batch", "calm")
            found = next(item for item in items if item["metadata"]["name"] == name)
            conditions = (found.get("status") or {}).get("conditions") or ()
            return any(entry["type"] == "Complete" and entry["status"] == "True" for entry in conditions)

        async def over() -> bool:
            items, _ = await self._api.list("queueunits.scheduling.x-k8s.io", "calm")
            return any(unit["metadata"]["name"] == name and unit["status"].get("phase") == "Succeed" for unit in items)

        await until(complete, f"job {name} is complete")
        await until(over, f"the unit of job {name} is over")

    async def versions(self) -> dict[str, str]:
        """Of those that nothing should touch; each write makes a new version."""
        found: dict[str, str] = {}
        for resource in ("pods", "jobs.batch", "queueunits.scheduling.x-k8s.io"):
            items, _ = await self._api.list(resource, "calm")
            for item in items:
                if item["metadata"]["name"].startswith(("resident", "finished")):
                    found[f"{resource}/{item['metadata']['name']}"] = item["metadata"]["resourceVersion"]
        return found

    async def at_rest(self) -> dict[str, str]:
        """The versions once they have stood still for as long as the job lived: its last writes are made."""
        quiet_s = max(2.5, self._lived_s)
        last, since = await self.versions(), time.monotonic()

        async def still() -> bool:
            nonlocal last, since
            now = await self.versions()
            if now != last:
                last, since = now, time.monotonic()
            return time.monotonic() - since > quiet_s

        await until(still, "the bystanders are at rest")
        return last


# The log --------------------------------------------------------------------------------------------------------------


def named_in(log: str, cases: list[MessageCase], subjects: Subjects) -> list[str]:
    """The bad messages without an answer of their own that the log does not name: state by the object's key, the
    others by their subject, as often as they were sent."""
    unnamed = []
    wanted = Counter(case.subject for case in cases if case.bad and case.channel in ("core", "stored", "decision"))
    for subject, count in wanted.items():
        if subject.startswith(f"{subjects.root}.gang."):
            continue  # a hint for tools: no service reads it
        told = log.count(f"subject={subject}") + log.count(f"{subject}: ")
        if told < count:
            unnamed.append(f"{subject}: {count} bad messages, {told} lines")
    for case in cases:
        if case.channel == "state":
            tail = case.subject.split(".", 4)[-1]
            space, _, name = tail.partition(".")
            key = name if space == "_" else f"{space}/{name}"
            if f"key={key} " not in log:
                unnamed.append(f"{case.subject} {case.headers}: {case.body[:80]!r}")
    return unnamed


def unanswered(cases: list[MessageCase], messages: Messages) -> list[str]:
    """Decisions that can be read and have no result; accepted events have none by contract."""
    return [
        f"{case.subject} {case.id}: {case.body[:160]!r}"
        for case in cases
        if case.channel == "decision" and not case.bad and case.id not in messages.results and not _event(case)
    ]


def _event(case: MessageCase) -> bool:
    return case.subject.endswith(".event")


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_everything_bent_is_named_and_nobody_dies(tmp_path: Path) -> None:
    generated = asyncio.gather(
        asyncio.to_thread(lambda: (object_cases(), message_cases(Subjects("local")))),
    )
    up = await asyncio.to_thread(Up, tmp_path, "--nodes", str(NODES_N))
    try:
        ((objects, messages),) = await generated
        await fuzz(up, objects, messages)
    finally:
        await asyncio.to_thread(up.stop)


async def fuzz(up: Up, objects: list[ObjectCase], cases: list[MessageCase]) -> None:
    ready = up.ready
    bus = await Bus.connect(ready["nats"], ready["cluster"], "fuzz")
    async with await connect(str(up.kubeconfig)) as api, await Posts.to(str(up.kubeconfig)) as posts:
        calm = Calm(api)
        await calm.make()
        before, pids = await calm.at_rest(), ready["pids"]
        messages = Messages(bus)
        await bus.barrier()
        begun = time.monotonic()
        for number in range(ROUNDS):
            # Every kind in every round; a good job in between.
            await asyncio.gather(
                posts.post(objects[number::ROUNDS]), messages.send(cases[number::ROUNDS]), calm.job(f"between-{number}")
            )
        sent = time.monotonic()
        left = await settle(up, api, posts.accepted, cases, messages)
        judged = time.monotonic()
        await calm.job("canary")
        assert up.ready["pids"] == pids, f"a process was started anew\n{up.log_tail()}"
        assert await calm.versions() == before, "a bystander was touched"
    await bus.close()
    log = up.log.read_text(errors="replace")
    crashes = [line for line in log.splitlines() if BAD_LOG.search(line)]
    unnamed = [*posts.unnamed, *messages.unnamed, *left]
    outcomes = Counter(result.outcome for found in messages.results.values() for result in found)
    print(
        f"{len(objects)} objects: {len(posts.accepted)} accepted, {len(posts.refused)} refused; {len(cases)} messages: "
        f"results {dict(outcomes)}, {messages.refusals} of {messages.answered} questions refused; "
        f"sent in {sent - begun:.1f} s, judged in {judged - sent:.1f} s; unnamed {len(unnamed)}"
    )
    assert not (crashes or unnamed), "\n".join(
        [f"{len(crashes)} lines:", *crashes[:SHOWN], f"{len(unnamed)} unnamed:", *unnamed[:SHOWN]]
    )
    assert len(objects) + len(cases) >= TOTAL * 0.98
    assert len(posts.accepted) > len(objects) // 5, "too few bent objects get past the API to show anything"


async def settle(
    up: Up, api: HttpClusterApi, accepted: list[Accepted], cases: list[MessageCase], messages: Messages
) -> list[str]:
    """Wait until everything is in force or named; what is not in the end."""
    deadline = time.monotonic() + PATIENCE_S
    subjects = Subjects(up.ready["cluster"])
    ledger = await Ledger.connect(up.ready["redis"], up.ready["cluster"], "fuzz")
    async with ledger:
        while True:
            items = await ledger.items("node/")
            Cluster.known_nodes = frozenset(name.removeprefix("node/") for name in items)
            log = await asyncio.to_thread(up.log.read_text, errors="replace")
            cluster = await Cluster.read(api, lambda log=log: log)  # type: ignore[misc]
            became = {made.uid: cluster.became(made) for made in accepted}
            waiting = [made for made in accepted if not became[made.uid]]
            silent = named_in(log, cases, subjects)
            missing = unanswered(cases, messages)
            if (not waiting and not silent and not missing) or time.monotonic() > deadline:
                break
            await asyncio.sleep(1.0)
    print("accepted objects:", dict(Counter(became.values())))
    objects = [
        f"{made.case.resource.kind} {made.key} {made.case.wrong or made.case.keys}: "
        f"{cluster.said_of(made)}; {json.dumps(made.manifest)[:600]}"
        for made in waiting
    ]
    return [*objects, *missing, *silent]
