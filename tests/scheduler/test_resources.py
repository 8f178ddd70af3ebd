"""Resource names anybody can write: only what nodes offer has a column, and nobody else pays for the rest."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.scheduler.engine.diagnosis import Diagnosis
from koord.scheduler.engine.placement import Outcome, Placed
from koord.scheduler.engine.resources import FIRST, Resources
from koord.scheduler.engine.window import Window
from koord.scheduler.plugins.fit import MOST_UNLISTED
from koord.scheduler.queueing.queue import QueueSettings
from koord.scheduler.settings import SchedulerSettings
from tests.scheduler.clusters import Bed, requests
from tests.scheduler.outside import outside, scheduler, until

ODD = "example.com/odd"
FAST = SchedulerSettings(queue=QueueSettings(initial_backoff_s=0.1, max_backoff_s=0.3))


def _asking(names: dict[str, int]) -> dict[str, object]:
    return requests(cpu="100m", resources={name: str(amount) for name, amount in names.items()})


def test_names_that_nothing_offers_give_no_column() -> None:
    bed = Bed()
    bed.node("a")
    bed.node("b")
    shape, columns = bed.cluster.usage.shape, len(bed.cluster.resources)
    for number in range(300):
        outcome = bed.engine.place_one(
            bed.pod(f"p{number}", _asking({f"example.com/r{number}-{n}": 1 for n in range(9)}))
        )
        assert isinstance(outcome, Diagnosis)
    outcome = bed.engine.place_one(bed.pod("two", _asking({ODD: 2, "example.com/even": 1})))
    assert isinstance(outcome, Diagnosis) and not outcome.resolvable
    assert (
        outcome.message == "0/2 nodes are available: 2 Insufficient example.com/even, 2 Insufficient example.com/odd."
    )
    assert outcome.plugins == {"NodeResourcesFit"}
    assert (bed.cluster.usage.shape, len(bed.cluster.resources)) == (shape, columns)


def test_a_pod_of_thousands_of_names_costs_no_pass_for_each() -> None:
    bed = Bed()
    bed.node("a")
    wide = bed.pod("wide", _asking({f"example.com/r{n:05}": 1 for n in range(20_000)}))
    outcome = bed.engine.place_one(wide)
    assert isinstance(outcome, Diagnosis) and len(outcome.reasons) == MOST_UNLISTED
    assert outcome.message.startswith("0/1 nodes are available: 1 Insufficient example.com/r00000, ")
    # Bound by somebody else it takes what has a column, and nothing of the rest.
    bed.cluster.assign("wide", wide.class_.template.footprint, "a")
    assert isinstance(bed.engine.place_one(bed.pod("next", requests(cpu="3"))), Placed)
    assert len(bed.cluster.usage) < 20


def test_a_name_counts_from_the_moment_a_node_offers_it() -> None:
    bed = Bed()
    bed.node("a")
    asking = _asking({ODD: 2})
    first, second = bed.pod("first", asking), bed.pod("second", asking)
    assert isinstance(bed.engine.place_one(first), Diagnosis)
    # Another scheduler has bound a pod that asks for it all the same: it counts once there is something to count.
    bed.cluster.assign("theirs", bed.pod("theirs", _asking({ODD: 1})).class_.template.footprint, "a")
    bed.node("a", more={ODD: 3})
    assert isinstance(bed.engine.place_one(first), Placed)
    refused = bed.engine.place_one(second)
    assert isinstance(refused, Diagnosis)
    assert refused.message == "0/1 nodes are available: 1 Insufficient example.com/odd." and refused.resolvable
    bed.cluster.unassign("theirs")
    bed.node("a", more={ODD: 4})
    assert isinstance(bed.engine.place_one(second), Placed)


def test_the_column_of_a_name_that_left_goes_to_another() -> None:
    bed = Bed()
    bed.node("a", more={ODD: 4})
    bed.node("b")
    pod, other = bed.pod("pod", _asking({ODD: 1})), bed.pod("other", _asking({"example.com/other": 3}))
    assert isinstance(bed.engine.place_one(pod), Placed)
    assert bed.cluster.correct("a", ODD, 1)
    number = bed.cluster.resources.find(ODD)
    bed.node("a")
    assert bed.cluster.resources.find(ODD) is None
    bed.node("b", more={"example.com/other": 3})
    assert bed.cluster.resources.find("example.com/other") == number
    refused = bed.engine.place_one(bed.pod("late", _asking({ODD: 1})))
    assert isinstance(refused, Diagnosis) and "2 Insufficient example.com/odd" in refused.message
    placed = bed.engine.place_one(other)
    assert isinstance(placed, Placed) and placed.node == "b"
    bed.cluster.uncorrect("a")
    bed.engine.forget(pod.uid)
    bed.engine.forget(other.uid)
    bed.cluster.remove_node("b")
    assert bed.cluster.resources.find("example.com/other") is None
    assert not bed.cluster.usage[FIRST + 3 :].any()


def test_names_for_which_there_is_no_column_get_one_that_becomes_free() -> None:
    resources = Resources(most=5)
    assert list(resources.offer(["x"])) == ["x"]
    assert resources.offer(["y"]) == {} and resources.find("y") is None
    assert resources.withdraw(["x"]) == [4]
    # The next node that offers it brings it in, also for the one that did before.
    assert resources.offer(["y"]) == {"y": 1}


def test_runs_of_pods_that_ask_for_a_name_without_a_column() -> None:
    bed = Bed()
    bed.cluster.resources = Resources(most=4)
    for number in range(3):
        bed.node(f"n{number}", more={f"example.com/{number}": 3})
    outcomes: list[Outcome] = []
    bed.engine.place([bed.pod(f"p{number}", _asking({"example.com/1": 1})) for number in range(6)], outcomes)
    assert [one.node for one in outcomes[:3] if isinstance(one, Placed)] == ["n1"] * 3
    assert [one.message for one in outcomes[3:] if isinstance(one, Diagnosis)] == [
        "0/3 nodes are available: 3 Insufficient example.com/1."
    ] * 3
    assert bed.engine.forget("uid-default-p0")
    assert isinstance(bed.engine.place_one(bed.pod("again", _asking({"example.com/1": 1}))), Placed)


async def test_what_no_node_offers_waits_for_a_node_that_does(nats_url: str, redis_url: str, cluster: str) -> None:
    asking: dict[str, Any] = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/x": "2"}}}]
    }
    async with outside(nats_url, redis_url, cluster) as world:
        await world.node("n0")
        await world.node("n1")
        await world.listed()
        async with scheduler(nats_url, redis_url, cluster, FAST):
            await world.pod("odd", **asking)
            await until(lambda: world.told("odd"), "told")
            helpless = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
            assert world.told("odd") == [f"0/2 nodes are available: 2 Insufficient example.com/x. {helpless}"]
            await world.node("n1", more={"example.com/x": "3"})
            await until(lambda: world.node_of("odd") == "n1", "bound where it is offered")
            await world.pod("next", **asking)
            await until(lambda: world.told("next"), "told")
            helpless = (
                "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
                "1 Preemption is not helpful for scheduling."
            )
            assert world.told("next") == [f"0/2 nodes are available: 2 Insufficient example.com/x. {helpless}"]
            items = await world.ledger.items("node/")
            assert items["node/n1"].used["example.com/x"] == 2


NAMES = ("r0", "r1", "r2")
_maps = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5), max_size=3)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from("ab"), _maps),
        st.tuples(st.just("gone"), st.sampled_from("ab"), st.just({})),
        st.tuples(st.just("pod"), st.sampled_from("ab"), _maps),
        st.tuples(st.just("end"), st.sampled_from("ab"), st.just({})),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(_steps, st.integers(4, 8))
def test_columns_say_what_nodes_and_pods_say(steps: list[tuple[str, str, dict[str, int]]], most: int) -> None:
    """After any history, whatever columns were given, taken and given again."""
    bed = Bed()
    bed.cluster.resources = Resources(most)
    nodes: dict[str, dict[str, int]] = {}
    pods: list[tuple[str, str, dict[str, int]]] = []
    for serial, (what, node, amounts) in enumerate(steps):
        if what == "node":
            nodes[node] = amounts
            bed.node(node, more=amounts)
        elif what == "gone":
            nodes.pop(node, None)
            bed.cluster.remove_node(node)
        elif what == "pod":
            pods.append((f"p{serial}", node, amounts))
            bed.cluster.assign(f"p{serial}", bed.pod(f"p{serial}", _asking(amounts)).class_.template.footprint, node)
        elif pods:
            bed.cluster.unassign(pods.pop(0)[0])
    usage, allocatable = bed.cluster.usage, bed.cluster.allocatable
    listed = [name for name in NAMES if bed.cluster.resources.find(name) is not None]
    offered = {name for amounts in nodes.values() for name in amounts}
    assert set(listed) <= offered and (most < 7 or set(listed) == offered)
    used = {FIRST + bed.cluster.resources.number(name) for name in listed}
    for node, amounts in nodes.items():
        row = bed.cluster.index.find(node)
        for name in listed:
            field = FIRST + bed.cluster.resources.number(name)
            taken = sum(wanted.get(name, 0) for _, on, wanted in pods if on == node)
            assert allocatable[field, row] == amounts.get(name, 0)
            assert usage[field, row] == amounts.get(name, 0) - taken
        for name in offered.difference(listed):
            taken = sum(wanted.get(name, 0) for _, on, wanted in pods if on == node)
            free, offers = Window.full(bed.cluster).unlisted(name)
            assert offers[row] == amounts.get(name, 0)
            assert free[row] == (amounts[name] - taken if name in amounts else 0)
    unused = [field for field in range(FIRST + 3, len(usage)) if field not in used]
    assert not np.any(usage[unused]) and not np.any(allocatable[unused])
