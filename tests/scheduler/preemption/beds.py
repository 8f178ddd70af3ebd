"""Clusters with running pods of some priority and age, for tests of preemption."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.framework.contract import AssignedPod
from koord.scheduler.plugins.nodeports import NodePorts
from koord.scheduler.podview import PodView
from koord.scheduler.preemption.budgets import Budgets, BudgetView
from koord.scheduler.preemption.search import Search
from tests.scheduler.clusters import Bed, pod_body, requests

_decoder = msgspec.json.Decoder(PodView)


def port(number: int) -> dict[str, Any]:
    """Fields of a container with a host port."""
    return {"ports": [{"containerPort": number, "hostPort": number}]}


class Crowd(Bed):
    """A bed with pods that run."""

    def __init__(self, *, percentage: int = 10, absolute: int = 100, seed: str = "") -> None:
        super().__init__(extra=[NodePorts()])
        self.budgets = Budgets()
        self.search = Search(self.engine, self.budgets, percentage=percentage, absolute=absolute, seed=seed)

    def running(
        self,
        name: str,
        node: str,
        priority: int,
        *,
        cpu: str = "1",
        ports: Sequence[int] = (),
        started: float = 0.0,
        labels: Mapping[str, str] | None = None,
        terminating: bool = False,
        preempted: bool = False,
    ) -> AssignedPod:
        """A pod that the API shows on ``node``; ``started`` in seconds since the epoch."""
        pod = self.catalogue.assigned(self._view(name, priority, cpu, ports, labels), node)
        pod = msgspec.structs.replace(pod, started=started, terminating=terminating or preempted, preempted=preempted)
        self.engine.count(pod)
        return pod

    def wanting(self, name: str, priority: int, *, cpu: str = "1", ports: Sequence[int] = (), **more: Any) -> PodInfo:
        """A pod to place."""
        return self.catalogue.pod(self._view(name, priority, cpu, ports, None, **more))

    def nominate(self, pod: PodInfo, node: str, *, foreign: bool = False) -> None:
        """The pod waits for room on the node."""
        self.engine.nominated.set(pod.planned(node, 0.0), foreign=foreign)

    def budget(self, name: str, allowed: int, labels: Mapping[str, str], **status: Any) -> None:
        """A disruption budget of the namespace ``default``."""
        self.budgets.set(
            msgspec.convert(
                {
                    "metadata": {"name": name, "namespace": "default", "generation": 1},
                    "spec": {"selector": {"matchLabels": dict(labels)}},
                    "status": {"disruptionsAllowed": allowed, "observedGeneration": 1, **status},
                },
                BudgetView,
            )
        )

    def _view(
        self, name: str, priority: int, cpu: str, ports: Sequence[int], labels: Mapping[str, str] | None, **more: Any
    ) -> PodView:
        spec = requests(cpu, "1Gi", priority=priority, **more)
        for number in ports:
            spec["containers"][0].setdefault("ports", []).extend(port(number)["ports"])
        return _decoder.decode(pod_body(name, spec, labels=labels))


def stamp(seconds: float) -> str:
    """A time as the API has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
