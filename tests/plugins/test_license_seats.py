"""The example plugin on the bench: what it answers, against a plain reference, and the contract after each step."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from licenseseats.args import GIVEN, PRODUCT, SEATS, given_seats
from licenseseats.plugin import LICENSE_POOLS, NO_POOL, NO_SEAT, LicenseSeats

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Placed, PodInfo
from koord.scheduler.framework.arguments import ConfigError
from koord.scheduler.framework.contract import Plugin
from koord.scheduler.framework.events import ClusterEvent
from koord.scheduler.testkit.bench import PluginBench
from koord.scheduler.testkit.contract import check

SITES = ("east", "west")


def pool(bench: PluginBench, name: str, seats: int, product: str = "cad", **selector: str) -> list[ClusterEvent]:
    spec = {"product": product, "seats": seats, "nodeSelector": selector}
    return bench.object(LICENSE_POOLS, name, {"metadata": {"name": name}, "spec": spec})


def licensed(bench: PluginBench, seats: int = 1, product: str = "cad") -> PodInfo:
    return bench.pod(annotations={PRODUCT: product, SEATS: str(seats)})


@pytest.fixture
def bench() -> PluginBench:
    bench = PluginBench(LicenseSeats({}))
    for number in range(4):
        bench.node(f"n{number}", labels={"site": SITES[number % 2]})
    return bench


def test_a_pod_gets_seats_of_a_pool_that_serves_its_node(bench: PluginBench) -> None:
    pool(bench, "east", 3, site="east")
    pod = licensed(bench, 2)
    assert bench.scores(pod) == {"n0": 100, "n2": 100}
    placed = bench.place(pod)
    assert isinstance(placed, Placed)
    assert placed.node in ("n0", "n2")
    found = given_seats(placed.annotations[GIVEN])
    assert found is not None
    assert set(placed.slots) == {f"license/east/{seat}" for seat in found[1]}
    check(bench, licensed(bench))
    again = licensed(bench, 2)
    refused = bench.place(again)
    assert isinstance(refused, Diagnosis)
    assert bench.refusals(again) == {
        f"LicenseSeats: {NO_POOL}": ("n1", "n3"),
        f"LicenseSeats: {NO_SEAT}": ("n0", "n2"),
    }
    bench.end(pod)
    assert isinstance(bench.place(again), Placed)


def test_seats_come_back_from_the_annotations_of_bound_pods(bench: PluginBench) -> None:
    bench.bound("old", "n0", {PRODUCT: "cad", GIVEN: "east:0,2"})  # told before the pool, as after a restart
    pool(bench, "east", 3, site="east")
    one, two = licensed(bench), licensed(bench)
    placed = bench.place(one)
    assert isinstance(placed, Placed)
    assert placed.annotations[GIVEN] == "east:1"
    assert isinstance(bench.place(two), Diagnosis)
    bench.bind(one, placed)
    bench.end("old")
    placed = bench.place(two)
    assert isinstance(placed, Placed)
    assert placed.annotations[GIVEN] in ("east:0", "east:2")
    bench.end(one)
    assert bench.scores(licensed(bench)) == {"n0": 66, "n2": 66}
    check(bench, licensed(bench))


def test_a_seat_that_another_replica_gave_meanwhile_stays_its_pods(bench: PluginBench) -> None:
    """Both gave the same seat; the other's pod is shown bound before our claim is refused."""
    pool(bench, "all", 1)
    ours = licensed(bench)
    placed = bench.place(ours)
    assert isinstance(placed, Placed)
    bench.bound("theirs", "n3", {PRODUCT: "cad", GIVEN: placed.annotations[GIVEN]})
    bench.end(ours)
    assert bench.scores(licensed(bench)) == {}
    check(bench, licensed(bench))
    bench.end("theirs")
    assert isinstance(bench.place(licensed(bench)), Placed)


def test_pods_that_need_none_are_not_looked_at(bench: PluginBench) -> None:
    pod = bench.pod()
    assert not pod.class_.compiled(bench.cluster, bench.engine.verdicts).steps
    assert isinstance(bench.place(pod), Placed)


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({PRODUCT: "cad", SEATS: "lots"}, 'annotation licenses.example.com/seats: "lots": must be a whole number'),
        ({PRODUCT: "cad", SEATS: "65"}, '"65": must be a whole number from 1 to 64'),
        ({PRODUCT: ""}, "annotation licenses.example.com/product: must not be empty"),
    ],
)
def test_what_a_pod_says_badly(bench: PluginBench, annotations: dict[str, str], text: str) -> None:
    pool(bench, "all", 3)
    outcome = bench.place(bench.pod(annotations=annotations))
    assert isinstance(outcome, Diagnosis)
    assert text in outcome.message


def test_a_pool_that_is_not_valid_stays_as_it_was(bench: PluginBench) -> None:
    pool(bench, "all", 1)
    with pytest.raises(ValueError, match=r"LicensePool all: spec\.seats: -1 is not in 0\.\.1000"):
        pool(bench, "all", -1)
    with pytest.raises(ValueError, match=r"LicensePool all: spec\.product: must not be empty"):
        pool(bench, "all", 1, product="")
    assert isinstance(bench.place(licensed(bench)), Placed)


def test_arguments_by_path() -> None:
    with pytest.raises(ConfigError) as caught:
        LicenseSeats({"apiVersion": "v1", "defaultSeats": 0, "scoringStrategy": "Best"})
    assert list(map(str, caught.value.problems)) == [
        "defaultSeats: Invalid value: 0: must be in 1..64",
        'scoringStrategy: Unsupported value: "Best": supported values: "MostFree", "LeastFree"',
    ]
    with pytest.raises(ConfigError, match=r"seats: unknown field; known: defaultSeats, scoringStrategy"):
        LicenseSeats({"seats": 1})


