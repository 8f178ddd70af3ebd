"""Plugins for tests that plan jobs: the pods with one label value are one job."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from koord.scheduler.engine.placement import Engine, PodInfo
from koord.scheduler.framework.contract import JobPlan, PlanPlugin, Template

JOB = "example.com/job"


class Jobs(PlanPlugin):
    """Answers what ``answer`` makes of a job's waiting pods by name; pods without the label are nothing to it."""

    name: ClassVar[str] = "Jobs"
    pod_keys: ClassVar[tuple[str, ...]] = (JOB,)
    answer: Callable[[dict[str, PodInfo]], Any] = staticmethod(lambda pods: None)

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.asked: list[str] = []

    def plans(self, template: Template) -> bool:
        return JOB in template.labels

    def plan(self, pod: PodInfo, engine: Engine, waiting: Mapping[str, PodInfo]) -> JobPlan | str | None:
        self.asked.append(pod.ref.name)
        job = pod.ref.labels[JOB]
        pods = {other.ref.name: other for other in waiting.values() if other.ref.labels.get(JOB) == job}
        found: JobPlan | str | None = self.answer(pods)
        return found


def nodes(**names: str) -> Callable[[dict[str, PodInfo]], JobPlan]:
    """A plan with these nodes by the pods' names; pods that do not wait are named by a uid of their own."""
    return lambda pods: JobPlan({pods[pod].uid if pod in pods else f"gone-{pod}": node for pod, node in names.items()})


class Spread(Jobs):
    """Plans jobs of three pods named p0 to p2, once all of them wait: onto n0, n1 and n0."""

    @staticmethod
    def answer(pods: dict[str, PodInfo]) -> Any:
        return nodes(p0="n0", p1="n1", p2="n0")(pods) if len(pods) == 3 else "the job is not complete"


class Entry:
    """An entry point of a plugin, as if it were installed."""

    name = "Jobs"

    def __init__(self, plugin: type[Jobs] = Jobs) -> None:
        self._plugin = plugin

    def load(self) -> type[Jobs]:
        return self._plugin


SPREAD = [Entry(Spread)]
