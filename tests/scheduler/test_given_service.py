"""What plugins watch and give, through the service: a third party's plugin that hands out the tokens of nodes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest

from koord.columns.matrix import Bools
from koord.kube.resources import NODE_METRICS, Resource
from koord.ledger.client import Ledger
from koord.ledger.model import ClaimRequest, Member, Slot
from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.window import Window
from koord.scheduler.framework.contract import (
    Allocation,
    AssignedPod,
    AssignPlugin,
    FilterPlugin,
    PodRef,
    Reason,
    ReservePlugin,
    Template,
    Terms,
    TickPlugin,
    Watch,
    WatchPlugin,
)
from koord.scheduler.framework.events import NODE_METRIC_EVENTS, ClusterEvent
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import PluginSettings, SchedulerSettings
from koord.telemetry.metrics import render
from tests.scheduler.outside import Outside, outside, scheduler, until

TOKEN = "example.com/token"
SETTINGS = SchedulerSettings(
    queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3), plugins=PluginSettings(extra={"Tokens": {}})
)


class NodeTokens(msgspec.Struct):
    """Which tokens a node has; told in what the test publishes as its metrics."""

    metadata: dict[str, Any]
    tokens: list[str] = []


class Tokens(FilterPlugin, ReservePlugin, AssignPlugin, WatchPlugin, TickPlugin):
    """Each pod gets one token of its node, for itself alone."""

    name: ClassVar[str] = "Tokens"
    events: ClassVar[frozenset[ClusterEvent]] = NODE_METRIC_EVENTS | {ClusterEvent.POD_DELETE}

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.tokens: dict[str, list[str]] = {}
        self.given: dict[str, tuple[str, str]] = {}
        self.ticks: list[float] = []
        self.asked: list[tuple[ClusterEvent, object]] = []
        made.append(self)

    def attach(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.free = cluster.column(dtype=np.int32)

    def filter_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return "one"

    def filter(self, terms: Terms, window: Window) -> Bools:
        return window.column(self.free) > 0

    def reasons(self, terms: Terms, window: Window) -> list[Reason]:
        return [Reason("node(s) had no token", ~self.filter(terms, window))]

    def helps(self, template: Template, event: ClusterEvent, subject: object) -> bool:
        self.asked.append((event, subject))
        if event in NODE_METRIC_EVENTS and subject is not None:
            # Others that watch the same objects have types of their own for them, and tell of them in the same events.
            return isinstance(subject, NodeTokens) and bool(subject.tokens)
        return True

    def reserve_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return "one"

    def reserve(self, pod: PodRef, terms: Terms, row: int) -> Allocation | str:
        node = self.cluster.index.name(row) or ""
        left = [token for token in self.tokens[node] if (node, token) not in self.given.values()]
        if not left:
            return "no token"
        self.given[pod.uid] = (node, left[0])
        self._count(node)
        return Allocation({TOKEN: left[0]}, slots=(f"token/{node}/{left[0]}",))

    def unreserve(self, uid: str) -> None:
        given = self.given.pop(uid, None)
        if given is not None:
            self._count(given[0])

    def assigned(self, pod: AssignedPod) -> None:
        token = pod.ref.annotations.get(TOKEN)
        if token is not None:
            self.given[pod.ref.uid] = (pod.node, token)
            self._count(pod.node)

    def unassigned(self, pod: AssignedPod) -> None:
        if TOKEN in pod.ref.annotations:
            self.unreserve(pod.ref.uid)

    def watches(self) -> tuple[Watch, ...]:
        return (Watch(NODE_METRICS, NodeTokens),)

    def changed(
        self, resource: Resource, key: str, old: NodeTokens | None, new: NodeTokens | None
    ) -> Iterable[ClusterEvent]:
        if new is not None and "" in new.tokens:
            raise ValueError(f"NodeMetric {key}: tokens: must not be empty")
        self.tokens[key] = new.tokens if new is not None else []
        self._count(key)
        return [ClusterEvent.NODE_METRIC_ADD if old is None else ClusterEvent.NODE_METRIC_UPDATE]

    def tick(self, now: float) -> Iterable[ClusterEvent]:
        self.ticks.append(now)
        return ()

    def _count(self, node: str) -> None:
        row = self.cluster.index.find(node)
        if row is not None:
            taken = sum(where == node for where, _ in self.given.values())
            self.free.data[row] = len(self.tokens.get(node, ())) - taken
            self.cluster.touch(row)


made: list[Tokens] = []


class Point:
    name = "Tokens"

    def load(self) -> type[Tokens]:
        return Tokens


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("koord.scheduler.plugins.profile.entry_points", lambda group: [Point()])
    made.clear()
    yield


async def tell(world: Outside, node: str, *tokens: str, type_: Any = "ADDED") -> None:
    version = world.version()
    body = {"metadata": {"name": node, "uid": f"uid-{node}"}, "tokens": list(tokens)}
    await world.publisher.publish(NODE_METRICS, type_, "", node, version, msgspec.json.encode(body))


async def test_what_a_plugin_gives_is_written_with_the_binding_and_comes_back(
    nats_url: str, redis_url: str, cluster: str
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        for number in range(3):
            await world.node(f"n{number}")
        await tell(world, "n0", "a")
        await tell(world, "n1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            [plugin] = made
            await world.pod("p0")
            await until(lambda: world.node_of("p0") == "n0", "the one token is given")
            assert plugin.ticks
            assert world.binds[0].members[0].annotations[TOKEN] == "a"
            assert world.pods["default/p0"]["metadata"]["annotations"][TOKEN] == "a"
            await world.pod("p1")
            await until(lambda: world.told("p1"), "nothing is left")
            assert world.told("p1") == [
                "0/3 nodes are available: 3 node(s) had no token. preemption: 0/3 nodes are available: "
                "3 No preemption victims found for incoming pod."
            ]

            # Something about a node without a token helps nobody; the plugin says so and nothing is tried.
            await tell(world, "n2", type_="MODIFIED")
            await until(lambda: any(getattr(s, "tokens", None) == [] for _, s in plugin.asked), "asked")
            # What is not valid gets an Event, and what was known of it stays.
            await tell(world, "n1", "", type_="MODIFIED")
            await until(lambda: world.told("n1", "InvalidNodeMetric"), "told")
            assert world.told("n1", "InvalidNodeMetric") == ["NodeMetric n1: tokens: must not be empty"]
            await tell(world, "n1", "b", type_="MODIFIED")
            await until(lambda: world.node_of("p1") == "n1", "a token came")

            await world.pod("p2")
            await until(lambda: world.told("p2"), "nothing is left")
            await world.delete("p0")
            await until(lambda: world.node_of("p2") == "n0", "the token came back")
            assert world.pods["default/p2"]["metadata"]["annotations"][TOKEN] == "a"


async def test_what_another_scheduler_has_is_not_given_twice(nats_url: str, redis_url: str, cluster: str) -> None:
    async with (
        outside(nats_url, redis_url, cluster) as world,
        await Ledger.connect(redis_url, cluster, "another") as another,
    ):
        for number, cpu in enumerate(("64", "4")):
            await world.node(f"n{number}", cpu=cpu)
            await tell(world, f"n{number}", "a")
        await world.listed()
        rival = ClaimRequest("another-1", (Member("x", "default", "x", "n0", ()),), (Slot("token/n0/a", "x"),))
        [answer] = await another.claim([rival])
        assert answer.status == "ok"
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            await world.pod("p0")
            await until(lambda: world.node_of("p0") == "n1", "the other node's token is given")
            [plugin] = made
            assert list(plugin.given.values()) == [("n1", "a")]
            assert 'koord_ledger_conflict_total{item="token"}' in render().decode()
