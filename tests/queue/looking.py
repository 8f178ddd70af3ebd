"""What the tests of the queue service look at, and how they begin."""

from typing import Any

from koord.kube.resources import QUEUE_UNITS, QUEUES, TFJOBS
from koord.queue.service import QueueService
from koord.queue.settings import QueueSettings
from tests.queue.harness import MiniCluster

TF = "-tf-qu"


async def start_queue(mini: MiniCluster, **settings: Any) -> QueueService:
    host = await mini.host("queue")
    service = QueueService(host, QueueSettings(**settings))
    await service.start()
    return service


def phase(mini: MiniCluster, name: str) -> str:
    unit = mini.get(QUEUE_UNITS, f"team/{name}")
    return str(unit.get("status", {}).get("phase", "")) if unit is not None else "none"


def unit_of(mini: MiniCluster, name: str) -> dict[str, Any]:
    unit = mini.get(QUEUE_UNITS, f"team/{name}")
    assert unit is not None
    return unit


def reasons(mini: MiniCluster) -> set[str]:
    return {reason for _, _, reason, _ in mini.events}


async def status(mini: MiniCluster, name: str, condition: str) -> None:
    """What the TFJob's operator would write."""
    conditions = [{"type": condition, "status": "True"}] if condition else []
    await mini.edit(TFJOBS, f"team/{name}", {"status": {"conditions": conditions}})


def resumed(mini: MiniCluster, name: str) -> dict[str, Any] | None:
    job = mini.get(TFJOBS, f"team/{name}")
    return job if job is not None and job["spec"]["runPolicy"].get("suspend") is False else None


def reserved(mini: MiniCluster, name: str) -> dict[str, Any]:
    conditions = (mini.get(QUEUE_UNITS, f"team/{name}") or {}).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "QuotaReserved"), {})


def policy(mini: MiniCluster, name: str) -> str:
    return str((mini.get(QUEUES, f"koord-queue/{name}") or {}).get("spec", {}).get("queuePolicy", ""))


def condition(mini: MiniCluster, name: str) -> dict[str, Any]:
    conditions = (mini.get(QUEUES, f"koord-queue/{name}") or {}).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Active"), {})