def test_an_event_wakes_whom_it_may_help(bench: PluginBench) -> None:
    [plugin] = bench.profile.plugins
    assert pool(bench, "all", 1) == [ClusterEvent.PLUGIN_OBJECT]
    needs_two = licensed(bench, 2).class_.template
    shown = bench._objects["LicenseSeats", f"{LICENSE_POOLS.token}/all"]
    assert not plugin.helps(needs_two, ClusterEvent.PLUGIN_OBJECT, shown)
    pool(bench, "all", 2)
    assert plugin.helps(needs_two, ClusterEvent.PLUGIN_OBJECT, shown)
    assert not plugin.helps(needs_two, ClusterEvent.PLUGIN_OBJECT, object())
    pool(bench, "all", 2, site="east")
    node = bench.cluster.nodes
    assert [plugin.helps(needs_two, ClusterEvent.NODE_LABEL, each) for each in node[:2]] == [True, False]
    for name, helpful in (("x", {PRODUCT: "cad"}), ("y", {PRODUCT: "cae"})):
        bench.bound(name, "n0", helpful)
    left = [bench.engine.counted(name) for name in ("x", "y")]
    assert [plugin.helps(needs_two, ClusterEvent.POD_DELETE, pod) for pod in left] == [True, False]


# Against a plain reference ------------------------------------------------------------------------------------------


class Plain:
    """The same rules, node by node, without columns: straight from the description of the plugin."""

    def __init__(self, least: bool) -> None:
        self.least = least
        self.sites: dict[str, str] = {}
        self.pools: dict[str, tuple[str, int, str]] = {}
        self.held: dict[str, tuple[str, tuple[int, ...]]] = {}

    def scores(self, product: str, seats: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for node, site in self.sites.items():
            for name, (offered, total, where) in self.pools.items():
                taken = {seat for pool, given in self.held.values() if pool == name for seat in given}
                free = sum(seat not in taken for seat in range(total))
                if offered == product and where in ("", site) and free >= seats:
                    share = free * 100 // total
                    found[node] = max(found.get(node, 0), 100 - share if self.least else share)
        return found


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 9), st.sampled_from(SITES)),
        st.tuples(st.just("gone"), st.integers(0, 9), st.none()),
        st.tuples(
            st.just("pool"),
            st.integers(0, 3),
            st.none() | st.tuples(st.sampled_from(("cad", "cae")), st.integers(0, 5), st.sampled_from(("", *SITES))),
        ),
        st.tuples(st.just("place"), st.integers(1, 3), st.sampled_from(("cad", "cae"))),
        st.tuples(st.just("end"), st.integers(0, 9), st.none()),
    ),
    min_size=4,
    max_size=24,
)


@settings(max_examples=25, deadline=None)
@given(STEPS, st.sampled_from(("MostFree", "LeastFree")))
def test_it_answers_what_the_plain_rules_say(steps: list[tuple[str, int, Any]], strategy: str) -> None:
    plugin: Plugin = LicenseSeats({"scoringStrategy": strategy})
    bench, plain = PluginBench(plugin), Plain(strategy == "LeastFree")
    running: list[PodInfo] = []
    for number in range(8):  # of fewer nodes all are asked anew whatever changes
        bench.node(f"n{number}", labels={"site": SITES[number % 2]})
        plain.sites[f"n{number}"] = SITES[number % 2]
    for what, number, detail in steps:
        if what == "node":
            bench.node(f"n{number}", labels={"site": detail})
            plain.sites[f"n{number}"] = detail
        elif what == "gone":
            bench.remove_node(f"n{number}")
            plain.sites.pop(f"n{number}", None)
        elif what == "pool":
            _pool(bench, plain, f"p{number}", detail)
        elif what == "place":
            _place(bench, plain, licensed(bench, number, detail), running)
        elif running:
            ended = running.pop(number % len(running))
            bench.end(ended)
            del plain.held[ended.uid]
        for product in ("cad", "cae"):
            for seats in (1, 3):
                asked = licensed(bench, seats, product)
                assert bench.scores(asked) == plain.scores(product, seats)
                check(bench, asked)


def _pool(bench: PluginBench, plain: Plain, name: str, detail: tuple[str, int, str] | None) -> None:
    if detail is None:
        bench.object(LICENSE_POOLS, name, None)
        plain.pools.pop(name, None)
        return
    product, seats, site = detail
    selector: Mapping[str, str] = {"site": site} if site else {}
    pool(bench, name, seats, product, **selector)
    plain.pools[name] = detail


def _place(bench: PluginBench, plain: Plain, pod: PodInfo, running: list[PodInfo]) -> None:
    annotations = pod.ref.annotations
    expected = plain.scores(annotations[PRODUCT], int(annotations[SEATS]))
    outcome = bench.place(pod)
    if not expected:
        assert isinstance(outcome, Diagnosis)
        return
    assert isinstance(outcome, Placed)
    assert expected[outcome.node] == max(expected.values())
    found = given_seats(outcome.annotations[GIVEN])
    assert found is not None
    taken = {seat for pool, given in plain.held.values() if pool == found[0] for seat in given}
    assert taken.isdisjoint(found[1])
    assert len(set(found[1])) == int(annotations[SEATS])
    plain.held[pod.uid] = found
    running.append(pod)
    if len(running) % 2:
        bench.bind(pod, outcome)
