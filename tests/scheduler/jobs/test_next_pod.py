"""Who is tried next where a plugin says so: spec 10 section 3.4 (NextPod)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest

from koord.scheduler.engine.placement import PodInfo
from koord.scheduler.framework.contract import NextPodPlugin
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import PluginSettings, SchedulerSettings
from tests.scheduler.outside import outside, scheduler, until


class Next(NextPodPlugin):
    name: ClassVar[str] = "Next"
    choose: ClassVar[Callable[[Mapping[str, PodInfo]], str | None]]
    times: ClassVar[int] = 0

    def __init__(self, settings: Mapping[str, Any]) -> None:
        pass

    def next_pod(self, waiting: Mapping[str, PodInfo]) -> str | None:
        type(self).times += 1
        return type(self).choose(waiting)


class Second(Next):
    name: ClassVar[str] = "Second"


class Entry:
    def __init__(self, plugin: type[Next]) -> None:
        self.name, self._plugin = plugin.name, plugin

    def load(self) -> type[Next]:
        return self._plugin


SETTINGS = SchedulerSettings(
    batch=1,
    queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3),
    plugins=PluginSettings(extra={"Next": {}, "Second": {}}),
)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entries = [Entry(Next), Entry(Second)]
    monkeypatch.setattr("koord.scheduler.plugins.profile.entry_points", lambda group: entries)
    monkeypatch.setattr(Next, "times", 0)
    monkeypatch.setattr(Second, "times", 0)
    yield


def named(name: str) -> Callable[[Mapping[str, PodInfo]], str | None]:
    return lambda waiting: next((uid for uid, pod in waiting.items() if pod.ref.name == name), None)


async def test_the_named_pod_comes_before_all_others(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Next, "choose", staticmethod(named("last")), raising=False)
    monkeypatch.setattr(Second, "choose", staticmethod(named("p0")), raising=False)
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="2")
        for number in range(3):
            await world.pod(f"p{number}", priority=1000)
        await world.pod("last")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            await until(lambda: len(world.bound) == 2, "the node is full")
            assert world.node_of("last") == "n0", "low priority, and first all the same"
            assert Next.times > 0
            assert Second.times == 0


async def test_a_hopeless_pod_and_a_plugin_that_raises_stop_nobody(
    nats_url: str, redis_url: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Next, "choose", staticmethod(named("hopeless")), raising=False)
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="4")
        await world.pod("hopeless", cpu="64")
        await world.pod("p0")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            await until(lambda: world.told("hopeless") and world.node_of("p0"), "both had their turn")

            def fail(waiting: Mapping[str, PodInfo]) -> str | None:
                raise RuntimeError("no idea")

            monkeypatch.setattr(Next, "choose", staticmethod(fail))
            await world.pod("p1")
            await until(lambda: world.node_of("p1"), "the queue's order counts")
            monkeypatch.setattr(Next, "choose", staticmethod(lambda waiting: "unknown"))
            await world.pod("p2")
            await until(lambda: world.node_of("p2"), "unknown pods are nobody")
