"""Each class of bad object is named with its field and the rule, where its owner looks.

``test_fuzz`` shows by the thousand that nothing bad is passed over in silence; this is the table of what is said. A bad
object is refused by the API with the field's path, or an Event or a condition of the object says it.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from koord.cli.api import connect
from koord.kube.protocol import gang, queue, quota
from koord.kube.resources import (
    ELASTIC_QUOTAS,
    JOBS,
    NODES,
    POD_GROUPS,
    PODS,
    PYTORCHJOBS,
    QUEUE_UNITS,
    QUEUES,
    RAYJOBS,
    TFJOBS,
    Resource,
)
from koord.localcluster.httpapi import HttpClusterApi
from tests.fuzz.bending import Bend, bent
from tests.fuzz.objects import (
    NAMESPACE,
    Manifest,
    ObjectCase,
    batch_job,
    elastic_quota,
    node,
    pod,
    pod_group,
    pytorch_job,
    queue_object,
    queue_unit,
    ray_job,
    tf_job,
)
from tests.fuzz.sending import Posts
from tests.fuzz.test_fuzz import create, namespace
from tests.fuzz.test_fuzz import quota as made_quota
from tests.integration.conftest import Up

PATIENCE_S = 240.0


class Bad(NamedTuple):
    """One class: what is bent, and the words that must be found in one text about the object."""

    resource: Resource
    good: Callable[[str], Manifest]
    path: tuple[str | int, ...]
    value: Any
    words: tuple[str, ...]
    without: tuple[str, ...] = ()
    """A field of the spec that would be complained of first."""


def _label(key: str) -> tuple[str, ...]:
    return ("metadata", "labels", key)


def _annotation(key: str) -> tuple[str, ...]:
    return ("metadata", "annotations", key)


_FIRST = ("consumerRef",)
_WORKER = ("spec", "tfReplicaSpecs", "Worker")
_TORCH = ("spec", "pytorchReplicaSpecs", "Worker", "replicas")
_GROUP = ("spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas")
_TOTAL = f"{quota.TOTAL_RESOURCE}[cpu]"
_REQUEST = ("spec", "containers", 0, "resources", "requests", "cpu")

TABLE: tuple[Bad, ...] = (
    # Refused by the API server, in Kubernetes' words: a body that is no such object names the type or the rule.
    Bad(PODS, pod, _REQUEST, "12cores", ("cannot be handled as a Pod", "quantities must match")),
    Bad(
        NODES, node, ("status", "allocatable", "cpu"), "much", ("cannot be handled as a Node", "quantities must match")
    ),
    Bad(JOBS, batch_job, ("spec", "parallelism"), "many", ("JobSpec.spec.parallelism", "cannot unmarshal string")),
    Bad(ELASTIC_QUOTAS, elastic_quota, ("spec", "max", "cpu"), "much", ("spec.max.cpu", "should match")),
    Bad(ELASTIC_QUOTAS, elastic_quota, ("spec", "min"), 3, ("spec.min", "must be of type object")),
    Bad(POD_GROUPS, pod_group, ("spec", "minMember"), "two", ("spec.minMember", "must be of type integer")),
    Bad(QUEUES, queue_object, ("spec", "priority"), "high", ("spec.priority", "must be of type integer")),
    Bad(QUEUE_UNITS, queue_unit, ("spec", "resource", "cpu"), [], ("spec.resource.cpu", "must be of type integer")),
    Bad(QUEUE_UNITS, queue_unit, ("spec", "resource", "cpu"), "much", ("spec.resource.cpu", "should match"), _FIRST),
    # Told by an Event or a condition.
    Bad(PODS, pod, _label(gang.POD_GROUP_MIN_AVAILABLE), "abc", (gang.POD_GROUP_MIN_AVAILABLE, "must be")),
    Bad(PODS, pod, _annotation(gang.MODE), "Loose", (gang.MODE, "must be")),
    Bad(PODS, pod, _annotation(gang.WAITING_TIME), "soon", (gang.WAITING_TIME, "must be")),
    Bad(PODS, pod, ("spec", "nodeSelector"), {"nowhere": "x"}, ("didn't match", "selector")),
    Bad(ELASTIC_QUOTAS, elastic_quota, ("spec", "min", "cpu"), "5", ("spec.min[cpu]", "must not be above spec.max")),
    Bad(ELASTIC_QUOTAS, elastic_quota, ("spec", "min", "cpu"), "-1", ("spec.min[cpu]", "must not be negative")),
    Bad(ELASTIC_QUOTAS, elastic_quota, _label(quota.PARENT), "nobody", (f"labels[{quota.PARENT}]", "no quota")),
    Bad(ELASTIC_QUOTAS, elastic_quota, _annotation(quota.SHARED_WEIGHT), "{", (quota.SHARED_WEIGHT, "must be a JSON")),
    Bad(
        ELASTIC_QUOTAS, elastic_quota, _annotation(quota.NAMESPACES), "fuzz", (quota.NAMESPACES, "must be a JSON list")
    ),
    Bad(ELASTIC_QUOTAS, elastic_quota, _annotation(queue.QUEUE_POLICY), "Lottery", ("spec.queuePolicy", "is unknown")),
    Bad(ELASTIC_QUOTAS, elastic_quota, _annotation(queue.MAX_DEPTH), "deep", (queue.MAX_DEPTH, "must be a 64-bit")),
    Bad(ELASTIC_QUOTAS, elastic_quota, _annotation(quota.TOTAL_RESOURCE), '{"cpu":"x"}', (_TOTAL, "must match")),
    Bad(POD_GROUPS, pod_group, ("spec", "minMember"), -1, ("spec.minMember", "must not be negative")),
    Bad(POD_GROUPS, pod_group, _annotation(gang.GROUPS), "a,b", (gang.GROUPS, "must be a JSON list")),
    Bad(POD_GROUPS, pod_group, _annotation(gang.MODE), "Loose", (gang.MODE, "must be")),
    Bad(POD_GROUPS, pod_group, _annotation(gang.MATCH_POLICY), "often", (gang.MATCH_POLICY, "must be")),
    Bad(QUEUES, queue_object, ("spec", "queuePolicy"), "Lottery", ("spec.queuePolicy", "is unknown")),
    Bad(QUEUE_UNITS, queue_unit, ("spec", "resource", "cpu"), "9" * 20, ("spec.resource", "must not exceed"), _FIRST),
    Bad(QUEUE_UNITS, queue_unit, _label(quota.NAME), "nobody", ("queue nobody not found",), _FIRST),
    Bad(JOBS, batch_job, _annotation(queue.PRIORITY), "high", (queue.PRIORITY, "must be a 32-bit integer")),
    Bad(JOBS, batch_job, _annotation(queue.ACTIVE), "maybe", (queue.ACTIVE, "must be true or false")),
    Bad(JOBS, batch_job, _annotation(queue.MAX_EXEC_TIME), "-5", (queue.MAX_EXEC_TIME, "above 0")),
    Bad(JOBS, batch_job, _label(quota.NAME), "nobody", ("queue nobody not found",)),
    Bad(TFJOBS, tf_job, (*_WORKER, "replicas"), "many", ("spec.tfReplicaSpecs.Worker.replicas", "must be")),
    Bad(TFJOBS, tf_job, (*_WORKER, "template", *_REQUEST), "12cores", ("resources.requests[cpu]", "must match")),
    Bad(PYTORCHJOBS, pytorch_job, _TORCH, -1, ("spec.pytorchReplicaSpecs.Worker.replicas", "must be")),
    Bad(RAYJOBS, ray_job, ("spec", "suspend"), "yes", ("spec.suspend", "must be true or false")),
    Bad(RAYJOBS, ray_job, _GROUP, "two", ("spec.rayClusterSpec.workerGroupSpecs[0].replicas", "must be")),
)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_field_and_rule_are_told(tmp_path: Path) -> None:
    up = await asyncio.to_thread(Up, tmp_path, "--nodes", "5")
    try:
        async with await connect(str(up.kubeconfig)) as api, await Posts.to(str(up.kubeconfig)) as posts:
            await create(api, namespace(NAMESPACE))
            await create(api, made_quota(NAMESPACE, "100"))
            said = await _post(posts)
            deadline = time.monotonic() + PATIENCE_S
            while missing := _missing(said, await _texts(api)):
                assert time.monotonic() < deadline, "\n".join(missing)
                await asyncio.sleep(0.5)
    finally:
        await asyncio.to_thread(up.stop)


async def _post(posts: Posts) -> list[str]:
    """What the API server answers to each; empty if it takes it."""
    answers = []
    for number, bad in enumerate(TABLE):
        changes = [Bend(bad.path, bad.value), *(Bend(("spec", field), None, True) for field in bad.without)]
        manifest = bent(bad.good(_name(number)), changes)
        space = "koord-queue" if bad.resource is QUEUES else NAMESPACE if bad.resource.namespaced else ""
        case = ObjectCase(bad.resource, bad.resource.path(space), json.dumps(manifest).encode(), ())
        status, message = await posts.ask(case)
        assert status == 201 or message, f"{bad}: {status}"
        answers.append("" if status == 201 else message)
    return answers


def _name(number: int) -> str:
    return f"words-{number}"


async def _texts(api: HttpClusterApi) -> dict[str, list[str]]:
    """By an object's name, what Events and conditions say of it."""
    found: dict[str, list[str]] = defaultdict(list)
    events, _ = await api.list("events")
    for event in events:
        found[event["involvedObject"]["name"]].append(event["message"])
    for resource in {bad.resource for bad in TABLE}:
        items, _ = await api.list(f"{resource.plural}.{resource.group}".rstrip("."))
        for item in items:
            conditions = (item.get("status") or {}).get("conditions") or ()
            found[item["metadata"]["name"]] += [str(entry.get("message", "")) for entry in conditions]
    return found


def _missing(said: list[str], texts: dict[str, list[str]]) -> list[str]:
    """The classes of which no one text has all the words."""
    missing = []
    for number, bad in enumerate(TABLE):
        heard = [said[number], *texts.get(_name(number), ())]
        if not any(all(word in text for word in bad.words) for text in heard):
            missing.append(f"{bad.resource.kind} {bad.path} = {bad.value!r}: {bad.words} not in {heard}")
    return missing
