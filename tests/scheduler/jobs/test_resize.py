"""What pods take on their node where a plugin changes it: spec 10 section 3.4 (ResizePod)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest

from koord.scheduler.engine.cluster import Cluster
from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed
from koord.scheduler.framework.contract import PodRef, ResizePlugin, Template, Terms
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import PluginSettings, SchedulerSettings
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.outside import outside, scheduler, until
from tests.scheduler.test_gangs_service import holds_cpu

BIG = "example.com/big"
Answer = Callable[[Mapping[str, int], str], Any]


class Resize(ResizePlugin):
    """What ``answer`` makes of pods with the label."""

    name: ClassVar[str] = "Resize"
    pod_keys: ClassVar[tuple[str, ...]] = (BIG,)
    answer: Answer = staticmethod(lambda request, node: None)

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        pass

    def resize_terms(self, template: Template, cluster: Cluster) -> Terms | None:
        return template.labels.get(BIG)

    def resize(self, pod: PodRef, terms: Terms, request: Mapping[str, int], node: str) -> Mapping[str, int] | None:
        found: Mapping[str, int] | None = self.answer(request, node)
        return found


def bed(answer: Answer, *, gate: bool = True) -> Bed:
    plugin = Resize()
    plugin.answer = answer
    made = Bed(extra=(plugin,))
    if gate:
        made.profile.allow_resizing()
    return made


def test_what_is_assumed_and_claimed_is_the_changed_amount() -> None:
    made = bed(lambda request, node: {**request, "cpu": 3000})
    made.node("n0")
    pod = made.pod("p", requests("1"), labels={BIG: "x"})
    empty = made.cluster.usage.copy()
    outcome = made.engine.place_one(pod)
    assert isinstance(outcome, Placed)
    assert outcome.request is not None
    assert outcome.request["cpu"] == 3000
    counted = made.engine.counted(pod.uid)
    assert counted is not None
    assert counted.footprint.request["cpu"] == 3000
    assert pod.class_.template.request["cpu"] == 1000, "the pod itself is as it was"
    assert (made.cluster.usage != empty).any()
    made.engine.forget(pod.uid)
    assert (made.cluster.usage == empty).all()


def test_other_pods_and_runs_are_as_ever() -> None:
    made = bed(lambda request, node: {**request, "cpu": 2000})
    for number in range(4):
        made.node(f"n{number}")
    outcomes: list[Any] = []
    plain = [made.pod(f"p{number}", requests("1")) for number in range(6)]
    big = [made.pod(f"b{number}", requests("1"), labels={BIG: "x"}) for number in range(6)]
    assert made.engine.place(plain, outcomes) == 6
    assert all(isinstance(each, Placed) and each.request is None for each in outcomes)
    more: list[Any] = []
    assert made.engine.place(big, more) == 6
    placed = [each for each in more if isinstance(each, Placed)]
    assert len(placed) == 4, "of 16 cpus 6 are taken, and each node has room for one or two"
    assert all(each.request is not None and each.request["cpu"] == 2000 for each in placed)


def test_a_node_without_room_for_it_is_passed_over() -> None:
    made = bed(lambda request, node: {**request, "cpu": 6000})
    made.node("small", cpu=4000)
    made.node("large", cpu=8000)
    pods = [made.pod(f"p{number}", requests("1"), labels={BIG: "x"}) for number in range(2)]
    first, second = (made.engine.place_one(pod) for pod in pods)
    assert isinstance(first, Placed)
    assert first.node == "large"
    assert isinstance(second, Diagnosis)
    assert second.message == "0/2 nodes are available: 2 Insufficient cpu."
    assert "Resize" in second.plugins


@pytest.mark.parametrize("amount", [-1, 1.5, True, "1"])
def test_what_is_no_amount_is_an_error(amount: Any) -> None:
    made = bed(lambda request, node: {"cpu": amount})
    made.node("n0")
    outcome = made.engine.place_one(made.pod("p", labels={BIG: "x"}))
    assert isinstance(outcome, Diagnosis)
    assert outcome.error
    assert outcome.message == (
        f'running "Resize" ResizePod plugin: ValueError: cpu: {amount!r} is not a whole number of at least 0'
    )
    assert not made.engine.assumed_count


def test_without_the_gate_nobody_is_asked() -> None:
    made = bed(lambda request, node: {"cpu": "never"}, gate=False)
    made.node("n0")
    outcome = made.engine.place_one(made.pod("p", labels={BIG: "x"}))
    assert isinstance(outcome, Placed)
    assert outcome.request is None


class Entry:
    name = "Resize"

    def load(self) -> type[Resize]:
        return Resize


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("koord.scheduler.plugins.profile.entry_points", lambda group: [Entry()])
    monkeypatch.setattr(Resize, "answer", staticmethod(lambda request, node: {**request, "cpu": 3000}))
    yield


SETTINGS = SchedulerSettings(
    queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3),
    plugins=PluginSettings(extra={"Resize": {}}),
    feature_gates={"ResizePod": True},
)


async def test_the_claim_has_it(nats_url: str, redis_url: str, cluster: str, installed: None) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="4")
        await world.listed()
        world.decide = lambda bind: "drop"
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            await world.pod("p0", labels={BIG: "x"})
            await holds_cpu(world, 3000)
            body = world.pods["default/p0"]
            body["metadata"]["labels"]["changed"] = "yes"
            await world.show(body)
            await world.pod("p1", cpu="2")
            await until(lambda: world.told("p1"), "there is no room beside it")
            assert world.told("p1")[0].startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_seen_bound_it_counts_with_what_it_asks_for(
    nats_url: str, redis_url: str, cluster: str, installed: None
) -> None:
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0", cpu="4")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, SETTINGS):
            await world.pod("p0", labels={BIG: "x"})
            await until(lambda: world.node_of("p0"), "bound")
            await world.pod("p1", cpu="3")
            await until(lambda: world.node_of("p1"), "there is room beside it, here and in the ledger")
            items = await world.ledger.items("node/")
            assert items["node/n0"].used["cpu"] == 4000
