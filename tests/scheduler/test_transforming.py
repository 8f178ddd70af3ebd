"""Plugins that change pods before others look, and those that hear of pods that found no place."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.framework.contract import RefusedPlugin, Template, TransformPlugin
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import PluginSettings, SchedulerSettings
from koord.telemetry.metrics import render
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.outside import outside, scheduler, until

ANYWHERE = "example.com/anywhere"


class Loosen(TransformPlugin):
    """Pods with the label need no node selector."""

    name: ClassVar[str] = "Loosen"
    pod_keys: ClassVar[tuple[str, ...]] = (ANYWHERE,)
    asked: int = 0
    change: Callable[[Template], Any] = staticmethod(lambda template: replace(template.spec, node_selector={}))

    def transform(self, template: Template) -> Template:
        self.asked += 1
        if ANYWHERE not in template.labels:
            return template
        found = self.change(template)
        if found is None or isinstance(found, Template):
            return found  # type: ignore[return-value]
        return replace(template, spec=found)


def selecting(bed: Bed, name: str, *, loose: bool, cpu: str = "1") -> PodInfo:
    spec = requests(cpu, nodeSelector={"zone": "a"})
    return bed.pod(name, spec, labels={ANYWHERE: "x"} if loose else {})


def test_all_plugins_see_what_it_makes_of_a_pod() -> None:
    plugin = Loosen()
    bed = Bed(extra=(plugin,))
    bed.node("n0", labels={"zone": "b"})
    tight, loose = selecting(bed, "p0", loose=False), selecting(bed, "p1", loose=True)
    refused, placed = bed.engine.place_one(tight), bed.engine.place_one(loose)
    assert isinstance(refused, Diagnosis)
    assert isinstance(placed, Placed)
    assert plugin.asked == 2
    bed.engine.place_one(selecting(bed, "p2", loose=True))
    assert plugin.asked == 2, "once for each class"


def test_what_a_pod_takes_stays() -> None:
    plugin = Loosen()
    plugin.change = lambda template: replace(
        template, footprint=Bed().pod("other", requests("3")).class_.template.footprint
    )
    bed = Bed(extra=(plugin,))
    bed.node("n0", labels={"zone": "a"}, cpu=2000)
    assert isinstance(bed.engine.place_one(selecting(bed, "p0", loose=True)), Placed)
    counted = bed.engine.counted("uid-default-p0")
    assert counted is not None
    assert counted.footprint.request["cpu"] == 1000


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda template: template.nothing, "AttributeError: 'Template' object has no attribute 'nothing'"),
        (lambda template: None, "TypeError: transform answers NoneType, not Template"),
    ],
)
def test_one_that_fails_is_named_and_asked_again(change: Any, text: str) -> None:
    plugin = Loosen()
    plugin.change = change
    bed = Bed(extra=(plugin,))
    bed.node("n0", labels={"zone": "b"})
    pod = selecting(bed, "p0", loose=True)
    outcome = bed.engine.place_one(pod)
    assert isinstance(outcome, Diagnosis)
    assert outcome.error
    assert outcome.message == f'running "Loosen" BeforePreFilter plugin: {text}'
    plugin.change = Loosen.change
    assert isinstance(bed.engine.place_one(pod), Placed)


class Listener(RefusedPlugin):
    name: ClassVar[str] = "Listener"
    heard: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, settings: Mapping[str, Any]) -> None:
        pass

    def refused(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        self.heard.append((pod.ref.name, diagnosis.message))
        raise RuntimeError("too much")


class Entry:
    name = "Listener"

    def load(self) -> type[Listener]:
        return Listener


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("koord.scheduler.plugins.profile.entry_points", lambda group: [Entry()])
    Listener.heard.clear()
    yield


async def test_who_hears_of_refusals_hears_the_whole_text(
    nats_url: str, redis_url: str, cluster: str, installed: None
) -> None:
    settings = SchedulerSettings(
        queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3),
        plugins=PluginSettings(extra={"Listener": {}}),
    )
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, settings):
            await world.pod("p0", cpu="64")
            await until(lambda: world.told("p0") and Listener.heard, "told")
            assert Listener.heard[0] == ("p0", world.told("p0")[0])
            assert "preemption: " in Listener.heard[0][1]
            await world.pod("p1")
            await until(lambda: world.node_of("p1"), "its error stops nobody")
            assert 'koord_scheduler_plugin_errors_total{plugin="Listener"}' in render().decode()
