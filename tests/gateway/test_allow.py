"""Who may ask for what; every refusal names the service, the object or the field, and the rule."""

from typing import Any

import msgspec
import pytest

from koord.contracts.decisions import Bind, BindMember, ClaimRef, Create, Decision, Delete, Evict, ObjectRef, Patch
from koord.gateway.allow import Rejected, check
from koord.kube.resources import (
    ELASTIC_QUOTA_PROFILES,
    JOBS,
    NODE_METRICS,
    NODES,
    PODS,
    QUEUE_UNITS,
    QUEUES,
    SCHEDULE_EXPLANATIONS,
)

CLAIM = ClaimRef("c", 1, 1)
POD = ObjectRef(PODS.token, "default", "a", uid="u")
SECRET = ObjectRef("secrets_core", "default", "s")
UNIT = ObjectRef(QUEUE_UNITS.token, "default", "a", uid="u")
METRIC = ObjectRef(NODE_METRICS.token, "", "node-1")
WHY = ObjectRef(SCHEDULE_EXPLANATIONS.token, "default", "why", uid="u")


def bind(**changes: Any) -> Bind:
    member = msgspec.structs.replace(BindMember("u", "default", "a", "node-1"), **changes)
    return Bind("b", CLAIM, [member])


@pytest.mark.parametrize(
    ("service", "kind", "decision"),
    [
        ("scheduler", "bind", bind()),
        ("scheduler", "patch", Patch("p", POD, b"{}", subresource="status")),
        ("queue", "create", Create("c", QUEUE_UNITS.token, "default", "a", b"{}")),
        ("queue", "patch", Patch("p", UNIT, b"{}", subresource="status", claim=CLAIM)),
        ("queue", "patch", Patch("p", ObjectRef(JOBS.token, "default", "a"), b"{}")),
        ("queue", "delete", Delete("d", ObjectRef(QUEUES.token, "koord", "q", uid="u"))),
        ("quota", "evict", Evict("e", POD)),
        ("manager", "create", Create("c", NODE_METRICS.token, "", "node-1", b"{}")),
        ("manager", "patch", Patch("p", METRIC, b"{}")),
        ("manager", "patch", Patch("p", METRIC, b"{}", subresource="status", lane="metric")),
        ("quota", "patch", Patch("p", ObjectRef(ELASTIC_QUOTA_PROFILES.token, "default", "p"), b"{}")),
        ("scheduler", "patch", Patch("p", WHY, b"{}", subresource="status", lane="event")),
        ("scheduler", "delete", Delete("d", WHY)),
    ],
)
def test_allowed(service: str, kind: str, decision: Decision) -> None:
    check(service, kind, decision)


@pytest.mark.parametrize(
    ("service", "kind", "decision", "text"),
    [
        ("queue", "bind", bind(), "not allowed: queue may not bind pods"),
        ("scheduler", "patch", Patch("p", UNIT, b"{}"), "scheduler may not patch queueunits_scheduling_x-k8s_io"),
        ("scheduler", "delete", Delete("d", UNIT), "scheduler may not delete queueunits_scheduling_x-k8s_io"),
        ("scheduler", "patch", Patch("p", METRIC, b"{}"), "scheduler may not patch nodemetrics_slo_koordinator_sh"),
        ("manager", "patch", Patch("p", POD, b"{}"), "manager may not patch pods_core"),
        ("manager", "delete", Delete("d", METRIC), "manager may not delete nodemetrics_slo_koordinator_sh"),
        ("manager", "patch", Patch("p", METRIC, b"[]", patch="json", lane="metric"), "node-1: lane: metric is not for"),
        ("queue", "patch", Patch("p", UNIT, b"{}", claim=CLAIM, lane="metric"), "lane: metric is not for a claim"),
        ("quota", "patch", Patch("p", ObjectRef(NODES.token, "", "n"), b"{}"), "quota may not patch nodes_core"),
        ("queue", "evict", Evict("e", POD), "queue may not evict"),
        ("queue", "delete", Delete("d", WHY), "queue may not delete scheduleexplanations_scheduling_koordinator_sh"),
        (
            "scheduler",
            "patch",
            Patch("p", ObjectRef("secrets_core", "d", "s"), b"{}"),
            "unknown resource: 'secrets_core'",
        ),
        ("queue", "patch", bind(), "not allowed: a bind decision on subject decision.queue.patch"),
        ("scheduler", "bind", bind(node=""), r"invalid: bind b: members\[0\].node: missing"),
        ("scheduler", "bind", bind(name="a/../b"), r"members\[0\].name: 'a/../b' is not an object name"),
        ("scheduler", "bind", Bind("b", CLAIM, []), "bind b: members: empty"),
        ("queue", "delete", Delete("d", msgspec.structs.replace(UNIT, uid="")), "target.uid: required"),
        ("queue", "patch", Patch("p", UNIT, b"{}", subresource="exec"), "subresource: 'exec'"),
        ("queue", "patch", Patch("p", msgspec.structs.replace(UNIT, namespace=""), b"{}"), "namespace: missing"),
        ("queue", "patch", Patch("p", msgspec.structs.replace(UNIT, name=""), b"{}"), "name: missing"),
        ("queue", "patch", Patch("p", msgspec.structs.replace(UNIT, name="a?x=1"), b"{}"), "not an object name"),
    ],
)
def test_refused(service: str, kind: str, decision: Decision, text: str) -> None:
    with pytest.raises(Rejected, match=text):
        check(service, kind, decision)
