"""A user asks by a ScheduleExplanation why a pod waits, and reads the answer with kubectl."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import Up


def pod(name: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


def question(name: str, **spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ScheduleExplanation",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


@pytest.mark.slow
def test_a_question_is_answered_and_ends(own_up: Callable[..., Up]) -> None:
    up = own_up("--nodes", "2")
    items = [
        pod("huge", "9999"),
        question("why", questionObjectKey="default/huge"),
        question("short", questionObjectKey="default/huge", ttl="1s"),
    ]
    up.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def answer() -> dict[str, Any]:
        [shown] = up.objects("sched-exp", "why")
        status: dict[str, Any] = shown.get("status", {})
        return status if "Insufficient cpu" in status.get("failedMessage", "") else {}

    status = up.wait(answer, "the question is answered")
    assert status["schedulable"] is False
    [domain] = status["detailedExplanation"]
    [details] = domain["scheduleExplanation"]["nodeFailedDetails"]
    nodes = sorted(node["metadata"]["name"] for node in up.objects("nodes"))
    assert details == {
        "failedPlugin": "NodeResourcesFit",
        "reason": "Insufficient cpu",
        "preemptMightHelp": False,
        "failedNodes": nodes,
    }
    assert up.objects("sched-exp", "why")[0]["spec"]["ttl"] == "24h"
    lines = up.kubectl("get", "sched-exp", "why").splitlines()
    assert lines[0].split() == ["NAME", "QUESTION", "SCHEDULABLE", "MESSAGE", "UPDATED"]
    assert lines[1].split()[:3] == ["why", "default/huge", "false"]
    up.wait(lambda: not up.kubectl("get", "sched-exp", "short", "--ignore-not-found"), "the other's time is over")
